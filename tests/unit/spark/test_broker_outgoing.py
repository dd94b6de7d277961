"""Rows on their way to brokers."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from roquet.errors import BadMessage, SparkOptionError, SparkSchemaError
from roquet.spark.broker.outgoing import ROW_ID, OutgoingRow, RowReader
from roquet.spark.broker.write_options import WriteOptions, check_columns, write_options

LEAST = {"namesrv": "127.0.0.1:9876", "topic": "Orders"}


def rows(reader: RowReader, **columns: list[object]) -> list[OutgoingRow]:
    types = {"properties": pa.map_(pa.string(), pa.string())}
    arrays = {name: pa.array(values, types.get(name)) for name, values in columns.items()}
    return list(reader.rows(pa.RecordBatch.from_pydict(arrays)))


def test_every_column_has_its_place() -> None:
    at = datetime(2026, 11, 15, 7, 33, tzinfo=UTC)
    (row,) = rows(
        RowReader(None, "q/7/2"),
        topic=["Orders"],
        body=["paid"],
        tags=["eu"],
        keys=[["17", "18"]],
        properties=[[("colour", "blå"), ("none", None)]],
        shardingKey=["order-17"],
        deliverAt=[at],
    )
    message = row.message
    assert (message.topic, message.body, message.tags) == ("Orders", b"paid", "eu")
    assert message.keys == ["17", "18"]
    assert message.properties.pop(ROW_ID).startswith("q/7/2/0/")
    assert message.properties == {"colour": "blå"}
    assert message.sharding_key == "order-17"
    assert message.deliver_at_ms == 1_794_727_980_000
    assert (row.queue_id, row.broker_name) == (None, None)


def test_a_queue_and_a_level() -> None:
    (row,) = rows(
        RowReader("Orders", "t"), body=[b"x"], queueId=[3], brokerName=["a"], delayLevel=[2]
    )
    assert (row.queue_id, row.broker_name, row.message.delay_level) == (3, "a", 2)


def test_the_option_topic_goes_before_the_column() -> None:
    (row,) = rows(RowReader("Orders", "t"), body=[b"x"], topic=["Other"])
    assert row.message.topic == "Orders"


def test_the_same_rows_get_the_same_ids_and_no_two_rows_one() -> None:
    def ids() -> list[str]:
        found = rows(RowReader("Orders", "q/0/1"), body=[b"a", b"b", b"b"])
        return [each.message.properties[ROW_ID] for each in found]

    assert ids() == ids()
    assert len(set(ids())) == 3


def test_rows_in_another_order_are_never_taken_for_each_other() -> None:
    first = rows(RowReader("Orders", "q/0/1"), body=[b"a", b"b"])
    again = rows(RowReader("Orders", "q/0/1"), body=[b"b", b"a"])
    ids = {each.message.properties[ROW_ID] for each in [*first, *again]}
    assert len(ids) == 4


def test_properties_that_a_source_gave_can_be_written_again() -> None:
    given = [("TAGS", "eu"), ("KEYS", "17 18"), ("UNIQ_KEY", "AA"), ("DELAY", "3"), ("own", "1")]
    (row,) = rows(RowReader("Orders", "t"), body=[b"x"], properties=[given])
    assert (row.message.tags, row.message.keys) == ("eu", "17 18")
    assert set(row.message.properties) == {"own", ROW_ID}
    assert row.message.delay_level == 0


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"body": [b"x", None]}, "Row 1 of t cannot be sent: its body is null"),
        ({"body": [b"x", b""]}, "non-empty"),
        ({"body": [b"x", b"x"], "properties": [[], [("a", "\x01")]]}, "separate properties"),
        ({"body": [b"x", b"x"], "properties": [[], [("a", " ")]]}, "non-blank"),
    ],
)
def test_a_row_that_is_no_message_is_named(columns: dict[str, list[object]], words: str) -> None:
    with pytest.raises(BadMessage, match=words):
        rows(RowReader("Orders", "t"), **columns)


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(BadMessage, match="it has no topic"):
        rows(RowReader(None, "t"), body=[b"x"], topic=[None])


# ------------------------------------------------------------------------------------- options


def options(**given: str) -> WriteOptions:
    return write_options({**LEAST, **given})


def test_defaults_and_what_spark_adds() -> None:
    found = options(checkpointLocation="/x", batchBytes="64k", compression="ZLIB")
    assert (found.topic, found.group, found.write_id) == ("Orders", "spark-rocketmq-sink", None)
    assert found.batch_bytes == 65_536


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topci": "x"}, "has no option 'topci'"),
        ({"topic": "no topic"}, "no topic"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "forbidden"),
        ({"groupId": "no group"}, "no group"),
        ({"compression": "snappy"}, "not one of its values"),
        ({"maxInFlight": "0"}, "out of bounds"),
    ],
)
def test_bad_options(given: dict[str, str], words: str) -> None:
    with pytest.raises(SparkOptionError) as caught:
        options(**given)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "words", "hint"),
    [
        ({"value": "binary"}, "needs a column 'body'", "alias('body')"),
        ({"body": "int"}, "is of type int, and must be binary or string", "cast"),
        ({"body": "binary", "tag": "string"}, "has no column 'tag'", "'tags'"),
        ({"body": "binary", "zzz": "string"}, "has no column 'zzz'", "It takes: body"),
        ({"body": "binary", "queueId": "int", "shardingKey": "string"}, "which queue", "Drop"),
        ({"body": "binary", "delayLevel": "int", "deliverAt": "timestamp"}, "when", "Drop"),
    ],
)
def test_columns_that_are_not_the_sinks(columns: dict[str, str], words: str, hint: str) -> None:
    with pytest.raises(SparkSchemaError) as caught:
        check_columns(columns, options())
    assert words in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_topic_must_come_from_somewhere() -> None:
    nowhere = write_options({"namesrv": "127.0.0.1:9876"})
    with pytest.raises(SparkSchemaError, match="where to write"):
        check_columns({"body": "binary"}, nowhere)
    check_columns({"body": "binary", "topic": "string"}, nowhere)


def test_columns_of_a_source_can_be_written() -> None:
    columns = {"body": "binary", "msgId": "string", "storeTimestamp": "timestamp", "tags": "string"}
    check_columns(columns, options())
