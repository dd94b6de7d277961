"""An even rate.

Owns :class:`Pace`. Time is a function that is handed in, as is the waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["Pace"]


class Pace:
    """Lets things happen at a rate on average; what is late is caught up.

    Args:
        rate: How many a second.
        now_s: The time in seconds, which only goes forward; by default that of the event loop.
        sleep: What waits for some seconds.
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
        """Wait until the next one may happen; the first may at once."""
        now_s = self._now_s()
        if now_s < self._due_s:
            await self._sleep(self._due_s - now_s)
        else:
            await self._sleep(0)
        self._due_s += self._step_s
