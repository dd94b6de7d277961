"""A plain ``where`` on ``rocketmq-log``: the same rows with filters handed over and without."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from roquet.errors import SparkOptionError, SparkSchemaError
from roquet.model.message import StoredMessage
from roquet.model.properties import encode_properties
from roquet.spark import read_log, schema
from tests.spark.log_side import load
from tests.unit.spark.log.kit import mixed_messages, stored_messages, write_store
from tests.unit.store.kit import message

SWITCH = "spark.sql.python.filterPushdown.enabled"
COLUMNS = "topic,queueId,queueOffset,tags,keys,msgId,storeTimestamp,physicalOffset,_corrupt"
GOLDEN = Path(__file__).parents[1] / "golden" / "data"


@pytest.fixture(scope="module")
def narrowing(spark: SparkSession) -> SparkSession:
    """A session that hands filters over."""
    session = spark.newSession()
    session.conf.set(SWITCH, "true")
    return session


class Damaged(NamedTuple):
    """A store with a record that cannot be read, and what it had before."""

    root: Path
    messages: list[StoredMessage]

    @property
    def topics(self) -> list[str]:
        return sorted({each.topic for each in self.messages})


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    root = tmp_path_factory.mktemp("damaged")
    keyed = [
        message(b"k", topic="T1", queue_id=1, properties=encode_properties({"KEYS": keys}))
        for keys in ("alone", "alone all", "another")
    ]
    write_store(root, [*mixed_messages(60), *keyed], step_ms=7)
    messages = list(stored_messages(root))
    segment = min((root / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[messages[20].physical_offset + 4] ^= 0xFF
    segment.write_bytes(data)
    return Damaged(root, messages)


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(map(tuple, frame.collect()), key=str)


def conditions(store: Damaged) -> list[str]:
    topics, messages = store.topics, store.messages
    times = sorted({each.store_timestamp_ms for each in messages})
    middle = f"timestamp_millis({times[len(times) // 2]})"
    return [
        f"topic = '{topics[0]}'",
        f"topic <=> '{topics[0]}'",
        f"topic IN ('{topics[0]}', '{topics[-1]}', 'Nobody')",
        "topic = 'Nobody'",
        "topic IS NOT NULL",
        "topic IS NULL",
        f"topic <> '{topics[0]}'",
        f"topic LIKE '{topics[0][:2]}%'",
        "queueId = 1",
        "queueId = 0 AND queueId = 1",
        f"storeTimestamp > {middle}",
        f"storeTimestamp < {middle}",
        f"storeTimestamp = {middle}",
        f"storeTimestamp >= {middle} - INTERVAL 1 MICROSECOND",
        f"storeTimestamp < {middle} + INTERVAL 1 MICROSECOND",
        "keys = 'alone'",
        "keys = 'alone all'",
        "keys = 'alone' AND topic IS NOT NULL AND queueId >= 0",
        f"topic = '{topics[0]}' OR queueId = 1",
        "keys = 'alone' AND keys = 'another'",
        "_corrupt IS NOT NULL",
        f"physicalOffset BETWEEN {messages[19].physical_offset} AND {messages[22].physical_offset}",
        "queueOffset >= 3 AND queueOffset <> 4",
        "tags IS NOT NULL",
        "tags IN ('Tag1', 'Tag3', NULL)",
        "tags NOT IN ('Tag1', 'Tag3')",
        "tags LIKE 'Tag%' AND tags < 'Tag3'",
        f"msgId IN ('{1:032X}', '{messages[2].offset_message_id}')",
        "msgId > 'A' OR tags = 'Tag1'",
        f"storeTimestamp IN ({middle}, {middle} + INTERVAL 7 MILLISECONDS)",
    ]


def test_a_query_returns_the_same_rows(
    spark: SparkSession, narrowing: SparkSession, damaged: Damaged
) -> None:
    everything = load(spark, damaged.root, columns=COLUMNS).cache()
    for condition in conditions(damaged):
        narrowed = load(narrowing, damaged.root, columns=COLUMNS).where(condition)
        assert rows(narrowed) == rows(everything.where(condition)), condition
    everything.unpersist()


def test_damage_is_dropped_or_an_error_as_without_filters(
    narrowing: SparkSession, damaged: Damaged
) -> None:
    good = load(narrowing, damaged.root, mode="DROPMALFORMED").where("topic IS NOT NULL")
    assert good.count() == len(damaged.messages) - 1
    with pytest.raises(PySparkException, match="is damaged at physical offset"):
        load(narrowing, damaged.root, mode="FAILFAST").where("topic = 'T1'").collect()


def test_options_and_filters_are_combined(
    spark: SparkSession, narrowing: SparkSession, damaged: Damaged
) -> None:
    first, second, *_ = damaged.topics
    for options, condition in (
        ({"topics": f"{first},{second}"}, f"topic = '{second}'"),
        ({"topics": first}, f"topic = '{second}'"),
        ({"subscribePattern": f"{first}|x.*"}, f"topic IN ('{first}', '{second}')"),
        ({"queueIds": "0,1"}, "queueId IN (1, 2)"),
        ({"topics": first, "useQueues": "true"}, "queueId = 1"),
    ):
        plain, narrowed = (
            load(session, damaged.root, columns="topic,queueId,queueOffset", **options)
            .where(condition)
            .collect()
            for session in (spark, narrowing)
        )
        assert sorted(narrowed) == sorted(plain), condition


def test_explain_shows_what_was_taken(
    narrowing: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = load(narrowing, GOLDEN / "store-json-clean").where(
        "topic = 'TopicTest' AND tags = 'TagA' AND storeSize > 7"
    )
    frame.explain(mode="formatted")
    (pushed,) = [each for each in capsys.readouterr().out.splitlines() if "PushedFilters" in each]
    assert "topic" in pushed
    assert "tags" in pushed
    assert "storeSize" not in pushed


def test_read_log_hands_filters_over_in_any_session(
    spark: SparkSession, damaged: Damaged, capsys: pytest.CaptureFixture[str]
) -> None:
    session = spark.newSession()
    assert session.conf.get(SWITCH) == "false"
    path = str(damaged.root)
    for where in ("topic = 'T1' AND tags IS NOT NULL", F.col("topic") == "T1"):
        found = read_log(session, path, columns=["keys", "queueOffset"], where=where)
        assert found.columns == ["keys", "queueOffset"]
        plain = load(spark, damaged.root, columns="topic,keys,queueOffset,tags").where(where)
        assert rows(found) == rows(plain.select("keys", "queueOffset"))
        found.explain(mode="formatted")
        shown = capsys.readouterr().out
        assert "topic" in next(each for each in shown.splitlines() if "PushedFilters" in each)
    assert read_log(session, path).columns == list(schema.COLUMNS)
    assert read_log(session, path, where="_corrupt IS NOT NULL", mode="PERMISSIVE").count() == 1
    with pytest.raises(SparkSchemaError, match="no column 'boddy'"):
        read_log(session, path, columns=["boddy"])
    with pytest.raises(SparkOptionError, match="given twice"):
        read_log(session, path, Columns="body")


def test_without_the_switch_no_filter_is_taken(spark: SparkSession) -> None:
    assert spark.conf.get(SWITCH) == "false"
    frame = load(spark, GOLDEN / "store-json-clean")
    assert frame.where("topic = 'Nobody'").count() == 0


def test_a_missing_store_is_one_sentence(narrowing: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="none does not exist"):
        load(narrowing, GOLDEN / "none").where("topic = 'a'").collect()
