"""Counters of the store: puts, gets, sizes, latencies.

Owns plain integers, moved on the owner's side.
"""

from __future__ import annotations

from roquet.runtime.clock import Clock


class StoreStatsService:
    """The counters of one store."""

    def __init__(self, clock: Clock) -> None:
        """Start at zero."""
        self._clock = clock
        self.put_messages = 0
        self.put_bytes = 0
        self.put_failed = 0
        self.get_found = 0
        self.get_missed = 0
        self.get_messages = 0
        self.put_latency_max_ns = 0

    def count_put(self, *, is_ok: bool, messages: int, size_bytes: int, took_ns: int) -> None:
        """Count one append, a batch as many messages."""
        if not is_ok:
            self.put_failed += 1
            return
        self.put_messages += messages
        self.put_bytes += size_bytes
        self.put_latency_max_ns = max(self.put_latency_max_ns, took_ns)

    def count_get(self, *, found: bool, messages: int) -> None:
        """Count one get."""
        if found:
            self.get_found += 1
            self.get_messages += messages
        else:
            self.get_missed += 1
