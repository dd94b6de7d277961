"""Writing to brokers: ``df.write.format("rocketmq")`` and ``df.writeStream.format("rocketmq")``.

Owns the writers. Tasks send rows at least once: a task succeeds when brokers have acknowledged all
of its rows, and a retried task sends them again with the same ids (see
:mod:`roquet.spark.broker.outgoing`).

Invariants:

* A commit only logs: the tasks have done all the work, so a batch can be committed again after a
  restart.
* An abort takes nothing back. Spark may call it after a commit.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from roquet.client.producer import Producer
from roquet.errors import NoRoute, SparkOptionError
from roquet.runtime.event_loop import loop_factory
from roquet.spark.broker.outgoing import RowReader
from roquet.spark.broker.send import Outbox, Sent
from roquet.spark.broker.write_options import SINK, WriteOptions, check_columns
from roquet.spark.plain_errors import plain_errors

__all__ = [
    "BrokerStreamWriter",
    "BrokerWriter",
    "TaskSent",
    "check_topic_is_there",
    "producer_of",
]

log = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_ROUTE_ATTEMPTS = 5
_ROUTE_RETRY_S = 0.5


@dataclass
class TaskSent(WriterCommitMessage):
    """The result of a task.

    Attributes:
        task_id: The prefix of its row ids.
        sent: What it sent.
    """

    task_id: str
    sent: Sent


class BrokerWriter(DataSourceArrowWriter):
    """Writes a DataFrame.

    Args:
        options: Where to write, and how.
        schema: The columns.
        overwrite: Whether the write mode is ``overwrite``.

    Raises:
        SparkOptionError: The mode is ``overwrite``.
        SparkSchemaError: The columns are not those of the sink.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise SparkOptionError(
                f"{SINK} cannot overwrite a topic.", hint="Write with mode('append')."
            )
        check_columns(_types(schema), options)
        self._options = options
        # One id for all attempts of this write, chosen on the driver.
        self._write_id = options.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task."""
        return _write(self._options, f"{self._write_id}/0/{_partition_id()}", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log what was sent."""
        _report(f"The write {self._write_id}", messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log what was sent before the failure."""
        _report(f"The write {self._write_id} failed, but", messages)


class BrokerStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream.

    Args:
        options: Where to write, and how.
        schema: The columns.

    Raises:
        SparkSchemaError: The columns are not those of the sink.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(_types(schema), options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task."""
        context = TaskContext.get()
        assert context is not None
        query = self._options.write_id or context.getLocalProperty(_QUERY_ID)
        batch = context.getLocalProperty(_BATCH_ID)
        # Without them, row ids would not be unique.
        assert query is not None
        assert batch is not None
        return _write(self._options, f"{query}/{batch}/{_partition_id()}", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Log what was sent."""
        _report(f"Batch {batchId}", messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Log what was sent before the failure."""
        _report(f"Batch {batchId} failed, but", messages)


def _types(schema: StructType) -> dict[str, str]:
    return {each.name: each.dataType.simpleString() for each in schema.fields}


def _partition_id() -> int:
    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())


def _report(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    sent = [message.sent for message in messages if isinstance(message, TaskSent)]
    rows = sum(each.rows for each in sent)
    less_safe = sum(each.less_safe for each in sent)
    log.info("%s: %d rows are stored", what, rows)
    if less_safe:
        log.warning(
            "%s: %d rows are stored less safely than the broker is configured to", what, less_safe
        )


def _write(
    options: WriteOptions, task_id: str, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    reader = RowReader(options.topic, task_id)
    with plain_errors(), asyncio.Runner(loop_factory=loop_factory()) as runner:
        loop = runner.get_loop()
        producer = producer_of(options)
        loop.run_until_complete(producer.start())
        outbox = Outbox(options, producer)
        try:
            for batch in batches:
                loop.run_until_complete(_put_all(outbox, reader, batch))
            return TaskSent(task_id, loop.run_until_complete(outbox.close()))
        finally:
            loop.run_until_complete(outbox.abort())
            loop.run_until_complete(producer.close())


async def _put_all(outbox: Outbox, reader: RowReader, batch: pa.RecordBatch) -> None:
    for row in reader.rows(batch):
        await outbox.put(row)
    # The next batch may take long, and no response is read meanwhile.
    await outbox.settle()


def producer_of(options: WriteOptions) -> Producer:
    """Return the producer of a task, not started."""
    how = options.producer
    return Producer(
        options.client,
        group=options.group,
        send_timeout_ms=how.send_timeout_ms,
        compression=how.compression,
        compress_over_bytes=how.compress_over_bytes,
        max_message_bytes=how.max_message_bytes,
    )


def check_topic_is_there(options: WriteOptions) -> None:
    """Raise before any task runs if no broker has or would create the topic.

    Raises:
        NoRoute: The topic has no route.
        ClientError: No name server is reachable.
    """
    if options.topic is not None:
        asyncio.run(_find(options, options.topic))


async def _find(options: WriteOptions, topic: str) -> None:
    async with producer_of(options) as producer:
        for attempt in range(_ROUTE_ATTEMPTS):
            try:
                await producer.queues(topic)
            except NoRoute:
                if attempt + 1 == _ROUTE_ATTEMPTS:
                    raise
                await asyncio.sleep(_ROUTE_RETRY_S)
            else:
                return
