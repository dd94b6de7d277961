"""The source and sink ``rocketmq`` with stages at which they can be held.

As a program, ``NAMESRV SOURCE TARGET CHECKPOINT STAGES``, it copies a topic: a driver to be killed.
The option ``stages`` names the folder that says where to stop.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping, Sequence
from copy import copy
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
from roquet.spark.broker.reader import RangePartition
from roquet.spark.broker.sink import BrokerStreamWriter
from roquet.spark.broker.source import RocketMQSource
from roquet.spark.broker.stream import BrokerStreamReader
from roquet.spark.broker.write_options import write_options
from tests.patience import TIMEOUT_MS
from tests.spark.stages import Stages

BEFORE_PLAN, PLANNED, READING = "before plan", "planned", "reading"
HALF_SENT, SENT = "half sent", "sent"

BATCH_ROWS = 20
STAGES = "stages"


class StoppingReader(BrokerStreamReader):
    """Stops before a batch is planned, when it is and nothing of it was read, or in the reading.

    A stage has the number of the batch; that of reading the first offset, in any but queue 0.
    """

    stages: Stages

    def latestOffset(self, start: OffsetsJson, limit: ReadLimit) -> OffsetsJson:
        self.stages.come(BEFORE_PLAN, _rows(start) // BATCH_ROWS)
        return super().latestOffset(start, limit)

    def partitions(self, start: OffsetsJson, end: OffsetsJson) -> Sequence[InputPartition]:
        self.stages.come(PLANNED, _rows(start) // BATCH_ROWS)
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        if partition.wanted.queue.queue_id:
            self.stages.come(READING, partition.wanted.start_offset)
        return super().read(partition)


def _rows(offsets: OffsetsJson) -> int:
    return sum(
        offset
        for brokers in offsets.values()
        for queues in brokers.values()
        for offset in queues.values()
    )


class StoppingWriter(BrokerStreamWriter):
    """Stops when some rows of a batch are sent, or when all are and it is not committed."""

    stages: Stages

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty("streaming.sql.batchId") or 0)

        def halves() -> Iterator[pa.RecordBatch]:
            for batch in iterator:
                half = batch.num_rows // 2
                yield batch.slice(0, half)
                self.stages.come(HALF_SENT, batch_id)
                yield batch.slice(half)

        return super().write(halves())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        self.stages.come(SENT, batch_id)
        super().commit(messages, batch_id)


class StoppingSource(RocketMQSource):
    """The source and sink, with stops."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        kept = copy(options)
        self._stages = Stages(Path(kept.pop(STAGES)))
        super().__init__(kept)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        made = StoppingReader(read_options(self.options), schema)
        made.stages = self._stages
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001 - Spark's
        del overwrite
        made = StoppingWriter(write_options(self.options), schema)
        made.stages = self._stages
        return made


def copy_options(namesrv: str, source: str, target: str) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the source and the sink; the same in every run."""
    reading = {
        "namesrv": namesrv,
        "subscribe": source,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(BATCH_ROWS),
        "columns": "body",
    }
    writing = {"namesrv": namesrv, "topic": target, "sendTimeoutMs": str(TIMEOUT_MS)}
    # One row a request and one request at a time, so that half of the rows is half of the rows.
    return reading, {**writing, "batchBytes": "1", "maxInFlight": "1"}


def quick_session() -> SparkSession:
    """A session of a program's own."""
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def main() -> None:
    namesrv, source, target, checkpoint, stages = sys.argv[1:]
    session = quick_session()
    session.dataSource.register(StoppingSource)
    reading, writing = copy_options(namesrv, source, target)
    query = (
        session.readStream.format("rocketmq")
        .options(stages=stages, **reading)
        .load()
        .writeStream.format("rocketmq")
        .options(stages=stages, checkpointLocation=checkpoint, **writing)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    # Spark's processes look the classes up by the name of the module.
    from tests.spark import broker_killed

    broker_killed.main()
