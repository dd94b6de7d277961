"""One counter, with its rates over the last minute, hour and day.

Upstream's StatsItem. A counter is two integers that only grow: a sum, and how often something was
added to it. A period takes snapshots of both at intervals; its value is the difference between its
last snapshot and its first:

======= ============ ========
period  a snapshot    snapshots
======= ============ ========
minute  every 10 s   7
hour    every 10 min 7
day     every hour   25
======= ============ ========

An idle counter costs nothing: a period drops one that did not change over all of its snapshots, and
adds it again, with the snapshots that it would have had, when it changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from roquet.runtime.ring_buffer import RingBuffer

__all__ = ["TURN_ITEMS", "StatsItem", "StatsPeriod", "StatsSnapshot"]


class StatsItem(Struct, eq=False, kw_only=True):
    """A counter.

    Attributes:
        name: Its name, such as ``TOPIC_PUT_NUMS``.
        key: Its key, such as a topic.
        value: The sum.
        times: How often something was added.
        is_marked: Whether it changed since the last sample.
        seen_value: The sum at the last sample.
        seen_times: The times at the last sample.
    """

    name: str
    key: str
    value: int = 0
    times: int = 0
    is_marked: bool = False
    seen_value: int = 0
    seen_times: int = 0


class StatsSnapshot(NamedTuple):
    """The change of a counter within a period.

    Attributes:
        sum: The amount added.
        tps: The amount per second.
        average_per_time: The amount per addition.
    """

    sum: int = 0
    tps: float = 0.0
    average_per_time: float = 0.0


_AT_MS, _TIMES, _VALUE = range(3)
"""A snapshot: when it was taken, and the times and sum at that moment."""

TURN_ITEMS = 1_000
"""How many counters are sampled before other work may run."""


class StatsPeriod:
    """Snapshots of the counters that change.

    Args:
        interval_ms: From one snapshot to the next.
        snapshots_max: How many are kept.
    """

    def __init__(self, interval_ms: int, snapshots_max: int) -> None:
        self.interval_ms = interval_ms
        self._snapshots_max = snapshots_max
        self._last_ms = 0
        self._moving: dict[StatsItem, RingBuffer] = {}

    def __len__(self) -> int:
        return len(self._moving)

    def __contains__(self, item: StatsItem) -> bool:
        return item in self._moving

    def follow(self, item: StatsItem, *, is_new: bool) -> None:
        """Start taking snapshots of a counter that changes again, or for the first time.

        Its ``seen_value`` and ``seen_times`` are those from before the change.
        """
        if item in self._moving:
            return
        snapshots = RingBuffer(self._snapshots_max, 3)
        if not is_new:
            for back in reversed(range(self._snapshots_max - 1)):
                at_ms = self._last_ms - back * self.interval_ms
                snapshots.append(at_ms, item.seen_times, item.seen_value)
        self._moving[item] = snapshots

    def forget(self, item: StatsItem) -> None:
        """Stop taking snapshots of a counter."""
        self._moving.pop(item, None)

    def sample(self, now_ms: int) -> Iterator[None]:
        """Take a snapshot of every counter that changes, some at a time."""
        self._last_ms = now_ms
        for number, (item, snapshots) in enumerate(list(self._moving.items()), 1):
            value, times = item.value, item.times
            if not snapshots:
                snapshots.append(now_ms - self.interval_ms, 0, 0)
            snapshots.append(now_ms, times, value)
            if snapshots.is_full and not (_change(snapshots, _VALUE) or _change(snapshots, _TIMES)):
                self._moving.pop(item, None)
            if number % TURN_ITEMS == 0:
                yield

    def snapshot(self, item: StatsItem) -> StatsSnapshot:
        """Return the change of a counter; zero before its first snapshot."""
        snapshots = self._moving.get(item)
        if not snapshots:
            return StatsSnapshot()
        took_ms = _change(snapshots, _AT_MS)
        if took_ms <= 0:
            return StatsSnapshot()
        total = _change(snapshots, _VALUE)
        times = _change(snapshots, _TIMES)
        return StatsSnapshot(
            total,
            total * 1000 / took_ms,
            total / times if times > 0 else 0.0,
        )


def _change(snapshots: RingBuffer, column: int) -> int:
    """How much a number has changed from the first snapshot to the last."""
    return snapshots.get(0, column) - snapshots.get(len(snapshots) - 1, column)
