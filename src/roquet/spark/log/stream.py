"""A growing log as a stream.

Owns the offset of a stream: the physical offset after the last record read, as
``{"physicalOffset": 12345}``. It is always the start of a record, or the end of the log, so the
same two offsets give the same rows again after a failure, provided the segments still exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from roquet.runtime.files import Files
from roquet.spark.log.log_options import LogOptions
from roquet.spark.log.planning import Task, available, first_offset, tasks_between
from roquet.spark.log.reading import LogReader
from roquet.spark.log.splits import segment_ranges, walk_records
from roquet.spark.log.store_files import LogFiles, open_log
from roquet.spark.plain_errors import plain_errors
from roquet.storefiles.window import Window

OFFSET = "physicalOffset"


@dataclass
class StreamTask(InputPartition):
    """The input of one task of a micro-batch."""

    ranges: Task


class RocketMQLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a store, micro-batch by micro-batch."""

    def __init__(self, options: LogOptions, schema: pa.Schema) -> None:
        """Store options and columns."""
        self._options = options
        self._schema = schema
        self._target: int | None = None
        self._seen_end: int | None = None

    def _log(self) -> LogFiles:
        return open_log(Files(), self._options.paths)

    def initialOffset(self) -> dict[str, int]:
        """Return where a new query starts."""
        with plain_errors():
            return {OFFSET: first_offset(self._log(), self._options)}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit set in the options."""
        if self._options.rows_per_trigger is not None:
            return ReadMaxRows(self._options.rows_per_trigger)
        if self._options.bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of a query with the trigger ``availableNow``."""
        with plain_errors():
            self._target = self._log().end_offset

    def reportLatestOffset(self) -> dict[str, int]:
        """Return the end of the log at the last planning, for the query's progress."""
        with plain_errors():
            if self._seen_end is None:
                self._seen_end = self._log().end_offset
            return {OFFSET: self._seen_end}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return where the next micro-batch ends."""
        with plain_errors():
            log = self._log()
            begin = max(start[OFFSET], log.start_offset)
            if not log.is_written_at(begin):
                self._seen_end = begin
                return start
            end = self._seen_end = log.end_offset
            if self._target is not None:
                end = min(end, self._target)
            if begin >= end:
                return start
            end = limited(log, begin, end, limit)
            most_bytes = self._options.bytes_per_trigger
            if isinstance(limit, ReadMaxRows) and most_bytes is not None:
                end = limited(log, begin, end, ReadMaxBytes(most_bytes))
            return {OFFSET: end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch."""
        with plain_errors():
            log = self._log()
            begin = available(log, self._options, start[OFFSET])
            tasks = tasks_between(log, self._options, begin, end[OFFSET])
        return [StreamTask(ranges) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        with plain_errors():
            assert isinstance(partition, StreamTask)
            yield from LogReader(self._schema, self._options.rules).batches(partition.ranges)


def limited(log: LogFiles, start: int, end: int, limit: ReadLimit) -> int:
    """Return the end of a micro-batch that a limit allows; at least one record."""
    if isinstance(limit, ReadMaxRows):
        return _walk(log, start, end, end, limit.max_rows)[0]
    if isinstance(limit, ReadMaxBytes):
        aim = start + limit.max_bytes
        if aim >= end:
            return end
        offset, records = _walk(log, start, end, aim, 1 << 62)
        return offset if offset == aim else _walk(log, start, end, end, max(records - 1, 1))[0]
    if isinstance(limit, ReadMaxFiles):
        parts = list(segment_ranges(log, start, end))[: limit.max_files]
        return parts[-1].stop
    return end


def _walk(log: LogFiles, start: int, end: int, aim: int, records_max: int) -> tuple[int, int]:
    """Walk up to ``records_max`` records that start before ``aim``; return the end and count."""
    records = 0
    offset = start
    for part in segment_ranges(log, start, end):
        with Window(log.files, part.segment, limit=part.stop) as window:
            offset, stepped, _ = walk_records(window, part, aim, records_max=records_max - records)
        records += stepped
        if records >= records_max or offset >= aim:
            break
    return offset, records
