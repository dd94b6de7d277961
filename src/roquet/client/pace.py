"""An even rate.

Owns :class:`Pace`. The clock and the sleep function can be injected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["Pace"]


class Pace:
    """Keeps events at an average rate; delays are caught up.

    Args:
        rate: Events per second.
        now_s: A monotonic clock in seconds; by default the event loop's.
        sleep: Waits for some seconds.
    """

    def __init__(
        self,
        rate: float,
        *,
        now_s: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._step_s = 1 / rate
        self._now_s = now_s or asyncio.get_running_loop().time
        self._sleep = sleep
        self._due_s = self._now_s()

    async def wait(self) -> None:
        """Wait until the next event may happen; the first may happen at once."""
        now_s = self._now_s()
        if now_s < self._due_s:
            await self._sleep(self._due_s - now_s)
        else:
            await self._sleep(0)
        self._due_s += self._step_s
