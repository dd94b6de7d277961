"""Resends messages of a time range to another topic or another cluster.

At least once, with ids by which consumers can drop duplicates: see :mod:`roquet.spark.jobs.resend`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roquet.client.options import ClientOptions
from roquet.errors import SparkOptionError
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.message_feeds import Feed, Part, Source, open_feed, source_name
from roquet.spark.jobs.resend import COLUMNS, Address, Row, check_rate, resend
from roquet.spark.report import Report
from roquet.spark.tasks import parallelism, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["replay"]


@dataclass(frozen=True)
class _ToTopic:
    """Sent to executors: sends all messages to one topic, or each to its own topic's name."""

    topic: str | None

    def __call__(self, row: Row) -> Address:
        return Address(self.topic or str(row["topic"]))


@dataclass(frozen=True)
class _Count:
    """Sent to executors: counts the messages of a part by topic."""

    feed: Feed

    def __call__(self, part: Part) -> Counter[str]:
        found: Counter[str] = Counter()
        for batch in self.feed.batches(part):
            found.update(topic for topic in batch.column("topic").to_pylist() if topic)
        return found


def replay(
    spark: SparkSession,
    source: Source,
    to: ClientOptions,
    *,
    wanted: Wanted,
    to_topic: str | None = None,
    rate: float | None = None,
    name: str = "replay",
    is_in_order: bool = False,
    is_dry_run: bool = False,
) -> Report:
    """Resend messages that were stored in a time range.

    Args:
        spark: A session.
        source: A store directory, or the connection to a cluster.
        to: The target cluster.
        wanted: Which messages; topics must be named.
        to_topic: The target topic; ``None`` for each message's own.
        rate: Messages per second, all workers together.
        name: The prefix of their ids; with another name, consumers see the messages as new.
        is_in_order: Whether each goes to the same queue id as before, in the order of storing; a
            store is then read by one worker.
        is_dry_run: Only report how many messages there are.

    Returns:
        The table ``Sent``, or ``Messages`` in a dry run. Messages that no broker would accept
        (``refused``) and damaged bytes (``damaged``) are findings.

    Raises:
        SparkOptionError: No topic is named, or messages would go to their own topic.
        NoRoute: There is no such topic.
    """
    check_rate(rate)
    _check_topics(source, to, wanted, to_topic)
    report = Report(job="replay", source=source_name(source), is_dry_run=is_dry_run)
    if is_dry_run:
        _count(spark, report, open_feed(source, wanted, columns=("topic",)))
        return report
    resend(
        spark,
        report,
        open_feed(source, wanted, columns=COLUMNS),
        _ToTopic(to_topic),
        to,
        name=name,
        to_topic=to_topic,
        rate=rate,
        is_in_order=is_in_order,
    )
    return report


def _check_topics(source: Source, to: ClientOptions, wanted: Wanted, to_topic: str | None) -> None:
    if not wanted.topics:
        raise SparkOptionError(
            "It is unclear which topics to replay.", hint="Name them: --topics Orders."
        )
    is_same_cluster = (
        isinstance(source, ClientOptions)
        and not set(source.namesrv_addresses).isdisjoint(to.namesrv_addresses)
        and source.namespace == to.namespace
    )
    if is_same_cluster and (to_topic is None or to_topic in wanted.topics):
        raise SparkOptionError(
            "Messages would be sent to their own topic.",
            hint="Choose another topic (--to-topic), or another cluster (--to-namesrv).",
        )


def _count(spark: SparkSession, report: Report, feed: Feed) -> None:
    parts = feed.parts(parallelism(spark))
    found = feed.counts(parts)
    if found is None:
        found = dict(sum(run_tasks(spark, parts, _Count(feed)), Counter()))
    report.numbers |= {"messages": sum(found.values()), "tasks": len(parts)}
    report.add_table("Messages", ["topic", "messages"], [[*each] for each in sorted(found.items())])
