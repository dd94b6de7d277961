"""The one event loop that everything blocking of a process shares.

Owns the thread ``roquet-sync``: started by the first that needs it, ended when the program ends.

Invariants:

* One thread in a process, however many producers, consumers and admins there are.
* A process that ends closes what is still open first, so that consumers store how far they are. It
  does not wait longer than :data:`EXIT_TIMEOUT_S` for that.
* A forked process starts with no thread. What it makes itself works; what its parent started is
  refused.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, ParamSpec, TypeVar

from roquet.client.lifetime import Lifetime
from roquet.runtime.background_loop import BackgroundLoop

__all__ = ["Runner", "Turns"]

EXIT_TIMEOUT_S = 10

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Out = TypeVar("_Out")


class _Process:
    """What this process has: the loop, and what is open on it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: BackgroundLoop | None = None
        self.is_watched = False
        self.open: dict[Lifetime, None] = {}

    def loop(self) -> BackgroundLoop:
        with self._lock:
            if self._loop is None:
                loop = BackgroundLoop("roquet-sync")
                loop.start()
                if not self.is_watched:
                    _at_exit(self.end)
                    self.is_watched = True
                self._loop = loop
            return self._loop

    def end(self) -> None:
        """Close what is open, and end the thread."""
        loop = self._loop
        if loop is not None and loop.is_open:
            loop.run(self._close_all)
            loop.close()

    async def _close_all(self) -> None:
        closing = [asyncio.create_task(each.close()) for each in self.open]
        if closing:
            await asyncio.wait(closing, timeout=EXIT_TIMEOUT_S)

    def forget(self) -> None:
        """Begin anew, in a forked process: the thread is the parent's, and so is the lock."""
        self._lock = threading.Lock()
        self._loop = None
        self.open = {}


def _at_exit(end: Callable[[], None]) -> None:
    # Handlers run in pools of threads, which Python ends before it calls what is registered with
    # atexit. A consumer that runs on without them would hand its messages back as failed.
    register: Callable[[Callable[[], None]], object] = getattr(
        threading, "_register_atexit", atexit.register
    )
    register(end)


_process = _Process()
os.register_at_fork(after_in_child=_process.forget)


class Runner:
    """How one object gets its work done: by the loop of the process that first ran something."""

    def __init__(self) -> None:
        self._loop: BackgroundLoop | None = None

    @property
    def is_bound(self) -> bool:
        """Whether something was run."""
        return self._loop is not None

    def run(
        self,
        work: Callable[[], Coroutine[object, object, _T]],
        *,
        meanwhile: Callable[[Future[_T]], None] | None = None,
    ) -> _T:
        """As :meth:`BackgroundLoop.run`."""
        if self._loop is None:
            self._loop = _process.loop()
        return self._loop.run(work, meanwhile=meanwhile)

    def start(self, inner: Lifetime) -> None:
        """Start something, to be closed at the end of the program at the latest."""

        async def started() -> None:
            await inner.start()
            _process.open[inner] = None

        self.run(started)

    def close(self, inner: Lifetime, close: Callable[[], Coroutine[object, object, None]]) -> None:
        """Close something."""

        async def closed() -> None:
            try:
                await close()
            finally:
                _process.open.pop(inner, None)

        self.run(closed)


class Turns(Generic[_P, _T]):
    """Has the thread that waits for the loop call a function on the loop's behalf.

    So work of the caller's own runs in the caller's thread, with its transactions and its locals,
    although a coroutine asks for it.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[_P, _T]) -> None:
        self._function = function
        self._turns: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    async def call(self, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Have the function called; on the loop."""
        answer: Future[_T] = Future()

        def turn() -> None:
            try:
                result = self._function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - for the coroutine, whatever it is
                answer.set_exception(error)
            else:
                answer.set_result(result)

        answer.set_running_or_notify_cancel()
        self._turns.put(turn)
        return await asyncio.wrap_future(answer)

    def serve(self, outcome: Future[_Out]) -> None:
        """Call the function whenever it is asked for, until the future is done."""
        outcome.add_done_callback(lambda _: self._turns.put(None))
        while (turn := self._turns.get()) is not None:
            turn()
