"""Projects how a store grows, and when its disk will be full.

Compares the bytes per day of each topic, plus their share of queues and index, with the disk and
the broker's retention. Only the newest days count, since traffic changes; a span shorter than a day
is extrapolated, and the report says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from roquet.spark.jobs.inputs import ALL, Wanted, read_log
from roquet.spark.report import Cell, Report, iso_time
from roquet.spark.tasks import task_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StoreGrowth", "capacity", "project"]

FULL = "full"
RESERVED_HOURS = 72.0
"""Upstream's default retention."""

_DAY_MS = 86_400_000
_COLUMNS = ("topic", "storeSize", "storeTimestamp")


@dataclass(frozen=True)
class StoreGrowth:
    """How a store grows.

    Attributes:
        bytes_a_day: Growth of log, queues and index together.
        used_bytes: The current size of the store.
        free_bytes: The free space on the disk.
        reserved_hours: The retention of the log.
    """

    bytes_a_day: float
    used_bytes: int
    free_bytes: int
    reserved_hours: float


def project(growth: StoreGrowth) -> tuple[int, float | None]:
    """Return the store's final size, and in how many days the disk is full.

    Returns:
        Bytes once deletion balances growth, and days; ``None`` if the disk is large enough.

    Example:
        >>> project(StoreGrowth(bytes_a_day=10, used_bytes=5, free_bytes=20, reserved_hours=24))
        (10, None)
        >>> project(StoreGrowth(bytes_a_day=10, used_bytes=5, free_bytes=20, reserved_hours=72))
        (30, 2.0)
    """
    steady_bytes = round(growth.bytes_a_day * growth.reserved_hours / 24)
    if steady_bytes <= growth.used_bytes + growth.free_bytes or growth.bytes_a_day <= 0:
        return steady_bytes, None
    return steady_bytes, round(growth.free_bytes / growth.bytes_a_day, 2)


def capacity(
    spark: SparkSession,
    store: str,
    *,
    wanted: Wanted = ALL,
    days: int = 7,
    reserved_hours: float = RESERVED_HOURS,
    days_min: float = 7.0,
    is_dry_run: bool = False,
) -> Report:
    """Project how a store grows.

    Args:
        spark: A session that knows the sources.
        store: The store directory.
        wanted: Which messages.
        days: How many of the newest days count.
        reserved_hours: The broker's ``fileReservedTime``.
        days_min: A disk that fills up earlier is a finding.
        is_dry_run: Only report how many tasks would read.

    Returns:
        The numbers of the projection and the tables ``Topics`` and ``Days``.
    """
    report = Report(job="capacity", source=store, is_dry_run=is_dry_run)
    log = read_log(spark, store, wanted, columns=_COLUMNS)
    if is_dry_run:
        report.numbers["tasks"] = task_count(log)
        return report
    rows = (
        log.groupBy("topic", f.date_format("storeTimestamp", "yyyy-MM-dd").alias("day"))
        .agg(
            f.count("*").alias("messages"),
            f.sum("storeSize").alias("bytes"),
            f.unix_millis(f.min("storeTimestamp")).alias("first_ms"),
            f.unix_millis(f.max("storeTimestamp")).alias("last_ms"),
        )
        .collect()
    )
    found = [(r["topic"], r["day"], r["messages"], r["bytes"]) for r in rows if r["day"]]
    span_ms = _span_ms([(r["first_ms"], r["last_ms"]) for r in rows if r["day"]], days)
    log_bytes = sum(each[3] for each in found)
    used_bytes = sum(path.stat().st_size for path in _files(Path(store)))
    overhead = _overhead(Path(store), log_bytes)
    newest = sorted({each[1] for each in found})[-days:]
    recent = [each for each in found if each[1] in newest]
    bytes_a_day = sum(each[3] for each in recent) * overhead * _DAY_MS / span_ms if span_ms else 0.0
    growth = StoreGrowth(bytes_a_day, used_bytes, shutil.disk_usage(store).free, reserved_hours)
    steady_bytes, days_left = project(growth)
    report.numbers |= {
        "logBytes": log_bytes,
        "storeBytes": used_bytes,
        "freeBytes": growth.free_bytes,
        "bytesADay": round(bytes_a_day),
        "isExtrapolated": span_ms < _DAY_MS,
        "bytesWhenSteady": steady_bytes,
        "daysToFull": days_left,
        "lastStoreTimestamp": iso_time(max((r["last_ms"] for r in rows), default=None)),
    }
    if days_left is not None and days_left < days_min:
        report.add_finding(
            FULL, store, f"the disk is full in {days_left} days; {steady_bytes} bytes are needed"
        )
    _add_tables(report, recent, bytes_a_day)
    return report


def _files(folder: Path) -> Iterable[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _overhead(store: Path, log_bytes: int) -> float:
    """Return the bytes on disk per byte of the log, with queues and index."""
    others = sum(
        path.stat().st_blocks * 512
        for name in ("consumequeue", "consumequeue_ext", "index")
        for path in _files(store / name)
    )
    return 1 + others / log_bytes if log_bytes else 1.0


def _span_ms(times: Sequence[tuple[int, int]], days: int) -> int:
    """Return the time from the first to the last message of the newest days."""
    if not times:
        return 0
    last_ms = max(last for _, last in times)
    earliest_day = last_ms // _DAY_MS - days + 1
    firsts = [first for first, last in times if last // _DAY_MS >= earliest_day]
    return last_ms - min(firsts)


def _add_tables(
    report: Report, recent: Sequence[tuple[str, str, int, int]], bytes_a_day: float
) -> None:
    total = sum(each[3] for each in recent) or 1
    topics: dict[str, list[int]] = {}
    by_day: dict[str, list[int]] = {}
    for topic, day, messages, size in recent:
        for table, key in ((topics, topic), (by_day, day)):
            sums = table.setdefault(key, [0, 0])
            sums[0] += messages
            sums[1] += size
    rows: list[list[Cell]] = [
        [topic, messages, size, round(bytes_a_day * size / total), round(100 * size / total, 2)]
        for topic, (messages, size) in sorted(topics.items(), key=lambda each: -each[1][1])
    ]
    report.add_table("Topics", ["topic", "messages", "bytes", "bytes a day", "percent"], rows)
    report.add_table(
        "Days", ["day", "messages", "bytes"], [[day, *sums] for day, sums in sorted(by_day.items())]
    )
