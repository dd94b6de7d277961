from __future__ import annotations

from roquet.format.consume_queue import (
    DEFAULT_FILE_BYTES,
    FILLER,
    UNIT,
    UNIT_BYTES,
    CqUnit,
    unpack_unit,
)


def test_layout() -> None:
    assert UNIT_BYTES == 20
    assert DEFAULT_FILE_BYTES == 6_000_000
    data = UNIT.pack(0x0102030405060708, 0x11121314, -2)
    assert data.hex() == "0102030405060708" + "11121314" + "fffffffffffffffe"
    assert unpack_unit(data) == CqUnit(0x0102030405060708, 0x11121314, -2)
    assert unpack_unit(memoryview(b"?" + data), 1).size_bytes == 0x11121314


def test_filler_is_written_but_points_nowhere() -> None:
    unit = unpack_unit(FILLER)
    assert FILLER.hex() == "0" * 16 + "7fffffff" + "0" * 16
    assert unit.is_filler
    assert unit.is_written
    assert unit.end_offset == 0


def test_zeros_are_no_entry() -> None:
    unit = unpack_unit(bytes(20))
    assert not unit.is_written
    assert not unit.is_filler


def test_an_entry() -> None:
    unit = CqUnit(0, 100, 0)
    assert unit.is_written
    assert not unit.is_filler
    assert unit.end_offset == 100
    assert not CqUnit(-1, 100, 0).is_written
    assert not CqUnit(5, 0, 0).is_written
    assert not CqUnit(5, 0x7FFFFFFF, 0).is_filler
