"""Statistics of a log: rates, sizes, skew, hot keys, latency.

Decodes only the few columns it needs, never bodies. Latency is the time from the producer's clock
(born) to the broker's (store), so it includes any difference between the clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from roquet.errors import SparkOptionError
from roquet.spark.jobs.inputs import ALL, Wanted, read_log
from roquet.spark.report import OTHERS, Cell, Report, iso_time
from roquet.spark.tasks import task_count

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

__all__ = ["GROUPINGS", "stats"]

GROUPINGS = ("topic", "queue", "hour", "day")
TOPICS_MAX = 7
"""How many topics the table ``Hours`` tells apart, those with the most bytes."""

_COLUMNS = ("topic", "queueId", "storeSize", "bornTimestamp", "storeTimestamp")


def stats(
    spark: SparkSession,
    store: str,
    *,
    wanted: Wanted = ALL,
    by: Sequence[str] = ("topic",),
    hot_keys: int = 10,
    is_dry_run: bool = False,
) -> Report:
    """Summarize a log.

    Args:
        spark: A session that knows the sources.
        store: The store directory.
        wanted: Which messages.
        by: What to group the table by: some of :data:`GROUPINGS`.
        hot_keys: How many of the most frequent keys to list; 0 skips that pass.
        is_dry_run: Only report how many tasks would read.

    Returns:
        The tables ``By …``, ``Queues`` (skew), ``Hours`` of the largest topics, ``Sizes`` of
        records, and ``Hot keys``.

    Raises:
        SparkOptionError: ``by`` is invalid.
    """
    unknown = [word for word in by if word not in GROUPINGS]
    if unknown or not by:
        raise SparkOptionError(
            f"Statistics cannot be grouped by {', '.join(unknown) or 'nothing'}.",
            hint=f"Use some of: {', '.join(GROUPINGS)}.",
        )
    report = Report(job="stats", source=store, is_dry_run=is_dry_run)
    log = read_log(spark, store, wanted, columns=_COLUMNS)
    if is_dry_run:
        report.numbers["tasks"] = task_count(log)
        return report
    _add_groups(report, log, by)
    _add_spread(report, log)
    if hot_keys:
        _add_hot_keys(report, read_log(spark, store, wanted, columns=("topic", "keys")), hot_keys)
    return report


def _latency_ms() -> Column:
    return f.unix_millis("storeTimestamp") - f.unix_millis("bornTimestamp")


def _add_groups(report: Report, log: DataFrame, by: Sequence[str]) -> None:
    made = {
        "topic": f.col("topic"),
        "queue": f.col("queueId"),
        "hour": f.date_format("storeTimestamp", "yyyy-MM-dd HH:00"),
        "day": f.date_format("storeTimestamp", "yyyy-MM-dd"),
    }
    groups = [made[word].alias(word) for word in by]
    rows = (
        log.groupBy(*groups)
        .agg(
            f.count("*").alias("messages"),
            f.sum("storeSize").alias("bytes"),
            f.unix_millis(f.min("storeTimestamp")).alias("first_ms"),
            f.unix_millis(f.max("storeTimestamp")).alias("last_ms"),
            f.percentile_approx(_latency_ms(), [0.5, 0.99]).alias("latency_ms"),
            f.max(_latency_ms()).alias("latency_max_ms"),
        )
        .orderBy(f.desc("bytes"), *by)
        .collect()
    )
    report.numbers |= {
        "messages": sum(row["messages"] for row in rows),
        "bytes": sum(row["bytes"] for row in rows),
        "firstStoreTimestamp": iso_time(min(_times(rows, "first_ms"), default=None)),
        "lastStoreTimestamp": iso_time(max(_times(rows, "last_ms"), default=None)),
    }
    columns = [*by, "messages", "bytes", "mean bytes", "messages/s"]
    columns += ["p50 ms to store", "p99 ms to store", "max ms to store"]
    report.add_table(f"By {', '.join(by)}", columns, [_group_cells(row, by) for row in rows])


def _times(rows: Sequence[Row], name: str) -> list[int]:
    """Return the times of groups; damaged bytes, which are rows without a topic, have none."""
    return [row[name] for row in rows if row[name] is not None]


def _group_cells(row: Row, by: Sequence[str]) -> list[Cell]:
    messages, total_bytes = row["messages"], row["bytes"]
    p50, p99 = row["latency_ms"] or (None, None)
    return [
        *(row[word] for word in by),
        messages,
        total_bytes,
        round(total_bytes / messages, 1),
        rate_per_s(messages, (row["last_ms"] or 0) - (row["first_ms"] or 0)),
        p50,
        p99,
        row["latency_max_ms"],
    ]


def rate_per_s(messages: int, span_ms: int) -> float | None:
    """Return messages per second over a span; ``None`` if the span is zero.

    Example:
        >>> rate_per_s(11, 5_000), rate_per_s(1, 0)
        (2.2, None)
    """
    return round(messages * 1000 / span_ms, 2) if span_ms > 0 else None


def _add_spread(report: Report, log: DataFrame) -> None:
    """Add how messages are spread over queues, hours and sizes, in one pass."""
    named = log.select(
        "topic",
        "queueId",
        f.date_format("storeTimestamp", "yyyy-MM-dd HH:00").alias("hour"),
        # Half a byte less, so that rounding cannot lift a power of two into the next class.
        f.expr("CAST(POW(2, CEIL(LOG2(storeSize - 0.5))) AS BIGINT)").alias("size"),
        "storeSize",
    )
    sets = [
        [named[name] for name in each]
        for each in (["topic", "queueId"], ["topic", "hour"], ["size"])
    ]
    rows = (
        named.groupingSets(sets, "topic", "queueId", "hour", "size")
        .agg(
            f.grouping_id().alias("kind"),
            f.count("*").alias("messages"),
            f.sum("storeSize").alias("bytes"),
        )
        .collect()
    )
    report.add_table(
        "Queues",
        ["topic", "queues", "least messages", "most messages", "most to mean"],
        skew(
            {
                (r["topic"], r["queueId"]): r["messages"]
                for r in rows
                if r["kind"] == _BY_QUEUE and r["topic"] is not None
            }
        ),
    )
    report.add_table(
        "Hours",
        ["hour", "topic", "messages", "bytes"],
        largest_topics(
            (r["hour"], r["topic"], r["messages"], r["bytes"])
            for r in rows
            if r["kind"] == _BY_HOUR and r["hour"] is not None
        ),
    )
    sizes = sorted((r["size"], r["messages"], r["bytes"]) for r in rows if r["kind"] == _BY_SIZE)
    report.add_table("Sizes", ["up to bytes", "messages", "bytes"], sizes)


# What grouping_id() gives for the sets above: a bit is set for a column that is not in the set.
_BY_QUEUE, _BY_HOUR, _BY_SIZE = 0b0011, 0b0101, 0b1110


def largest_topics(
    rows: Iterable[tuple[str, str, int, int]], topics_max: int = TOPICS_MAX
) -> list[list[Cell]]:
    """Return rows of hour, topic, messages and bytes; topics beyond the largest are one.

    Example:
        >>> rows = [("9:00", "A", 1, 90), ("9:00", "B", 2, 20), ("9:00", "C", 3, 30)]
        >>> largest_topics(rows, 1)
        [['9:00', 'A', 1, 90], ['9:00', 'other topics', 5, 50]]
    """
    found = [(hour, topic or "", messages, size) for hour, topic, messages, size in rows]
    total: dict[str, int] = {}
    for _, topic, _, size in found:
        total[topic] = total.get(topic, 0) + size
    largest = set(sorted(total, key=lambda topic: (-total[topic], topic))[:topics_max])
    sums: dict[tuple[str, bool, str], tuple[int, int]] = {}
    for hour, topic, messages, size in found:
        is_other = topic not in largest
        key = (hour, is_other, OTHERS if is_other else topic)
        before = sums.get(key, (0, 0))
        sums[key] = (before[0] + messages, before[1] + size)
    return [[hour, topic, *sums[hour, kind, topic]] for hour, kind, topic in sorted(sums)]


def skew(messages: dict[tuple[str, int], int]) -> list[list[Cell]]:
    """Return for each topic how unevenly its messages are spread over its queues.

    Example:
        >>> skew({("A", 0): 30, ("A", 1): 10, ("B", 0): 5})
        [['A', 2, 10, 30, 1.5], ['B', 1, 5, 5, 1.0]]
    """
    by_topic: dict[str, list[int]] = {}
    for (topic, _), count in messages.items():
        by_topic.setdefault(topic, []).append(count)
    return [
        [topic, len(counts), min(counts), max(counts), _to_mean(counts)]
        for topic, counts in sorted(by_topic.items())
    ]


def _to_mean(counts: list[int]) -> float:
    return round(max(counts) * len(counts) / sum(counts), 2)


def _add_hot_keys(report: Report, log: DataFrame, count: int) -> None:
    keys = log.where(f.col("keys").isNotNull()).select(
        "topic", f.explode(f.split("keys", " ")).alias("key")
    )
    rows = (
        keys.where(f.length("key") > 0)
        .groupBy("topic", "key")
        .agg(f.count("*").alias("messages"))
        .orderBy(f.desc("messages"), "topic", "key")
        .limit(count)
        .collect()
    )
    report.add_table(
        "Hot keys",
        ["topic", "key", "messages"],
        [[row["topic"], row["key"], row["messages"]] for row in rows],
    )
