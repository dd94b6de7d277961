from __future__ import annotations

import zlib

import pytest

from roquet.client import Compression, Message, ReceivedMessage
from roquet.client.message import RESERVED_PROPERTIES
from roquet.errors import BadBody, BadMessage
from roquet.model.host import Host
from roquet.model.message import BrokerMessage
from roquet.model.properties import encode_properties
from tests.unit.client.client_kit import received


def test_every_field_becomes_its_property() -> None:
    message = Message(
        "Orders",
        b"x",
        tags="eu",
        keys=["17", "18"],
        properties={"colour": "blue"},
        delay_level=3,
        delay_ms=1500,
        deliver_at_ms=1_700_000_000_000,
        sharding_key="customer-9",
        wait_store_ok=False,
    )
    message.check()
    assert message.wire_properties() == {
        "colour": "blue",
        "KEYS": "17 18",
        "TAGS": "eu",
        "DELAY": "3",
        "TIMER_DELAY_MS": "1500",
        "TIMER_DELIVER_MS": "1700000000000",
        "__SHARDINGKEY": "customer-9",
        "WAIT": "false",
    }


def test_the_maps_of_two_messages_are_their_own() -> None:
    one, other = Message("T", b"x"), Message("T", b"x")
    one.properties["a"] = "1"
    one.wire_properties()["b"] = "2"
    assert other.properties == {}
    assert "b" not in one.wire_properties()


def test_the_client_itself_may_set_reserved_properties() -> None:
    message = Message("T", b"x", system_properties={"TRAN_MSG": "true"})
    message.check()
    assert message.wire_properties()["TRAN_MSG"] == "true"


@pytest.mark.parametrize("name", ["KEYS", "TAGS", "DELAY", "UNIQ_KEY", "TIMER_DELIVER_MS"])
def test_reserved_properties_are_refused(name: str) -> None:
    assert name in RESERVED_PROPERTIES
    with pytest.raises(BadMessage, match=name):
        Message("T", b"x", properties={name: "1"}).check()


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b""),
        Message("T", "text"),  # type: ignore[arg-type]
        Message("T", None),  # type: ignore[arg-type]
        Message("T", b"x", properties={"": "a"}),
        Message("T", b"x", properties={"a": " "}),
        Message("T", b"x", properties={"a": 1}),  # type: ignore[dict-item]
        Message("T", b"x", properties={"a\x01b": "c"}),
        Message("T", b"x", properties={"a": "b\x02c"}),
        Message("T", b"x", tags="a\x02b"),
        Message("T", b"x", keys=["a", "b\x01"]),
    ],
)
def test_what_cannot_be_stored_is_refused(message: Message) -> None:
    with pytest.raises(BadMessage):
        message.check()


def test_a_record_becomes_a_message() -> None:
    sent = {"TAGS": "eu", "KEYS": "17 18", "UNIQ_KEY": "AA"}
    found = received(
        BrokerMessage(
            topic="Orders",
            queue_id=3,
            body=b"paid",
            properties=encode_properties(sent),
            flag=9,
            born_timestamp_ms=1_700_000_000_000,
            born_host=Host.parse("10.0.0.1:5"),
            store_host=Host.parse("10.0.0.2:10911"),
            reconsume_times=2,
        )
    )
    assert (found.topic, found.queue_id, found.queue_offset) == ("Orders", 3, 5)
    assert (found.body, found.raw_body, found.flag) == (b"paid", b"paid", 9)
    assert (found.tags, found.keys, found.properties) == ("eu", ["17", "18"], sent)
    assert (found.message_id, found.transaction_id) == ("AA", "AA")
    assert found.offset_message_id == "0A00000200002A9F0000000000000309"
    assert (str(found.born_host), str(found.store_host)) == ("10.0.0.1:5", "10.0.0.2:10911")
    assert (found.physical_offset, found.reconsume_times) == (777, 2)
    assert found.body_crc == zlib.crc32(b"paid") & 0x7FFFFFFF
    assert found.queue.broker_name == "broker-a"


def test_without_a_unique_id_the_offset_id_is_used() -> None:
    found = received(BrokerMessage(topic="T", queue_id=0, body=b"x"))
    assert found.message_id == found.offset_message_id
    assert (found.tags, found.keys, found.transaction_id) == (None, [], None)


def test_a_compressed_body_is_read_once() -> None:
    message = ReceivedMessage(
        topic="T", raw_body=zlib.compress(b"paid"), sys_flag=Compression.ZLIB.sys_flag
    )
    assert message.body == b"paid"
    assert message.body is message.body


def test_a_body_that_does_not_decompress_raises_and_keeps_its_bytes() -> None:
    message = ReceivedMessage(topic="T", raw_body=b"nonsense", sys_flag=1)
    for _ in range(2):
        with pytest.raises(BadBody) as caught:
            _ = message.body
        assert "zlib" in (caught.value.detail or "")
    assert message.raw_body == b"nonsense"
