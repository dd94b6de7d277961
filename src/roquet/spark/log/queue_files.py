"""ConsumeQueues, to find places in the log without walking it.

Owns the search in their entries, which are sorted by physical offset. Every entry names the exact
start of a record, which is all that a cut needs: a few long queues are enough for any number of
cuts. Entries are read one by one; a search takes some twenty of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

from roquet.format.consume_queue import UNIT_BYTES, CqUnit, unpack_unit
from roquet.runtime.files import Files

_NAME_DIGITS = 20
_BLANK = CqUnit(0, 0, 0)


class EntryRange(NamedTuple):
    """Entries of one file of a queue."""

    path: Path
    first: int
    entries: int
    samples: tuple[CqUnit, ...]
    """Some of them in order, the first and the last among them."""


class QueueFiles:
    """The files of one queue.

    Attributes:
        topic: Name of the topic.
        queue_id: Number of the queue.
    """

    def __init__(
        self, files: Files, topic: str, queue_id: int, parts: list[tuple[Path, int]]
    ) -> None:
        """Take the files in order, each with its length."""
        self.topic = topic
        self.queue_id = queue_id
        self._files = files
        self._parts = parts

    @property
    def min_queue_offset(self) -> int:
        """Queue offset of the first entry, that of a filler not counted."""
        for path, size in self._parts:
            with _Entries(self._files, path, size) as entries:
                count = entries.written()
                index = entries.first_real(count)
                if index < count:
                    return int(path.name) // UNIT_BYTES + index
        return self.max_queue_offset

    @property
    def max_queue_offset(self) -> int:
        """Queue offset behind the newest entry."""
        for path, size in reversed(self._parts):
            with _Entries(self._files, path, size) as entries:
                count = entries.written()
                if count:
                    return int(path.name) // UNIT_BYTES + count
        return int(self._parts[0][0].name) // UNIT_BYTES if self._parts else 0

    @property
    def parts(self) -> tuple[tuple[Path, int], ...]:
        """Its files in order, each with its length."""
        return tuple(self._parts)

    @property
    def first_file_offset(self) -> int:
        """Queue offset of the first entry there is a file for."""
        return int(self._parts[0][0].name) // UNIT_BYTES

    @property
    def end_file_offset(self) -> int:
        """Queue offset behind the last entry there is a file for."""
        path, size = self._parts[-1]
        return (int(path.name) + size) // UNIT_BYTES

    def read(self, queue_offset: int, count: int) -> bytes:
        """Entries from an offset on as they are, blank ones where there is no file."""
        wanted = bytearray(count * UNIT_BYTES)
        low, high = queue_offset * UNIT_BYTES, (queue_offset + count) * UNIT_BYTES
        for path, size in self._parts:
            start = int(path.name)
            begin, end = max(low, start), min(high, start + size)
            if begin >= end:
                continue
            with suppress(FileNotFoundError):
                fd = self._files.open(path)
                try:
                    data = self._files.read_at(fd, end - begin, begin - start)
                finally:
                    self._files.close(fd)
                wanted[begin - low : begin - low + len(data)] = data
        return bytes(wanted)

    def unit(self, queue_offset: int) -> CqUnit | None:
        """The entry of a message, ``None`` if it is not there."""
        for path, size in reversed(self._parts):
            first = int(path.name) // UNIT_BYTES
            if queue_offset >= first:
                with _Entries(self._files, path, size) as entries:
                    found = entries.unit(queue_offset - first)
                return found if found.is_written and not found.is_filler else None
        return None

    def end_offset(self) -> int:
        """Where the record of the newest entry ends in the log; 0 if there is none."""
        return self._newest[1]

    def entries(self) -> int:
        """How many entries its files have; they may be far longer."""
        return self._newest[0]

    @cached_property
    def _newest(self) -> tuple[int, int]:
        """Number of entries, and the end of the newest one's record."""
        for number in range(len(self._parts), 0, -1):
            path, size = self._parts[number - 1]
            with _Entries(self._files, path, size) as entries:
                count = entries.written()
                if count:
                    before = sum(size for _, size in self._parts[: number - 1]) // UNIT_BYTES
                    return before + count, entries.unit(count - 1).end_offset
        return 0, 0

    def entries_between(self, start: int, stop: int, *, samples: int) -> Iterator[EntryRange]:
        """The entries of records that start from ``start`` on and in front of ``stop``, by file."""
        for path, size in self._parts:
            with _Entries(self._files, path, size) as entries:
                count = entries.written()
                first = entries.first_from(max(start, 1), count) if start > 0 else 0
                end = entries.first_from(stop, count)
                if first < end:
                    step = max((end - first - 1) // max(samples - 1, 1), 1)
                    places = sorted({*range(first, end, step), end - 1})
                    units = tuple(entries.unit(place) for place in places)
                    yield EntryRange(path, first, end - first, units)

    def at_or_behind(self, physical_offset: int) -> int | None:
        """Start of the first record of this queue at or behind a physical offset."""
        for path, size in self._parts:
            with _Entries(self._files, path, size) as entries:
                count = entries.written()
                if count == 0 or entries.unit(count - 1).physical_offset < physical_offset:
                    continue
                unit = entries.unit(min(entries.first_from(physical_offset, count), count - 1))
                return None if unit.is_filler else unit.physical_offset
        return None


class _Entries:
    """One open file of entries; one that a broker removed meanwhile has none."""

    def __init__(self, files: Files, path: Path, size_bytes: int) -> None:
        self._files = files
        self._fd = -1
        self._count = size_bytes // UNIT_BYTES
        with suppress(FileNotFoundError):
            self._fd = files.open(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._fd >= 0:
            self._files.close(self._fd)

    def unit(self, index: int) -> CqUnit:
        """The entry at a place, a blank one behind the end."""
        if self._fd < 0:
            return _BLANK
        data = self._files.read_at(self._fd, UNIT_BYTES, index * UNIT_BYTES)
        return unpack_unit(data) if len(data) == UNIT_BYTES else _BLANK

    def written(self) -> int:
        """How many entries there are; they stand at the head of the file."""
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self.unit(middle).is_written:
                low = middle + 1
            else:
                high = middle
        return low

    def first_real(self, count: int) -> int:
        """Place of the first entry of a message; fillers stand in front of them."""
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if self.unit(middle).is_filler:
                low = middle + 1
            else:
                high = middle
        return low

    def first_from(self, physical_offset: int, count: int) -> int:
        """Place of the first entry of a record at or behind a physical offset."""
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if self.unit(middle).physical_offset < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low


def read_queues(files: Files, base: Path) -> Iterator[QueueFiles]:
    """All queues below ``base``; none if it is not there."""
    base = base.resolve()
    for topic in files.list_dir(base):
        if not files.is_dir(base / topic):
            continue
        for name in files.list_dir(base / topic):
            directory = base / topic / name
            if not name.isdecimal() or not files.is_dir(directory):
                continue
            parts: list[tuple[Path, int]] = []
            for part in files.list_dir(directory):
                if len(part) == _NAME_DIGITS and part.isdecimal():
                    with suppress(FileNotFoundError):
                        parts.append((directory / part, files.size_bytes(directory / part)))
            if parts:
                yield QueueFiles(files, topic, int(name), parts)
