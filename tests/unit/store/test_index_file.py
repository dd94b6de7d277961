"""One index file: slots, chains of entries, seconds and full files."""

from __future__ import annotations

import pytest

from roquet.format import index_file as layout
from roquet.format.index_file import IndexEntry, IndexHeader
from roquet.model.java_string import index_key_hash, java_hash
from roquet.store.index import IndexFile
from tests.unit.store.index_kit import ENTRIES, FOREVER_MS, SLOTS, T0, entry, new_file


def slot(file: IndexFile, key_hash: int) -> int:
    position = layout.slot_position(key_hash % file.slots)
    value: int = layout.SLOT.unpack_from(file.mapping, position)[0]
    return value


def select(
    file: IndexFile,
    key_hash: int,
    *,
    max_num: int = 64,
    begin_ms: int = 0,
    end_ms: int = FOREVER_MS,
) -> list[int]:
    offsets: list[int] = []
    file.select(offsets, key_hash, max_num, begin_ms, end_ms)
    return offsets


def test_first_entry_sets_begin_and_end() -> None:
    file = new_file()
    assert file.put_key(3, 700, T0)
    assert file.header == IndexHeader(T0, T0, 700, 700, 1, 2)
    assert entry(file, 1) == IndexEntry(3, 700, 0, 0)
    assert slot(file, 3) == 1


def test_chain_runs_from_new_to_old() -> None:
    file = new_file()
    for offset in (100, 200, 300):
        assert file.put_key(3, offset, T0)
    assert [entry(file, number).previous for number in (1, 2, 3)] == [0, 1, 2]
    assert slot(file, 3) == 3
    assert file.header.hash_slot_count == 1
    assert select(file, 3) == [300, 200, 100]
    assert select(file, 3, max_num=2) == [300, 200]
    assert select(file, 3, max_num=0) == []


def test_hashes_of_one_slot_share_a_chain_and_are_distinguished() -> None:
    file = new_file()
    for key_hash, offset in ((3, 100), (3 + SLOTS, 200), (3, 300)):
        assert file.put_key(key_hash, offset, T0)
    assert file.header.hash_slot_count == 1
    assert select(file, 3) == [300, 100]
    assert select(file, 3 + SLOTS) == [200]
    assert select(file, 3 + 2 * SLOTS) == []
    assert select(file, 4) == []


def test_full_file_takes_nothing_and_does_not_change() -> None:
    file = new_file()
    for offset in range(ENTRIES - 1):
        assert not file.is_full
        assert file.put_key(offset, offset, T0)
    assert file.is_full
    before = bytes(file.mapping[:])
    assert not file.put_key(1, 9999, T0 + 5000)
    assert bytes(file.mapping[:]) == before


def test_seconds_are_counted_from_the_begin_before_the_first_entry_replaces_it() -> None:
    file = new_file()
    file.mapping[: layout.HEADER_BYTES] = IndexHeader(T0, T0, 50, 50, 0, 1).pack()
    assert file.put_key(1, 100, T0 + 2500)
    assert file.header.begin_timestamp_ms == T0 + 2500
    assert file.header.begin_physical_offset == 100
    assert entry(file, 1).seconds == 2
    assert file.put_key(2, 200, T0 + 2500 + 1999)
    assert entry(file, 2).seconds == 1


@pytest.mark.parametrize(
    ("elapsed_ms", "seconds"),
    [(-1, 0), (-5000, 0), (999, 0), (1000, 1), ((1 << 31) * 1000, layout.SECONDS_MAX)],
)
def test_seconds_are_clamped(elapsed_ms: int, seconds: int) -> None:
    file = new_file()
    file.put_key(1, 100, T0)
    file.put_key(2, 200, T0 + elapsed_ms)
    assert entry(file, 2).seconds == seconds


def test_both_ends_of_the_time_range_are_included() -> None:
    file = new_file()
    for number in range(4):
        file.put_key(3, number, T0 + number * 1000)
    assert select(file, 3, begin_ms=T0 + 1000, end_ms=T0 + 2000) == [2, 1]
    assert select(file, 3, begin_ms=T0 + 1001, end_ms=T0 + 2000) == [2]
    assert select(file, 3, begin_ms=T0 + 1000, end_ms=T0 + 1999) == [1]
    assert select(file, 3, begin_ms=T0 + 2001, end_ms=T0 + 2999) == []


def test_a_file_without_entries_finds_nothing() -> None:
    assert select(new_file(), 0) == []


def test_hash_of_the_smallest_int_is_zero() -> None:
    key = "jlli8mc"
    assert java_hash(f"T#{key}") == -(1 << 31)
    assert index_key_hash("T", key) == 0
    file = new_file()
    file.put_key(index_key_hash("T", key), 700, T0)
    assert entry(file, 1).key_hash == 0
    assert select(file, 0) == [700]


@pytest.mark.parametrize("previous", [2, 3, 5, ENTRIES, 1000, -1])
def test_a_damaged_chain_ends(previous: int) -> None:
    file = new_file()
    for offset in range(4):
        file.put_key(3, offset, T0)
    position = layout.entry_position(SLOTS, 2)
    layout.ENTRY.pack_into(file.mapping, position, 3, 1, 0, previous)
    assert select(file, 3) == [3, 2, 1]


@pytest.mark.parametrize("value", [-1, ENTRIES, 1 << 30])
def test_a_slot_that_points_nowhere_is_empty(value: int) -> None:
    file = new_file()
    file.put_key(1, 100, T0)
    layout.SLOT.pack_into(file.mapping, layout.slot_position(3), value)
    assert select(file, 3) == []
    file.put_key(3, 200, T0)
    assert entry(file, 2).previous == 0
    assert select(file, 3) == [200]
