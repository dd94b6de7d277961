"""How far consumer groups are behind, in messages and in seconds.

Owns the join of ``consumerOffset.json`` with the heads of the ConsumeQueues. No body is read, and
of the log only the store times of the messages at which groups stand.

A group's lag in seconds is the age of the oldest message that it has not consumed, measured from
the newest message of the store (a stopped broker does not fall behind) or from a given time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from roquet.runtime.files import Files
from roquet.spark.jobs.inputs import ALL, Wanted
from roquet.spark.jobs.store_config import GroupOffsets, read_group_offsets
from roquet.spark.log.splits import store_time_ms
from roquet.spark.log.store_files import LogFiles, open_log
from roquet.spark.log.window import Window
from roquet.spark.report import Cell, Report, iso_time
from roquet.spark.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["lag"]

BEHIND = "behind"
AHEAD = "ahead"
GONE = "gone"


_Asked = tuple[str, str, int, int]
"""Group, topic, queue id, and the offset from which the group goes on."""


class _Stand(NamedTuple):
    """Where a group stands in a queue."""

    group: str
    topic: str
    queue_id: int
    offset: int
    min_offset: int
    max_offset: int
    next_store_ms: int | None
    last_store_ms: int | None


@dataclass(frozen=True)
class _Look:
    """Sent to executors: looks queues up in a store."""

    store: str

    def __call__(self, asked: Sequence[_Asked]) -> list[_Stand]:
        log = open_log(Files(), [self.store])
        return [find_stand(log, *each) for each in asked]


def find_stand(log: LogFiles, group: str, topic: str, queue_id: int, offset: int) -> _Stand:
    """Where a group with this offset stands in a queue of a log."""
    queue = log.queue(topic, queue_id)
    if queue is None:
        return _Stand(group, topic, queue_id, offset, 0, 0, None, None)
    low, high = queue.min_queue_offset, queue.max_queue_offset

    def store_ms(queue_offset: int) -> int | None:
        unit = queue.unit(queue_offset)
        segment = None if unit is None else log.segment_of(unit.physical_offset)
        if unit is None or segment is None:
            return None
        with Window(log.files, segment) as window:
            return store_time_ms(window, unit.physical_offset)

    is_behind = high > max(offset, low)
    return _Stand(
        group,
        topic,
        queue_id,
        offset,
        low,
        high,
        store_ms(max(offset, low)) if is_behind else None,
        store_ms(high - 1) if high > low else None,
    )


def lag(
    spark: SparkSession,
    store: str,
    *,
    wanted: Wanted = ALL,
    groups: Sequence[str] = (),
    messages_max: int | None = None,
    seconds_max: float | None = None,
    is_dry_run: bool = False,
) -> Report:
    """Compare groups with the heads of their queues.

    Args:
        spark: A session that knows the sources.
        store: The store directory.
        wanted: Which topics; ``to_ms`` is the time from which age is measured.
        groups: Which groups; empty for all.
        messages_max: A group with more messages to go is a finding.
        seconds_max: A group whose next message is older is a finding.
        is_dry_run: Only tell how many queues would be looked at.

    Returns:
        The tables ``Groups`` and ``Queues``. A group behind a bound (``behind``), in front of its
        queue's head (``ahead``) or whose next messages were deleted (``gone``) is a finding.
    """
    report = Report(job="lag", source=store, is_dry_run=is_dry_run)
    asked = _chosen(read_group_offsets(Path(store)), wanted.topics, groups)
    report.numbers["queues"] = len(asked)
    if is_dry_run or not asked:
        return report
    parts = min(spark.sparkContext.defaultParallelism, len(asked))
    found = run_tasks(spark, [asked[part::parts] for part in range(parts)], _Look(store))
    stands = sorted((each for part in found for each in part), key=lambda each: each[:3])
    newest_ms = max((each.last_store_ms for each in stands if each.last_store_ms), default=None)
    now_ms = wanted.to_ms if wanted.to_ms is not None else newest_ms
    report.numbers["measuredFrom"] = iso_time(now_ms)
    fill_report(report, stands, now_ms, messages_max=messages_max, seconds_max=seconds_max)
    return report


def _chosen(offsets: GroupOffsets, topics: Sequence[str], groups: Sequence[str]) -> list[_Asked]:
    return sorted(
        (group, topic, queue_id, offset)
        for (group, topic), queues in offsets.items()
        for queue_id, offset in queues.items()
        if (not topics or topic in topics) and (not groups or group in groups)
    )


def fill_report(
    report: Report,
    stands: Sequence[_Stand],
    now_ms: int | None,
    *,
    messages_max: int | None,
    seconds_max: float | None,
) -> None:
    """Make tables and findings of where groups stand."""
    queue_rows: list[list[Cell]] = []
    totals: dict[tuple[str, str], tuple[int, float | None]] = {}
    for each in stands:
        behind = max(each.max_offset - max(each.offset, each.min_offset), 0)
        seconds = _age_s(each.next_store_ms, now_ms)
        where = f"{each.group} at {each.topic} queue {each.queue_id}"
        if each.offset > each.max_offset:
            report.add_finding(AHEAD, where, f"stands at {each.offset}, ends at {each.max_offset}")
        elif each.offset < each.min_offset:
            count = each.min_offset - each.offset
            report.add_finding(GONE, where, f"{count} messages were deleted before it came there")
        queue_rows.append(
            [each.group, each.topic, each.queue_id, each.offset, each.max_offset, behind, seconds]
        )
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
    columns = ["group", "topic", "queue", "offset", "head", "messages behind", "seconds behind"]
    report.add_table("Queues", columns, queue_rows)


def _age_s(store_ms: int | None, now_ms: int | None) -> float | None:
    if store_ms is None or now_ms is None:
        return None
    return round(max(now_ms - store_ms, 0) / 1000, 3)
