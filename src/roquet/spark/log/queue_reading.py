"""Finds the messages of a few topics through their ConsumeQueues, without reading the whole log.

Plans and reads such tasks. Records from many places are copied one after another into one buffer,
which is decoded like a part of a segment.

This sees what consumers see: a record without an entry is not found, nor is damage that no entry
points to. After a crash queues may lack entries, so they are not used until a broker has recovered
the store.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from roquet.errors import DataLost
from roquet.format.commit_log import DispatchRequest, RecordFault, check_record
from roquet.format.consume_queue import UNIT_BYTES, CqUnit, unpack_unit
from roquet.format.record_layout import PHYSICAL_OFFSET_AT, RECORD_BYTES_MIN
from roquet.format.segment_files import Segment
from roquet.runtime.files import Files
from roquet.spark.log.selection import Selection
from roquet.spark.log.store_files import LogFiles
from roquet.storefiles.damage import RULES, SHAPE_RULES, DamagedRange, shape_of
from roquet.storefiles.queues import QueueView
from roquet.storefiles.window import Window

GATHER_BYTES = 4 << 20
GAP_BYTES = 16 << 10
"""Records no further apart than this are read together, with what is between them."""

RUN_BYTES_MAX = 1 << 20
"""The maximum number of bytes to read together."""

PEEK_BYTES = 4 << 10
_UNITS_AT_ONCE = 8192
_SAMPLES = 16


class QueueRange(NamedTuple):
    """Entries of one queue file, and the segments that they point into."""

    file: Segment
    first: int
    entries: int
    segments: tuple[Segment, ...]
    size_bytes: int
    """The approximate size of their records."""


class PlacesRange(NamedTuple):
    """Records of one segment, by physical offset."""

    segment: Segment
    offsets: tuple[int, ...]
    end: int
    """Where the segment, or its confirmed part, ends."""

    @property
    def size_bytes(self) -> int:
        """The approximate size of their records."""
        return len(self.offsets) * PEEK_BYTES


class Gathered(NamedTuple):
    """Concatenated records."""

    data: memoryview
    starts: list[int]
    """Where each record starts in ``data``."""
    units: list[CqUnit]
    segment: Segment


def plan_queues(
    log: LogFiles, selection: Selection, start: int, stop: int, *, split_bytes: int, tasks_min: int
) -> list[list[QueueRange]]:
    """Plan the tasks that read the selected queues within a range of the log.

    Args:
        log: The log.
        selection: Selects topics and queues.
        start: Physical offset of the first record.
        stop: Physical offset of the end.
        split_bytes: About how much a task reads.
        tasks_min: The minimum number of tasks.
    """
    parts = list(selected_ranges(log, selection, start, stop))
    total = sum(part.size_bytes for part in parts)
    target = max(min(split_bytes, -(-total // tasks_min)), 1)
    tasks: list[list[QueueRange]] = [[]]
    task_bytes = 0
    for whole in parts:
        for part in _pieces(whole, target):
            if tasks[-1] and task_bytes + part.size_bytes > target:
                tasks.append([])
                task_bytes = 0
            tasks[-1].append(part)
            task_bytes += part.size_bytes
    return tasks if tasks[-1] else []


def selected_ranges(
    log: LogFiles, selection: Selection, start: int, stop: int
) -> Iterator[QueueRange]:
    """Yield the entries of the selected queues for a range of the log."""
    takes_topic = selection.topic_test()
    for key, queue in log.queues.items():
        if (takes_topic is None or takes_topic(key.topic)) and selection.takes_queue(key.queue_id):
            yield from _queue_parts(log, queue, start, stop)


def _queue_parts(log: LogFiles, queue: QueueView, start: int, stop: int) -> Iterator[QueueRange]:
    for found in queue.ranges_between(start, stop, samples=_SAMPLES):
        sizes = [unit.size_bytes for unit in found.samples if not unit.is_filler]
        mean = sum(sizes) // len(sizes) if sizes else 1
        low, high = found.samples[0].physical_offset, found.samples[-1].physical_offset
        segments = tuple(
            segment for segment in log.segments if segment.end > low and segment.start <= high
        )
        size_bytes = max(found.entries * mean, 1)
        yield QueueRange(found.part, found.first, found.entries, segments, size_bytes)


def _pieces(whole: QueueRange, target: int) -> Iterator[QueueRange]:
    """Split a range into parts of about ``target`` bytes."""
    pieces = max(-(-whole.size_bytes // target), 1)
    step = -(-whole.entries // pieces)
    for first in range(0, whole.entries, step):
        count = min(step, whole.entries - first)
        size = max(whole.size_bytes * count // whole.entries, 1)
        yield whole._replace(first=whole.first + first, entries=count, size_bytes=size)


def read_units(files: Files, part: QueueRange) -> Iterator[CqUnit]:
    """Yield the entries of a range without fillers."""
    try:
        fd = files.open(part.file.path)
    except FileNotFoundError:
        raise DataLost(
            f"The queue file {part.file.path} is gone.",
            hint="The broker removed it after the query was planned: read a later range, or set"
            " failOnDataLoss to false.",
        ) from None
    try:
        for at in range(0, part.entries, _UNITS_AT_ONCE):
            count = min(_UNITS_AT_ONCE, part.entries - at)
            data = files.read_at(fd, count * UNIT_BYTES, (part.first + at) * UNIT_BYTES)
            for position in range(0, len(data), UNIT_BYTES):
                unit = unpack_unit(data, position)
                if not unit.is_filler:
                    yield unit
    finally:
        files.close(fd)


def gather(
    files: Files, part: QueueRange, *, skips_lost: bool
) -> Iterator[Gathered | DamagedRange]:
    """Yield the records of a range in buffers, and damage where an entry has no valid record."""
    by_segment: dict[Segment, list[CqUnit]] = {segment: [] for segment in part.segments}
    starts = [segment.start for segment in part.segments]
    for unit in read_units(files, part):
        index = bisect_right(starts, unit.physical_offset) - 1
        if index >= 0 and unit.physical_offset < part.segments[index].end:
            by_segment[part.segments[index]].append(unit)
    for segment, units in by_segment.items():
        if not units:
            continue
        try:
            window = Window(files, segment, limit=segment.start)
        except DataLost:
            if not skips_lost:
                raise
            continue
        with window:
            yield from _gather_segment(window, units)


def _gather_segment(window: Window, units: Sequence[CqUnit]) -> Iterator[Gathered | DamagedRange]:
    buffer = bytearray()
    starts: list[int] = []
    held: list[CqUnit] = []
    for unit, run_end in _with_runs(units):
        offset, size = unit.physical_offset, unit.size_bytes
        window.limit = run_end
        record = window.need(offset, min(size, window.segment.end - offset))
        is_right = (
            int.from_bytes(record[:4], "big") == size == len(record)
            and int.from_bytes(record[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big") == offset
        )
        if is_right:
            starts.append(len(buffer))
            held.append(unit)
            buffer += record
        if starts and (not is_right or len(buffer) >= GATHER_BYTES):
            yield Gathered(memoryview(buffer), starts, held, window.segment)
            buffer, starts, held = bytearray(), [], []
        if not is_right:
            yield entry_damage(record, unit, check_crc=False)
    if starts:
        yield Gathered(memoryview(buffer), starts, held, window.segment)


def _with_runs(units: Sequence[CqUnit]) -> Iterator[tuple[CqUnit, int]]:
    """Yield each entry with the end of the bytes to read together with its record."""
    following, run_end = 0, 0
    for number, unit in enumerate(units):
        if number >= following:
            following, run_end = number + 1, unit.end_offset
            run_max = unit.physical_offset + RUN_BYTES_MAX
            while following < len(units):
                after = units[following]
                gap = after.physical_offset - run_end
                if not 0 <= gap <= GAP_BYTES or after.end_offset > run_max:
                    break
                run_end = after.end_offset
                following += 1
        yield unit, run_end


def gather_places(
    files: Files, segment: Segment, offsets: Sequence[int], end: int
) -> Iterator[Gathered | DamagedRange]:
    """Yield the records at some offsets of a segment, as :func:`gather` does."""
    with Window(files, segment, limit=segment.start) as window:
        units = []
        for offset in offsets:
            window.limit = offset + PEEK_BYTES
            stated = int.from_bytes(window.need(offset, min(4, end - offset)), "big")
            size = stated if RECORD_BYTES_MIN <= stated <= end - offset else RECORD_BYTES_MIN
            units.append(CqUnit(offset, min(size, end - offset), 0))
        yield from _gather_segment(window, units)


def entry_damage(record: memoryview, unit: CqUnit, *, check_crc: bool) -> DamagedRange:
    """Return what is wrong with the record that an entry points to."""
    offset, size = unit.physical_offset, unit.size_bytes
    rules = RULES if check_crc else SHAPE_RULES
    found = check_record(record, 0, len(record), physical_offset=offset, rules=rules)
    if not isinstance(found, RecordFault):
        stated = found.size_bytes if isinstance(found, DispatchRequest) else 0
        found = RecordFault(offset, "totalSize", f"{stated}, the entry of its queue says {size}")
    return DamagedRange(offset, offset + size, found, shape_of(record, len(record)))
