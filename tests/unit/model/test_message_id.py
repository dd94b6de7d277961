from __future__ import annotations

import pytest

from roquet.errors import ProtocolError
from roquet.model.host import Host
from roquet.model.message_id import OffsetMessageId, UniqueId, UniqueIdFactory, offset_message_id


@pytest.mark.parametrize(
    ("host", "offset", "expected"),
    [
        ("127.0.0.1:10911", 0, "7F00000100002A9F0000000000000000"),
        ("10.0.0.2:1", 0x1234, "0A000002000000010000000000001234"),
        ("[::1]:80", 1, "0" * 31 + "1" + "00000050" + "0000000000000001"),
    ],
)
def test_offset_message_id(host: str, offset: int, expected: str) -> None:
    text = offset_message_id(Host.parse(host), offset)
    assert text == expected
    assert OffsetMessageId.parse(text) == (Host.parse(host), offset)
    assert OffsetMessageId.parse(text.lower()) == (Host.parse(host), offset)


@pytest.mark.parametrize(
    "text", ["", "7F", "G" * 32, "0" * 31, "0" * 33, "0" * 55, "00 " * 10 + "00", "é" * 32]
)
def test_bad_ids_are_refused(text: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        OffsetMessageId.parse(text)
    assert raised.value.detail == f"{len(text)} characters"
    with pytest.raises(ProtocolError):
        UniqueId.parse(text)


@pytest.mark.parametrize("ip", [bytes([10, 0, 0, 2]), bytes(range(16))])
def test_parts_of_unique_ids(ip: bytes) -> None:
    factory = UniqueIdFactory(ip, process_id=0x1_2345, loader_hash=-5)
    first, second = factory.make(7), factory.make(7)
    assert first != second
    assert len(first) == 2 * len(ip) + 24
    parts = UniqueId.parse(first)
    assert parts == UniqueId(ip, 0x2345, -5, 7, parts.counter)
    assert UniqueId.parse(second).counter == parts.counter + 1


def test_the_counter_wraps_around() -> None:
    factory = UniqueIdFactory(bytes(4), 1, 1)
    ids = {factory.make(1) for _ in range(1 << 16)}
    assert len(ids) == 1 << 16
    assert factory.make(1) in ids


def test_a_time_beyond_31_bits_still_fits() -> None:
    assert UniqueId.parse(UniqueIdFactory(bytes(4), 1, 1).make(1 << 40)).millis_of_month == 0


def test_the_last_days_of_a_month_keep_their_time() -> None:
    millis_of_month = 31 * 86_400_000 - 1
    text = UniqueIdFactory(bytes(4), 1, 1).make(millis_of_month)
    assert text[20:28] == f"{millis_of_month:08X}"
    assert UniqueId.parse(text).millis_of_month == millis_of_month
