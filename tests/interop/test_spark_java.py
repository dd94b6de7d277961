"""The source and the sink of Spark with Apache RocketMQ's own servers and clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install .[spark]")

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from roquet.spark.broker.outgoing import ROW_ID
from tests.interop import javabuild
from tests.interop.agent import Agent, Outgoing
from tests.interop.agents import JAVA, AgentPool
from tests.interop.cluster import APACHE, Cluster
from tests.spark.broker_side import Collected, load, load_stream, run_available, send_numbers
from tests.spark.conftest import spark as _spark
from tests.spark.lag_kit import check_live

pytestmark = [
    pytest.mark.interop,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:::pyspark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

QUEUES = 3
COUNT = 60

spark = _spark


@pytest.fixture(scope="module")
def apache(
    java_toolkit: javabuild.JavaToolkit, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A name server and a broker of Apache RocketMQ."""
    del java_toolkit
    settings = {"enablePropertyFilter": "true"}
    folder = tmp_path_factory.mktemp("spark-apache")
    with Cluster(APACHE, APACHE, folder, broker_settings=settings) as started:
        yield started


@pytest.fixture
def agent(agents: AgentPool) -> Agent:
    return agents.get(JAVA)


def numbered(start: int, end: int) -> list[Outgoing]:
    return [
        Outgoing(
            str(number),
            tags=("even", "odd")[number % 2],
            keys=[f"k{number}"],
            properties={"n": str(number)},
        )
        for number in range(start, end)
    ]


def test_messages_sent_by_java_are_read(spark: SparkSession, apache: Cluster, agent: Agent) -> None:
    topic = apache.create_topic(agent, "SparkRead", queues=QUEUES)
    producer = agent.producer(apache.namesrv)
    sent = producer.send(topic, numbered(0, COUNT), "sync")
    producer.stop()
    apache.wait_stored(topic, COUNT)
    rows = {int(bytes(row.body)): row for row in load(spark, apache, topic).collect()}
    assert sorted(rows) == list(range(COUNT))
    for number, result in enumerate(sent):
        row = rows[number]
        assert (row.topic, row.brokerName) == (topic, apache.broker_name)
        assert (row.queueId, row.queueOffset) == (result.queue_id, result.queue_offset)
        assert (row.msgId, row.offsetMsgId) == (result.message_id, result.offset_message_id)
        assert (row.tags, row["keys"]) == (("even", "odd")[number % 2], f"k{number}")
        assert row.properties["n"] == str(number)
    odd = load(spark, apache, topic, subExpression="odd", columns="body").collect()
    assert sorted(int(bytes(row.body)) for row in odd) == list(range(1, COUNT, 2))
    few = load(spark, apache, topic, subExpression="n < 5", subExpressionType="SQL92")
    assert few.count() == 5
    time_ms = int(rows[COUNT // 2].storeTimestamp.timestamp() * 1000)
    late = load(spark, apache, topic, startingTimestamp=str(time_ms), columns="storeTimestamp")
    wanted = [row for row in rows.values() if row.storeTimestamp >= rows[COUNT // 2].storeTimestamp]
    assert late.count() == len(wanted)


def test_a_java_consumer_receives_what_spark_writes(
    spark: SparkSession, apache: Cluster, agent: Agent
) -> None:
    topic = apache.create_topic(agent, "SparkWrite", queues=QUEUES)
    consumer = agent.push(apache.namesrv, topic, f"{topic}_group")
    body = sf.concat(sf.lit("number "), sf.col("id").cast("string"))
    frame = spark.range(COUNT).select(
        body.alias("body"),
        sf.concat(sf.lit("t"), sf.col("id") % 2).alias("tags"),
        sf.array(sf.col("id").cast("string"), sf.lit("all")).alias("keys"),
        sf.create_map(sf.lit("n"), sf.col("id").cast("string")).alias("properties"),
        (sf.col("id") % 5).cast("string").alias("shardingKey"),
    )
    writer = frame.write.format("rocketmq").mode("append")
    writer.options(namesrv=apache.namesrv, topic=topic).save()
    bodies = [f"number {number}" for number in range(COUNT)]
    received = consumer.wait_for(bodies)
    consumer.stop()
    assert sorted(each.body for each in received) == sorted(bodies)
    queues: dict[str, set[int]] = {}
    for each in received:
        number = each.body.removeprefix("number ")
        assert each.tags == f"t{int(number) % 2}"
        assert each.keys == f"{number} all"
        assert each.properties["n"] == number
        queues.setdefault(each.properties["__SHARDINGKEY"], set()).add(each.queue_id)
    assert all(len(found) == 1 for found in queues.values())
    assert len({each.properties[ROW_ID] for each in received}) == COUNT


def test_progress_of_groups(spark: SparkSession, apache: Cluster, agent: Agent) -> None:
    topic = apache.create_topic(agent, "SparkLag", queues=2)
    send_numbers(apache, topic, 0, 20)
    apache.wait_stored(topic, 20)
    check_live(spark, apache, apache.broker_name, topic)


def test_a_java_consumer_receives_delayed_messages_when_due(
    spark: SparkSession, apache: Cluster, agent: Agent
) -> None:
    topic = apache.create_topic(agent, "SparkLater", queues=QUEUES)
    consumer = agent.push(apache.namesrv, topic, f"{topic}_group")
    level = spark.range(2).selectExpr("concat('level ', id) AS body", "1 AS delayLevel")
    due = spark.range(2).selectExpr(
        "concat('time ', id) AS body", "current_timestamp() + INTERVAL 3 SECONDS AS deliverAt"
    )
    for frame in (level, due):
        writer = frame.write.format("rocketmq").mode("append")
        writer.options(namesrv=apache.namesrv, topic=topic).save()
    received = consumer.wait_for(["level 0", "level 1", "time 0", "time 1"])
    consumer.stop()
    assert len(received) == 4
    for each in received:
        delay_ms = each.store_timestamp_ms - each.born_timestamp_ms
        due_ms = each.properties.get("TIMER_DELIVER_MS")
        if due_ms is None:
            assert delay_ms >= 900
        else:
            # The broker's timer rounds a time down to the second before.
            assert each.store_timestamp_ms > int(due_ms) - 2_000


def test_a_stream_continues_over_a_broker_restart(
    spark: SparkSession, apache: Cluster, agent: Agent, tmp_path: Path
) -> None:
    topic = apache.create_topic(agent, "SparkStream", queues=QUEUES)
    target = apache.create_topic(agent, "SparkTarget", queues=QUEUES)
    producer = agent.producer(apache.namesrv)
    producer.send(topic, numbered(0, 20), "sync")
    apache.wait_stored(topic, 20)
    query = (
        load_stream(
            spark,
            apache,
            topic,
            maxOffsetsPerTrigger="15",
            **{"fetchOffset.retryIntervalMs": "1000"},
        )
        .select("body", "tags")
        .writeStream.format("rocketmq")
        .options(namesrv=apache.namesrv, topic=target, checkpointLocation=str(tmp_path / "a"))
        .start()
    )
    try:
        query.processAllAvailable()
        apache.broker.stop()
        apache.start_broker()
        apache.wait_registered()
        producer.send(topic, numbered(20, 40), "sync")
        apache.wait_stored(topic, 40)
        query.processAllAvailable()
    finally:
        query.stop()
        producer.stop()
    apache.wait_stored(target, 40)
    sink = Collected()
    run_available(load_stream(spark, apache, target), sink, tmp_path / "b")
    assert set(sink.numbers) == set(range(40))
