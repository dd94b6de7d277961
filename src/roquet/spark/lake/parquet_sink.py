"""Writes a DataFrame as Parquet to file systems that Spark itself does not know.

Each task writes one file, through pyarrow. Its name is that of the task's partition, so a task that
is repeated replaces its file. Files of an earlier result go when all new ones are there, but its
``_SUCCESS`` goes first, and the new one comes last: while both results are there, none says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from roquet.errors import SparkOptionError
from roquet.spark.jobs.lake_files import Place
from roquet.spark.jobs.parquet_options import compression_options
from roquet.spark.plain_errors import plain_errors
from roquet.spark.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FORMAT", "ParquetSink", "write_parquet"]

FORMAT = "rocketmq-parquet"
_SUCCESS = "_SUCCESS"


def write_parquet(frame: DataFrame, address: str, *, is_overwrite: bool) -> None:
    """Write a DataFrame as Parquet files.

    Args:
        frame: The rows.
        address: Where to, as for a lake.
        is_overwrite: Whether files that are there are replaced.

    Raises:
        SparkOptionError: There are files, and they must not be replaced.
    """
    place = Place(address)
    before = [each.base_name for each in place.below() if each.is_file]
    if before and not is_overwrite:
        raise SparkOptionError(
            f"{place.name} holds files already.", hint="Name another folder, or set --overwrite."
        )
    if _SUCCESS in before:
        place.delete(_SUCCESS)
        before.remove(_SUCCESS)
    frame.sparkSession.dataSource.register(ParquetSink)
    run_id = uuid.uuid4().hex
    frame.write.format(FORMAT).option("runId", run_id).mode("append").save(address)
    for name in before:
        place.delete(name)
    place.publish(b"", _SUCCESS)


@dataclass
class Written(WriterCommitMessage):
    """The file of a task; ``None`` if it had no rows."""

    name: str | None


class ParquetSink(DataSource):
    """A folder of Parquet files, to be written only."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format()``."""
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> ParquetWriter:  # noqa: ARG002, FBT001 - Spark's
        """Return a writer."""
        return ParquetWriter(dict(self.options), arrow_schema(schema))


class ParquetWriter(DataSourceArrowWriter):
    """Writes the file of each task."""

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        """Store options and columns."""
        self._address = options["path"]
        self._run_id = next(value for name, value in options.items() if name.lower() == "runid")
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task; the first one writes a file in any case, for its columns."""
        with plain_errors():
            context = TaskContext.get()
            number = 0 if context is None else context.partitionId()
            first = next(iterator, None)
            if first is None and number:
                return Written(None)
            return Written(self._write(first, iterator, number))

    def _write(
        self, first: pa.RecordBatch | None, others: Iterator[pa.RecordBatch], number: int
    ) -> str:
        place = Place(self._address)
        name = f"part-{number:05d}-{self._run_id}.parquet"
        file = place.new_file(name, self._run_id)
        try:
            options = compression_options("zstd")
            writer = pq.ParquetWriter(
                file.hidden, self._schema, filesystem=file.filesystem, **options
            )
            with place.told(), writer:
                if first is not None:
                    writer.write_batch(first)
                for batch in others:
                    writer.write_batch(batch)
            file.publish()
        finally:
            file.discard()
        return name

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing is left to do: files are whole."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what tasks wrote before another one failed."""
        place = Place(self._address)
        for each in messages:
            if isinstance(each, Written) and each.name is not None and place.has(each.name):
                place.delete(each.name)
