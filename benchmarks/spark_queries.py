"""Queries of a few messages of a large log, for :mod:`benchmarks.spark`.

Each has three ways to the same rows: Spark's own filter, the same filter handed to the source, and
the option that selects the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.load import BenchmarkError
from benchmarks.spark_log import SMALL_TOPIC

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
TIME_PART = 0.01
"""How much of the log's time a query of a range of times selects."""


@dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        row: The row it belongs to.
        where: The filter, as a user writes it.
        options: The options that select the same messages.
    """

    row: str
    where: str
    options: Mapping[str, str]


def few_messages(log: DataFrame) -> list[Query]:
    """Queries by topic, by time and by key."""
    first, last = log.agg(f.min("storeTimestamp"), f.max("storeTimestamp")).collect()[0]
    first_ms, last_ms = (int(each.timestamp() * 1000) for each in (first, last))
    from_ms = (first_ms + last_ms) // 2
    to_ms = from_ms + max(int((last_ms - first_ms) * TIME_PART), 1)
    times = (
        f"storeTimestamp >= timestamp_millis({from_ms})"
        f" AND storeTimestamp < timestamp_millis({to_ms})"
    )
    return [
        Query("where-topic", f"topic = '{SMALL_TOPIC}'", {"topics": SMALL_TOPIC}),
        Query(
            "where-time",
            times,
            {"startingTimestamp": str(from_ms), "endingTimestamp": str(to_ms)},
        ),
        Query("where-key", "keys = 'order-77'", {"keys": "order-77"}),
    ]


def ways(
    spark: SparkSession, query: Query, read: Callable[..., DataFrame]
) -> tuple[Callable[[], DataFrame], Callable[[], DataFrame], Callable[[], DataFrame]]:
    """The rows of a query by Spark's filter, by the same filter handed over, and by options."""

    def filtered(*, push_down: bool) -> DataFrame:
        spark.conf.set(PUSH_DOWN, str(push_down).lower())
        return read().where(query.where)

    return (
        lambda: filtered(push_down=False),
        lambda: filtered(push_down=True),
        lambda: read(**query.options),
    )


def check_equal(query: Query, counts: list[int]) -> None:
    """Make sure that all ways find the same number of rows, and at least one."""
    if len(set(counts)) != 1 or not counts[0]:
        raise BenchmarkError(f"{query.row}: the ways find {counts} rows")
