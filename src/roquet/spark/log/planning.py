"""Plans the tasks of a query, and which range of the log they read.

Runs on the driver. Every mistake in the options is found here, before any task starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from roquet.errors import DataLost, SparkOptionError
from roquet.runtime.files import Files
from roquet.spark.log.corrupt import FAILFAST
from roquet.spark.log.index_choice import IndexedParts, indexed_parts
from roquet.spark.log.log_options import FORMAT, LogOptions
from roquet.spark.log.queue_choice import queues_pay
from roquet.spark.log.queue_reading import PlacesRange, QueueRange, plan_queues
from roquet.spark.log.reading import ReadRules
from roquet.spark.log.selection import ALWAYS_MS, NEVER_MS, Selection
from roquet.spark.log.splits import (
    SLACK_BYTES,
    RecordStartFinder,
    is_record,
    plan,
    segment_ranges,
)
from roquet.spark.log.store_files import LogFiles, open_log
from roquet.spark.options import EARLIEST, LATEST
from roquet.storefiles.records import LogRange
from roquet.storefiles.window import Window

Task: TypeAlias = Sequence[LogRange | QueueRange | PlacesRange]
"""The input of one task."""


def batch_tasks(options: LogOptions, files: Files | None = None) -> list[Task]:
    """Return the tasks of a batch query; fixes the end of the log."""
    log = open_log(files or Files(), options.paths)
    start = _given_start(log, options)
    end = log.end_offset
    if options.end_offset != LATEST:
        end = min(place(log, options.end_offset, "endingOffsets"), end)
    start, end = _stored_between(log, options, start, end)
    start, end = _placed_between(log, options.rules.selection, start, end)
    return tasks_between(log, options, start, end)


def _stored_between(log: LogFiles, options: LogOptions, start: int, end: int) -> tuple[int, int]:
    """Return the part of a range to read for its store times.

    For a filter of a query, which must find all rows, the whole range is read if a clock was set
    back, as far as some of its records show; and a little more than the part is read, for clocks
    that were set back between these.
    """
    selection = options.rules.selection
    from_ms, to_ms = selection.store_from_ms, selection.store_to_ms
    if (from_ms == ALWAYS_MS and to_ms == NEVER_MS) or start >= end:
        return start, end
    finder = RecordStartFinder(log)
    is_exact = options.rules.drops_unknown_damage
    if is_exact and not finder.is_in_order(start, end):
        return start, end
    low = finder.time_from(from_ms, start, end) if from_ms > ALWAYS_MS else start
    high = finder.time_from(to_ms, low, end) if to_ms < NEVER_MS else end
    if is_exact:
        low = finder.record_before(min(low, end - 1), start, end)
        high = finder.record_after(high + SLACK_BYTES, start, end)
    return low, max(low, high)


def _placed_between(log: LogFiles, selection: Selection, start: int, end: int) -> tuple[int, int]:
    """Return the part of a range that a condition on physical offsets selects.

    It starts and ends with a record, so damage has the same bounds as without the condition.
    """
    condition = selection.numbers.get("physicalOffset")
    if condition is None or start >= end:
        return start, end
    finder = RecordStartFinder(log)
    if condition.low > start:
        start = finder.record_before(min(condition.low, end), start, end)
    if condition.high < end - 1:
        end = finder.record_after(max(condition.high, start), start, end)
    return start, end


def tasks_between(log: LogFiles, options: LogOptions, start: int, end: int) -> list[Task]:
    """Return the tasks for a range of the log."""
    tasks: list[Task] = []
    # After the newest entry there may be records that no queue has yet.
    middle = min(max(log.queued_offset, start), end)
    indexed = _indexed(log, options, start, middle)
    if indexed is not None:
        tasks += [[each] for each in indexed.places]
        tasks += _gap_tasks(log, indexed.gaps, options.split_bytes)
        start = middle
    elif _uses_queues(log, options, start, middle):
        tasks += plan_queues(
            log,
            options.rules.selection,
            start,
            middle,
            split_bytes=options.split_bytes,
            tasks_min=options.tasks_min,
        )
        start = middle
    tasks += plan(log, start, end, split_bytes=options.split_bytes, tasks_min=options.tasks_min)
    return tasks


def _gap_tasks(
    log: LogFiles, gaps: Sequence[tuple[int, int]], split_bytes: int
) -> Iterator[list[LogRange]]:
    """Yield tasks that read some ranges of the log, small ones together."""
    held: list[LogRange] = []
    held_bytes = 0
    for low, high in gaps:
        for ranges in plan(log, low, high, split_bytes=split_bytes):
            size_bytes = sum(each.stop - each.start for each in ranges)
            if held and held_bytes + size_bytes > split_bytes:
                yield held
                held, held_bytes = [], 0
            held += ranges
            held_bytes += size_bytes
    if held:
        yield held


def _indexed(log: LogFiles, options: LogOptions, start: int, stop: int) -> IndexedParts | None:
    """Return what to read of a range if the index leads to the messages."""
    is_wanted = options.use_index or (options.use_index is None and _may_miss_damage(options.rules))
    if not is_wanted or options.use_queues:
        return None
    is_forced = options.use_index is True
    return indexed_parts(log, options.rules.selection, start, stop, is_forced=is_forced)


def _uses_queues(log: LogFiles, options: LogOptions, start: int, stop: int) -> bool:
    """Whether to read a range through ConsumeQueues."""
    if options.use_queues is not None:
        return options.use_queues and log.has_whole_queues
    selection = options.rules.selection
    if not _may_miss_damage(options.rules) or selection.topic_test() is None:
        return False
    return queues_pay(log, selection, start, stop)


def _may_miss_damage(rules: ReadRules) -> bool:
    """Whether damage of unknown messages does not matter: neither queues nor index lead to it.

    A filter of a query drops it. Options do not.
    """
    return rules.drops_unknown_damage and rules.mode != FAILFAST


def first_offset(log: LogFiles, options: LogOptions) -> int:
    """Return the physical offset at which a query starts."""
    start = _given_start(log, options)
    selection = options.rules.selection
    if options.start_offset != LATEST and selection.store_from_ms > ALWAYS_MS:
        start = RecordStartFinder(log).time_from(selection.store_from_ms, start, log.end_offset)
    return start


def _given_start(log: LogFiles, options: LogOptions) -> int:
    if options.start_offset == LATEST:
        return log.end_offset
    start = log.start_offset
    if options.start_offset != EARLIEST:
        start = available(log, options, place(log, options.start_offset, "startingOffsets"))
    return start


def available(log: LogFiles, options: LogOptions, offset: int) -> int:
    """Return the first readable offset; raise for, or skip, what was deleted."""
    oldest = log.start_offset
    if offset >= oldest:
        return offset
    if options.rules.fail_on_data_loss:
        raise DataLost(
            f"The log no longer has physical offset {offset}.",
            detail=f"{oldest - offset} bytes are gone, it starts at {oldest}",
            hint="Set failOnDataLoss to false to continue with what is left.",
        )
    return oldest


def place(log: LogFiles, offset: int, name: str) -> int:
    """Return the user's offset; raise unless a record starts or the log ends there."""
    end = log.end_offset
    if offset < log.start_offset or offset == end:
        return offset
    for part in segment_ranges(log, offset, end):
        with Window(log.files, part.segment, limit=part.start) as window:
            if is_record(window, offset):
                return offset
        break
    raise SparkOptionError(
        f"The option {name!r} of {FORMAT} is {offset}, where no record starts.",
        detail=f"the log goes from {log.start_offset} to {end}",
        hint="Use the physicalOffset of a row of this log.",
    )
