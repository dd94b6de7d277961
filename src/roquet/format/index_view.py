"""Reads an index file without the broker's settings.

A file does not say how many slots it has. Its length allows many values; the right one is the one
for which entries and slots agree.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import Protocol

from roquet.format.index_file import (
    ENTRY,
    ENTRY_BYTES,
    HEADER_BYTES,
    SLOT,
    SLOT_BYTES,
    IndexEntry,
    IndexHeader,
    entry_position,
    file_size,
    slot_position,
)

DEFAULT_SLOTS = 5_000_000
DEFAULT_ENTRIES = 20_000_000
_SAMPLE_ENTRIES = 64
_SCORE_MAX = 3.0
_SCORE_MIN = 1.4
_HINT_HITS_MAX = 1000
_PIECE_BYTES = 1 << 16
_NO_ENTRY = IndexEntry(0, 0, 0, 0)
_NOTHING = bytes(ENTRY_BYTES)


class Searchable(Protocol):
    """Bytes that can be searched, such as a mapped file."""

    def find(self, sub: bytes, start: int = ..., /) -> int:
        """Position of the first match from ``start`` on, -1 if there is none."""
        ...


class IndexView:
    """The bytes of one index file.

    Args:
        data: The whole file.
        search: The same bytes, to search in; ``None`` for an empty file.

    Attributes:
        size_bytes: Its length.
        slots: Number of its slots; 0 while unknown.
    """

    def __init__(self, data: memoryview, search: Searchable | None) -> None:
        self.size_bytes = len(data)
        self.slots = 0
        self._data = data
        self._search = search

    @property
    def is_whole(self) -> bool:
        """Whether an index file can have this length."""
        return self.size_bytes > HEADER_BYTES and (self.size_bytes - HEADER_BYTES) % SLOT_BYTES == 0

    @property
    def header(self) -> IndexHeader:
        """The header as it is now."""
        return IndexHeader.unpack(self._data)

    @property
    def entry_capacity(self) -> int:
        """How many entries fit, given the slots."""
        return (self.size_bytes - HEADER_BYTES - self.slots * SLOT_BYTES) // ENTRY_BYTES

    @property
    def count(self) -> int:
        """How many entries are in use and within the length of the file."""
        return max(0, min(self.header.index_count, self.entry_capacity) - 1)

    def entry(self, number: int) -> IndexEntry:
        """One entry; the first has number 1."""
        return self._entry(self.slots, number)

    def _entry(self, slots: int, number: int) -> IndexEntry:
        return IndexEntry._make(ENTRY.unpack_from(self._data, entry_position(slots, number)))

    def slot(self, slot: int) -> int:
        """Number of the newest entry of a slot's chain, 0 for none."""
        return int(SLOT.unpack_from(self._data, slot_position(slot))[0])

    def entries(self) -> Iterator[tuple[int, IndexEntry]]:
        """All entries with their numbers, in the order they were put."""
        start = entry_position(self.slots, 1)
        data = self._data[start : start + self.count * ENTRY_BYTES]
        for number, fields in enumerate(ENTRY.iter_unpack(data), start=1):
            yield number, IndexEntry._make(fields)

    def first_empty(self) -> int:
        """Number of the first unwritten entry after the first, 0 if all are written."""
        start = entry_position(self.slots, 0)
        position, end = entry_position(self.slots, 2), entry_position(self.slots, self.count + 1)
        while self._search is not None and position < end:
            position = self._search.find(_NOTHING, position)
            if not 0 <= position < end:
                break
            number, misfit = divmod(position - start, ENTRY_BYTES)
            if not misfit:
                return number
            position += ENTRY_BYTES - misfit
        return 0

    def slots_equal(self, newest: array[int]) -> bool:
        """Whether the slots hold exactly these numbers."""
        expected = array("i", newest)
        if sys.byteorder == "little":
            expected.byteswap()
        end = slot_position(self.slots)
        return bytes(self._data[HEADER_BYTES:end]) == expected.tobytes()

    def is_untouched(self) -> bool:
        """Whether nothing but the header was ever written."""
        for start in range(HEADER_BYTES, self.size_bytes, _PIECE_BYTES):
            if bytes(self._data[start : start + _PIECE_BYTES]).strip(b"\0"):
                return False
        return True

    def find(self, key_hash: int) -> list[int] | None:
        """Physical offsets under a hash, oldest first; ``None`` if the chain is broken."""
        number = self.slot(key_hash % self.slots)
        below = self.count + 1
        found: list[int] = []
        while number:
            if not 0 < number < below:
                return None
            below = number
            entry = self.entry(number)
            if entry.key_hash == key_hash:
                found.append(entry.physical_offset)
            number = entry.previous
        return found[::-1]

    def infer_slots(self) -> int:
        """Infer how many slots the file has, 0 if that is impossible.

        It is for an empty file. Damage to a few entries does not matter: most must agree.
        """
        if not self.is_whole or self.header.index_count <= 1:
            return 0
        best, best_score = 0, _SCORE_MIN
        for slots in self._candidates():
            score = self._score(slots)
            if score == _SCORE_MAX:
                return slots
            if score > best_score:
                best, best_score = slots, score
        return best

    def _candidates(self) -> Iterator[int]:
        """Numbers of slots that fit the length; likely ones first."""
        if self.size_bytes == file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES):
            yield DEFAULT_SLOTS
        header = self.header
        last = header.index_count - 1
        pattern = header.end_physical_offset.to_bytes(8, "big", signed=True)
        position = HEADER_BYTES
        for _ in range(_HINT_HITS_MAX):
            position = -1 if self._search is None else self._search.find(pattern, position)
            if position < 0:
                break
            slots, misfit = divmod(position - 4 - last * ENTRY_BYTES - HEADER_BYTES, SLOT_BYTES)
            if misfit == 0 and self._fits(slots):
                yield slots
            position += 1
        room = (self.size_bytes - HEADER_BYTES) // SLOT_BYTES
        step = ENTRY_BYTES // SLOT_BYTES
        yield from (slots for slots in range(room % step or step, room, step) if self._fits(slots))

    def _fits(self, slots: int) -> bool:
        rest = self.size_bytes - HEADER_BYTES - slots * SLOT_BYTES
        return slots > 0 and rest > ENTRY_BYTES and rest % ENTRY_BYTES == 0

    def _score(self, slots: int) -> float:
        """How well a table of ``slots`` slots explains the file, at most 3.

        One point is the share of the first entries whose chains look as a writer leaves them; one
        more each if the first and the last entry point where the header says.
        """
        header = self.header
        capacity = (self.size_bytes - HEADER_BYTES - slots * SLOT_BYTES) // ENTRY_BYTES
        last = min(header.index_count, capacity) - 1
        sample = min(last, _SAMPLE_ENTRIES)
        newest: dict[int, int] = {}
        bad = 0
        for number in range(1, sample + 1):
            entry = self._entry(slots, number)
            slot = entry.key_hash % slots
            if (
                entry == _NO_ENTRY
                or entry.previous != newest.get(slot, 0)
                or not number <= self.slot(slot) <= last
            ):
                bad += 1
                if bad * 2 > sample:
                    return 0.0
            newest[slot] = number
        if sample < 1:
            return 0.0
        begins = self._entry(slots, 1).physical_offset == header.begin_physical_offset
        ends = self._entry(slots, last).physical_offset == header.end_physical_offset
        return 1.0 - bad / sample + begins + ends
