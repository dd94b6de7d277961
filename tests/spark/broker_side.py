"""What tests of the source and sink ``rocketmq`` have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from roquet.client import Message, Producer


class Servers(Protocol):
    """Whoever has a name server."""

    @property
    def namesrv(self) -> str:
        """Its address."""


def send(broker: Servers, messages: Iterable[Message]) -> None:
    """Store messages, one after the other."""

    async def sending() -> None:
        async with Producer(broker.namesrv, group="tests") as producer:
            for message in messages:
                await producer.send(message)

    asyncio.run(sending())


def send_numbers(broker: Servers, topic: str, start: int, end: int) -> None:
    """Store numbers as bodies; they are spread over the queues in turn."""
    send(broker, (Message(topic, str(number).encode()) for number in range(start, end)))


def load(spark: SparkSession, broker: Servers, topic: str, **options: str) -> DataFrame:
    """A topic as a DataFrame."""
    given = {"namesrv": broker.namesrv, "subscribe": topic, **options}
    return spark.read.format("rocketmq").options(**given).load()


def load_stream(spark: SparkSession, broker: Servers, topic: str, **options: str) -> DataFrame:
    """A topic as a stream, from its beginning."""
    given = {
        "namesrv": broker.namesrv,
        "subscribe": topic,
        "startingOffsets": "earliest",
        # What is wrong should show soon.
        "fetchOffset.retryIntervalMs": "100",
        **options,
    }
    return spark.readStream.format("rocketmq").options(**given).load()


class Collected:
    """A sink that keeps the numbers of every batch, as they came last."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        bodies = [bytes(row.body) for row in batch.select("body").collect()]
        self.batches[batch_id] = sorted(int(body) for body in bodies)

    @property
    def numbers(self) -> list[int]:
        """All numbers, sorted; one that came twice is there twice."""
        return sorted(number for batch in self.batches.values() for number in batch)


def run_available(stream: DataFrame, sink: Collected, checkpoint: Path) -> StreamingQuery:
    """Read what there is now, and end."""
    query = (
        stream.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return query


def forget_commit(checkpoint: Path, batch_id: int) -> None:
    """Have the checkpoint of a driver that was killed before it could write this commit."""
    for name in (str(batch_id), f".{batch_id}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
