"""The data source ``rocketmq-log``.

The entry point for Spark. Readers hold plain values only and are sent to the executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from roquet.errors import SparkSchemaError
from roquet.spark.log.log_options import FORMAT, LogOptions, read_log_options
from roquet.spark.log.planning import Task, batch_tasks
from roquet.spark.log.pushed_filters import PushedFilters
from roquet.spark.log.reading import LogReader
from roquet.spark.log.stream import RocketMQLogStreamReader
from roquet.spark.plain_errors import plain_errors
from roquet.spark.push_down import hands_filters
from roquet.spark.refused_stream import stream_reader
from roquet.spark.schema import arrow_schema, asked_columns, struct_type

__all__ = [
    "FilteringLogReader",
    "LogTask",
    "RocketMQLogReader",
    "RocketMQLogSource",
    "hands_filters",
]


@dataclass
class LogTask(InputPartition):
    """The input of one task."""

    ranges: Task


class RocketMQLogSource(DataSource):
    """The files of a store as a DataFrame.

    Example:
        Which topics have the most bytes::

            log = spark.read.format("rocketmq-log").schema("topic string, storeSize int")
            log.load("/data/store").groupBy("topic").sum("storeSize").show()
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format()``."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the option ``columns``, or all."""
        with plain_errors():
            return struct_type(read_log_options(self.options).columns)

    def reader(self, schema: StructType) -> RocketMQLogReader:
        """Return a batch reader."""
        kind = FilteringLogReader if hands_filters() else RocketMQLogReader
        with plain_errors():
            return kind(read_log_options(self.options), _checked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that follows the log."""

        def make() -> DataSourceStreamReader:
            options = read_log_options(self.options, is_stream=True)
            return RocketMQLogStreamReader(options, _checked(schema))

        return stream_reader(make)


class RocketMQLogReader(DataSourceReader):
    """Reads the log up to its end at the time of planning."""

    def __init__(self, options: LogOptions, schema: pa.Schema) -> None:
        """Store options and columns."""
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the tasks; fixes the end of the log."""
        with plain_errors():
            tasks = batch_tasks(self._options)
        return [LogTask(ranges) for ranges in tasks] or [LogTask([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        with plain_errors():
            assert isinstance(partition, LogTask)
            yield from LogReader(self._schema, self._options.rules).batches(partition.ranges)


class FilteringLogReader(RocketMQLogReader):
    """A reader that is handed the filters of a query before it plans."""

    _is_empty = False

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what narrows the log; return what Spark has to check."""
        pushed = PushedFilters(self._options, filters)
        self._options = pushed.options
        self._is_empty = pushed.is_empty
        return pushed.left

    def partitions(self) -> list[InputPartition]:
        """Return the tasks; none if no row can match."""
        return [LogTask([])] if self._is_empty else super().partitions()


def _checked(schema: StructType) -> pa.Schema:
    if not asked_columns(schema):
        raise SparkSchemaError(
            f"{FORMAT} cannot read rows without columns.", hint="Ask for one, such as queueId."
        )
    return arrow_schema(schema)
