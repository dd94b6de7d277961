"""The data source ``rocketmq-lake``.

The entry point for Spark. Readers hold plain values only and are sent to the executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StringType, StructType

from roquet.errors import SparkSchemaError
from roquet.spark.lake.lake_options import DAY, FORMAT, LAKE_COLUMNS, read_lake_options
from roquet.spark.lake.planning import LakeFile, plan_lake
from roquet.spark.lake.reading import LakeReader
from roquet.spark.log.source import hands_filters
from roquet.spark.plain_errors import plain_errors
from roquet.spark.schema import COLUMNS, arrow_schema, asked_columns, struct_type

__all__ = ["FilteringLakeReader", "LakeTask", "RocketMQLakeReader", "RocketMQLakeSource"]


@dataclass
class LakeTask(InputPartition):
    """The input of one task."""

    address: str
    files: list[LakeFile]


class RocketMQLakeSource(DataSource):
    """A lake as a DataFrame.

    Example:
        The messages of an order::

            lake = spark.read.format("rocketmq-lake").option("keys", "order-17")
            lake.load("s3://lake/orders").show()
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format()``."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the option ``columns``, or all."""
        with plain_errors():
            return lake_type(read_lake_options(self.options).columns)

    def reader(self, schema: StructType) -> RocketMQLakeReader:
        """Return a batch reader."""
        kind = FilteringLakeReader if hands_filters() else RocketMQLakeReader
        with plain_errors():
            return kind(self.options, _checked(schema))


class RocketMQLakeReader(DataSourceReader):
    """Reads the lake as it is at the time of planning."""

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        """Read the options."""
        self._options = read_lake_options(options)
        self._conditions = self._options.conditions
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the tasks; fixes the files."""
        with plain_errors():
            planned = plan_lake(self._options, self._conditions)
        tasks = [LakeTask(planned.address, files) for files in planned.tasks]
        return list(tasks) or [LakeTask(planned.address, [])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        with plain_errors():
            assert isinstance(partition, LakeTask)
            reader = LakeReader(partition.address, self._schema, self._conditions)
            yield from reader.batches(partition.files)


class FilteringLakeReader(RocketMQLakeReader):
    """A reader that is handed the filters of a query before it plans."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note what tells files apart; Spark checks all filters."""
        self._conditions = self._conditions.with_filters(filters)
        return filters


def lake_type(columns: Iterable[str] = tuple(LAKE_COLUMNS)) -> StructType:
    """Return columns of a lake as Spark's type."""
    made = StructType()
    for name in columns:
        made = made.add(DAY, StringType()) if name == DAY else made.add(*struct_type([name]).fields)
    return made


def _checked(schema: StructType) -> pa.Schema:
    known = StructType([each for each in schema.fields if each.name != DAY])
    if not schema.fields:
        raise SparkSchemaError(
            f"{FORMAT} cannot read rows without columns.", hint="Ask for one, such as queueId."
        )
    asked_columns(known, tuple(COLUMNS))
    return arrow_schema(schema)
