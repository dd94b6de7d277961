from __future__ import annotations

from roquet.model.host import LOOPBACK
from roquet.model.message import StoredMessage
from roquet.model.properties import encode_properties


def stored(properties: bytes = b"") -> StoredMessage:
    return StoredMessage(
        topic="T",
        queue_id=0,
        queue_offset=1,
        physical_offset=0x1234,
        store_size=100,
        body=b"x",
        properties_data=properties,
        flag=0,
        sys_flag=0,
        body_crc=0,
        born_timestamp_ms=0,
        born_host=LOOPBACK,
        store_timestamp_ms=0,
        store_host=LOOPBACK,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )


def test_properties_are_read_on_demand() -> None:
    data = encode_properties({"TAGS": "a", "KEYS": "k1  k2 ", "UNIQ_KEY": "u"})
    message = stored(data)
    assert message.tags == "a"
    assert message.keys == ["k1", "k2"]
    assert message.unique_key == "u"
    assert message.properties is message.properties


def test_a_message_without_properties() -> None:
    message = stored()
    assert (message.tags, message.keys, message.unique_key) == (None, [], None)
    assert message == stored()


def test_offset_message_id() -> None:
    assert stored().offset_message_id == "7F00000100002A9F0000000000001234"
