"""One counter, and what it did in the last minute, hour and day.

Upstream's StatsItem. A counter is two integers that only grow: a sum, and how often something was
added to it. Every so often a window takes a picture of both; what happened within it is the
difference between its last picture and its first:

======= ============ ========
window  a picture    pictures
======= ============ ========
minute  every 10 s   7
hour    every 10 min 7
day     every hour   25
======= ============ ========

A counter that stands still costs nothing: a window drops one that did not move over all of its
pictures, and takes it up again, with the pictures that it would have, when it moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

__all__ = ["TURN_ITEMS", "StatsItem", "StatsSnapshot", "StatsWindow"]


class StatsItem(Struct, eq=False, kw_only=True):
    """A counter.

    Attributes:
        name: Of what it is one, such as ``TOPIC_PUT_NUMS``.
        key: Whose it is, such as a topic.
        value: The sum.
        times: How often something was added.
        is_marked: Whether it moved since the windows last looked.
        seen_value: The sum when they last looked.
        seen_times: The times then.
    """

    name: str
    key: str
    value: int = 0
    times: int = 0
    is_marked: bool = False
    seen_value: int = 0
    seen_times: int = 0


class StatsSnapshot(NamedTuple):
    """What a counter did within a window.

    Attributes:
        sum: What was added.
        tps: The same, a second.
        average_per_time: The same, each time.
    """

    sum: int = 0
    tps: float = 0.0
    average_per_time: float = 0.0


_Picture = tuple[int, int, int]
"""When it was taken, and times and sum at that moment."""

TURN_ITEMS = 1_000
"""How many counters are looked at before others have their turn."""


class StatsWindow:
    """Pictures of the counters that move.

    Args:
        interval_ms: From one picture to the next.
        pictures_max: How many are kept.
    """

    def __init__(self, interval_ms: int, pictures_max: int) -> None:
        self.interval_ms = interval_ms
        self._pictures_max = pictures_max
        self._last_ms = 0
        self._moving: dict[StatsItem, deque[_Picture]] = {}

    def __len__(self) -> int:
        return len(self._moving)

    def __contains__(self, item: StatsItem) -> bool:
        return item in self._moving

    def follow(self, item: StatsItem, *, is_new: bool) -> None:
        """Take pictures of a counter that moves again, or for the first time.

        Its ``seen_value`` and ``seen_times`` are those from before it moved.
        """
        if item in self._moving:
            return
        pictures: deque[_Picture] = deque(maxlen=self._pictures_max)
        if not is_new:
            pictures.extend(
                (self._last_ms - back * self.interval_ms, item.seen_times, item.seen_value)
                for back in reversed(range(self._pictures_max - 1))
            )
        self._moving[item] = pictures

    def forget(self, item: StatsItem) -> None:
        """Take no more pictures of a counter."""
        self._moving.pop(item, None)

    def sample(self, now_ms: int) -> Iterator[None]:
        """Take a picture of every counter that moves, some at a time."""
        self._last_ms = now_ms
        pictures_max = self._pictures_max
        for number, (item, pictures) in enumerate(list(self._moving.items()), 1):
            value, times = item.value, item.times
            if not pictures:
                pictures.append((now_ms - self.interval_ms, 0, 0))
            pictures.append((now_ms, times, value))
            if len(pictures) == pictures_max:
                _, first_times, first_value = pictures[0]
                if value == first_value and times == first_times:
                    self._moving.pop(item, None)
            if number % TURN_ITEMS == 0:
                yield

    def snapshot(self, item: StatsItem) -> StatsSnapshot:
        """What a counter did; nothing before its first picture."""
        pictures = self._moving.get(item)
        if not pictures:
            return StatsSnapshot()
        first_ms, first_times, first_value = pictures[0]
        last_ms, last_times, last_value = pictures[-1]
        if last_ms <= first_ms:
            return StatsSnapshot()
        total = last_value - first_value
        times = last_times - first_times
        return StatsSnapshot(
            total,
            total * 1000 / (last_ms - first_ms),
            total / times if times > 0 else 0.0,
        )
