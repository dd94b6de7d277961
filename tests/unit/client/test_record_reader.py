"""The short way from a record to a message gives what the long way gives, or the same error."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.client.message import ReceivedMessage
from roquet.client.record_reader import read_message
from roquet.errors import CorruptRecord
from roquet.format.commit_log import decode_record, encode_record
from roquet.model.host import Host

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.builds(
    Host, st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), INT32
)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    born_host, store_host = draw(HOSTS), draw(HOSTS)
    sys_flag = draw(st.integers(0, 0xFFF)) & ~0x30
    sys_flag |= 0x10 * born_host.is_ipv6 | 0x20 * store_host.is_ipv6
    v2 = draw(st.booleans())
    return encode_record(
        topic=draw(st.binary(max_size=300 if v2 else 255)),
        body=draw(st.binary(max_size=40)),
        properties=draw(st.binary(max_size=40)),
        queue_id=draw(INT32),
        flag=draw(INT32),
        queue_offset=draw(INT64),
        physical_offset=draw(INT64),
        sys_flag=sys_flag,
        born_timestamp_ms=draw(INT64),
        born_host=born_host.pack(),
        store_timestamp_ms=draw(INT64),
        store_host=store_host.pack(),
        reconsume_times=draw(INT32),
        prepared_transaction_offset=draw(INT64),
        v2=v2,
        append_crc=draw(st.booleans()),
    )


def outcome(message: ReceivedMessage) -> tuple[object, ...]:
    return tuple(getattr(message, name) for name in message.__struct_fields__)


def both_ways(data: bytes, start: int) -> None:
    fault = ""
    try:
        expected = ReceivedMessage.of(decode_record(data, start, len(data)), "a")
    except CorruptRecord as error:
        fault = str(error)
    if fault:
        with pytest.raises(CorruptRecord) as caught:
            read_message(data, start, "a")
        assert str(caught.value) == fault
        return
    assert outcome(read_message(data, start, "a")) == outcome(expected)
    assert outcome(read_message(memoryview(data), start, "a")) == outcome(expected)


@given(records(), st.binary(max_size=3), st.binary(max_size=3))
def test_any_record_wherever_it_is(record: bytes, before: bytes, after: bytes) -> None:
    both_ways(before + record + after, len(before))


@given(records(), st.data())
def test_a_record_with_a_wrong_byte_or_too_few(record: bytes, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(record) - 1))
    changed = bytearray(record)
    changed[position] ^= data.draw(st.integers(1, 255))
    both_ways(bytes(changed), 0)
    both_ways(record[:position], 0)


@pytest.mark.parametrize("size", [-1, 0, 90, 2**31 - 1])
def test_sizes_that_cannot_be(size: int) -> None:
    record = encode_record(
        topic=b"T",
        body=b"",
        properties=b"",
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=bytes(8),
        store_timestamp_ms=0,
        store_host=bytes(8),
    )
    both_ways(struct.pack(">i", size) + record[4:], 0)


def test_a_record_with_a_body_length_below_zero() -> None:
    both_ways(
        struct.pack(">iI", 100, 0xDAA320A7) + bytes(76) + struct.pack(">i", -5) + bytes(12), 0
    )
