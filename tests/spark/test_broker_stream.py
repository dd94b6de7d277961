"""``spark.readStream.format("rocketmq")`` against a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from roquet.client import Message
from roquet.spark.broker import behind_by_queue, behind_latest
from roquet.testing.background import BackgroundBroker, background_broker
from tests.spark.broker_side import (
    Collected,
    forget_commit,
    load_stream,
    run_available,
    send,
    send_numbers,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[BackgroundBroker]:
    with background_broker() as made:
        yield made


def _sizes(query: StreamingQuery) -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress]


def test_limits_available_now_and_how_far_behind(
    spark: SparkSession, broker: BackgroundBroker, tmp_path: Path
) -> None:
    broker.create_topic("Limited", 3)
    send_numbers(broker, "Limited", 0, 100)
    sink = Collected()
    stream = load_stream(spark, broker, "Limited", maxOffsetsPerTrigger="40")
    query = run_available(stream, sink, tmp_path)
    assert sink.numbers == list(range(100))
    assert _sizes(query) == [40, 40, 20]
    sources = [progress["sources"][0] for progress in query.recentProgress]
    gaps = [behind_latest(source) for source in sources]
    assert [gap is not None and round(gap.average * 3) for gap in gaps] == [60, 20, 0]
    latest = sources[0]["latestOffset"]
    shown = json.loads(latest) if isinstance(latest, str) else latest
    assert sum(shown["Limited"][broker.name].values()) == 100


def test_a_limit_of_bytes_and_the_lag_of_each_queue(
    spark: SparkSession, broker: BackgroundBroker, tmp_path: Path
) -> None:
    broker.create_topic("Sized", 2)
    send(broker, (Message("Sized", f"{number:01000}".encode()) for number in range(120)))
    sink = Collected()
    stream = load_stream(spark, broker, "Sized", maxBytesPerTrigger="60k")
    query = run_available(stream, sink, tmp_path)
    sizes = _sizes(query)
    assert sink.numbers == list(range(120))
    # Each record has about a hundred bytes more than its body.
    assert sizes[0] == pytest.approx(54, abs=6)
    behind = behind_by_queue(query.recentProgress[0]["sources"][0])
    assert set(behind["Sized"][broker.name]) == {"0", "1"}
    assert sum(behind["Sized"][broker.name].values()) == 120 - sizes[0]


def test_a_batch_that_was_not_committed_is_repeated_exactly(
    spark: SparkSession, broker: BackgroundBroker, tmp_path: Path
) -> None:
    broker.create_topic("Repeated", 2)
    send_numbers(broker, "Repeated", 0, 30)
    stream = load_stream(spark, broker, "Repeated", maxOffsetsPerTrigger="20", minPartitions="4")
    first = Collected()
    run_available(stream, first, tmp_path)
    forget_commit(tmp_path, 1)
    # What has come since must not get into the repeated batch.
    send_numbers(broker, "Repeated", 30, 37)
    again = Collected()
    run_available(stream, again, tmp_path)
    assert again.batches[1] == first.batches[1]
    assert 0 not in again.batches
    assert sorted(first.batches[0] + again.numbers) == list(range(37))


def test_a_restart_of_the_broker_and_new_queues_in_mid_query(
    spark: SparkSession, broker: BackgroundBroker, tmp_path: Path
) -> None:
    broker.create_topic("Restarted", 2)
    send_numbers(broker, "Restarted", 0, 10)
    sink = Collected()
    query = (
        load_stream(spark, broker, "Restarted")
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        assert sink.numbers == list(range(10))
        broker.restart()
        send_numbers(broker, "Restarted", 10, 20)
        query.processAllAvailable()
        assert sink.numbers == list(range(20))
        broker.create_topic("Restarted", 4)
        send_numbers(broker, "Restarted", 20, 40)
        # The first of them enters the new queues into the offsets.
        for _ in range(2):
            query.processAllAvailable()
        assert sink.numbers == list(range(40))
    finally:
        query.stop()


def test_a_batch_waits_for_its_minimum(
    spark: SparkSession, broker: BackgroundBroker, tmp_path: Path
) -> None:
    broker.create_topic("Few", 1)
    send_numbers(broker, "Few", 0, 3)
    sink = Collected()
    stream = load_stream(spark, broker, "Few", minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    query = (
        stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path)).start()
    )
    try:
        query.processAllAvailable()
        assert sink.numbers == [0, 1, 2]
        send_numbers(broker, "Few", 3, 6)
        query.processAllAvailable()
        assert sink.numbers == [0, 1, 2]
        send_numbers(broker, "Few", 6, 8)
        query.processAllAvailable()
        assert sink.numbers == list(range(8))
    finally:
        query.stop()
    # What is available now does not wait.
    send_numbers(broker, "Few", 8, 9)
    run_available(stream, sink, tmp_path)
    assert sink.numbers == list(range(9))


def test_what_was_lost_is_said_or_passed_over(
    spark: SparkSession, broker: BackgroundBroker, tmp_path: Path
) -> None:
    broker.create_topic("Anew", 1)
    send_numbers(broker, "Anew", 0, 10)
    sink = Collected()
    run_available(load_stream(spark, broker, "Anew"), sink, tmp_path)
    broker.call(lambda: broker.running.store.delete_topics({"Anew"}))
    send_numbers(broker, "Anew", 100, 104)
    with pytest.raises(StreamingQueryException) as caught:
        run_available(load_stream(spark, broker, "Anew"), sink, tmp_path)
    text = str(caught.value)
    assert "queue 0 of Anew on dev lacks 6 messages (4 to 9): the queue ends at 4" in text
    assert "failOnDataLoss" in text
    run_available(load_stream(spark, broker, "Anew", failOnDataLoss="false"), sink, tmp_path)
    assert sink.numbers == [*range(10), *range(100, 104)]


def test_a_stream_begins_at_the_end_unless_told(
    spark: SparkSession, broker: BackgroundBroker, tmp_path: Path
) -> None:
    broker.create_topic("Late", 1)
    send_numbers(broker, "Late", 0, 5)
    stream = (
        spark.readStream.format("rocketmq").options(namesrv=broker.namesrv, subscribe="Late").load()
    )
    sink = Collected()
    run_available(stream, sink, tmp_path)
    send_numbers(broker, "Late", 5, 8)
    run_available(stream, sink, tmp_path)
    assert sink.numbers == [5, 6, 7]
