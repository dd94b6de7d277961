"""Plans which offsets a batch reads and how it is split into tasks.

Pure arithmetic over offsets: rate limits, the wait for a minimum, partitions, missing offsets.

Invariants:

* Every function is deterministic: a batch that is planned again after a failure is split in the
  same way, so its tasks have the same rows.
* A limit is never exceeded, and no queue with messages starves.
* Every requested offset is in exactly one range.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from roquet.errors import DataLost
from roquet.model.message_queue import MessageQueue
from roquet.spark.broker.offsets import (
    OffsetsJson,
    QueueOffsets,
    from_json,
    queue_text,
    to_json,
)

__all__ = [
    "BehindLatest",
    "Loss",
    "QueueRange",
    "Sample",
    "behind",
    "behind_by_queue",
    "behind_latest",
    "limited",
    "losses",
    "lost",
    "must_wait",
    "offsets_within",
    "pending",
    "split_ranges",
]


@dataclass(frozen=True, order=True)
class QueueRange:
    """A range of a queue.

    Attributes:
        queue: The queue.
        start_offset: The first offset.
        end_offset: The offset after the last one.
    """

    queue: MessageQueue
    start_offset: int
    end_offset: int

    @property
    def count(self) -> int:
        """The number of offsets."""
        return self.end_offset - self.start_offset


# --------------------------------------------------------------------------------------- limits


def pending(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> int:
    """Return the number of offsets in between; queues that only one side has do not count."""
    return sum(max(offset - start.get(queue, offset), 0) for queue, offset in end.items())


def limited(
    start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], limit: int
) -> QueueOffsets:
    """Return the end of a batch of at most ``limit`` offsets, shared in proportion to the backlog.

    Every queue with messages gets at least one offset if the limit allows it; otherwise queues
    take turns from batch to batch.

    Args:
        start: Where the batch starts.
        end: How far it could go.
        limit: The maximum number of offsets.

    Example:
        >>> a, b = MessageQueue("T", "x", 0), MessageQueue("T", "x", 1)
        >>> limited({a: 0, b: 0}, {a: 90, b: 10}, 50) == {a: 45, b: 5}
        True
    """
    sizes = {
        queue: offset - start[queue]
        for queue, offset in sorted(end.items())
        if offset > start.get(queue, offset)
    }
    total = sum(sizes.values())
    if total <= limit:
        return dict(end)
    shares = _rotated(start, sizes, limit) if limit < len(sizes) else _shares(sizes, total, limit)
    return {
        queue: start[queue] + shares[queue] if queue in sizes else offset
        for queue, offset in end.items()
    }


def _rotated(
    start: Mapping[MessageQueue, int], sizes: Mapping[MessageQueue, int], limit: int
) -> dict[MessageQueue, int]:
    """Give one offset each to ``limit`` queues; the offsets determine who is next.

    Each batch advances the sum of the offsets by ``limit``, and with it where the rotation starts:
    in one rotation every queue is among the first ``limit``, whichever others are empty.
    """
    order = sorted(start)
    first = sum(start.values()) % len(order)
    waiting = [queue for queue in (*order[first:], *order[:first]) if queue in sizes]
    return {queue: int(queue in waiting[:limit]) for queue in sizes}


def _shares(sizes: Mapping[MessageQueue, int], total: int, limit: int) -> dict[MessageQueue, int]:
    """Whole shares, at least 1 each, that add up to the limit."""
    shares = {queue: max(1, size * limit // total) for queue, size in sizes.items()}
    left = limit - sum(shares.values())
    by_rest = sorted(sizes, key=lambda queue: -(sizes[queue] * limit % total))
    for queue in by_rest[: max(left, 0)]:
        shares[queue] += 1
    # What queues got as their minimum of 1 comes off the largest shares.
    for _ in range(-left):
        shares[max(shares, key=lambda queue: shares[queue])] -= 1
    return {queue: min(share, sizes[queue]) for queue, share in shares.items()}


class Sample(NamedTuple):
    """What some offsets of a queue hold.

    Attributes:
        offsets: Their number.
        size_bytes: The bytes of their messages that a filter lets through.
    """

    offsets: int
    size_bytes: int


def offsets_within(
    start: Mapping[MessageQueue, int],
    end: Mapping[MessageQueue, int],
    samples: Mapping[MessageQueue, Iterable[Sample]],
    max_bytes: int,
) -> int | None:
    """Return how many offsets have about ``max_bytes``, shared in proportion to the backlog.

    A queue without a sample is taken to be like the others.

    Args:
        start: Where the batch starts.
        end: How far it could go.
        samples: By queue.
        max_bytes: The maximum number of bytes.

    Returns:
        At least 1; ``None`` if all of them are within the limit.

    Example:
        >>> a, b = MessageQueue("T", "x", 0), MessageQueue("T", "x", 1)
        >>> offsets_within({a: 0, b: 0}, {a: 900, b: 100}, {a: [Sample(10, 5_000)]}, 100_000)
        200
    """
    sums = {
        queue: (sum(each.offsets for each in found), sum(each.size_bytes for each in found))
        for queue, found in ((queue, list(found)) for queue, found in samples.items())
    }
    offsets = sum(count for count, _ in sums.values())
    if not offsets:
        return None
    mean = sum(size for _, size in sums.values()) / offsets
    means = {queue: size / count for queue, (count, size) in sums.items() if count}
    expected = sum(
        max(offset - start.get(queue, offset), 0) * means.get(queue, mean)
        for queue, offset in end.items()
    )
    if expected <= max_bytes:
        return None
    return max(int(pending(start, end) * max_bytes / expected), 1)


def must_wait(count: int, minimum: int, *, waited_ms: int, max_delay_ms: int) -> bool:
    """Whether a batch of ``count`` offsets should wait for more."""
    return count < minimum and waited_ms < max_delay_ms


# ---------------------------------------------------------------------------------------- tasks


def split_ranges(
    ranges: Iterable[QueueRange], *, min_partitions: int | None, max_records: int | None
) -> list[QueueRange]:
    """Split ranges so that there are enough of them and none is too long; skip empty ones.

    Args:
        ranges: What to read.
        min_partitions: The minimum number of ranges, if there are that many offsets.
        max_records: The maximum number of offsets in a range.

    Example:
        >>> queue = MessageQueue("T", "x", 0)
        >>> whole = QueueRange(queue, 0, 10)
        >>> [(each.start_offset, each.end_offset)
        ...  for each in split_ranges([whole], min_partitions=3, max_records=None)]
        [(0, 3), (3, 6), (6, 10)]
    """
    kept = sorted(each for each in ranges if each.count > 0)
    parts = [1 if max_records is None else -(-each.count // max_records) for each in kept]
    if min_partitions is not None and sum(parts) < min_partitions:
        parts = _more_parts(kept, parts, min_partitions)
    return [part for each, count in zip(kept, parts, strict=True) for part in _cut(each, count)]


def _more_parts(ranges: Sequence[QueueRange], parts: Sequence[int], wanted: int) -> list[int]:
    total = sum(each.count for each in ranges)
    found = [
        max(least, each.count * wanted // total) for each, least in zip(ranges, parts, strict=True)
    ]
    by_length = sorted(range(len(ranges)), key=lambda at: (-ranges[at].count / found[at], at))
    for at in by_length:
        if sum(found) >= wanted:
            break
        found[at] += 1
    return [min(count, each.count) for count, each in zip(found, ranges, strict=True)]


def _cut(whole: QueueRange, count: int) -> list[QueueRange]:
    edges = [whole.start_offset + whole.count * at // count for at in range(count + 1)]
    return [QueueRange(whole.queue, first, last) for first, last in itertools.pairwise(edges)]


# ----------------------------------------------------------------------------------------- loss


@dataclass(frozen=True)
class Loss:
    """Requested messages that are missing.

    Attributes:
        queue: The queue.
        first_offset: The first missing offset.
        end_offset: The offset after the last missing one.
        why: Why they are missing.
    """

    queue: MessageQueue
    first_offset: int
    end_offset: int
    why: str

    def __str__(self) -> str:
        count = self.end_offset - self.first_offset
        what = "1 message" if count == 1 else f"{count} messages"
        return (
            f"{queue_text(self.queue)} lacks {what} "
            f"({self.first_offset} to {self.end_offset - 1}): {self.why}"
        )


def losses(
    ranges: Iterable[QueueRange],
    first: Mapping[MessageQueue, int],
    latest: Mapping[MessageQueue, int],
) -> list[Loss]:
    """Return the parts of the ranges that the queues do not have.

    Args:
        ranges: The requested ranges.
        first: By queue: the first existing offset.
        latest: By queue: the end.
    """
    found: list[Loss] = []
    for each in ranges:
        begin, end = first[each.queue], latest[each.queue]
        if each.count <= 0:
            continue
        if each.start_offset < begin:
            why = f"removed by retention, the queue begins at {begin}"
            found.append(Loss(each.queue, each.start_offset, min(begin, each.end_offset), why))
        if each.end_offset > end:
            why = f"the queue ends at {end}, it may have been recreated"
            found.append(Loss(each.queue, max(end, each.start_offset), each.end_offset, why))
    return found


def lost(found: Sequence[Loss], *, most: int = 5) -> DataLost:
    """Return the error that reports what was lost."""
    shown = "; ".join(str(each) for each in found[:most])
    more = f"; and {len(found) - most} more" if len(found) > most else ""
    return DataLost(
        f"Data was lost: {shown}{more}",
        hint="Set failOnDataLoss to false to continue without it, or start at other offsets.",
    )


# -------------------------------------------------------------------------------------- metrics


@dataclass(frozen=True)
class BehindLatest:
    """How far a query is behind the ends of its queues, in messages.

    Attributes:
        minimum: Of the queue with the smallest lag.
        maximum: Of the queue with the largest lag.
        average: Over all queues.
    """

    minimum: int
    maximum: int
    average: float


def behind(
    at: Mapping[MessageQueue, int], latest: Mapping[MessageQueue, int]
) -> BehindLatest | None:
    """How far ``at`` is behind ``latest``; ``None`` if they have no queue in common."""
    gaps = [max(offset - at[queue], 0) for queue, offset in latest.items() if queue in at]
    if not gaps:
        return None
    return BehindLatest(min(gaps), max(gaps), sum(gaps) / len(gaps))


def behind_latest(progress: Mapping[str, object]) -> BehindLatest | None:
    """How far a stream is behind the ends of its queues.

    Args:
        progress: One of ``sources`` in the progress of a query, as a map.

    Returns:
        The minimum, maximum and mean number of messages; ``None`` if unknown.

    Example:
        >>> source = {"endOffset": '{"T": {"a": {"0": 5}}}', "latestOffset": {"T": {"a": {"0": 7}}}}
        >>> behind_latest(source)
        BehindLatest(minimum=2, maximum=2, average=2.0)
    """
    at, latest = (_decoded(progress.get(name)) for name in ("endOffset", "latestOffset"))
    if at is None or latest is None:
        return None
    return behind(at, latest)


def behind_by_queue(progress: Mapping[str, object]) -> OffsetsJson:
    """How far a stream is behind the end of each queue.

    Args:
        progress: One of ``sources`` in the progress of a query, as a map.

    Returns:
        By topic, broker and queue: the number of messages; nothing if it is unknown.

    Example:
        >>> source = {"endOffset": '{"T": {"a": {"0": 5}}}', "latestOffset": {"T": {"a": {"0": 7}}}}
        >>> behind_by_queue(source)
        {'T': {'a': {'0': 2}}}
    """
    at, latest = (_decoded(progress.get(name)) for name in ("endOffset", "latestOffset"))
    if at is None or latest is None:
        return {}
    return to_json(
        {queue: max(offset - at[queue], 0) for queue, offset in latest.items() if queue in at}
    )


def _decoded(value: object) -> QueueOffsets | None:
    if value is None:
        return None
    return from_json(json.loads(value) if isinstance(value, str) else value)
