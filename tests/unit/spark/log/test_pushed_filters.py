"""Which filters of a query the reader of a log takes, and what they become."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import EqualTo, Filter, In, IsNotNull

from roquet.spark.log.log_options import read_log_options
from roquet.spark.log.pushed_filters import PushedFilters
from roquet.spark.log.selection import Selection
from roquet.spark.schema import TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS

TIME = datetime(2026, 11, 18, 12, tzinfo=UTC)
TIME_MS = int(TIME.timestamp() * 1000)
MICROSECOND = timedelta(microseconds=1)
TOPIC, QUEUE, STORED, KEYS = ("topic",), ("queueId",), ("storeTimestamp",), ("keys",)


def push(*filters: Filter, **options: str) -> PushedFilters:
    return PushedFilters(read_log_options({"path": "store", **options}), filters)


def selection(pushed: PushedFilters) -> Selection:
    return pushed.options.rules.selection


def test_topics_and_queues_are_taken() -> None:
    pushed = push(IsNotNull(TOPIC), EqualTo(TOPIC, "A"), In(QUEUE, (1, 2)))
    assert pushed.left == []
    assert not pushed.is_empty
    taken = selection(pushed)
    assert [taken.topic_test()(each) for each in "AB"] == [True, False]  # type: ignore[misc]
    assert [taken.takes_queue(each) for each in range(4)] == [False, True, True, False]
    assert pushed.options.rules.drops_unknown_damage


def test_options_and_filters_narrow_each_other() -> None:
    pushed = push(
        In(TOPIC, ("Ab", "Ac", "B")), spark.Not(EqualTo(TOPIC, "Ab")), spark.LessThan(QUEUE, 4),
        subscribePattern="A.*", queueIds="3,4",
    )  # fmt: skip
    taken = selection(pushed)
    topics = ("Ab", "Ac", "Ad", "B")
    assert [each for each in topics if taken.topic_test()(each)] == ["Ac"]  # type: ignore[misc]
    assert [each for each in range(6) if taken.takes_queue(each)] == [3]


@pytest.mark.parametrize(
    "pushed",
    [
        push(EqualTo(TOPIC, "A"), EqualTo(TOPIC, "B")),
        push(EqualTo(TOPIC, "A"), spark.Not(EqualTo(TOPIC, "A"))),
        push(EqualTo(TOPIC, "A"), spark.StringStartsWith(TOPIC, "B")),
        push(EqualTo(QUEUE, 1), spark.GreaterThan(QUEUE, 1)),
        push(EqualTo(QUEUE, 1), spark.Not(In(QUEUE, (1, 2)))),
        push(spark.GreaterThan(QUEUE, 2**63 - 1)),
        push(spark.GreaterThan(STORED, TIME), spark.LessThan(STORED, TIME)),
        push(EqualTo(STORED, TIME + MICROSECOND)),
        push(In(TOPIC, ())),
    ],
)
def test_nothing_is_read_if_no_row_can_match(pushed: PushedFilters) -> None:
    assert pushed.is_empty
    assert pushed.left == []


@pytest.mark.parametrize(
    ("kind", "late_us", "from_ms", "to_ms"),
    [
        (spark.EqualTo, 0, TIME_MS, TIME_MS + 1),
        (spark.GreaterThanOrEqual, 0, TIME_MS, TIMESTAMP_MAX_MS + 1),
        (spark.GreaterThanOrEqual, 1, TIME_MS + 1, TIMESTAMP_MAX_MS + 1),
        (spark.GreaterThanOrEqual, -1, TIME_MS, TIMESTAMP_MAX_MS + 1),
        (spark.GreaterThan, 0, TIME_MS + 1, TIMESTAMP_MAX_MS + 1),
        (spark.GreaterThan, 1, TIME_MS + 1, TIMESTAMP_MAX_MS + 1),
        (spark.GreaterThan, -1, TIME_MS, TIMESTAMP_MAX_MS + 1),
        (spark.LessThan, 0, TIMESTAMP_MIN_MS, TIME_MS),
        (spark.LessThan, 1, TIMESTAMP_MIN_MS, TIME_MS + 1),
        (spark.LessThanOrEqual, 0, TIMESTAMP_MIN_MS, TIME_MS + 1),
        (spark.LessThanOrEqual, -1, TIMESTAMP_MIN_MS, TIME_MS),
    ],
)
def test_times_are_whole_milliseconds(
    kind: type[spark.EqualTo], late_us: int, from_ms: int, to_ms: int
) -> None:
    pushed = push(kind(STORED, TIME + late_us * MICROSECOND))
    assert (selection(pushed).store_from_ms, selection(pushed).store_to_ms) == (from_ms, to_ms)
    assert pushed.left == []


@pytest.mark.parametrize(
    "taken",
    [
        EqualTo(KEYS, "a b"),
        In(("tags",), ("A", "B")),
        spark.EqualNullSafe(("msgId",), "A"),
        spark.Not(EqualTo(TOPIC, "A")),
        spark.GreaterThan(TOPIC, "A"),
        spark.StringStartsWith(TOPIC, "A"),
        spark.LessThanOrEqual(("queueOffset",), 7),
        IsNotNull(("tags",)),
    ],
)
def test_many_are_taken(taken: Filter) -> None:
    pushed = push(taken)
    assert pushed.left == []
    assert pushed.options.rules.drops_unknown_damage


def test_a_physical_offset_is_also_that_of_damage() -> None:
    pushed = push(spark.GreaterThan(("physicalOffset",), 7))
    assert pushed.left == []
    assert not pushed.options.rules.drops_unknown_damage


def test_some_times_are_read_and_checked_by_spark() -> None:
    times = In(STORED, (TIME, TIME + 5 * MICROSECOND))
    pushed = push(times)
    assert pushed.left == [times]
    assert (selection(pushed).store_from_ms, selection(pushed).store_to_ms) == (
        TIME_MS,
        TIME_MS + 1,
    )


@pytest.mark.parametrize(
    "left",
    [
        EqualTo(("properties", "topic"), "A"),
        EqualTo(("storeSize",), 7),
        EqualTo(TOPIC, None),
        EqualTo(QUEUE, value=True),
        In(TOPIC, ("A", None)),
        EqualTo(TOPIC, "\ud800"),
        spark.IsNull(TOPIC),
        spark.Not(spark.IsNull(TOPIC)),
        spark.Not(spark.StringStartsWith(TOPIC, "A")),
        spark.StringContains(TOPIC, "A"),
        EqualTo(STORED, TIME.replace(tzinfo=None)),
    ],
)
def test_all_others_are_left_to_spark(left: Filter) -> None:
    pushed = push(left)
    assert pushed.left == [left]
    assert selection(pushed) == Selection()
    assert not pushed.options.rules.drops_unknown_damage
