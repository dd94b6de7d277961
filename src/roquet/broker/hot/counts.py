"""Adds the counts of the hot path to the broker's counters.

They are counted in bulk: for a topic, or a group of a topic, how many messages and bytes were
moved, and by queue how many requests did it. The sums equal what the processors count one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roquet.broker.stats.broker_stats import BrokerStats

__all__ = ["PullCounts", "QueueCounts", "SendCounts", "add_pulls", "add_sends"]

QueueCounts = tuple[int, int, int, int]
"""Queue, requests, and the lag of the last of them: bytes, milliseconds."""

SendCounts = tuple[str, int, int, Sequence[QueueCounts]]
"""Topic, messages, bytes, and counts by queue."""

PullCounts = tuple[str, str, int, int, Sequence[QueueCounts]]
"""Group, topic, messages, bytes, and counts by queue."""


def add_sends(stats: BrokerStats, counts: Iterable[SendCounts], *, latency_ms: int) -> None:
    """Count sends that all had the same latency.

    Example:
        >>> from roquet.runtime.clock import ManualClock
        >>> stats = BrokerStats("c", ManualClock())
        >>> add_sends(stats, [("Orders", 5, 900, [(0, 2, 0, 0), (3, 1, 0, 0)])], latency_ms=4)
        >>> stats.total("TOPIC_PUT_SIZE", "Orders"), stats.total("TOPIC_PUT_LATENCY", "0@Orders")
        (900, 8)
    """
    for topic, messages, size_bytes, queues in counts:
        in_all = 0
        for queue_id, requests, _, _ in queues:
            in_all += requests
            stats.add_put_latency(topic, queue_id, latency_ms * requests, requests=requests)
        if in_all:
            stats.add_puts(topic, messages, size_bytes, requests=in_all)


def add_pulls(stats: BrokerStats, counts: Iterable[PullCounts]) -> None:
    """Count pulls, with a latency of zero."""
    for group, topic, messages, size_bytes, queues in counts:
        in_all = 0
        for queue_id, requests, behind_bytes, behind_ms in queues:
            in_all += requests
            stats.add_get_latency(group, topic, queue_id, 0, requests=requests)
            stats.record_fall(group, topic, queue_id, size_bytes=behind_bytes, time_ms=behind_ms)
        if in_all:
            stats.add_gets(group, topic, messages, size_bytes, requests=in_all)
