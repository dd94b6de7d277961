"""Chains of an index file: each entry names the one before it in its slot, the slot the newest.

Owns the rules for a chain. A bad entry is called wild: others may rightly point at it, so they are
not blamed for it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from roquet.format.index_file import IndexEntry
from roquet.storefiles.faults import StoreFault
from roquet.storefiles.index_checks import WrongSlot, entry_fault, slot_count_fault, slot_faults
from roquet.storefiles.index_files import IndexFileView


class IndexChains:
    """The chains of one file, followed entry by entry from the first on.

    Attributes:
        newest: Number of the newest entry of each slot so far, 0 for none.
        wild: Numbers of entries that are bad in themselves; the caller adds those it knows of
            before they are followed.
    """

    def __init__(self, index_file: IndexFileView, wild: Iterable[int] = ()) -> None:
        self._file = index_file
        self.newest = array("i", bytes(4 * index_file.slots))
        self.wild = set(wild)

    def follow(self, number: int, entry: IndexEntry) -> StoreFault | None:
        """Follow the next entry; return what is wrong with it."""
        if entry.key_hash < 0:
            self.wild.add(number)
            return entry_fault(self._file.path, number, entry, "keyHash", "is negative")
        if number in self.wild:
            return None
        slot = entry.key_hash % self._file.slots
        expected, self.newest[slot] = self.newest[slot], number
        if entry.previous == expected or entry.previous in self.wild:
            return None
        return entry_fault(self._file.path, number, entry, "previous", f"expected {expected}")

    def check_slots(self, count: int) -> Iterator[StoreFault]:
        """After the last entry: check that slots point to the newest, and the header's count."""
        index_file, newest = self._file, self.newest
        path, header = index_file.path, index_file.header
        if index_file.slots_equal(newest):
            fault = slot_count_fault(path, header, index_file.slots - newest.count(0), count)
            if fault is not None and not self.wild:
                yield fault
            return
        wrong = (
            WrongSlot(slot, stated, newest[slot])
            for slot in range(index_file.slots)
            if (stated := index_file.slot(slot)) != newest[slot] and stated not in self.wild
        )
        capacity = index_file.entry_capacity
        yield from slot_faults(path, header, wrong, count=count, capacity=capacity)
