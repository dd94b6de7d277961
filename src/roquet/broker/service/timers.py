"""Timers and threads behind an interface that tests can replace.

Owns the services' access to the event loop: a call soon, a call later, blocking work in a thread.
:class:`LoopTimers` uses the loop; a test passes timers that follow its own clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

__all__ = ["LoopTimers", "TimerHandle", "Timers"]

T = TypeVar("T")


class TimerHandle(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call; does nothing if it has been made."""
        ...


class Timers(Protocol):
    """What a service needs from the event loop."""

    def call_soon(self, callback: Callable[[], None]) -> TimerHandle:
        """Call a function in the next iteration of the loop."""
        ...

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        """Call a function after a delay, never earlier."""
        ...

    def in_thread(self, work: Callable[[], T], done: Callable[[Callable[[], T]], None]) -> None:
        """Run blocking work in a thread; ``done`` is then called on the loop.

        It gets a function that returns the result of the work, or raises its exception.
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

    def call_soon(self, callback: Callable[[], None]) -> TimerHandle:
        """Call a function in the next iteration of the loop."""
        return self._loop.call_soon(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        """Call a function after a delay."""
        return self._loop.call_later(delay_ms / 1000, callback)

    def in_thread(self, work: Callable[[], T], done: Callable[[Callable[[], T]], None]) -> None:
        """Run blocking work in a thread, and call ``done`` on the loop."""
        future = self._loop.run_in_executor(None, work)

        def finished(ended: asyncio.Future[T]) -> None:
            if not ended.cancelled():
                done(ended.result)

        future.add_done_callback(finished)
