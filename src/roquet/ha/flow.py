"""Bytes per second of one connection, counted and limited.

Upstream's FlowMonitor. Owns the count of the current second. Time is passed in.
"""

from __future__ import annotations

__all__ = ["FlowMonitor"]

_SECOND_NS = 1_000_000_000


class FlowMonitor:
    """Counts bytes in seconds that begin with the first byte counted after the last one ended.

    Args:
        bytes_per_second_max: The limit; ``None`` for none.

    Example:
        >>> flow = FlowMonitor(bytes_per_second_max=100)
        >>> flow.add(70, now_ns=0)
        >>> flow.allowance(now_ns=1)
        30
        >>> flow.allowance(now_ns=1_000_000_000)
        100
        >>> flow.bytes_per_second(now_ns=1_000_000_000)
        70
    """

    def __init__(self, bytes_per_second_max: int | None = None) -> None:
        self._limit = bytes_per_second_max
        self._began_ns = 0
        self._bytes = 0
        self._last_second_bytes = 0

    def add(self, size_bytes: int, now_ns: int) -> None:
        """Count bytes."""
        self._roll(now_ns)
        self._bytes += size_bytes

    def allowance(self, now_ns: int) -> int | None:
        """How many bytes may still pass in this second; ``None`` without a limit."""
        if self._limit is None:
            return None
        self._roll(now_ns)
        return max(self._limit - self._bytes, 0)

    def bytes_per_second(self, now_ns: int) -> int:
        """How many bytes passed in the last whole second."""
        self._roll(now_ns)
        return self._last_second_bytes

    def _roll(self, now_ns: int) -> None:
        elapsed_ns = now_ns - self._began_ns
        if elapsed_ns >= _SECOND_NS:
            self._last_second_bytes = self._bytes if elapsed_ns < 2 * _SECOND_NS else 0
            self._bytes = 0
            self._began_ns = now_ns
