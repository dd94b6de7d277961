"""The pull and consume rates of a consumer, by topic, over the last minute.

Owns :class:`ConsumeStats`. Time is divided into slices of ten seconds; slices are kept for a
minute, failure counts for an hour.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from roquet.remoting.bodies.client import ConsumeStatus
from roquet.runtime.clock import Clock

__all__ = ["ConsumeStats"]

SLICE_NS = 10 * 1_000_000_000
SLICES_OF_MINUTE = 6
SLICES_OF_HOUR = 360
_NS_PER_MS = 1_000_000


class _Slice(Struct):
    number: int
    pulls: int = 0
    pull_ns: int = 0
    pulled: int = 0
    calls: int = 0
    call_ns: int = 0
    consumed: int = 0
    failed: int = 0


class ConsumeStats:
    """Counts what a consumer does.

    Args:
        clock: The clock.

    Example:
        >>> from roquet.runtime.clock import ManualClock
        >>> clock = ManualClock()
        >>> stats = ConsumeStats(clock)
        >>> stats.consumed("Orders", 120, failed=0, started_ns=clock.monotonic_ns())
        >>> stats.status("Orders").consume_ok_tps
        2.0
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: dict[str, deque[_Slice]] = {}

    def pulled(self, topic: str, messages: int, *, started_ns: int) -> None:
        """Count the messages of a pull that started at this time."""
        now_ns = self._clock.monotonic_ns()
        found = self._slice(topic, now_ns)
        found.pulls += 1
        found.pull_ns += now_ns - started_ns
        found.pulled += messages

    def consumed(self, topic: str, messages: int, *, failed: int, started_ns: int) -> None:
        """Count the consumed and failed messages of a handler call that started at this time."""
        now_ns = self._clock.monotonic_ns()
        found = self._slice(topic, now_ns)
        found.calls += 1
        found.call_ns += now_ns - started_ns
        found.consumed += messages
        found.failed += failed

    def status(self, topic: str) -> ConsumeStatus:
        """Return the rates, for administrators."""
        now = self._clock.monotonic_ns() // SLICE_NS
        slices = self._topics.get(topic, ())
        minute = [each for each in slices if now - each.number < SLICES_OF_MINUTE]
        hour = [each for each in slices if now - each.number < SLICES_OF_HOUR]
        seconds = SLICES_OF_MINUTE * SLICE_NS / 1_000_000_000
        pulls = sum(each.pulls for each in minute)
        calls = sum(each.calls for each in minute)
        return ConsumeStatus(
            pull_rt_ms=sum(each.pull_ns for each in minute) / _NS_PER_MS / max(pulls, 1),
            pull_tps=sum(each.pulled for each in minute) / seconds,
            consume_rt_ms=sum(each.call_ns for each in minute) / _NS_PER_MS / max(calls, 1),
            consume_ok_tps=sum(each.consumed for each in minute) / seconds,
            consume_failed_tps=sum(each.failed for each in minute) / seconds,
            consume_failed_msgs=sum(each.failed for each in hour),
        )

    def _slice(self, topic: str, now_ns: int) -> _Slice:
        slices = self._topics.get(topic)
        if slices is None:
            slices = self._topics[topic] = deque(maxlen=SLICES_OF_HOUR)
        number = now_ns // SLICE_NS
        if not slices or slices[-1].number != number:
            slices.append(_Slice(number))
        return slices[-1]
