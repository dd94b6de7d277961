"""``format("rocketmq")`` as a sink, against a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from roquet.model import properties as prop
from roquet.spark.broker.outgoing import ROW_ID
from roquet.testing.background import BackgroundBroker, background_broker
from tests.spark.broker_side import forget_commit, load, load_stream, send_numbers


@pytest.fixture(scope="module")
def broker() -> Iterator[BackgroundBroker]:
    with background_broker() as made:
        yield made


def write(frame: DataFrame, broker: BackgroundBroker, mode: str = "append", **options: str) -> None:
    given = {"namesrv": broker.namesrv, **options}
    frame.write.format("rocketmq").mode(mode).options(**given).save()


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).select(sf.col("id").cast("string").alias("body"), "id")


def test_columns_become_messages(spark: SparkSession, broker: BackgroundBroker) -> None:
    broker.create_topic("Out", 2)
    frame = numbers(spark, 50).select(
        "body",
        sf.lit("Out").alias("topic"),
        sf.concat(sf.lit("t"), sf.col("id") % 3).alias("tags"),
        sf.array(sf.col("body"), sf.lit("all")).alias("keys"),
        sf.create_map(sf.lit("n"), sf.col("body")).alias("properties"),
    )
    write(frame, broker)
    stored = broker.messages("Out")
    assert sorted(int(each.body) for each in stored) == list(range(50))
    for each in stored:
        number = each.body.decode()
        assert each.tags == f"t{int(number) % 3}"
        assert each.keys == [number, "all"]
        assert each.properties["n"] == number
    assert len({each.properties[ROW_ID] for each in stored}) == 50


def test_what_was_read_can_be_written_and_read_again(
    spark: SparkSession, broker: BackgroundBroker
) -> None:
    broker.create_topic("Copy", 2)
    send_numbers(broker, "From", 0, 20)
    write(load(spark, broker, "From").drop("queueId", "brokerName"), broker, topic="Copy")
    copied = load(spark, broker, "Copy", columns="body").collect()
    assert sorted(int(bytes(row.body)) for row in copied) == list(range(20))


def test_rows_of_one_sharding_key_stay_in_order(
    spark: SparkSession, broker: BackgroundBroker
) -> None:
    broker.create_topic("Sharded", 4)
    frame = numbers(spark, 2_000).coalesce(1)
    keyed = frame.select("body", (sf.col("id") % 7).cast("string").alias("shardingKey"))
    write(keyed, broker, topic="Sharded", batchBytes="8k")
    queues: dict[str, set[int]] = {}
    last: dict[str, int] = {}
    stored = sorted(broker.messages("Sharded"), key=lambda each: (each.queue_id, each.queue_offset))
    for each in stored:
        key = each.properties[prop.SHARDING_KEY]
        queues.setdefault(key, set()).add(each.queue_id)
        assert int(each.body) > last.get(key, -1)
        last[key] = int(each.body)
    assert len(stored) == 2_000
    assert all(len(found) == 1 for found in queues.values())


def test_a_queue_a_delay_and_a_long_body(spark: SparkSession, broker: BackgroundBroker) -> None:
    broker.create_topic("Chosen", 3)
    frame = numbers(spark, 6).select(
        sf.repeat(sf.concat(sf.lit("long "), sf.col("body")), 2_000).alias("body"),
        sf.lit(2).alias("queueId"),
    )
    write(frame, broker, topic="Chosen")
    stored = broker.messages("Chosen")
    assert [each.queue_id for each in stored] == [2] * 6
    assert all(len(each.raw_body) < 1_000 < len(each.body) for each in stored)
    later = numbers(spark, 3).select("body", sf.lit(18).alias("delayLevel"))
    write(later, broker, topic="Chosen")
    waiting = broker.messages("SCHEDULE_TOPIC_XXXX")
    assert [each.properties["REAL_TOPIC"] for each in waiting] == ["Chosen"] * 3
    assert len(broker.messages("Chosen")) == 6


def _run(spark: SparkSession, broker: BackgroundBroker, checkpoint: Path) -> None:
    query = (
        load_stream(spark, broker, "Source", maxOffsetsPerTrigger="30", minPartitions="3")
        .select("body", "tags")
        .writeStream.format("rocketmq")
        .options(namesrv=broker.namesrv, topic="Target", checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


def test_a_stream_writes_at_least_once_and_repeats_can_be_dropped(
    spark: SparkSession, broker: BackgroundBroker, tmp_path: Path
) -> None:
    broker.create_topic("Source", 2)
    broker.create_topic("Target", 2)
    send_numbers(broker, "Source", 0, 60)
    _run(spark, broker, tmp_path)
    assert sorted(int(each.body) for each in broker.messages("Target")) == list(range(60))
    # The rows of batch 1 are sent, its commit is not written: as after a kill in between.
    forget_commit(tmp_path, 1)
    _run(spark, broker, tmp_path)
    stored = broker.messages("Target")
    assert len(stored) == 90
    counts = Counter(each.properties[ROW_ID] for each in stored)
    assert sorted(counts.values()) == [1] * 30 + [2] * 30
    bodies: dict[str, set[bytes]] = {}
    for each in stored:
        bodies.setdefault(each.properties[ROW_ID], set()).add(each.body)
    assert all(len(found) == 1 for found in bodies.values())
    frame = load(spark, broker, "Target", columns="body,properties")
    with_id = frame.withColumn("rowId", sf.col(f"properties.{ROW_ID}"))
    unique = with_id.dropDuplicates(["rowId"]).select("body").collect()
    assert sorted(int(bytes(row.body)) for row in unique) == list(range(60))


def test_a_restart_of_the_broker_in_mid_write_is_survived(
    spark: SparkSession, broker: BackgroundBroker, tmp_path: Path
) -> None:
    broker.create_topic("Pipe", 2)
    broker.create_topic("PipeOut", 2)
    send_numbers(broker, "Pipe", 0, 20)
    query = (
        load_stream(spark, broker, "Pipe")
        .select("body")
        .writeStream.format("rocketmq")
        .options(namesrv=broker.namesrv, topic="PipeOut", checkpointLocation=str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        broker.restart()
        send_numbers(broker, "Pipe", 20, 40)
        query.processAllAvailable()
        bodies = {int(each.body) for each in broker.messages("PipeOut")}
        assert bodies == set(range(40))
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("id", {"topic": "Out"}, "needs a column 'body'"),
        ("body", {}, "does not know where to write"),
        ("body, 1 AS tagz", {"topic": "Out"}, "Did you mean 'tags'"),
        ("body", {"topic": "Out", "mode": "overwrite"}, "cannot overwrite a topic"),
        ("body", {"topic": "Out", "topci": "x"}, "has no option 'topci'"),
        ("CAST(NULL AS STRING) AS body", {"topic": "Out"}, "its body is null"),
        ("body, 9 AS queueId", {"topic": "Out"}, "no queue 9"),
    ],
)
def test_bad_input_is_a_sentence_and_a_hint(
    spark: SparkSession,
    broker: BackgroundBroker,
    columns: str,
    options: dict[str, str],
    words: str,
) -> None:
    broker.create_topic("Out", 2)
    frame = numbers(spark, 1).selectExpr(*columns.split(", "))
    with pytest.raises(PySparkException) as caught:
        write(frame, broker, **options)
    text = str(caught.value)
    assert words in text
    assert "HINT" in text
    assert "Traceback" not in text


def test_a_topic_that_nobody_makes_is_refused_on_the_driver(spark: SparkSession) -> None:
    with background_broker({"autoCreateTopicEnable": "false"}) as strict:
        with pytest.raises(PySparkException) as caught:
            write(numbers(spark, 1).select("body"), strict, topic="Nowhere")
        assert "no route for the topic" in str(caught.value)
        assert "Traceback" not in str(caught.value)
