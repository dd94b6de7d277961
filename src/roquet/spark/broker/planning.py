"""What a batch reads, and how it is cut into tasks: pure arithmetic over offsets.

Owns rate limits, the wait for a minimum, partitions, and what is missing between the offsets that
are wanted and those that are there.

Invariants:

* A function gives the same answer for the same arguments, always: a batch that is planned again
  after a failure is cut in the same way, so that its tasks have the same rows.
* A limit is never exceeded, and no queue that has messages waits for ever.
* Every wanted offset is in exactly one range.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roquet.errors import DataLost
from roquet.model.message_queue import MessageQueue
from roquet.spark.broker.offsets import QueueOffsets, from_json, queue_text

__all__ = [
    "BehindLatest",
    "Loss",
    "QueueRange",
    "behind",
    "behind_latest",
    "limited",
    "losses",
    "lost",
    "must_wait",
    "pending",
    "split_ranges",
]


@dataclass(frozen=True, order=True)
class QueueRange:
    """A part of a queue.

    Attributes:
        queue: The queue.
        start_offset: The first offset.
        end_offset: The offset behind the last one.
    """

    queue: MessageQueue
    start_offset: int
    end_offset: int

    @property
    def count(self) -> int:
        """How many offsets it has."""
        return self.end_offset - self.start_offset


# --------------------------------------------------------------------------------------- limits


def pending(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> int:
    """How many offsets lie between; a queue that only one side has counts nothing."""
    return sum(max(offset - start.get(queue, offset), 0) for queue, offset in end.items())


def limited(
    start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], limit: int
) -> QueueOffsets:
    """How far a batch of at most ``limit`` offsets goes, shared out in proportion to what waits.

    Every queue that has messages gets at least one, if the limit allows that; otherwise they take
    turns from batch to batch.

    Args:
        start: Where the batch begins.
        end: How far it could go.
        limit: How many offsets it may have.

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
    shares = _turns(start, sizes, limit) if limit < len(sizes) else _shares(sizes, total, limit)
    return {
        queue: start[queue] + shares[queue] if queue in sizes else offset
        for queue, offset in end.items()
    }


def _turns(
    start: Mapping[MessageQueue, int], sizes: Mapping[MessageQueue, int], limit: int
) -> dict[MessageQueue, int]:
    """One offset each for ``limit`` of the queues; whose turn it is follows from the offsets."""
    queues = list(sizes)
    first = sum(start.values()) % len(queues)
    chosen = {queues[(first + step) % len(queues)] for step in range(limit)}
    return {queue: int(queue in chosen) for queue in queues}


def _shares(sizes: Mapping[MessageQueue, int], total: int, limit: int) -> dict[MessageQueue, int]:
    """Whole shares, at least 1 each, that add up to the limit."""
    shares = {queue: max(1, size * limit // total) for queue, size in sizes.items()}
    left = limit - sum(shares.values())
    by_rest = sorted(sizes, key=lambda queue: -(sizes[queue] * limit % total))
    for queue in by_rest[: max(left, 0)]:
        shares[queue] += 1
    # Queues that were given their 1 took it from those who have most.
    for _ in range(-left):
        shares[max(shares, key=lambda queue: shares[queue])] -= 1
    return {queue: min(share, sizes[queue]) for queue, share in shares.items()}


def must_wait(count: int, minimum: int, *, waited_ms: int, max_delay_ms: int) -> bool:
    """Whether a batch of ``count`` offsets should wait for more of them."""
    return count < minimum and waited_ms < max_delay_ms


# ---------------------------------------------------------------------------------------- tasks


def split_ranges(
    ranges: Iterable[QueueRange], *, min_partitions: int | None, max_records: int | None
) -> list[QueueRange]:
    """Ranges cut so that there are enough of them and none is too long; empty ones are left out.

    Args:
        ranges: What to read.
        min_partitions: How many ranges there should be, if there are as many offsets.
        max_records: How many offsets a range may have.

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
    """Messages that are wanted and not there.

    Attributes:
        queue: Where.
        first_offset: The first of them.
        end_offset: The offset behind the last of them.
        why: What became of them.
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
    """What of the ranges the queues do not have.

    Args:
        ranges: What is wanted.
        first: By queue: the first offset that is there.
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
            why = f"the queue ends at {end}, it may have been made anew"
            found.append(Loss(each.queue, max(end, each.start_offset), each.end_offset, why))
    return found


def lost(found: Sequence[Loss], *, most: int = 5) -> DataLost:
    """The error that says what was lost."""
    shown = "; ".join(str(each) for each in found[:most])
    more = f"; and {len(found) - most} more" if len(found) > most else ""
    return DataLost(
        f"Data was lost: {shown}{more}",
        hint="Set failOnDataLoss to false to go on without it, or start at other offsets.",
    )


# -------------------------------------------------------------------------------------- metrics


@dataclass(frozen=True)
class BehindLatest:
    """How far a query is behind the ends of its queues, in messages.

    Attributes:
        minimum: Of the queue that is closest.
        maximum: Of the queue that is furthest away.
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
        The least, the most and the mean number of messages; ``None`` if that is not known.

    Example:
        >>> source = {"endOffset": '{"T": {"a": {"0": 5}}}', "latestOffset": {"T": {"a": {"0": 7}}}}
        >>> behind_latest(source)
        BehindLatest(minimum=2, maximum=2, average=2.0)
    """
    at, latest = (_decoded(progress.get(name)) for name in ("endOffset", "latestOffset"))
    if at is None or latest is None:
        return None
    return behind(at, latest)


def _decoded(value: object) -> QueueOffsets | None:
    if value is None:
        return None
    return from_json(json.loads(value) if isinstance(value, str) else value)
