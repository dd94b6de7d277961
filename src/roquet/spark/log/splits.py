"""Splits the log into tasks.

Chooses the cuts. A cut is the exact start of a record, so every record belongs to one task.
Segments start with a record; within a segment, cuts come from ConsumeQueue entries, or from walking
the records where there are none. Store times never decrease along the log, so a time is found by
bisection in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property

from roquet.format.commit_log import DispatchRequest, peek_store_timestamp_ms
from roquet.spark.log.decoder import ENDED, FULL, MORE, walk
from roquet.spark.log.store_files import LogFiles
from roquet.storefiles.damage import SHAPE_RULES, check_at, damage_at
from roquet.storefiles.queues import QueueView
from roquet.storefiles.records import LogRange
from roquet.storefiles.window import Window, claimed_bytes

SPLIT_BYTES = 128 << 20
ASKED_QUEUES_MAX = 32
"""How many queues to take entries from; the longest come first."""

SLACK_BYTES = 8 << 20
"""How far after its aim a cut may be before the log is walked for a better one."""

SAMPLED_QUEUES = 4
QUEUE_SAMPLES = 128
"""How many entries of how many queues show whether store times are in order."""

STRIDE_BYTES = 1 << 20
"""How much of the log is walked at a time when searching for a store time."""

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
        tasks_min: The minimum number of tasks, if the range has that many records.
    """
    return plan_at(log, start, stop, _even_cuts(start, stop, split_bytes, tasks_min))


def plan_at(log: LogFiles, start: int, stop: int, cuts: Sequence[int]) -> list[list[LogRange]]:
    """Cut a range of the log into tasks at given offsets.

    Args:
        log: The log.
        start: As of :func:`plan`.
        stop: As of :func:`plan`.
        cuts: Physical offsets in order; a task starts with the first record at or after each.
    """
    aims = deque(cuts)
    tasks: list[list[LogRange]] = [[]]
    cutter = RecordStartFinder(log)
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


def plan_whole(
    log: LogFiles, *, start: int, stop: int, is_open: bool, split_bytes: int, tasks_min: int
) -> list[list[LogRange]]:
    """Cut a log into tasks for a walk that also checks its end.

    Args:
        log: The log.
        start: Physical offset of the first record.
        stop: Physical offset of the end.
        is_open: Whether the last task continues to the end of the last file.
        split_bytes: About how much a task reads.
        tasks_min: The minimum number of tasks.
    """
    cuts = _even_cuts(start, stop, split_bytes, max(tasks_min, 1))
    if is_open and log.segments:
        stop = max(stop, log.segments[-1].end)
    return plan_at(log, start, stop, cuts)


def _even_cuts(start: int, stop: int, split_bytes: int, tasks_min: int) -> list[int]:
    total = max(stop - start, 0)
    count = max(tasks_min, -(-total // split_bytes))
    return [start + total * number // count for number in range(1, count)]


def time_bounds(
    log: LogFiles, start: int, stop: int, from_ms: int | None, to_ms: int | None
) -> tuple[int, int]:
    """Return the part of a range whose records were stored within a time range."""
    cutter = RecordStartFinder(log)
    low = start if from_ms is None else cutter.time_from(from_ms, start, stop)
    high = stop if to_ms is None else cutter.time_from(to_ms, start, stop)
    return low, max(low, high)


def segment_ranges(log: LogFiles, start: int, stop: int) -> Iterator[LogRange]:
    """Split a range at segment boundaries."""
    for segment in log.segments:
        low, high = max(start, segment.start), min(stop, segment.end)
        if low < high:
            yield LogRange(segment, low, high, high)


class RecordStartFinder:
    """Finds where records start in a log."""

    def __init__(self, log: LogFiles) -> None:
        """Read nothing yet."""
        self._log = log

    @cached_property
    def _queues(self) -> list[QueueView]:
        queues = self._log.queues.values()
        lengths = {queue.key: queue.written_end() - queue.first_offset for queue in queues}
        return sorted(queues, key=lambda queue: -lengths[queue.key])[:ASKED_QUEUES_MAX]

    def cut(self, whole: LogRange, aims: deque[int]) -> Iterator[LogRange]:
        """Cut a range of one segment at the first record at or after each aim.

        Args:
            whole: The range.
            aims: Physical offsets in order; those used are removed.
        """
        start = whole.start
        with Window(self._log.files, whole.segment, limit=whole.start) as window:
            while aims and aims[0] < whole.stop:
                found = self._record_from(window, start, aims[0], whole)
                if found >= whole.stop:
                    break  # no record is left; the next task starts with the next segment
                while aims and aims[0] <= found:
                    aims.popleft()
                yield whole._replace(start=start, stop=found)
                start = found
        yield whole._replace(start=start)

    def _record_from(self, window: Window, known: int, aim: int, whole: LogRange) -> int:
        """Return the start of a record at or after ``aim``, or the end of the range."""
        found = self.entry_from(aim)
        is_near = found is not None and found < min(aim + SLACK_BYTES, whole.stop)
        if found is not None and is_near and is_record(window, found):
            return found
        offset, _, _ = walk_records(window, whole._replace(start=known), aim)
        return offset

    def entry_from(self, aim: int) -> int | None:
        """Return the nearest start of a record that a queue entry names."""
        entries = (queue.entry(queue.first_behind(aim)) for queue in self._queues)
        return min((entry.physical_offset for entry in entries if entry is not None), default=None)

    def is_in_order(self, start: int, stop: int) -> bool:
        """Whether the store times of some records of a range do not decrease.

        These are the first records of segments, and some of the longest queues, evenly spaced.
        """
        ranges = list(segment_ranges(self._log, start, stop))
        places = {each.start for each in ranges}
        for queue in self._queues[:SAMPLED_QUEUES]:
            first, end = queue.first_behind(start), queue.first_behind(stop)
            step = max((end - first) // QUEUE_SAMPLES, 1)
            entries = (queue.entry(number) for number in range(first, end, step))
            places.update(each.physical_offset for each in entries if each is not None)
        newest_ms = 0
        for whole in ranges:
            with Window(self._log.files, whole.segment, limit=0) as window:
                for place in sorted(each for each in places if whole.start <= each < whole.stop):
                    time_ms = store_time_ms(window, place)
                    if time_ms is not None and time_ms < newest_ms:
                        return False
                    newest_ms = newest_ms if time_ms is None else time_ms
        return True

    def record_before(self, offset: int, start: int, stop: int) -> int:
        """Return the start of a record at or shortly before an offset of a range."""
        whole = self._range_at(offset, start, stop)
        aim = offset - SLACK_BYTES
        if aim <= whole.start:
            return whole.start
        with Window(self._log.files, whole.segment, limit=whole.start) as window:
            found = self._record_from(window, whole.start, aim, whole)
        return found if found <= offset else whole.start

    def record_after(self, offset: int, start: int, stop: int) -> int:
        """Return the start of a record after an offset of a range, or the end of its segment."""
        whole = self._range_at(offset, start, stop)
        known = self.record_before(offset, start, stop)
        with Window(self._log.files, whole.segment, limit=whole.start) as window:
            return self._record_from(window, known, offset + 1, whole)

    def _range_at(self, offset: int, start: int, stop: int) -> LogRange:
        ranges = list(segment_ranges(self._log, start, stop))
        return next((each for each in reversed(ranges) if each.start <= offset), ranges[0])

    def time_from(self, time_ms: int, start: int, stop: int) -> int:
        """Return where the first record stored at or after a time starts, or the range's end."""
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
        """Like :meth:`time_from`, in one segment whose first record is older."""
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
    """Walk to the first record that is not older than a time; return its start, or the end."""
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
    """Whether a record starts at an offset."""
    segment = window.segment
    if not segment.start <= offset < segment.end:
        return False
    return isinstance(check_at(window, offset, segment.end, SHAPE_RULES), DispatchRequest)


def store_time_ms(window: Window, offset: int) -> int | None:
    """Return the store time of the record at an offset; ``None`` if there is none."""
    head = window.need(offset, min(_PEEK_BYTES, window.segment.end - offset))
    return peek_store_timestamp_ms(head, 0, window.segment.end - offset)


def walk_records(
    window: Window, part: LogRange, aim: int, *, records_max: int = 1 << 62
) -> tuple[int, int, int]:
    """Walk over the records, and the damage, that start before ``aim``.

    Returns:
        The physical offset reached (the end of the part if no record is left), the number of
        records, and why it stopped: ENDED or FULL.
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
