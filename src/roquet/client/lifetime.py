"""``async with`` for objects that are started and closed.

Owns :class:`Lifetime`, :class:`Running` for objects that are started once, and :func:`finish`.

Invariants:

* After a close nothing runs, even if the close came before or during the start.
* A close that is interrupted or fails somewhere still completes the rest: no task, connection or
  lock is left behind.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Protocol, Self, TypeVar

from roquet.errors import ClientClosed

__all__ = ["Lifetime", "Running", "end_tasks", "finish"]


class Lifetime(ABC):
    """An object that ``async with`` starts and closes."""

    @abstractmethod
    async def start(self) -> None:
        """Start."""

    @abstractmethod
    async def close(self) -> None:
        """Close."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Closable(Protocol):
    async def close(self) -> None: ...


_Started = TypeVar("_Started", bound=_Closable)


class Running(Lifetime, Generic[_Started]):
    """An object that runs from its start to its close, and is started once.

    Args:
        name: Its name for messages, as the beginning of a sentence.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: _Started | None = None
        self._is_closing = False
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Start; does nothing if it is already started.

        Raises:
            ClientClosed: It was closed.
        """
        async with self._starting:
            if self._is_closing:
                raise self._not_running()
            if self._running is None:
                self._running = await self._open()

    async def close(self) -> None:
        """Close; does nothing if it is already closed."""
        self._is_closing = True
        async with self._starting:
            running, self._running = self._running, None
        if running is not None:
            await running.close()

    @abstractmethod
    async def _open(self) -> _Started:
        """Start, or leave nothing behind."""

    @property
    def _started(self) -> _Started:
        if self._running is None:
            raise self._not_running()
        return self._running

    def _not_running(self) -> ClientClosed:
        return ClientClosed(
            f"{self._name} is not started, or closed",
            hint="Use it with async with, or between start() and close().",
        )


async def finish(*steps: Callable[[], Awaitable[object]]) -> None:
    """Run all steps in order, even if one of them fails or is cancelled.

    The first error is raised at the end.

    Example:
        >>> async def work() -> None:
        ...     print("work")
        ...     raise OSError("lost")
        >>> async def tidy_up() -> None:
        ...     print("tidy up")
        >>> try:
        ...     asyncio.run(finish(work, tidy_up))
        ... except OSError as error:
        ...     print(error)
        work
        tidy up
        lost
    """
    failure: BaseException | None = None
    for step in steps:
        try:
            await step()
        except BaseException as error:  # noqa: BLE001 - raised when the others are done
            failure = failure or error
    if failure is not None:
        raise failure


async def end_tasks(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Cancel tasks, except the calling one, and wait until they are done.

    Example:
        >>> async def main() -> bool:
        ...     task = asyncio.create_task(asyncio.sleep(60))
        ...     await end_tasks([task])
        ...     return task.cancelled()
        >>> asyncio.run(main())
        True
    """
    me = asyncio.current_task()
    ended = [task for task in tasks if task is not me]
    for task in ended:
        task.cancel()
    if ended:
        await asyncio.wait(ended)
