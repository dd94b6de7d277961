"""Files of ConsumeQueues of both types and of ConsumeQueueExt.

Reads them with ``pread`` in small pieces: there may be tens of thousands of queues, so none is held
open or in memory for long. Entries of a queue are written in order and point ever further into the
log, so positions can be found by bisection.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, NamedTuple

from roquet.format import consume_queue_ext as ext
from roquet.format.batch_consume_queue import BATCH_UNIT_BYTES, BatchCqUnit, unpack_batch_unit
from roquet.format.consume_queue import UNIT_BYTES, CqUnit, unpack_unit
from roquet.format.derived import QueueKey
from roquet.format.segment_files import Segment, SegmentList
from roquet.runtime.files import Files
from roquet.storefiles.layout import queue_directories, read_segments

PIECE_UNITS = 256
_BLANK = CqUnit(0, 0, 0)


class QueueEntry(NamedTuple):
    """An entry and its position."""

    key: QueueKey
    queue_offset: int
    unit: CqUnit


class EntryRange(NamedTuple):
    """Entries of one file of a queue."""

    part: Segment
    first: int
    """Number of the first entry within the file."""
    entries: int
    samples: tuple[CqUnit, ...]
    """Some of them in order, including the first and the last."""


class PartReader:
    """Reads a segmented directory by global position."""

    def __init__(self, files: Files, directory: Path) -> None:
        """Take the directory; nothing is read yet."""
        self._files = files
        self.directory = directory
        self._segments: SegmentList | None = None

    @property
    def segments(self) -> SegmentList:
        """The files, listed on first use."""
        if self._segments is None:
            self._segments = read_segments(self._files, self.directory)
        return self._segments

    def part_at(self, position: int) -> Segment | None:
        """The file that holds a position."""
        files = self.segments.files
        index = bisect_right(files, position, key=_start_of) - 1
        return files[index] if index >= 0 and position < files[index].end else None

    def read(self, position: int, size_bytes: int) -> bytes:
        """Bytes at a position, up to the end of its file; empty if there is no file."""
        part = self.part_at(position)
        if part is None:
            return b""
        with self.opened(part) as read:
            return read(min(size_bytes, part.end - position), position - part.start)

    @contextmanager
    def opened(self, part: Segment) -> Iterator[Callable[[int, int], bytes]]:
        """A function that reads an open file by size and position; a removed file is empty."""
        try:
            fd = self._files.open(part.path)
        except FileNotFoundError:
            yield lambda _size_bytes, _position: b""  # expired while a broker runs
            return
        try:
            yield lambda size_bytes, position: self._files.read_at(fd, size_bytes, position)
        finally:
            self._files.close(fd)


def _start_of(part: Segment) -> int:
    return part.start


class QueueView:
    """One ConsumeQueue.

    A queue offset here is the number of an entry; see :meth:`offset_of`.
    """

    unit_bytes: ClassVar[int] = UNIT_BYTES

    def __init__(self, files: Files, key: QueueKey, directory: Path) -> None:
        """Take the directory of its files, which are read on demand."""
        self.key = key
        self._reader = PartReader(files, directory)
        self._piece = b""
        self._piece_start = 0

    @property
    def segments(self) -> SegmentList:
        """The files of the queue."""
        return self._reader.segments

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return self._reader.directory

    @property
    def first_offset(self) -> int:
        """Queue offset of the first entry that has a file."""
        files = self.segments.files
        return files[0].start // self.unit_bytes if files else 0

    @property
    def file_end(self) -> int:
        """Queue offset after the last entry that has a file."""
        files = self.segments.files
        return files[-1].end // self.unit_bytes if files else 0

    def path_of(self, queue_offset: int) -> Path:
        """The file that holds, or should hold, an entry."""
        part = self._reader.part_at(queue_offset * self.unit_bytes)
        return self._reader.directory if part is None else part.path

    def unit(self, queue_offset: int) -> CqUnit | None:
        """The unit at a queue offset; ``None`` if there is no file for it."""
        start = queue_offset - self._piece_start
        if not 0 <= start * self.unit_bytes < len(self._piece):
            self._load(queue_offset)
            start = 0
        position = start * self.unit_bytes
        if position + self.unit_bytes > len(self._piece):
            return None
        return unpack_unit(self._piece, position)

    def entry(self, queue_offset: int) -> CqUnit | None:
        """The entry of a message; ``None`` if it is missing, or only fills a gap."""
        unit = self.unit(queue_offset)
        return unit if unit is not None and unit.is_written and not unit.is_filler else None

    def offset_of(self, number: int) -> int:
        """The queue offset that an entry stands for, which here is its number."""
        return number

    def reread(self, queue_offset: int) -> CqUnit | None:
        """The entry as it is on disk now; a running broker may have written it meanwhile."""
        self._load(queue_offset)
        return self.unit(queue_offset)

    def forget(self) -> None:
        """Free the memory of the piece read last."""
        self._piece = b""

    def _load(self, queue_offset: int) -> None:
        self._piece_start = queue_offset
        self._piece = (
            self._reader.read(queue_offset * self.unit_bytes, PIECE_UNITS * self.unit_bytes)
            if queue_offset >= 0
            else b""
        )

    def read(self, queue_offset: int, count: int) -> bytes:
        """Entries from an offset on as they are on disk now, blank where there is no file."""
        size = self.unit_bytes
        wanted = bytearray(count * size)
        low, high = queue_offset * size, (queue_offset + count) * size
        files = self.segments.files
        index = max(bisect_right(files, low, key=_start_of) - 1, 0)
        while index < len(files) and files[index].start < high:
            part = files[index]
            begin, end = max(low, part.start), min(high, part.end)
            if begin < end:
                with self._reader.opened(part) as read:
                    data = read(end - begin, begin - part.start)
                wanted[begin - low : begin - low + len(data)] = data
            index += 1
        return bytes(wanted)

    def units(self, start: int, end: int) -> Iterator[tuple[int, CqUnit]]:
        """Entries from queue offset ``start`` to ``end``, as far as there are files."""
        for queue_offset in range(max(start, self.first_offset), min(end, self.file_end)):
            unit = self.unit(queue_offset)
            if unit is not None:
                yield queue_offset, unit

    def written_end(self) -> int:
        """Queue offset after the last entry, found by bisection."""
        return self._bisect(lambda unit: unit.is_written)

    def next_queue_offset(self) -> int:
        """Queue offset that follows the last entry's."""
        return self.written_end()

    def first_entry(self) -> int:
        """Queue offset of the first entry of a message, after any fillers."""
        end = self.written_end()
        for part in self.segments.files:
            start = part.start // self.unit_bytes
            found = start + self._bisect_part(part, lambda unit: unit.is_filler)
            if found < min(part.end // self.unit_bytes, end):
                return found
        return end

    def end_offset(self) -> int:
        """Where the record of the newest entry ends in the log; 0 if there is none."""
        unit = self.unit(self.written_end() - 1)
        return unit.end_offset if unit is not None and unit.is_written else 0

    def is_filled(self, start: int, end: int) -> bool:
        """Whether every entry from one queue offset to another only fills a gap."""
        return all(
            (unit := self.unit(queue_offset)) is not None and unit.is_filler
            for queue_offset in range(start, end)
        )

    def nonzero_end(self) -> int:
        """Queue offset after the last entry that is not all zeros, whatever precedes it."""
        for part in reversed(self.segments.files):
            data = self._reader.read(part.start, part.size_bytes).rstrip(b"\0")
            if data:
                return part.start // self.unit_bytes + -(-len(data) // self.unit_bytes)
        return self.first_offset

    def first_behind(self, physical_offset: int) -> int:
        """Queue offset of the first entry of a record at or after ``physical_offset``."""
        return self._bisect(
            lambda unit: (
                unit.is_written and (unit.is_filler or unit.physical_offset < physical_offset)
            )
        )

    def _bisect(self, is_before: Callable[[CqUnit], bool]) -> int:
        """The first queue offset whose entry does not satisfy ``is_before``."""
        files = self.segments.files
        low, high = 0, len(files)
        while low < high:
            middle = (low + high) // 2
            with self._reader.opened(files[middle]) as read:
                is_file_before = is_before(_unit_of(read(UNIT_BYTES, 0)))
            low, high = (middle + 1, high) if is_file_before else (low, middle)
        if low == 0:
            return self.first_offset
        part = files[low - 1]
        return part.start // self.unit_bytes + self._bisect_part(part, is_before)

    def _bisect_part(self, part: Segment, is_before: Callable[[CqUnit], bool]) -> int:
        """Like :meth:`_bisect`, by number within one file."""
        size = self.unit_bytes
        low, high = 0, part.size_bytes // size
        with self._reader.opened(part) as read:
            while low < high:
                middle = (low + high) // 2
                if is_before(_unit_of(read(UNIT_BYTES, middle * size))):
                    low = middle + 1
                else:
                    high = middle
        return low

    def between(self, low: int, high: int) -> list[QueueEntry]:
        """Entries of the records that start from ``low`` to ``high``."""
        found: list[QueueEntry] = []
        for queue_offset, unit in self.units(self.first_behind(low), self.file_end):
            if not unit.is_written or unit.is_filler or not low <= unit.physical_offset < high:
                break
            found.append(QueueEntry(self.key, self.offset_of(queue_offset), unit))
        return found

    def ranges_between(self, low: int, high: int, *, samples: int) -> Iterator[EntryRange]:
        """The entries of records that start from ``low`` on and before ``high``, by file."""
        first = self.first_behind(low) if low > 0 else self.first_offset
        end = self.first_behind(high)
        for part in self.segments.files:
            start = part.start // self.unit_bytes
            begin, stop = max(first, start), min(end, part.end // self.unit_bytes)
            if begin < stop:
                step = max((stop - begin - 1) // max(samples - 1, 1), 1)
                places = sorted({*range(begin, stop, step), stop - 1})
                with self._reader.opened(part) as read:
                    pieces = (read(UNIT_BYTES, (at - start) * self.unit_bytes) for at in places)
                    units = tuple(unpack_unit(data) for data in pieces if len(data) == UNIT_BYTES)
                if units:
                    yield EntryRange(part, begin - start, stop - begin, units)


def _unit_of(data: bytes) -> CqUnit:
    return unpack_unit(data) if len(data) == UNIT_BYTES else _BLANK


class BatchQueueView(QueueView):
    """One batch consume queue; an entry's offset differs from its number."""

    unit_bytes: ClassVar[int] = BATCH_UNIT_BYTES

    def batch_unit(self, number: int) -> BatchCqUnit | None:
        """An entry in full; ``None`` if there is no file for it."""
        if self.unit(number) is None:
            return None
        return unpack_batch_unit(self._piece, (number - self._piece_start) * BATCH_UNIT_BYTES)

    def offset_of(self, number: int) -> int:
        """The queue offset of the first message of a batch; -1 if there is no such entry."""
        unit = self.batch_unit(number)
        return -1 if unit is None else unit.base_offset

    def offsets(self, min_physical_offset: int) -> tuple[int, int]:
        """The first offset whose record the log still holds, and the one after the last."""
        first, end = self.first_behind(min_physical_offset), self.next_queue_offset()
        return (self.offset_of(first) if first < self.written_end() else end), end

    def next_queue_offset(self) -> int:
        """Queue offset that follows the last batch; an emptied queue keeps it in its first unit."""
        last = self.batch_unit(max(self.written_end() - 1, self.first_offset))
        return 0 if last is None else last.next_offset


class ExtView:
    """One ConsumeQueueExt."""

    def __init__(self, files: Files, directory: Path) -> None:
        """Take the directory of its files, which are read on demand."""
        self._reader = PartReader(files, directory)

    @property
    def segments(self) -> SegmentList:
        """The files."""
        return self._reader.segments

    def path_of(self, address: int) -> Path:
        """The file that holds, or should hold, an address."""
        part = self._reader.part_at(ext.real_offset_of(address))
        return self._reader.directory if part is None else part.path

    def unit(self, address: int) -> ext.CqExtUnit | None:
        """The unit at an address; ``None`` if there is no whole one."""
        real_offset = ext.real_offset_of(address)
        size = ext.peek_size(self._reader.read(real_offset, ext.UNIT_BYTES_MIN))
        return ext.unpack_unit(self._reader.read(real_offset, size)) if size else None


def queues_below(files: Files, base: Path) -> dict[QueueKey, QueueView]:
    """The ConsumeQueues below a directory; none if it does not exist."""
    return {key: QueueView(files, key, path) for key, path in queue_directories(files, base)}


def batch_queues_below(files: Files, base: Path) -> dict[QueueKey, BatchQueueView]:
    """The batch consume queues below a directory."""
    return {key: BatchQueueView(files, key, path) for key, path in queue_directories(files, base)}


def extensions_below(files: Files, base: Path) -> dict[QueueKey, ExtView]:
    """The ConsumeQueueExts below a directory."""
    return {key: ExtView(files, path) for key, path in queue_directories(files, base)}


def usual_file_bytes(segments: Iterable[SegmentList], *, unit_bytes: int, default: int) -> int:
    """The most common file length of some queues, if it is a multiple of the entry size."""
    sizes = Counter(
        part.size_bytes
        for each in segments
        for part in each.files
        if part.size_bytes % unit_bytes == 0
    )
    return max(sizes, key=lambda size: sizes[size], default=default)
