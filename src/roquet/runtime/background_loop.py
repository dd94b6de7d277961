"""An event loop in a thread of its own, for callers that have none.

Owns :class:`BackgroundLoop`, with which code without a loop blocks on asyncio work: the blocking
client and the broker for tests.

Invariants:

* Submitted work ends before the call returns: with its result, with its error, or, if the waiting
  thread is interrupted, cancelled and cleaned up.
* Work submitted before :meth:`BackgroundLoop.close` is started, so that no caller waits forever.
* Calls that could never finish are refused: from the loop's own thread, after it has ended, and in
  a process forked from the one that has the thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TypeVar

from roquet.errors import RoquetError, WrongThread
from roquet.runtime.event_loop import loop_factory

__all__ = ["BackgroundLoop"]

_T = TypeVar("_T")


class BackgroundLoop:
    """Runs an event loop in a thread, from :meth:`start` to :meth:`close`.

    Args:
        name: The thread's name.

    Example:
        >>> loop = BackgroundLoop("example")
        >>> loop.start()
        >>> loop.run(lambda: asyncio.sleep(0, "done"))
        'done'
        >>> loop.close()
    """

    def __init__(self, name: str) -> None:
        # A daemon, so that a thread that is never closed does not keep the program from exiting.
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._is_open = False
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether work can be submitted."""
        return self._is_open

    def start(self) -> None:
        """Start the thread; once only."""
        self._thread.start()
        self._ready.result()
        self._is_open = True

    def close(self) -> None:
        """Cancel running work, and end the thread; does nothing if it has ended.

        Raises:
            WrongThread: This is the loop's own thread, or another process.
        """
        self._check_place()
        with self._lock:
            was_open, self._is_open = self._is_open, False
            if was_open:
                self._ready.result().call_soon_threadsafe(self._stop.set)
        if was_open:
            self._thread.join()

    def call(self, work: Callable[[], _T]) -> _T:
        """Call a function in the loop's thread, and return its result.

        Raises:
            WrongThread: This is the loop's own thread, or another process.
            RoquetError: The loop has ended.
        """

        async def called() -> _T:
            return work()

        return self.run(called)

    def run(
        self,
        work: Callable[[], Coroutine[object, object, _T]],
        *,
        meanwhile: Callable[[Future[_T]], None] | None = None,
    ) -> _T:
        """Run a coroutine function in the loop, wait, and return its result.

        Args:
            work: The coroutine function.
            meanwhile: What this thread does while it waits; returns when the future is done.

        Raises:
            WrongThread: This is the loop's own thread, or another process.
            RoquetError: The loop has ended.
        """
        self._check_place()
        outcome: Future[_T] = Future()
        tasks: list[asyncio.Task[_T]] = []

        def begin() -> None:
            task = self._ready.result().create_task(work())
            task.add_done_callback(lambda done: self._pass_on(done, outcome))
            tasks.append(task)

        def cancel() -> None:
            tasks[0].cancel()

        with self._lock:
            if not self._is_open:
                raise self._ended()
            loop = self._ready.result()
            loop.call_soon_threadsafe(begin)
        try:
            if meanwhile is not None:
                meanwhile(outcome)
            return outcome.result()
        except BaseException:
            if not outcome.done():
                # The thread was interrupted. By the loop's order, the task has started by now.
                with suppress(RuntimeError):  # the loop has ended, and the task with it
                    loop.call_soon_threadsafe(cancel)
                wait([outcome])
            raise

    def _pass_on(self, task: asyncio.Task[_T], outcome: Future[_T]) -> None:
        if task.cancelled():
            outcome.set_exception(self._ended())
        elif (error := task.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(task.result())

    def _ended(self) -> RoquetError:
        return RoquetError(f"The thread {self._thread.name} has ended, or was never started")

    def _check_place(self) -> None:
        if os.getpid() != self._process_id:
            raise WrongThread(
                "This belongs to the process that this one was forked from",
                detail=f"created by process {self._process_id}, used by {os.getpid()}",
                hint="Create and start it after the fork, in the process that uses it.",
            )
        if threading.current_thread() is self._thread:
            raise WrongThread(
                "A blocking call on the event loop's own thread would deadlock",
                detail=f"the thread {self._thread.name}",
                hint="Pass an ordinary function as handler, which runs in its own thread; in "
                "a coroutine use roquet.client and await.",
            )

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._ready.set_result(asyncio.get_running_loop())
        await self._stop.wait()
