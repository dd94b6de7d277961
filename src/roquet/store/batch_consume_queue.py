"""One queue of a topic with ``queue.type=BatchCQ``: entries that point at batches in the log.

Owns the numbers of a queue whose files are below ``batchconsumequeue/<topic>/<queueId>/``. It is
a :class:`ConsumeQueue` with different numbering: queue offsets count messages, an entry stands for
all messages of a batch, and an entry contains its own offset.

    entries.first_place <= min_place <= end_place

Invariants: the offsets of entries ascend and do not overlap. They need not be contiguous: a rebuild
may find records missing. An empty queue has a min_queue_offset of -1, which clients can see.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from roquet.format.batch_consume_queue import (
    BATCH_UNIT_BYTES,
    BatchCqUnit,
    batch_unit_of,
    unpack_batch_unit,
    unpack_batch_units,
)
from roquet.format.commit_log import DispatchRequest
from roquet.runtime.files import DescriptorCache, Files
from roquet.store.consume_queue import ConsumeQueue, Entry
from roquet.store.entry_files import ReadAt
from roquet.store.io_errors import store_error

log = logging.getLogger(__name__)

_NONE = -1
_ENTRIES_A_READ = 512


class BatchConsumeQueue(ConsumeQueue):
    """A queue of batches open for building and reading."""

    unit_bytes: ClassVar[int] = BATCH_UNIT_BYTES

    __slots__ = ("_end_place", "_min_place", "_pending_end")

    def __init__(
        self,
        files: Files,
        descriptors: DescriptorCache,
        root: Path,
        *,
        topic: str,
        queue_id: int,
        file_bytes: int,
    ) -> None:
        """A queue without files; :meth:`load` finds existing ones."""
        super().__init__(
            files, descriptors, root, topic=topic, queue_id=queue_id, file_bytes=file_bytes
        )
        self.min_queue_offset = _NONE
        self._end_place = 0
        self._min_place = 0
        self._pending_end = 0

    # -- building ---------------------------------------------------------------------------

    def put(self, request: DispatchRequest, tags_code: int) -> None:
        """Collect the entry of a record, unless the queue already has it."""
        if request.end_offset <= self.max_physical_offset:
            return
        unit = batch_unit_of(request)._replace(tags_code=tags_code)
        expected = self._pending_end if self.pending else self.max_queue_offset
        if unit.base_offset < expected:
            place = (request.physical_offset, unit.base_offset)
            log.warning("%s: record at %d repeats queue offset %d", self.root, *place)
            return
        if unit.base_offset > expected and self._end_place:
            gap = (expected, unit.base_offset)
            log.warning("%s: no entries for queue offsets %d to %d", self.root, *gap)
        self.pending += unit.pack()
        self._pending_end = unit.next_offset
        self.max_physical_offset = request.end_offset
        self.next_queue_offset = max(self.next_queue_offset, unit.next_offset)

    def write_pending(self) -> None:
        """Write the burst's entries and show them to readers; on ``OSError`` they are kept."""
        while self.pending:
            written = self.entries.write(self.pending, self._end_place)
            if self._min_place == self._end_place:
                self.min_queue_offset = unpack_batch_unit(self.pending).base_offset
            self._end_place += written // BATCH_UNIT_BYTES
            last = unpack_batch_unit(self.pending, written - BATCH_UNIT_BYTES)
            self.max_queue_offset = last.next_offset
            del self.pending[:written]

    # -- reading ----------------------------------------------------------------------------

    def batch_units(self, queue_offset: int, end_offset: int) -> Iterator[BatchCqUnit]:
        """The entries of all batches with an offset in a range."""
        while queue_offset < end_offset:
            data = self.read_units(queue_offset, min(end_offset - queue_offset, _ENTRIES_A_READ))
            if not data:
                return
            for unit in unpack_batch_units(data):
                if unit.base_offset >= end_offset:
                    return
                yield unit
                queue_offset = unit.next_offset

    def unpack_entries(
        self,
        units: bytes,
        queue_offset: int,  # noqa: ARG002 - entries have their own
    ) -> Iterator[tuple[Entry, int, int]]:
        """Entries, each with its queue offset and how many messages it covers."""
        for unit in unpack_batch_units(units):
            yield unit.plain, unit.base_offset, unit.batch_size

    def next_file_offset(self, queue_offset: int) -> int:
        """Where to continue when the entry of an offset is gone: where the queue begins now."""
        return max(self.min_queue_offset, queue_offset)

    def _read_units(self, queue_offset: int, count: int, read: ReadAt) -> bytes | None:
        if not 0 <= self.min_queue_offset <= queue_offset < self.max_queue_offset:
            return b""
        try:
            return self._read_from(queue_offset, count, read)
        except FileNotFoundError:
            return b""  # expired and deleted meanwhile
        except OSError as error:
            raise store_error(f"reading {self.root}", error) from error

    def _read_from(self, queue_offset: int, count: int, read: ReadAt) -> bytes | None:
        """Entries of one file, starting with the one that holds an offset."""
        end_position = self._end_place * BATCH_UNIT_BYTES
        starts = [start for start in self.entries.starts if start < end_position]
        index = self._file_of(starts, queue_offset, read)
        while index is not None and index < len(starts):
            start = starts[index]
            entries = min(self.entries.file_bytes, end_position - start) // BATCH_UNIT_BYTES
            with self.entries.descriptor(start) as fd:
                first = self._first_ending_behind(fd, entries, queue_offset, read)
                if first is None:
                    return None
                if first < entries:
                    length = min(count, entries - first) * BATCH_UNIT_BYTES
                    return read(fd, length, first * BATCH_UNIT_BYTES)
            index += 1
        return None if index is None else b""

    def _file_of(self, starts: list[int], queue_offset: int, read: ReadAt) -> int | None:
        """Number of the last file that begins at or before an offset; ``None`` to give up."""
        low, high = 0, len(starts) - 1
        while low < high:
            middle = (low + high + 1) // 2
            with self.entries.descriptor(starts[middle]) as fd:
                data = read(fd, BATCH_UNIT_BYTES, 0)
            if data is None:
                return None
            if unpack_batch_unit(data).base_offset <= queue_offset:
                low = middle
            else:
                high = middle - 1
        return low

    @staticmethod
    def _first_ending_behind(fd: int, entries: int, queue_offset: int, read: ReadAt) -> int | None:
        """Number of the first entry in a file that ends after an offset; ``None`` to give up."""
        low, high = 0, entries
        while low < high:
            middle = (low + high) // 2
            data = read(fd, BATCH_UNIT_BYTES, middle * BATCH_UNIT_BYTES)
            if data is None:
                return None
            if unpack_batch_unit(data).next_offset <= queue_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def offset_by_time(self, timestamp_ms: int, *, is_upper: bool) -> int:
        """Offset of the first batch stored at or after a time, or (upper) of the last up to it.

        If there is none, as upstream: the last batch, or the first one for the upper boundary.
        """
        places = range(self._min_place, self._end_place)
        if not places:
            return max(self.min_queue_offset, 0)
        limit_ms = timestamp_ms if is_upper else timestamp_ms - 1
        try:
            after = bisect_right(places, limit_ms, key=lambda at: self._unit(at).store_timestamp_ms)
            chosen = min(max(after - 1 if is_upper else after, 0), len(places) - 1)
            return self._unit(places[chosen]).base_offset
        except FileNotFoundError:
            return max(self.min_queue_offset, 0)  # expired and deleted meanwhile
        except OSError as error:
            raise store_error(f"reading {self.root}", error) from error

    # -- files ------------------------------------------------------------------------------

    def peek_queue_offset(self, place: int) -> int:
        """The queue offset of the entry at a place, before recovery."""
        return self._unit(place).base_offset

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Set the first entry whose record the log still holds."""
        entries = self.entries
        if not entries.starts:
            return
        first, end = entries.first_place, self._end_place
        self._min_place = entries.first_from(first, end, min_physical_offset)
        if self._min_place < end:
            self.min_queue_offset = self._unit(self._min_place).base_offset
        else:
            self.min_queue_offset = self.max_queue_offset or _NONE

    @property
    def min_place(self) -> int:
        """Place of the first entry whose record the log still holds."""
        return self._min_place

    def _unit(self, place: int) -> BatchCqUnit:
        """An entry by its place in the files, written or not."""
        return unpack_batch_unit(self.entries.data_at(place))

    def _recover_empty(self) -> bool:
        """Drop every entry; offsets continue where those of the oldest file began.

        That offset does not follow from the name of the file, so a unit without a size, which
        counts as never written, keeps it.
        """
        entries = self.entries
        data = entries.data_at(entries.first_place) if entries.starts else b""
        # If a process died while creating the file, it may be shorter than a unit.
        offset = max(unpack_batch_unit(data).base_offset, 0) if len(data) == BATCH_UNIT_BYTES else 0
        entries.keep_files(1 if offset else 0)
        self.max_physical_offset = -1
        if offset:
            entries.blank(BatchCqUnit(0, 0, 0, 0, offset, 0, 0).pack())
        self._set_end(entries.first_place)
        return offset > 0

    def _set_end(self, place: int) -> None:
        """Continue after the entry before a place; if there is none, where the mark says."""
        entries = self.entries
        offset = 0
        first = entries.first_place
        if place > first:
            offset = self._unit(place - 1).next_offset
        elif entries.starts:
            offset = self._unit(place).base_offset
        self._end_place = place
        entries.move_end(place)
        self.max_queue_offset = self.next_queue_offset = self._pending_end = offset
        self._min_place = min(max(self._min_place, first), place)
        if place > first:
            self.min_queue_offset = self._unit(self._min_place).base_offset
        else:
            self.min_queue_offset = offset or _NONE
            self.max_physical_offset = -1
        self.pending = bytearray()
