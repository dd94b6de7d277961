"""The one event loop that everything blocking of a process shares.

Owns the thread ``roquet-sync``: started by the first that needs it, ended when the program ends.

Invariants:

* One thread in a process, however many producers, consumers and admins there are.
* A process that ends closes what is still open first, so that consumers store how far they are.
  What works with pools of threads, as handlers do, ends with the main thread, because Python ends
  the pools then; the rest goes on as long as other threads of the program do. For neither it
  waits longer than :data:`EXIT_TIMEOUT_S`.
* A forked process starts with no thread. What it makes itself works; what its parent started is
  refused.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
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
        self._is_watched = False
        self.open: dict[Lifetime, bool] = {}
        """What is started, and whether it works with pools of threads."""

    def loop(self) -> BackgroundLoop:
        with self._lock:
            if self._loop is None:
                loop = BackgroundLoop("roquet-sync")
                loop.start()
                if not self._is_watched:
                    atexit.register(self.end)
                    _before_pools_end(self.end_pooled)
                    self._is_watched = True
                self._loop = loop
            return self._loop

    def end_pooled(self) -> None:
        """Close what works with pools of threads."""
        if self._loop is not None and self._loop.is_open:
            what = [each for each, pooled in list(self.open.items()) if pooled]
            self._loop.run(lambda: self._close(what))

    def end(self) -> None:
        """Close what is open, and end the thread."""
        if self._loop is not None and self._loop.is_open:
            self._loop.run(lambda: self._close(list(self.open)))
            self._loop.close()

    async def _close(self, what: Sequence[Lifetime]) -> None:
        closing = [asyncio.create_task(each.close()) for each in what]
        if closing:
            await asyncio.wait(closing, timeout=EXIT_TIMEOUT_S)
        for each in what:
            self.open.pop(each, None)

    def forget(self) -> None:
        """Begin anew, in a forked process: the thread is the parent's, and so is the lock."""
        self._lock = threading.Lock()
        self._loop = None
        self.open = {}


def _before_pools_end(end: Callable[[], None]) -> None:
    # Python ends the pools of threads when the main thread ends, long before it calls what is
    # registered with atexit. A consumer that went on without them would hand its messages back as
    # failed. There is no public way to be told in time; without it, `end` does it all.
    register: Callable[[Callable[[], None]], object] | None = getattr(
        threading, "_register_atexit", None
    )
    if register is not None:
        with suppress(RuntimeError):  # the main thread has ended already
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

    def start(self, inner: Lifetime, *, pooled: bool) -> None:
        """Start something, to be closed at the end of the program at the latest.

        Args:
            inner: What to start.
            pooled: Whether it works with pools of threads.
        """

        async def started() -> None:
            await inner.start()
            _process.open[inner] = pooled

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
