"""A limit on the log lines per second of a part of a server.

A line costs as much as handling a small request, so peers must not be able to trigger one with
everything that they send. Dropped lines are counted, and the next line reports the number.
"""

from __future__ import annotations

import logging

from roquet.runtime.clock import Clock

__all__ = ["LogBudget"]

LINES_A_SECOND = 50

_NS_IN_SECOND = 1_000_000_000


class LogBudget:
    """Writes lines to a log, up to a number per second.

    Args:
        log: The log.
        clock: The time.
        lines_a_second: The limit.

    Example:
        >>> from roquet.runtime.clock import ManualClock
        >>> clock = ManualClock()
        >>> lines = LogBudget(logging.getLogger("example"), clock, lines_a_second=2)
        >>> [lines.take() for _ in range(4)]
        ['', '', None, None]
        >>> clock.advance(1_000)
        >>> lines.take()
        ' (2 lines dropped)'
    """

    def __init__(
        self, log: logging.Logger, clock: Clock, *, lines_a_second: int = LINES_A_SECOND
    ) -> None:
        self._log = log
        self._clock = clock
        self._lines_max = lines_a_second
        self._lines = 0
        self._left_out = 0
        self._next_ns = 0

    def take(self) -> str | None:
        """What to append to a line, or ``None`` to drop it."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + _NS_IN_SECOND
            self._lines = 0
        if self._lines >= self._lines_max:
            self._left_out += 1
            return None
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        return f" ({left_out} lines dropped)" if left_out else ""

    def info(self, message: str, *args: object) -> None:
        """Write a line of level INFO, if there is room."""
        self._write(logging.INFO, message, *args)

    def warning(self, message: str, *args: object) -> None:
        """Write a line of level WARNING, if there is room."""
        self._write(logging.WARNING, message, *args)

    def _write(self, level: int, message: str, *args: object) -> None:
        if self._log.isEnabledFor(level) and (more := self.take()) is not None:
            self._log.log(level, message + "%s", *args, more)
