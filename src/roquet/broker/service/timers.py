"""Timers and threads, as something that can be handed in.

Owns the door of the services to the event loop: a function soon, a function later, blocking work
in a thread. :class:`LoopTimers` is the loop; a test hands in timers that follow its own clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

__all__ = ["Handle", "LoopTimers", "Timers"]

T = TypeVar("T")


class Handle(Protocol):
    """A call that was asked for."""

    def cancel(self) -> None:
        """Take that back; nothing happens if it was made already."""
        ...


class Timers(Protocol):
    """What a service needs of the event loop."""

    def call_soon(self, callback: Callable[[], None]) -> Handle:
        """Call a function in the next turn."""
        ...

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Handle:
        """Call a function when some time has passed, never before."""
        ...

    def in_thread(self, work: Callable[[], T], done: Callable[[Callable[[], T]], None]) -> None:
        """Do blocking work in a thread; ``done`` is called in a turn of the loop.

        It gets a function that returns what the work returned, or raises what it raised.
        """
        ...


class LoopTimers:
    """The running event loop.

    Example:
        >>> async def example() -> int:
        ...     answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        ...     timers = LoopTimers()
        ...     timers.in_thread(lambda: 7, lambda result: answer.set_result(result()))
        ...     return await answer
        >>> asyncio.run(example())
        7
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def call_soon(self, callback: Callable[[], None]) -> Handle:
        """Call a function in the next turn."""
        return self._loop.call_soon(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Handle:
        """Call a function when some time has passed."""
        return self._loop.call_later(delay_ms / 1000, callback)

    def in_thread(self, work: Callable[[], T], done: Callable[[Callable[[], T]], None]) -> None:
        """Do blocking work in a thread, and say so on the loop."""
        future = self._loop.run_in_executor(None, work)

        def finished(ended: asyncio.Future[T]) -> None:
            if not ended.cancelled():
                done(ended.result)

        future.add_done_callback(finished)
