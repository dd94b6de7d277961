"""The log cut into tasks.

Owns where the cuts are. A cut is the exact start of a record, so that every record belongs to one
task. Segments start with a record; within one, cuts come from entries of ConsumeQueues, or by
walking from record to record where there are none. Store times never go back along the log, so a
time is found by bisection in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property

from roquet.format.commit_log import (
    RECORD_BYTES_MIN,
    DispatchRequest,
    RecordRules,
    check_record,
    peek_store_timestamp_ms,
)
from roquet.model.delay_level import DelayLevels
from roquet.spark.log.corrupt import damage_at
from roquet.spark.log.decoder import ENDED, FULL, MORE, walk
from roquet.spark.log.queue_files import QueueFiles
from roquet.spark.log.reading import LogRange
from roquet.spark.log.store_files import LogFiles
from roquet.spark.log.window import Window, claimed_bytes

SPLIT_BYTES = 128 << 20
ASKED_QUEUES_MAX = 32
"""Of how many queues entries are looked at; the longest ones have the most."""

SLACK_BYTES = 8 << 20
"""How far behind its aim a cut may be before the log is walked for a better one."""

STRIDE_BYTES = 1 << 20
"""By how much the log is walked at once when a time is searched."""

_RULES = RecordRules(DelayLevels(), check_crc=False)
_PEEK_BYTES = 128


def plan(
    log: LogFiles, start: int, stop: int, *, split_bytes: int = SPLIT_BYTES, tasks_min: int = 1
) -> list[list[LogRange]]:
    """Cut a range of the log into tasks.

    Args:
        log: The log.
        start: Physical offset of the first record.
        stop: Physical offset of the end; a record starts there, or the log ends.
        split_bytes: About how much a task reads.
        tasks_min: How many tasks there are to be at least, if the range has so many records.
    """
    total = max(stop - start, 0)
    count = max(tasks_min, -(-total // split_bytes))
    return plan_at(
        log, start, stop, [start + total * number // count for number in range(1, count)]
    )


def plan_at(log: LogFiles, start: int, stop: int, cuts: Sequence[int]) -> list[list[LogRange]]:
    """Cut a range of the log into tasks at given places.

    Args:
        log: The log.
        start: As of :func:`plan`.
        stop: As of :func:`plan`.
        cuts: Physical offsets in order; a task begins with a record at or behind each.
    """
    aims = deque(cuts)
    tasks: list[list[LogRange]] = [[]]
    cutter = Cutter(log)
    for whole in segment_ranges(log, start, stop):
        while aims and aims[0] <= whole.start:
            aims.popleft()
            if tasks[-1]:
                tasks.append([])
        for part in cutter.cut(whole, aims):
            tasks[-1].append(part)
            if part.stop < whole.stop:
                tasks.append([])
    return tasks if tasks[-1] else tasks[:-1]


def segment_ranges(log: LogFiles, start: int, stop: int) -> Iterator[LogRange]:
    """The parts of a range that lie in one segment each."""
    for segment in log.segments:
        low, high = max(start, segment.start), min(stop, segment.end)
        if low < high:
            yield LogRange(segment, low, high, high)


class Cutter:
    """Finds starts of records in one log."""

    def __init__(self, log: LogFiles) -> None:
        """Look nowhere yet."""
        self._log = log

    @cached_property
    def _queues(self) -> list[QueueFiles]:
        return sorted(self._log.queues, key=lambda queue: -queue.entries())[:ASKED_QUEUES_MAX]

    def cut(self, whole: LogRange, aims: deque[int]) -> Iterator[LogRange]:
        """A range of one segment, cut at the first record from each aim on.

        Args:
            whole: The range.
            aims: Physical offsets in order; those that were served are taken from it.
        """
        start = whole.start
        with Window(self._log.files, whole.segment, limit=whole.start) as window:
            while aims and aims[0] < whole.stop:
                found = self._record_from(window, start, aims[0], whole)
                if found >= whole.stop:
                    break  # no record is left: the next segment is the next task
                while aims and aims[0] <= found:
                    aims.popleft()
                yield whole._replace(start=start, stop=found)
                start = found
        yield whole._replace(start=start)

    def _record_from(self, window: Window, known: int, aim: int, whole: LogRange) -> int:
        """Start of a record at or behind ``aim``, or the end of the range."""
        found = self.entry_from(aim)
        is_near = found is not None and found < min(aim + SLACK_BYTES, whole.stop)
        if found is not None and is_near and is_record(window, found):
            return found
        offset, _, _ = walk_records(window, whole._replace(start=known), aim)
        return offset

    def entry_from(self, aim: int) -> int | None:
        """The nearest start of a record that an entry of a queue names."""
        named = (queue.at_or_behind(aim) for queue in self._queues)
        return min((offset for offset in named if offset is not None), default=None)

    def time_from(self, time_ms: int, start: int, stop: int) -> int:
        """Start of the first record of a range that was stored at or after a time, or its end."""
        ranges = list(segment_ranges(self._log, start, stop))
        low, high = 0, len(ranges)
        while low < high:
            middle = (low + high) // 2
            with Window(self._log.files, ranges[middle].segment, limit=0) as window:
                time = store_time_ms(window, ranges[middle].start)
            if time is None or time < time_ms:
                low = middle + 1
            else:
                high = middle
        if low > 0:
            whole = ranges[low - 1]
            with Window(self._log.files, whole.segment, limit=0) as window:
                found = self._time_in(window, whole, time_ms)
            if found < whole.stop:
                return found
        return ranges[low].start if low < len(ranges) else stop

    def _time_in(self, window: Window, whole: LogRange, time_ms: int) -> int:
        """As :meth:`time_from` in one segment, whose first record is older."""
        low, high, unknown = whole.start, whole.stop, whole.stop
        while unknown - low > STRIDE_BYTES:
            middle = (low + unknown) // 2
            entry = self.entry_from(middle)
            if entry is None or entry >= high or not is_record(window, entry):
                unknown = middle
                continue
            time = store_time_ms(window, entry)
            if time is not None and time < time_ms:
                low = entry
            else:
                high = entry
                unknown = middle
        window.limit = high
        return _first_since(window, whole._replace(start=low, stop=high, end=high), time_ms)


def _first_since(window: Window, part: LogRange, time_ms: int) -> int:
    """The first record of a part that is not older than a time, by walking; else its end."""
    offset = part.start
    while offset < part.stop:
        following, _, _ = walk_records(window, part._replace(start=offset), offset + STRIDE_BYTES)
        time = store_time_ms(window, following) if following < part.stop else None
        if time is None or time >= time_ms:
            break
        offset = following
    while offset < part.stop:
        time = store_time_ms(window, offset)
        if time is not None and time >= time_ms:
            return offset
        offset, _, _ = walk_records(window, part._replace(start=offset), part.stop, records_max=1)
    return part.stop


def is_record(window: Window, offset: int) -> bool:
    """Whether a record is at an offset."""
    segment = window.segment
    if not segment.start <= offset < segment.end:
        return False
    rest = segment.end - offset
    head = window.need(offset, min(RECORD_BYTES_MIN, rest))
    size = int.from_bytes(head[:4], "big", signed=True)
    if not RECORD_BYTES_MIN <= size <= rest:
        return False
    record = window.need(offset, size)
    found = check_record(record, 0, rest, physical_offset=offset, rules=_RULES)
    return isinstance(found, DispatchRequest)


def store_time_ms(window: Window, offset: int) -> int | None:
    """When the record at an offset was stored; ``None`` if none is there."""
    head = window.need(offset, min(_PEEK_BYTES, window.segment.end - offset))
    return peek_store_timestamp_ms(head, 0, window.segment.end - offset)


def walk_records(
    window: Window, part: LogRange, aim: int, *, records_max: int = 1 << 62
) -> tuple[int, int, int]:
    """Step over the records of a part, and over damage, that start in front of ``aim``.

    Returns:
        The physical offset that was reached, records, and why it is not further: ENDED or FULL.
        The end of the part if no record is left.
    """
    offset, records = part.start, 0
    limit, window.limit = window.limit, part.stop
    try:
        while offset < min(aim, part.stop):
            if not window.has(offset, 1):
                window.load(offset)
            base = window.base
            stepped, reached, why = walk(
                window.view,
                offset - base,
                min(aim, part.stop) - base,
                part.end - base,
                base,
                records_max=records_max - records,
            )
            offset, records = base + reached, records + stepped
            if why == FULL:
                return offset, records, FULL
            if why == MORE:
                window.load(offset, claimed_bytes(window, offset))
            elif why != ENDED:
                damage = damage_at(window, offset, part.stop, part.end, check_crc=False)
                offset = part.stop if damage is None else damage.end
    finally:
        window.limit = limit
    return offset, records, ENDED
