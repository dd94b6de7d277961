"""Index files as arrays.

Reads entries with numpy and computes the chains they must form: each entry names the previous entry
of its slot, and the slot names the last one. Chains are computed piece by piece, so memory grows
with the slots of a file, not with its entries. This quickly finds files without faults;
:mod:`roquet.storefiles.index_chains` finds the faults of the others.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from roquet.format.index_file import SECONDS_MAX, entry_position
from roquet.runtime import compiled
from roquet.runtime.files import Files
from roquet.storefiles.index_files import open_index_files

if compiled.is_built("roquet.storefiles._index_links"):
    from roquet.storefiles import _index_links

ENTRY_TYPE = np.dtype(
    [("key_hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
SLOT_TYPE = np.dtype(">i4")
PIECE_ENTRIES = 1 << 20

Array = npt.NDArray[Any]


class IndexFileRef(NamedTuple):
    """An index file and its shape; part of a task."""

    path: str
    slots: int
    entry_capacity: int


class ExpectedChains:
    """The expected links of entries and slots, for entries added in order.

    Attributes:
        newest: Number of the newest entry of each slot so far, 0 for none.
    """

    def __init__(self, newest: Array) -> None:
        """Start with the slots of an empty file."""
        self.newest = newest

    def add(self, first: int, hashes: Array) -> Array:
        """Add the hashes of the next entries; return the previous entry that each must name."""
        expected, slots, numbers = self._link(first, hashes)
        self.newest[slots] = numbers
        return expected

    def add_sound(self, first: int, entries: Array) -> bool:
        """Add the next entries if each names its previous one; otherwise change nothing."""
        if compiled.is_used("roquet.storefiles._index_links"):
            return _index_links.add_sound(self.newest.data, first, entries.view(np.uint8).data)
        if not len(entries) or int(entries["key_hash"].min()) < 0:
            return not len(entries)
        expected, slots, numbers = self._link(first, entries["key_hash"])
        is_sound = bool(np.array_equal(entries["previous"], expected))
        if is_sound:
            self.newest[slots] = numbers
        return is_sound

    def _link(self, first: int, hashes: Array) -> tuple[Array, Array, Array]:
        """Return the previous entry of each, the slots that change, and their newest entries."""
        count = len(hashes)
        numbers = np.arange(first, first + count, dtype=np.int32)
        slots = np.mod(hashes.astype(np.int64), len(self.newest))
        order = np.argsort(slots, kind="stable")
        sorted_slots, sorted_numbers = slots[order], numbers[order]
        is_first = np.ones(count, dtype=bool)
        is_first[1:] = sorted_slots[1:] != sorted_slots[:-1]
        before = np.empty(count, dtype=np.int32)
        before[1:] = sorted_numbers[:-1]
        before[is_first] = self.newest[sorted_slots[is_first]]
        is_last = np.roll(is_first, -1)
        expected = np.empty(count, dtype=np.int32)
        expected[order] = before
        return expected, sorted_slots[is_last], sorted_numbers[is_last]


def seconds_of(begin_ms: int, times_ms: Array) -> Array:
    """The time field of entries; as :func:`roquet.format.index_file.seconds_since`."""
    if begin_ms <= 0:
        return np.zeros(len(times_ms), dtype=np.int64)
    clipped: Array = np.clip((times_ms - begin_ms) // 1000, 0, SECONDS_MAX)
    return clipped


def read_entries(files: Files, place: IndexFileRef, first: int, count: int) -> Array:
    """Read ``count`` entries of a file, starting at number ``first``."""
    fd = files.open(Path(place.path))
    try:
        start = entry_position(place.slots, first)
        data = files.read_at(fd, count * ENTRY_TYPE.itemsize, start)
    finally:
        files.close(fd)
    return np.frombuffer(data, dtype=ENTRY_TYPE, count=len(data) // ENTRY_TYPE.itemsize)


def index_places(
    files: Files, directory: Path, *, slots: int | None = None
) -> tuple[list[IndexFileRef], list[Path]]:
    """Return the index files, and the paths that are not index files."""
    views, strangers = open_index_files(files, directory, slots=slots)
    with ExitStack() as stack:
        for view in views:
            stack.callback(view.close)
        places = [IndexFileRef(str(each.path), each.slots, each.entry_capacity) for each in views]
    return places, strangers
