"""Sums of a log, against the store's own decode."""

import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roquet.errors import SparkOptionError
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.stats import TOPICS_MAX, stats
from tests.unit.spark.log.kit import stored_messages

STORE = Path(__file__).parents[1] / "golden" / "data" / "store-json-clean"


def hour_of(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:00}"


def test_every_message_is_counted_once(spark: SparkSession) -> None:
    messages = list(stored_messages(STORE))
    report = stats(spark, str(STORE), by=("topic", "queue"))
    assert report.numbers["messages"] == len(messages)
    assert report.numbers["bytes"] == sum(each.store_size for each in messages)
    expected = Counter((each.topic, each.queue_id) for each in messages)
    found = {(row[0], row[1]): row[2] for row in report.table("By topic, queue").rows}
    assert found == expected
    topics = Counter(each.topic for each in messages)
    assert {row[0]: row[1] for row in report.table("Queues").rows} == {
        topic: len([1 for other, _ in expected if other == topic]) for topic in topics
    }
    hours = Counter(hour_of(each.store_timestamp_ms) for each in messages)
    rows = report.table("Hours").rows
    assert {row[0] for row in rows} == set(hours)
    assert sum(int(row[2] or 0) for row in rows) == len(messages)
    assert len({row[1] for row in rows}) == TOPICS_MAX + 1
    sizes = Counter(1 << (each.store_size - 1).bit_length() for each in messages)
    assert {row[0]: row[1] for row in report.table("Sizes").rows} == sizes
    keys = Counter(
        (each.topic, key) for each in messages for key in each.properties.get("KEYS", "").split()
    )
    hot = report.table("Hot keys").rows
    assert [row[2] for row in hot] == sorted(keys.values(), reverse=True)[:10]
    assert all(keys[str(row[0]), str(row[1])] == row[2] for row in hot)


def test_only_what_is_wanted(spark: SparkSession) -> None:
    wanted = Wanted(topics=["GoldenOrder"])
    report = stats(spark, str(STORE), wanted=wanted, by=("topic",), hot_keys=0)
    ((topic, messages, *_),) = report.table("By topic").rows
    assert (topic, messages, len(report.tables)) == ("GoldenOrder", 12, 4)
    report = stats(spark, str(STORE), wanted=Wanted(from_ms=2**50), hot_keys=0)
    assert report.numbers["messages"] == 0


def test_damaged_bytes_are_a_row_without_a_topic(spark: SparkSession, tmp_path: Path) -> None:
    shutil.copytree(STORE, tmp_path / "store")
    segment = tmp_path / "store" / "commitlog" / "00000000000000000000"
    data = bytearray(segment.read_bytes())
    first = next(stored_messages(STORE))
    data[first.store_size + 4] ^= 0xFF  # in the magic of the second record
    segment.write_bytes(data)
    report = stats(spark, str(tmp_path / "store"))
    assert report.numbers["messages"] == len(list(stored_messages(STORE)))
    (damaged,) = [row for row in report.table("By topic").rows if row[0] is None]
    assert damaged[1] == 1
    assert damaged[4:] == [None] * 4
    assert report.numbers["firstStoreTimestamp"] == "2026-11-15T07:33:46.087Z"
    assert report.to_html()


def test_a_dry_run_reads_nothing_and_a_wrong_grouping_is_refused(spark: SparkSession) -> None:
    report = stats(spark, str(STORE), is_dry_run=True)
    assert (report.numbers, report.tables) == ({"tasks": 1}, [])
    with pytest.raises(SparkOptionError, match="colour"):
        stats(spark, str(STORE), by=("colour",))
