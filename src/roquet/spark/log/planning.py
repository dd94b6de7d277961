"""Plans the tasks of a query, and which range of the log they read.

Runs on the driver. Every mistake in the options is found here, before any task starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from roquet.errors import DataLost, SparkOptionError
from roquet.runtime.files import Files
from roquet.spark.log.log_options import FORMAT, LogOptions
from roquet.spark.log.queue_reading import QueueRange, plan_queues
from roquet.spark.log.selection import ALWAYS_MS, NEVER_MS
from roquet.spark.log.splits import RecordStartFinder, is_record, plan, segment_ranges
from roquet.spark.log.store_files import LogFiles, open_log
from roquet.spark.options import EARLIEST, LATEST
from roquet.storefiles.records import LogRange
from roquet.storefiles.window import Window

Task: TypeAlias = Sequence[LogRange | QueueRange]
"""The input of one task."""


def batch_tasks(options: LogOptions, files: Files | None = None) -> list[Task]:
    """Return the tasks of a batch query; fixes the end of the log."""
    log = open_log(files or Files(), options.paths)
    start = first_offset(log, options)
    end = log.end_offset
    if options.end_offset != LATEST:
        end = min(place(log, options.end_offset, "endingOffsets"), end)
    selection = options.rules.selection
    if selection.store_to_ms < NEVER_MS:
        end = RecordStartFinder(log).time_from(selection.store_to_ms, start, end)
    return tasks_between(log, options, start, end)


def tasks_between(log: LogFiles, options: LogOptions, start: int, end: int) -> list[Task]:
    """Return the tasks for a range of the log."""
    tasks: list[Task] = []
    if options.use_queues and log.has_whole_queues:
        # After the newest entry there may be records that no queue has yet.
        middle = min(max(log.queued_offset, start), end)
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


def first_offset(log: LogFiles, options: LogOptions) -> int:
    """Return the physical offset at which a query starts."""
    selection = options.rules.selection
    if options.start_offset == LATEST:
        return log.end_offset
    start = log.start_offset
    if options.start_offset != EARLIEST:
        start = available(log, options, place(log, options.start_offset, "startingOffsets"))
    if selection.store_from_ms > ALWAYS_MS:
        start = RecordStartFinder(log).time_from(selection.store_from_ms, start, log.end_offset)
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
