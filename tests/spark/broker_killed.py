"""A driver that stops in the middle of a batch and waits to be killed.

Run as a program: ``NAMESRV SOURCE TARGET CHECKPOINT``. The environment says at which stage of which
batch it stops, and the file that it makes then; the processes that Spark starts inherit it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from roquet.spark.broker.offsets import OffsetsJson
from roquet.spark.broker.read_options import read_options
from roquet.spark.broker.sink import BrokerStreamWriter
from roquet.spark.broker.source import RocketMQSource
from roquet.spark.broker.stream import BrokerStreamReader
from roquet.spark.broker.write_options import write_options

STAGE, BATCH, MARK = "ROQUET_TEST_STAGE", "ROQUET_TEST_BATCH", "ROQUET_TEST_MARK"
BEFORE_PLAN, PLANNED, HALF_SENT, SENT = "before plan", "planned", "half sent", "sent"

BATCH_ROWS = 20


def _stop(stage: str, batch: int) -> None:
    if os.environ[STAGE] == stage and batch >= int(os.environ[BATCH]):
        Path(os.environ[MARK]).touch()
        signal.pause()


class StoppingReader(BrokerStreamReader):
    """Stops before a batch is planned, or when it is and nothing of it was read."""

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:
        _stop(BEFORE_PLAN, _rows(start) // BATCH_ROWS)
        return super().latestOffset(start, limit)

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> Sequence[InputPartition]:
        _stop(PLANNED, _rows(start) // BATCH_ROWS)
        return super().partitions(start, end)


def _rows(offsets: OffsetsJson) -> int:
    return sum(
        offset
        for brokers in offsets.values()
        for queues in brokers.values()
        for offset in queues.values()
    )


class StoppingWriter(BrokerStreamWriter):
    """Stops when some rows of a batch are sent, or when all are and it is not committed."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty("streaming.sql.batchId") or 0)

        def halves() -> Iterator[pa.RecordBatch]:
            for batch in iterator:
                half = batch.num_rows // 2
                yield batch.slice(0, half)
                _stop(HALF_SENT, batch_id)
                yield batch.slice(half)

        return super().write(halves())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        _stop(SENT, batch_id)
        super().commit(messages, batch_id)


class StoppingSource(RocketMQSource):
    """The source and sink, with stops."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StoppingReader(read_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001 - Spark's
        del overwrite
        return StoppingWriter(write_options(self.options), schema)


def copy_options(namesrv: str, source: str, target: str) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the source and the sink; the same in every run."""
    reading = {
        "namesrv": namesrv,
        "subscribe": source,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(BATCH_ROWS),
        "columns": "body",
    }
    # One row a request and one request at a time, so that half of the rows is half of the rows.
    return reading, {"namesrv": namesrv, "topic": target, "batchBytes": "1", "maxInFlight": "1"}


def main() -> None:
    namesrv, source, target, checkpoint = sys.argv[1:]
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    session.dataSource.register(StoppingSource)
    reading, writing = copy_options(namesrv, source, target)
    query = (
        session.readStream.format("rocketmq")
        .options(**reading)
        .load()
        .writeStream.format("rocketmq")
        .options(checkpointLocation=checkpoint, **writing)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    # Spark's processes look the classes up by the name of the module.
    from tests.spark import broker_killed

    broker_killed.main()
