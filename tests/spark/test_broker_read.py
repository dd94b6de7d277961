"""``spark.read.format("rocketmq")`` against a broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sf

from roquet.client import Message, Producer, ReceivedMessage
from roquet.model import properties as prop
from roquet.spark import read_topics
from roquet.spark.schema import COLUMNS
from roquet.testing.background import BackgroundBroker, background_broker
from tests.spark.broker_side import load

TOPIC = "Orders"
COUNT = 300


def a_message(number: int) -> Message:
    return Message(
        TOPIC,
        str(number).encode() if number % 10 else b"long " * 2_000,
        tags=("eu", "us", None)[number % 3],
        keys=[f"k{number}", "all"] if number % 2 else None,
        properties={"n": str(number), "colour": "blå"},
        flag=number,
    )


@pytest.fixture(scope="module")
def broker() -> Iterator[BackgroundBroker]:
    with background_broker({"enablePropertyFilter": "true"}) as made:
        made.create_topic(TOPIC, 3)
        made.create_topic("Empty", 2)
        asyncio.run(_fill(made.namesrv))
        yield made


async def _fill(namesrv: str) -> None:
    async with Producer(namesrv, group="tests") as producer:
        for number in range(COUNT):
            await producer.send(a_message(number))


def _time(timestamp_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)


def _expected(message: ReceivedMessage, broker_name: str) -> dict[str, object]:
    return {
        "topic": TOPIC,
        "brokerName": broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "body": message.body,
        "tags": message.tags,
        "keys": message.properties.get(prop.KEYS),
        "properties": message.properties,
        "msgId": message.message_id,
        "offsetMsgId": message.offset_message_id,
        "bornTimestamp": _time(message.born_timestamp_ms),
        "storeTimestamp": _time(message.store_timestamp_ms),
        "bornHost": str(message.born_host),
        "storeHost": str(message.store_host),
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCrc": message.body_crc,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }


def _found(row: Row) -> dict[str, object]:
    found: dict[str, object] = row.asDict()
    found["body"] = bytes(row.body)
    for name in ("bornTimestamp", "storeTimestamp"):
        found[name] = row[name].astimezone(UTC)
    return found


def test_every_column_is_what_the_broker_stores(
    spark: SparkSession, broker: BackgroundBroker
) -> None:
    frame = load(spark, broker, TOPIC)
    assert frame.columns == list(COLUMNS)
    rows = {(row.queueId, row.queueOffset): _found(row) for row in frame.collect()}
    stored = {
        (each.queue_id, each.queue_offset): _expected(each, broker.name)
        for each in broker.messages(TOPIC)
    }
    assert len(stored) == COUNT
    assert rows == stored


def test_columns_are_chosen_by_schema_or_option(
    spark: SparkSession, broker: BackgroundBroker
) -> None:
    reader = spark.read.format("rocketmq").options(namesrv=broker.namesrv, subscribe=TOPIC)
    by_schema = reader.schema("flag int, queueOffset bigint").load()
    by_option = load(spark, broker, TOPIC, columns="FLAG, queueoffset")
    assert by_schema.columns == by_option.columns == ["flag", "queueOffset"]
    assert sorted(row.flag for row in by_schema.collect()) == list(range(COUNT))
    assert sorted(row.flag for row in by_option.collect()) == list(range(COUNT))


def test_bodies_can_be_had_as_they_are_stored(
    spark: SparkSession, broker: BackgroundBroker
) -> None:
    frame = load(spark, broker, TOPIC, decompress="false", columns="body,sysFlag")
    packed = [bytes(row.body) for row in frame.filter("sysFlag & 1 = 1").collect()]
    assert len(packed) == COUNT // 10
    assert all(len(body) < 1_000 for body in packed)


def test_brokers_filter_by_tags_and_sql(spark: SparkSession, broker: BackgroundBroker) -> None:
    tagged = load(spark, broker, TOPIC, subExpression="eu || us", columns="tags,flag").collect()
    assert {row.tags for row in tagged} == {"eu", "us"}
    assert sorted(row.flag for row in tagged) == [n for n in range(COUNT) if n % 3 != 2]
    chosen = load(
        spark, broker, TOPIC, subExpression="n BETWEEN 100 AND 104", subExpressionType="SQL92"
    )
    assert sorted(row.flag for row in chosen.select("flag").collect()) == [100, 101, 102, 103, 104]


def test_read_topics_hands_filters_over_in_any_session(
    spark: SparkSession, broker: BackgroundBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    where = f"topic = '{TOPIC}' AND queueId > 0 AND queueOffset IN (3, 4, 400) AND flag > 5"
    found = read_topics(
        spark.newSession(), broker.namesrv, [TOPIC, "Empty"], columns=["flag"], where=where
    )
    assert found.columns == ["flag"]
    wanted = load(spark, broker, TOPIC).where(where).select("flag").collect()
    assert 0 < len(wanted) < 5
    assert sorted(found.collect()) == sorted(wanted)
    found.explain(mode="formatted")
    shown = capsys.readouterr().out.splitlines()
    assert "topic" in next(each for each in shown if "PushedFilters" in each)


def test_ranges_and_parts(spark: SparkSession, broker: BackgroundBroker) -> None:
    def offsets(values: list[int]) -> str:
        queues = {str(queue): value for queue, value in enumerate(values)}
        return json.dumps({TOPIC: {broker.name: queues}})

    frame = load(
        spark,
        broker,
        TOPIC,
        startingOffsets=offsets([-2, 10, 99]),
        endingOffsets=offsets([5, 50, -1]),
        maxRecordsPerPartition="7",
        columns="queueId,queueOffset",
    )
    rows = frame.withColumn("part", sf.spark_partition_id()).collect()
    wanted = [(0, n) for n in range(5)] + [(1, n) for n in range(10, 50)] + [(2, 99)]
    assert sorted((row.queueId, row.queueOffset) for row in rows) == wanted
    sizes = [sum(row.part == part for row in rows) for part in {row.part for row in rows}]
    assert len(sizes) == 8
    assert max(sizes) <= 7
    parts = load(spark, broker, TOPIC, minPartitions="9", columns="flag")
    assert len(parts.select(sf.spark_partition_id()).distinct().collect()) == 9
    assert parts.count() == COUNT


def test_a_range_of_time(spark: SparkSession, broker: BackgroundBroker) -> None:
    times = sorted({each.store_timestamp_ms for each in broker.messages(TOPIC)})
    begin, end = times[len(times) // 3], times[-1]
    frame = load(
        spark,
        broker,
        TOPIC,
        startingTimestamp=str(begin),
        endingTimestamp=str(end),
        columns="storeTimestamp,flag",
    )
    wanted = [
        each.flag for each in broker.messages(TOPIC) if begin <= each.store_timestamp_ms < end
    ]
    assert sorted(row.flag for row in frame.collect()) == sorted(wanted)

    def by_queue(time_ms: int) -> str:
        return json.dumps({TOPIC: {broker.name: {str(queue): time_ms for queue in range(3)}}})

    frame = load(
        spark,
        broker,
        TOPIC,
        startingOffsetsByTimestamp=by_queue(begin),
        endingOffsetsByTimestamp=by_queue(end),
        columns="storeTimestamp,flag",
    )
    assert sorted(row.flag for row in frame.collect()) == sorted(wanted)


def test_topics_by_pattern_and_queues_by_assignment(
    spark: SparkSession, broker: BackgroundBroker
) -> None:
    reader = spark.read.format("rocketmq").option("namesrv", broker.namesrv)
    assert reader.option("subscribePattern", "Ord.*|Empty").load().count() == COUNT
    assigned = (
        spark.read.format("rocketmq")
        .options(namesrv=broker.namesrv, assign=json.dumps({TOPIC: {broker.name: [2]}}))
        .load()
    )
    assert {row.queueId for row in assigned.select("queueId").collect()} == {2}


def test_nothing_to_read_is_an_empty_frame(spark: SparkSession, broker: BackgroundBroker) -> None:
    assert load(spark, broker, "Empty").collect() == []
    assert load(spark, broker, f"{TOPIC},Empty", columns="flag").count() == COUNT


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "x"}, ["no option 'startingoffset'", "Did you mean 'startingOffsets'"]),
        ({"startingOffsets": "{"}, ["'startingOffsets'", "not JSON"]),
        ({"subscribe": "Nothing"}, ["no route for the topic Nothing", "HINT: Create the topic"]),
        ({"startingOffsets": '{"Orders":{"dev":{"7":1}}}'}, ["names queue 7", "They have queue 0"]),
        ({"startingOffsets": '{"Orders":{"dev":{"0":1}}}'}, ["does not name queue 1", "-2 is"]),
        (
            {"startingOffsets": '{"Orders":{"dev":{"0":5000,"1":0,"2":0}}}'},
            ["queue 0 of Orders on dev lacks 4900 messages (100 to 4999): they are not there yet"],
        ),
        (
            {"endingOffsets": '{"Orders":{"dev":{"0":101,"1":-1,"2":-1}}}'},
            ["queue 0 of Orders on dev lacks 1 message (100 to 100)", "failOnDataLoss"],
        ),
        ({"subExpression": "n >", "subExpressionType": "SQL92"}, ["SUBSCRIPTION_PARSE_FAILED"]),
        ({"columns": "bdy"}, ["no column 'bdy'", "Did you mean 'body'"]),
        ({"namesrv": "127.0.0.1:1"}, ["No name server responds", "Are the addresses right"]),
    ],
)
def test_bad_input_is_a_sentence_and_a_hint(
    spark: SparkSession, broker: BackgroundBroker, options: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(PySparkException) as caught:
        load(spark, broker, TOPIC, **options).count()
    text = str(caught.value)
    for each in words:
        assert each in text
    assert "HINT" in text
    assert "Traceback" not in text
    assert "File " not in text


def test_without_failing_on_loss_what_there_is_is_read(
    spark: SparkSession, broker: BackgroundBroker
) -> None:
    ends = json.dumps({TOPIC: {broker.name: {"0": 5_000, "1": -1, "2": -1}}})
    frame = load(spark, broker, TOPIC, endingOffsets=ends, failOnDataLoss="false")
    assert frame.count() == COUNT
