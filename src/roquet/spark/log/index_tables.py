"""Index files as arrays.

Owns reading a file at once, by numpy, and the chains that its entries must form: each entry names
the entry before it in its slot, and the slot the last one. Chains are computed piece by piece, so
that memory grows with the slots of a file and not with its entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from roquet.format.index_file import (
    FILE_NAME_DIGITS,
    HEADER_BYTES,
    SECONDS_MAX,
    entry_position,
)
from roquet.format.index_view import IndexView
from roquet.runtime.files import Files

ENTRY_TYPE = np.dtype(
    [("key_hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
SLOT_TYPE = np.dtype(">i4")
PIECE_ENTRIES = 1 << 20

Array = npt.NDArray[Any]


class IndexPlace(NamedTuple):
    """An index file and its shape; travels with tasks."""

    path: str
    slots: int
    entry_capacity: int


class Chains:
    """What entries and slots must say, for entries that come in their order."""

    def __init__(self, slots: int) -> None:
        """Start with an empty file."""
        self._slots = slots
        self._next = 1
        self.newest: Array = np.zeros(slots, dtype=np.int32)

    def add(self, hashes: Array) -> Array:
        """Take the hashes of the next entries; gives what each has to name as its previous one."""
        count = len(hashes)
        numbers = np.arange(self._next, self._next + count, dtype=np.int32)
        self._next += count
        if not count:
            return numbers
        slots = np.mod(hashes.astype(np.int64), self._slots)
        order = np.argsort(slots, kind="stable")
        sorted_slots, sorted_numbers = slots[order], numbers[order]
        is_first = np.ones(count, dtype=bool)
        is_first[1:] = sorted_slots[1:] != sorted_slots[:-1]
        before = np.empty(count, dtype=np.int32)
        before[1:] = sorted_numbers[:-1]
        before[is_first] = self.newest[sorted_slots[is_first]]
        is_last = np.roll(is_first, -1)
        is_last[-1] = True
        self.newest[sorted_slots[is_last]] = sorted_numbers[is_last]
        expected = np.empty(count, dtype=np.int32)
        expected[order] = before
        return expected


def seconds_of(begin_ms: int, times_ms: Array) -> Array:
    """The time field of entries; as :func:`roquet.format.index_file.seconds_since`."""
    if begin_ms <= 0:
        return np.zeros(len(times_ms), dtype=np.int64)
    clipped: Array = np.clip((times_ms - begin_ms) // 1000, 0, SECONDS_MAX)
    return clipped


@contextmanager
def open_index(files: Files, path: Path) -> Iterator[IndexView]:
    """An index file, mapped while it is used."""
    fd = files.open(path)
    try:
        size_bytes = files.length(fd)
        mapping = files.map(fd, size_bytes, write=False) if size_bytes else None
    finally:
        files.close(fd)
    if mapping is None:
        yield IndexView(memoryview(b""), None)
        return
    data = memoryview(mapping)
    try:
        yield IndexView(data, mapping)
    finally:
        files.unmap(mapping, data)


def read_entries(files: Files, place: IndexPlace, first: int, count: int) -> Array:
    """Entries of a file, the first of which has number ``first``."""
    fd = files.open(Path(place.path))
    try:
        start = entry_position(place.slots, first)
        data = files.read_at(fd, count * ENTRY_TYPE.itemsize, start)
    finally:
        files.close(fd)
    return np.frombuffer(data, dtype=ENTRY_TYPE, count=len(data) // ENTRY_TYPE.itemsize)


def read_slots(files: Files, place: IndexPlace) -> Array:
    """The slots of a file."""
    fd = files.open(Path(place.path))
    try:
        data = files.read_at(fd, place.slots * SLOT_TYPE.itemsize, HEADER_BYTES)
    finally:
        files.close(fd)
    return np.frombuffer(data, dtype=SLOT_TYPE)


def is_index_name(name: str) -> bool:
    """Whether a name can be that of an index file."""
    return len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdecimal()


def index_places(
    files: Files, directory: Path, *, slots: int | None = None
) -> tuple[list[IndexPlace], list[Path]]:
    """The index files in the order of their creation, and paths that are none.

    A file that does not tell its number of slots takes that of its neighbours of equal length; it
    has 0 if there are none.
    """
    sizes: list[tuple[Path, int, int]] = []
    strangers: list[Path] = []
    for name in files.list_dir(directory):
        path = directory / name
        if not is_index_name(name):
            strangers.append(path)
            continue
        try:
            with open_index(files, path) as view:
                if view.is_whole:
                    sizes.append((path, view.size_bytes, slots or view.infer_slots()))
                else:
                    strangers.append(path)
        except FileNotFoundError:
            continue  # a running broker removed it after the listing
    known = {size: found for _, size, found in sizes if found}
    places = []
    for path, size, found in sizes:
        count = found or known.get(size, 0)
        room = (size - HEADER_BYTES - count * SLOT_TYPE.itemsize) // ENTRY_TYPE.itemsize
        places.append(IndexPlace(str(path), count, room))
    return places, strangers
