"""Logs the progress of a recovery.

Owns the lines. A recovery that takes longer logs every few seconds what it is doing, how much is
done, and how long the rest will take at that rate.
"""

from __future__ import annotations

import logging

from roquet.runtime.clock import Clock

log = logging.getLogger(__name__)

INTERVAL_MS = 2_000
_MIB = 1 << 20


class RecoveryProgress:
    """Logs the progress of one recovery."""

    def __init__(self, clock: Clock) -> None:
        """Start without a step."""
        self._clock = clock
        self._step = ""
        self._start = self._end = 0
        self._began_ns = self._told_ns = clock.monotonic_ns()

    def begin(self, step: str, start: int, end: int) -> None:
        """Start a step from one physical offset to another."""
        self._step, self._start, self._end = step, start, end
        self._began_ns = self._told_ns = self._clock.monotonic_ns()

    def reached(self, physical_offset: int) -> None:
        """Log how far the step has come, unless that was logged a moment ago."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._told_ns < INTERVAL_MS * 1_000_000:
            return
        self._told_ns = now_ns
        total = max(self._end - self._start, 1)
        done = min(max(physical_offset - self._start, 1), total)
        left_s = (now_ns - self._began_ns) / 1e9 * (total - done) / done
        log.info(
            "Recovery: %s, %d %% of %d MiB, about %.0f s left.",
            self._step,
            100 * done // total,
            total // _MIB,
            left_s,
        )
