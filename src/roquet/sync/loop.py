"""The one event loop that all blocking clients of a process share.

Owns the thread ``roquet-sync``, which starts when it is first needed and ends with the program.

Invariants:

* One thread in a process, however many producers, consumers and admins there are.
* A process that ends first closes what is still open, so that consumers store their offsets.
  Whatever uses thread pools, as handlers do, is closed when the main thread ends, because Python
  shuts the pools down then; the rest lives as long as the program's other threads. Each of the two
  takes at most :data:`EXIT_TIMEOUT_S`.
* A forked process starts without the thread. Clients that it creates work; those that its parent
  started are refused.
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

__all__ = ["CallerThreadCalls", "Runner"]

EXIT_TIMEOUT_S = 10

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Out = TypeVar("_Out")


class _Process:
    """The state of this process: the loop, and what is open on it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: BackgroundLoop | None = None
        self._is_watched = False
        self.open: dict[Lifetime, bool] = {}
        """What is started, and whether it uses thread pools."""

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
        """Close what uses thread pools."""
        if self._loop is not None and self._loop.is_open:
            what = [each for each, pooled in list(self.open.items()) if pooled]
            self._loop.run(lambda: self._close(what))

    def end(self) -> None:
        """Close everything that is open, and end the thread."""
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
        """Start over in a forked process: the thread and the lock are the parent's."""
        self._lock = threading.Lock()
        self._loop = None
        self.open = {}


def _before_pools_end(end: Callable[[], None]) -> None:
    # Python shuts thread pools down when the main thread ends, long before it runs atexit handlers.
    # A consumer that went on without them would send its messages back as failed. There is no
    # public hook at that point; without this private one, `end` closes everything.
    register: Callable[[Callable[[], None]], object] | None = getattr(
        threading, "_register_atexit", None
    )
    if register is not None:
        with suppress(RuntimeError):  # the main thread has ended already
            register(end)


_process = _Process()
os.register_at_fork(after_in_child=_process.forget)


class Runner:
    """Runs the work of one object, on the loop of the process that first ran something."""

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
        """Start an object; it is closed at the end of the program at the latest.

        Args:
            inner: The object.
            pooled: Whether it uses thread pools.
        """

        async def started() -> None:
            await inner.start()
            _process.open[inner] = pooled

        self.run(started)

    def close(self, inner: Lifetime, close: Callable[[], Coroutine[object, object, None]]) -> None:
        """Close an object."""

        async def closed() -> None:
            try:
                await close()
            finally:
                _process.open.pop(inner, None)

        self.run(closed)


class CallerThreadCalls(Generic[_P, _T]):
    """Lets the loop call a function in the thread that waits for the loop.

    So the caller's own work runs in the caller's thread, with its transactions and thread locals,
    although a coroutine calls it.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[_P, _T]) -> None:
        self._function = function
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    async def call(self, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Have the function called, and await its result; runs on the loop."""
        answer: Future[_T] = Future()

        def run() -> None:
            try:
                result = self._function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - for the coroutine, whatever it is
                answer.set_exception(error)
            else:
                answer.set_result(result)

        answer.set_running_or_notify_cancel()
        self._calls.put(run)
        return await asyncio.wrap_future(answer)

    def serve(self, outcome: Future[_Out]) -> None:
        """Call the function whenever the loop requests it, until the future is done."""
        outcome.add_done_callback(lambda _: self._calls.put(None))
        while (run := self._calls.get()) is not None:
            run()
