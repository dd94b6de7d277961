"""Time of a replay: it moves only when the replay says so, to the moments of the recording.

Owns the event loop on which name server, broker and clients of a replay run together. Sockets are
real; timers and clocks go by the recording, so that a run of a hundred seconds takes a few, and
what was due before a frame is done before it.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from typing import TypeVar, TypeVarTuple

from roquet.runtime.clock import stamp_of

NEWS_WAIT_S = 0.05
"""How long a look at the sockets takes when nothing is to be done; threads end it at once."""

STUCK_S = 120
"""How long a thread may keep the loop waiting before the replay gives up."""

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class _Selector(selectors.DefaultSelector):
    """Detects when there is nothing to do but wait."""

    def __init__(self) -> None:
        super().__init__()
        self.is_quiet: Callable[[], bool] = lambda: False
        self._looks_in_vain = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready and not self.is_quiet():
            ready = super().select(NEWS_WAIT_S)
            self._looks_in_vain = 0 if ready else self._looks_in_vain + 1
            if self._looks_in_vain * NEWS_WAIT_S > STUCK_S:
                raise TimeoutError(f"nothing has happened for {STUCK_S} s")
        return ready


class ReplayLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still until it is advanced."""

    def __init__(self) -> None:
        self._moment_s = 0.0
        self._due_s: list[float] = []
        self._settled: asyncio.Future[None] | None = None
        self._jobs: set[object] = set()
        watched = _Selector()
        watched.is_quiet = self._found_quiet
        super().__init__(watched)

    def time(self) -> float:
        return self._moment_s

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        heapq.heappush(self._due_s, when)
        return super().call_at(when, callback, *args, context=context)

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Arguments], Result],
        *args: *Arguments,
    ) -> asyncio.Future[Result]:
        job = super().run_in_executor(executor, func, *args)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return job

    def _found_quiet(self) -> bool:
        settled, self._settled = self._settled, None
        if settled is None:
            return False
        if self._jobs:
            self._settled = settled
            return False
        if not settled.done():
            settled.set_result(None)
        return True

    async def settle(self) -> None:
        """Wait until no callback is ready, no socket has data, and no thread works for the loop."""
        self._settled = self.create_future()
        await self._settled

    async def advance(self, moment_s: float) -> None:
        """Let time pass; timers on the way fire at their time, one after the other."""
        while self._due_s and self._due_s[0] <= moment_s:
            self._moment_s = max(self._moment_s, heapq.heappop(self._due_s))
            await self.settle()
        self._moment_s = max(self._moment_s, moment_s)

    def next_due_s(self) -> float | None:
        """When the next timer fires, if there is one; some that are left were cancelled."""
        return self._due_s[0] if self._due_s else None


class ReplayClock:
    """The loop's time as a clock that shows the date of the recording."""

    def __init__(self, loop: ReplayLoop, booted_ms: int) -> None:
        self._loop = loop
        self._booted_ms = booted_ms

    def now_ms(self) -> int:
        return int(self._booted_ms + self._loop.time() * 1000)

    def monotonic_ns(self) -> int:
        return int(self._loop.time() * 1_000_000_000)

    def local_hour(self) -> int:
        return int(self.local_stamp()[8:10])

    def local_stamp(self) -> str:
        return stamp_of(self.now_ms())
