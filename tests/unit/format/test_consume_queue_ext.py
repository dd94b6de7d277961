from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.format import consume_queue_ext as layout
from roquet.format.consume_queue_ext import CqExtUnit

LONG_MIN = -(1 << 63)


def test_bytes_of_a_unit() -> None:
    unit = CqExtUnit(-2, 0x0102030405060708, b"\xaa\xbb\xcc")
    assert layout.pack_unit(unit) == bytes.fromhex(
        "0017 fffffffffffffffe 0102030405060708 0003 aabbcc"
    )
    assert layout.pack_unit(CqExtUnit(1, 2)) == bytes.fromhex(
        "0014 0000000000000001 0000000000000002 0000"
    )


@given(
    tags_code=st.integers(LONG_MIN, -LONG_MIN - 1),
    store_timestamp_ms=st.integers(LONG_MIN, -LONG_MIN - 1),
    bitmap=st.binary(max_size=300),
    before=st.binary(max_size=5),
    after=st.binary(max_size=5),
)
def test_round_trip(
    tags_code: int, store_timestamp_ms: int, bitmap: bytes, before: bytes, after: bytes
) -> None:
    unit = CqExtUnit(tags_code, store_timestamp_ms, bitmap)
    data = layout.pack_unit(unit)
    assert len(data) == unit.size_bytes == layout.UNIT_BYTES_MIN + len(bitmap)
    around = before + data + after
    assert layout.peek_size(around, len(before)) == len(data)
    assert layout.unpack_unit(around, len(before)) == unit
    assert layout.unpack_unit(memoryview(around), len(before)) == unit
    assert layout.unpack_unit(data[:-1]) is None


def test_the_largest_unit() -> None:
    unit = CqExtUnit(1, 2, bytes(layout.UNIT_BYTES_MAX - layout.UNIT_BYTES_MIN))
    assert unit.size_bytes == layout.UNIT_BYTES_MAX
    assert layout.unpack_unit(layout.pack_unit(unit)) == unit


@pytest.mark.parametrize(
    ("size", "bitmap_bytes"),
    [(0, 0), (-1, 0), (-1, -21), (19, -1), (20, 1), (21, 0), (20, -1), (19, 0), (2, -18)],
)
def test_a_head_that_contradicts_itself_is_no_unit(size: int, bitmap_bytes: int) -> None:
    data = struct.pack(">hqqh", size, 1, 2, bitmap_bytes) + bytes(64)
    assert layout.peek_size(data) == 0
    assert layout.unpack_unit(data) is None


def test_the_end_mark_is_no_unit() -> None:
    assert layout.peek_size(layout.END_MARK + bytes(64)) == 0
    assert layout.END_MARK == b"\xff\xff"


@pytest.mark.parametrize(
    ("real_offset", "address"),
    [(0, LONG_MIN), (20, LONG_MIN + 20), (layout.REAL_OFFSET_MAX, -(1 << 31) - 1)],
)
def test_addresses(real_offset: int, address: int) -> None:
    assert layout.address_of(real_offset) == address
    assert layout.real_offset_of(address) == real_offset
    assert layout.is_ext_address(address)


@pytest.mark.parametrize("tags_code", [0, 1, -1, -(1 << 31), (1 << 31) - 1, 1_700_000_000_000])
def test_tags_codes_and_due_times_are_no_addresses(tags_code: int) -> None:
    assert not layout.is_ext_address(tags_code)
