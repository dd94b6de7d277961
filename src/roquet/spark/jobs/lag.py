"""Reports the lag of consumer groups, in messages and in seconds.

Joins ``consumerOffset.json`` with the heads of the ConsumeQueues. Of the log it reads only the
store times of the groups' next messages. :mod:`roquet.spark.jobs.lag_cluster` queries a live
cluster for the same.

A group's lag in seconds is the age of the oldest message that it has not consumed: relative to the
newest message of a store (a stopped broker does not fall behind), to now for a cluster, or to a
given time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.client.options import ClientOptions
from roquet.format.derived import QueueKey
from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.files import Files
from roquet.spark.jobs.group_position import GroupPosition, OffsetQuery
from roquet.spark.jobs.inputs import ALL, Wanted
from roquet.spark.jobs.lag_cluster import ClusterLagWorker, read_cluster_offsets
from roquet.spark.jobs.message_feeds import Source, source_name
from roquet.spark.jobs.store_config import GroupOffsets, read_group_offsets
from roquet.spark.log.splits import store_time_ms
from roquet.spark.log.store_files import LogFiles, open_log
from roquet.spark.report import Cell, Report, iso_time
from roquet.spark.tasks import parallelism, run_tasks
from roquet.storefiles.window import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["lag"]

BEHIND = "behind"
AHEAD = "ahead"
GONE = "gone"
SILENT = "silent"


@dataclass(frozen=True)
class _Look:
    """Sent to executors: looks queues up in a store."""

    store: str

    def __call__(self, queries: Sequence[OffsetQuery]) -> list[GroupPosition]:
        log = open_log(Files(), [self.store])
        return [find_group_position(log, each) for each in queries]


def find_group_position(log: LogFiles, query: OffsetQuery) -> GroupPosition:
    """Return the position of a group in a queue of a log."""
    queue = log.queues.get(QueueKey(query.topic, query.queue_id))
    if queue is None:
        return GroupPosition(*query, 0, 0, None, None)
    low, high = queue.first_entry(), queue.written_end()

    def store_ms(queue_offset: int) -> int | None:
        unit = queue.entry(queue_offset)
        segment = None if unit is None else log.segment_of(unit.physical_offset)
        if unit is None or segment is None:
            return None
        with Window(log.files, segment) as window:
            return store_time_ms(window, unit.physical_offset)

    first = max(query.offset, low)
    return GroupPosition(
        *query,
        low,
        high,
        store_ms(first) if high > first else None,
        store_ms(high - 1) if high > low else None,
    )


def lag(
    spark: SparkSession,
    source: Source,
    *,
    wanted: Wanted = ALL,
    groups: Sequence[str] = (),
    messages_max: int | None = None,
    seconds_max: float | None = None,
    is_dry_run: bool = False,
    clock: Clock | None = None,
) -> Report:
    """Compare groups with the heads of their queues.

    Args:
        spark: A session that knows the sources.
        source: A store directory, or the connection to a cluster.
        wanted: Which topics; ``to_ms`` is the time relative to which age is measured.
        groups: Which groups; empty for all.
        messages_max: A group that lags by more messages is a finding.
        seconds_max: A group whose next message is older is a finding.
        is_dry_run: Only report how many queues would be checked.
        clock: The time.

    Returns:
        The tables ``Groups`` and ``Queues``. A group that exceeds a limit (``behind``), is ahead of
        its queue's end (``ahead``) or whose next messages were deleted (``gone``) is a finding, and
        so is a broker that does not return offsets (``silent``).

    Raises:
        ClientError: The cluster cannot be reached.
    """
    report = Report(job="lag", source=source_name(source), is_dry_run=is_dry_run)
    now_ms = wanted.to_ms
    look: Callable[[Sequence[OffsetQuery]], list[GroupPosition]]
    offsets: dict[str | None, GroupOffsets]
    if isinstance(source, ClientOptions):
        found = read_cluster_offsets(source)
        for broker, why in found.failures.items():
            report.add_finding(SILENT, broker, why)
        offsets, look = dict(found.offsets.items()), ClusterLagWorker(source)
        if now_ms is None:
            now_ms = (clock or SystemClock()).now_ms()
    else:
        offsets, look = {None: read_group_offsets(Path(source))}, _Look(source)
    queries = _chosen(offsets, wanted.topics, groups)
    report.numbers["queues"] = len(queries)
    if is_dry_run or not queries:
        return report
    parts = min(parallelism(spark), len(queries))
    done = run_tasks(spark, [queries[part::parts] for part in range(parts)], look)
    positions = sorted(each for part in done for each in part)
    if now_ms is None:
        now_ms = max((each.last_store_ms for each in positions if each.last_store_ms), default=None)
    report.numbers["measuredFrom"] = iso_time(now_ms)
    fill_report(report, positions, now_ms, messages_max=messages_max, seconds_max=seconds_max)
    return report


def _chosen(
    offsets: Mapping[str | None, GroupOffsets], topics: Sequence[str], groups: Sequence[str]
) -> list[OffsetQuery]:
    return sorted(
        OffsetQuery(group, topic, broker, queue_id, offset)
        for broker, table in offsets.items()
        for (group, topic), queues in table.items()
        for queue_id, offset in queues.items()
        if (not topics or topic in topics) and (not groups or group in groups)
    )


def fill_report(
    report: Report,
    positions: Sequence[GroupPosition],
    now_ms: int | None,
    *,
    messages_max: int | None,
    seconds_max: float | None,
) -> None:
    """Add the positions of groups to a report as tables and findings."""
    queue_rows: list[list[Cell]] = []
    totals: dict[tuple[str, str], tuple[int, float | None]] = {}
    for each in positions:
        behind = max(each.max_offset - max(each.offset, each.min_offset), 0)
        seconds = _age_s(each.next_store_ms, now_ms)
        place = "" if each.broker is None else f" {each.broker}"
        where = f"{each.group} at {each.topic}{place} queue {each.queue_id}"
        if each.offset > each.max_offset:
            report.add_finding(
                AHEAD, where, f"at {each.offset}, the queue ends at {each.max_offset}"
            )
        elif each.offset < each.min_offset:
            count = each.min_offset - each.offset
            report.add_finding(GONE, where, f"{count} messages were deleted unconsumed")
        queue_rows.append([*each[:5], each.max_offset, behind, seconds])
        messages, oldest = totals.get((each.group, each.topic), (0, None))
        ages = [age for age in (oldest, seconds) if age is not None]
        totals[each.group, each.topic] = (messages + behind, max(ages, default=None))
    for (group, topic), (messages, age) in totals.items():
        is_late = age is not None and seconds_max is not None and age > seconds_max
        if is_late or (messages_max is not None and messages > messages_max):
            report.add_finding(BEHIND, f"{group} at {topic}", f"{messages} messages, {age} s")
    report.numbers["messages"] = sum(messages for messages, _ in totals.values())
    report.add_table(
        "Groups",
        ["group", "topic", "messages behind", "seconds behind"],
        [[*key, *total] for key, total in sorted(totals.items())],
    )
    columns = ["group", "topic", "broker", "queue", "offset", "head"]
    report.add_table("Queues", [*columns, "messages behind", "seconds behind"], queue_rows)


def _age_s(store_ms: int | None, now_ms: int | None) -> float | None:
    if store_ms is None or now_ms is None:
        return None
    return round(max(now_ms - store_ms, 0) / 1000, 3)
