"""Limits the sends in flight.

Owns :class:`InFlight`: two limits, in sends and in bytes, and the callers that wait for room.

Invariants:

* First come, first served: a small message never overtakes a large one that waits.
* A message larger than the byte limit is sent once nothing else is in flight, so none waits
  forever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

__all__ = ["InFlight"]


class InFlight:
    """Limits the sends in flight.

    Args:
        max_count: The maximum number of sends.
        max_bytes: The maximum of their bytes together.

    Attributes:
        count: The number of sends in flight.
        held_bytes: Their bytes together.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self.count = 0
        self.held_bytes = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._idle: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> int:
        """The number of callers that wait for room."""
        return len(self._waiters)

    def try_enter(self, size_bytes: int) -> bool:
        """Enter if there is room and nobody waits for it; returns whether it worked."""
        if self._waiters or (
            self.count
            and (self.count >= self._max_count or self.held_bytes + size_bytes > self._max_bytes)
        ):
            return False
        self.count += 1
        self.held_bytes += size_bytes
        return True

    async def enter(self, size_bytes: int) -> None:
        """Wait for room, and enter."""
        if self.try_enter(size_bytes):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (size_bytes, future)
        self._waiters.append(waiter)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.leave(size_bytes)
            else:
                with suppress(ValueError):  # already removed
                    self._waiters.remove(waiter)
                self._admit()
            raise

    def leave(self, size_bytes: int) -> None:
        """Leave, and free the room."""
        self.count -= 1
        self.held_bytes -= size_bytes
        if self._waiters:
            self._admit()
        if not self.count and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    async def wait_idle(self) -> None:
        """Wait until no sends are in flight."""
        while self.count:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def _fits(self, size_bytes: int) -> bool:
        return not self.count or (
            self.count < self._max_count and self.held_bytes + size_bytes <= self._max_bytes
        )

    def _admit(self) -> None:
        while self._waiters and self._fits(self._waiters[0][0]):
            size_bytes, future = self._waiters.popleft()
            if not future.done():
                self.count += 1
                self.held_bytes += size_bytes
                future.set_result(None)
