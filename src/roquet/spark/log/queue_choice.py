"""Decides whether to find messages through their ConsumeQueues when nobody asked for it.

Owns that choice. It must not change what a query returns, and it must pay:

- The entries of all queues must account for every byte of the range, apart from the blanks at the
  ends of segments. Otherwise there are records that no queue has: those of a deleted topic, of a
  batch queue, or stored while the queues were lost.
- The messages of the wanted queues must be a small part. Each is read from its own place, which
  costs as much as reading a few KiB in order.

Whether entries account for all bytes is computed from sums over all queues, without sorting: of
``size`` and of ``(offset + size)**2 - offset**2``, which both telescope if entries adjoin. Memory
is bounded by one piece of a queue file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from roquet.format.consume_queue import FILLER_SIZE, UNIT_BYTES
from roquet.format.record_layout import MAGIC_BLANK
from roquet.format.segment_files import Segment
from roquet.spark.log.queue_reading import QueueRange, selected_ranges
from roquet.spark.log.selection import Selection
from roquet.spark.log.store_files import LogFiles
from roquet.storefiles.queues import QueueView
from roquet.storefiles.window import Window

__all__ = ["accounts_for", "queues_pay"]

RANDOM_READ_BYTES = 8 << 10
"""How much of the log is read in order in the time it takes to read one message elsewhere."""

PART_MAX = 0.5
"""The maximum cost of using queues, compared with reading the log."""

QUEUES_MAX = 4096
"""With more queues than this, opening their files alone takes too long."""

_PIECE_UNITS = 1 << 18
_BLANK_BYTES = 8
_UNIT_TYPE = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
_MODULUS = 1 << 64

Array = npt.NDArray[Any]


def queues_pay(log: LogFiles, selection: Selection, start: int, stop: int) -> bool:
    """Whether reading the selected queues is faster than the range, and returns the same rows."""
    if not log.has_whole_queues or len(log.queues) > QUEUES_MAX or start >= stop:
        return False
    wanted = sum(each.entries for each in selected_ranges(log, selection, start, stop))
    every = sum(
        each.entries for queue in log.queues.values() for each in _parts(queue, start, stop)
    )
    cost_bytes = wanted * RANDOM_READ_BYTES + every * UNIT_BYTES
    return cost_bytes < (stop - start) * PART_MAX and accounts_for(log, start, stop)


def accounts_for(log: LogFiles, start: int, stop: int) -> bool:
    """Whether the entries of all queues account for every byte of a range.

    Args:
        log: The log.
        start: Physical offset of a record.
        stop: Physical offset where the last record with an entry ends, or a later one starts.
    """
    segments = [each for each in log.segments if each.start < stop and each.end > start]
    if not segments:
        return False
    sums = _Sums(segments)
    for queue in log.queues.values():
        for offsets, sizes in _entries(log, queue, start, stop):
            if not sums.add(offsets, sizes):
                return False
    return all(
        sums.is_whole(number, max(start, segment.start))
        and _ends(log, segment, int(sums.ends[number]), stop)
        for number, segment in enumerate(segments)
    )


class _Sums:
    """Sums over entries, by segment."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        count = len(segments)
        self._starts = np.array([each.start for each in segments], dtype=np.int64)
        self._limit = segments[-1].end
        self._sizes = [0] * count
        self._moments = [0] * count
        self.ends = [0] * count

    def add(self, offsets: Array, sizes: Array) -> bool:
        """Add entries of one queue; whether they are in order and inside the segments."""
        if bool((sizes <= 0).any()) or bool((offsets[1:] <= offsets[:-1]).any()):
            return False
        if offsets[0] < self._starts[0] or offsets[-1] >= self._limit:
            return False
        cuts = np.searchsorted(offsets, self._starts[1:])
        low = 0
        for number, high in enumerate([*cuts.tolist(), len(offsets)]):
            if low < high:
                begin, size = offsets[low:high].view(np.uint64), sizes[low:high].view(np.uint64)
                self._sizes[number] += int(size.sum())
                self._moments[number] += int((size * (begin * np.uint64(2) + size)).sum())
                end = int(offsets[high - 1] + sizes[high - 1])
                self.ends[number] = max(self.ends[number], end)
            low = high
        return True

    def is_whole(self, number: int, begin: int) -> bool:
        """Whether entries adjoin from an offset up to the last of a segment."""
        end = self.ends[number]
        expected = (end * end - begin * begin) % _MODULUS
        return self._sizes[number] == end - begin and self._moments[number] % _MODULUS == expected


def _parts(queue: QueueView, start: int, stop: int) -> Iterator[QueueRange]:
    for found in queue.ranges_between(start, stop, samples=2):
        yield QueueRange(found.part, found.first, found.entries, (), 0)


def _entries(
    log: LogFiles, queue: QueueView, start: int, stop: int
) -> Iterator[tuple[Array, Array]]:
    """Yield offsets and sizes of the entries in a range, without fillers."""
    for part in _parts(queue, start, stop):
        fd = log.files.open(part.file.path)
        try:
            for first in range(0, part.entries, _PIECE_UNITS):
                count = min(_PIECE_UNITS, part.entries - first)
                data = log.files.read_at(fd, count * UNIT_BYTES, (part.first + first) * UNIT_BYTES)
                units = np.frombuffer(data, dtype=_UNIT_TYPE, count=len(data) // UNIT_BYTES)
                sizes = units["size"].astype(np.int64)
                offsets = units["offset"].astype(np.int64)
                is_kept = (sizes != FILLER_SIZE) | (offsets != 0)
                if not is_kept.all():
                    sizes, offsets = sizes[is_kept], offsets[is_kept]
                if len(offsets):
                    yield offsets, sizes
        finally:
            log.files.close(fd)


def _ends(log: LogFiles, segment: Segment, end: int, stop: int) -> bool:
    """Whether the entries of a segment end where its records do."""
    if end in {stop, segment.end}:
        return True
    if stop < segment.end or segment.end - end < _BLANK_BYTES:
        return False
    with Window(log.files, segment, limit=end) as window:
        head = bytes(window.need(end, _BLANK_BYTES))
    size, magic = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
    return magic == MAGIC_BLANK and size == segment.end - end
