"""ConsumeQueue and ConsumeQueueExt files, read entry by entry.

Owns reading them with ``pread`` in small pieces: there may be tens of thousands of queues, so none
is held open or in memory for long. Entries of a queue are written one after the other and point
ever further into the log, which is why positions can be found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from roquet.format import consume_queue_ext as ext
from roquet.format.consume_queue import UNIT_BYTES, CqUnit, unpack_unit
from roquet.format.derived import QueueKey
from roquet.format.file_parts import FilePart, Parts
from roquet.runtime.files import Files
from roquet.store.inspect.layout import read_parts

PIECE_UNITS = 256


class QueueEntry(NamedTuple):
    """An entry and its place."""

    key: QueueKey
    queue_offset: int
    unit: CqUnit


class _PartReader:
    """Reads a segmented directory by global position."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self.directory = directory
        self._parts: Parts | None = None

    @property
    def parts(self) -> Parts:
        """The files, listed on first use."""
        if self._parts is None:
            self._parts = read_parts(self._files, self.directory)
        return self._parts

    def part_at(self, position: int) -> FilePart | None:
        """The file that holds a position."""
        for part in reversed(self.parts.files):
            if part.start <= position < part.end:
                return part
        return None

    def read(self, position: int, size_bytes: int) -> bytes:
        """Bytes at a position, cut at the end of its file; empty if there is none."""
        part = self.part_at(position)
        if part is None:
            return b""
        try:
            fd = self._files.open(part.path)
        except FileNotFoundError:
            return b""  # expired while a broker runs
        try:
            size_bytes = min(size_bytes, part.end - position)
            return self._files.read_at(fd, size_bytes, position - part.start)
        finally:
            self._files.close(fd)


class QueueView:
    """One ConsumeQueue."""

    def __init__(self, files: Files, key: QueueKey, directory: Path) -> None:
        self.key = key
        self._reader = _PartReader(files, directory)
        self._piece = b""
        self._piece_start = 0

    @property
    def parts(self) -> Parts:
        """The files of the queue."""
        return self._reader.parts

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return self._reader.directory

    @property
    def first_offset(self) -> int:
        """Queue offset of the first entry there is a file for."""
        files = self.parts.files
        return files[0].start // UNIT_BYTES if files else 0

    @property
    def file_end(self) -> int:
        """Queue offset behind the last entry there is a file for."""
        files = self.parts.files
        return files[-1].end // UNIT_BYTES if files else 0

    def path_of(self, queue_offset: int) -> Path:
        """The file that holds an entry, or should."""
        part = self._reader.part_at(queue_offset * UNIT_BYTES)
        return self._reader.directory if part is None else part.path

    def unit(self, queue_offset: int) -> CqUnit | None:
        """The entry at a queue offset; ``None`` if there is no file for it."""
        start = queue_offset - self._piece_start
        if not 0 <= start * UNIT_BYTES < len(self._piece):
            self._load(queue_offset)
            start = 0
        position = start * UNIT_BYTES
        if position + UNIT_BYTES > len(self._piece):
            return None
        return unpack_unit(self._piece, position)

    def reread(self, queue_offset: int) -> CqUnit | None:
        """The entry as it is on disk now; a running broker may have written it meanwhile."""
        self._load(queue_offset)
        return self.unit(queue_offset)

    def forget(self) -> None:
        """Give back the memory of the piece read last."""
        self._piece = b""

    def _load(self, queue_offset: int) -> None:
        self._piece_start = queue_offset
        self._piece = (
            self._reader.read(queue_offset * UNIT_BYTES, PIECE_UNITS * UNIT_BYTES)
            if queue_offset >= 0
            else b""
        )

    def units(self, start: int, end: int) -> Iterator[tuple[int, CqUnit]]:
        """Entries from queue offset ``start`` to ``end``, as far as there are files."""
        for queue_offset in range(max(start, self.first_offset), min(end, self.file_end)):
            unit = self.unit(queue_offset)
            if unit is not None:
                yield queue_offset, unit

    def written_end(self) -> int:
        """Queue offset behind the last entry, found by bisection."""
        return self._bisect(lambda unit: unit.is_written)

    def nonzero_end(self) -> int:
        """Queue offset behind the last entry that is not all zeros, whatever lies before it."""
        for part in reversed(self.parts.files):
            data = self._reader.read(part.start, part.size_bytes).rstrip(b"\0")
            if data:
                return part.start // UNIT_BYTES + -(-len(data) // UNIT_BYTES)
        return self.first_offset

    def first_behind(self, physical_offset: int) -> int:
        """Queue offset of the first entry of a record at or behind ``physical_offset``."""
        return self._bisect(
            lambda unit: (
                unit.is_written and (unit.is_filler or unit.physical_offset < physical_offset)
            )
        )

    def _bisect(self, is_before: Callable[[CqUnit], bool]) -> int:
        low, high = self.first_offset, self.file_end
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is not None and is_before(unit):
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
            found.append(QueueEntry(self.key, queue_offset, unit))
        return found


class ExtView:
    """One ConsumeQueueExt."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._reader = _PartReader(files, directory)

    @property
    def parts(self) -> Parts:
        """The files."""
        return self._reader.parts

    def path_of(self, address: int) -> Path:
        """The file that holds an address, or should."""
        part = self._reader.part_at(ext.real_offset_of(address))
        return self._reader.directory if part is None else part.path

    def unit(self, address: int) -> ext.CqExtUnit | None:
        """The unit at an address; ``None`` if no whole one is there."""
        real_offset = ext.real_offset_of(address)
        size = ext.peek_size(self._reader.read(real_offset, ext.UNIT_BYTES_MIN))
        return ext.unpack_unit(self._reader.read(real_offset, size)) if size else None
