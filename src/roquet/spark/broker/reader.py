"""Batch reads from brokers: ``spark.read.format("rocketmq")``.

Owns the batch reader and the work of a task, which is the same in a stream. The driver fixes the
offsets when it plans the query; a task reads exactly its range.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from roquet.runtime.event_loop import loop_factory
from roquet.spark.broker.cluster import Cluster
from roquet.spark.broker.fetch import Fetch
from roquet.spark.broker.planning import QueueRange, split_ranges
from roquet.spark.broker.positions import QueueBounds, batch_ranges
from roquet.spark.broker.pushed_filters import PushedFilters
from roquet.spark.broker.read_options import ReadOptions
from roquet.spark.broker.rows import RowMaker
from roquet.spark.plain_errors import plain_errors
from roquet.spark.schema import COLUMNS, arrow_schema, asked_columns

__all__ = [
    "BrokerReader",
    "FilteringBrokerReader",
    "RangePartition",
    "partitions_of",
    "read_range",
]


@dataclass
class RangePartition(InputPartition):
    """The input of one task.

    Attributes:
        wanted: The range to read.
    """

    wanted: QueueRange


class BrokerReader(DataSourceReader):
    """Reads queues between two offsets.

    Args:
        options: What to read, and how.
        schema: The columns.

    Raises:
        SparkSchemaError: There is no such column.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        asked_columns(schema, tuple(COLUMNS))
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks; runs once, on the driver."""
        with plain_errors():
            ranges = self._wanted(asyncio.run(self._ranges()))
            return partitions_of(ranges, self._options)

    def _wanted(self, ranges: list[QueueRange]) -> list[QueueRange]:
        """Return the ranges that the query needs."""
        return ranges

    async def _ranges(self) -> list[QueueRange]:
        options = self._options
        async with Cluster(options) as cluster:
            ends = await QueueBounds.of(cluster, await cluster.queues())
            ranges = await batch_ranges(cluster, options, ends)
            for each in ranges:
                if each.count > 0:
                    await cluster.probe(each.queue, each.start_offset)
                    break
            return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task; runs in a worker."""
        return read_range(self._options, self._schema, partition)


class FilteringBrokerReader(BrokerReader):
    """A reader that is handed the filters of a query before it plans."""

    _pushed: PushedFilters | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what narrows the queues; return what Spark has to check."""
        self._pushed = PushedFilters(filters)
        return self._pushed.left

    def _wanted(self, ranges: list[QueueRange]) -> list[QueueRange]:
        return ranges if self._pushed is None else self._pushed.narrowed(ranges)


def partitions_of(ranges: Sequence[QueueRange], options: ReadOptions) -> list[InputPartition]:
    """The tasks of a batch; the same for the same ranges."""
    parts = split_ranges(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    return [RangePartition(part) for part in parts]


def read_range(
    options: ReadOptions, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task.

    Args:
        options: How to read.
        schema: The columns.
        partition: The input; Spark passes an empty one when there is nothing to read.
    """
    if not isinstance(partition, RangePartition):
        return
    wanted = partition.wanted
    rows = RowMaker(
        wanted.queue, arrow_schema(schema), options.expression, decompress=options.decompress
    )
    with plain_errors(), asyncio.Runner(loop_factory=loop_factory()) as runner:
        loop = runner.get_loop()
        fetch = Fetch(options, wanted)
        loop.run_until_complete(fetch.start())
        try:
            while (pieces := loop.run_until_complete(fetch.next())) is not None:
                yield from rows.batches(pieces)
        finally:
            loop.run_until_complete(fetch.close())
