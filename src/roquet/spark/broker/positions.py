"""Resolves the start and end options to queue offsets.

Owns the precedence (one time for all queues, then times by queue, then offsets), the meaning of -2
and -1, and the checks: every queue must be named, exist, and have an offset in its range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roquet.errors import SparkOptionError
from roquet.model.message_queue import MessageQueue
from roquet.spark.broker.cluster import Cluster
from roquet.spark.broker.offsets import QueueOffsets, named, queue_text
from roquet.spark.broker.planning import Loss, QueueRange, losses, lost
from roquet.spark.broker.read_options import Position, ReadOptions
from roquet.spark.options import EARLIEST, LATEST

__all__ = ["QueueBounds", "batch_ranges", "resolve", "start_offsets", "within"]


class QueueBounds:
    """The first and the last offsets of queues.

    Attributes:
        first: By queue: the offset of the oldest message.
        latest: By queue: the offset that the next message will get.
    """

    def __init__(
        self, first: Mapping[MessageQueue, int], latest: Mapping[MessageQueue, int]
    ) -> None:
        self.first = dict(first)
        self.latest = dict(latest)

    @classmethod
    async def of(cls, cluster: Cluster, queues: Sequence[MessageQueue]) -> QueueBounds:
        """Query them; the ends last, so that no end is below its beginning."""
        first = await cluster.first_offsets(queues)
        return cls(first, await cluster.latest_offsets(queues))


async def resolve(
    cluster: Cluster, position: Position, ends: QueueBounds, *, name: str
) -> QueueOffsets:
    """Resolve a position to one offset for each queue.

    Args:
        cluster: The cluster to query.
        position: The position in the options.
        ends: The bounds of the queues.
        name: ``starting`` or ``ending``.

    Raises:
        SparkOptionError: A queue is missing in the option, or does not exist.
    """
    queues = sorted(ends.first)
    if position.timestamp_ms is not None:
        return await cluster.offsets_at(dict.fromkeys(queues, position.timestamp_ms))
    if position.timestamps_ms is not None:
        _check_named(position.timestamps_ms, queues, f"{name}OffsetsByTimestamp")
        return await cluster.offsets_at(position.timestamps_ms)
    if isinstance(position.offsets, int):
        wanted = dict.fromkeys(queues, position.offsets)
    else:
        _check_named(position.offsets, queues, f"{name}Offsets")
        wanted = position.offsets
    stands_for = {EARLIEST: ends.first, LATEST: ends.latest}
    return {
        queue: stands_for[offset][queue] if offset in stands_for else offset
        for queue, offset in wanted.items()
    }


def _check_named(
    given: Mapping[MessageQueue, int], queues: Sequence[MessageQueue], name: str
) -> None:
    unknown = set(given).difference(queues)
    if unknown:
        raise SparkOptionError(
            f"{name} names {named(unknown)}, which the topics do not have.",
            hint=f"They have {named(queues, most=10)}.",
        )
    missing = set(queues).difference(given)
    if missing:
        raise SparkOptionError(
            f"{name} does not name {named(missing)}.",
            hint="Name every queue of the topics; -2 is its beginning, -1 its end.",
        )


async def start_offsets(
    cluster: Cluster, options: ReadOptions, ends: QueueBounds, *, default: int
) -> QueueOffsets:
    """Return the start offsets.

    Args:
        cluster: The cluster to query.
        options: The user's options.
        ends: The bounds of the queues.
        default: The start if the options set none.

    Raises:
        SparkOptionError: The option does not fit the queues, or a time is after the last message
            and the strategy is ``error``.
    """
    position = options.start or Position(None, None, default)
    found = await resolve(cluster, position, ends, name="starting")
    by_time = position.timestamp_ms is not None or position.timestamps_ms is not None
    if by_time and options.is_late_start_fatal:
        late = [queue for queue, offset in found.items() if offset >= ends.latest[queue]]
        if late:
            raise SparkOptionError(
                f"The starting time is after the last message of {named(late)}.",
                hint="Start earlier, or set startingOffsetsByTimestampStrategy to latest.",
            )
    return found


async def batch_ranges(
    cluster: Cluster, options: ReadOptions, ends: QueueBounds
) -> list[QueueRange]:
    """Return the ranges that a batch reads.

    Raises:
        SparkOptionError: The options do not fit the queues, or each other.
        DataLost: Some offsets are missing, and ``failOnDataLoss`` is on.
    """
    start = await start_offsets(cluster, options, ends, default=EARLIEST)
    end = await resolve(cluster, options.end, ends, name="ending")
    for queue, first in start.items():
        by_offset = options.end.timestamp_ms is None and options.end.timestamps_ms is None
        if end[queue] < first and by_offset and isinstance(options.end.offsets, dict):
            raise SparkOptionError(
                f"The end of {queue_text(queue)}, {end[queue]}, is before its start, {first}.",
                hint="Check startingOffsets and endingOffsets.",
            )
    ranges = [QueueRange(queue, start[queue], end[queue]) for queue in sorted(start)]
    beyond = [
        Loss(each.queue, ends.latest[each.queue], each.start_offset, "they are not there yet")
        for each in ranges
        if each.start_offset > ends.latest[each.queue]
    ]
    found = losses(ranges, ends.first, ends.latest) or beyond
    if found and options.fail_on_data_loss:
        raise lost(found)
    return [within(each, ends) for each in ranges]


def within(wanted: QueueRange, ends: QueueBounds) -> QueueRange:
    """Return the existing part of a range."""
    first, latest = ends.first[wanted.queue], ends.latest[wanted.queue]
    start = min(max(wanted.start_offset, first), latest)
    return QueueRange(wanted.queue, start, max(min(wanted.end_offset, latest), start))
