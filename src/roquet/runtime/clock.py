"""Clocks, which can be injected.

Owns the only reads of the system clock; a test passes a :class:`ManualClock`.
"""

from __future__ import annotations

import time
from typing import Protocol

_time_ns = time.time_ns


class Clock(Protocol):
    """The clock of the store."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; may jump when the machine's clock is set."""
        ...

    def monotonic_ns(self) -> int:
        """Monotonic nanoseconds, for durations."""
        ...

    def local_hour(self) -> int:
        """Hour of the day in the machine's zone."""
        ...

    def local_stamp(self) -> str:
        """Now as ``yyyyMMddHHmmssSSS`` in the machine's zone, the name of an index file."""
        ...


def stamp_of(now_ms: int) -> str:
    """``yyyyMMddHHmmssSSS`` of a time in the machine's zone."""
    seconds, millis = divmod(now_ms, 1000)
    return time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{millis:03d}"


class SystemClock:
    """The machine's clock."""

    # The system's function itself, because every message calls it several times.
    monotonic_ns = staticmethod(time.monotonic_ns)

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        now_ns = _time_ns()
        return now_ns // 1_000_000

    def local_hour(self) -> int:
        """Hour of the day in the machine's zone."""
        return time.localtime().tm_hour

    def local_stamp(self) -> str:
        """Now as ``yyyyMMddHHmmssSSS``."""
        return stamp_of(self.now_ms())


class ManualClock:
    """A clock that moves only on request."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        """Start at ``now_ms``."""
        self._now_ms = now_ms
        self._monotonic_ns = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def monotonic_ns(self) -> int:
        """Monotonic nanoseconds."""
        return self._monotonic_ns

    def local_hour(self) -> int:
        """Hour of the day in the machine's zone."""
        return time.localtime(self._now_ms // 1000).tm_hour

    def local_stamp(self) -> str:
        """Now as ``yyyyMMddHHmmssSSS``."""
        return stamp_of(self._now_ms)

    def advance(self, millis: int) -> None:
        """Let time pass."""
        self._now_ms += millis
        if millis > 0:
            self._monotonic_ns += millis * 1_000_000

    def set(self, now_ms: int) -> None:
        """Jump, also backwards, as a machine's clock may when it is set."""
        self._now_ms = now_ms
