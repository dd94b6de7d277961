"""Flow control: how much work may wait, and what is said to whoever comes on top of it.

Owns the queues of the request classes, their limits, and the four refusals that upstream has for
a broker that cannot keep up. All of them are answered with SYSTEM_BUSY, on which producers try
another broker. Upstream has a thread pool with a queue for each class; on one event loop a class
waits elsewhere:

====== =========================================================== ==================== ==========
class  its queue                                                   capacity             wait
====== =========================================================== ==================== ==========
SEND   sends that are appended and not answered: they wait for     sendThreadPool-      200 ms
       the disk or a slave                                         QueueCapacity
PULL   reads that wait for one of the reader threads               pullThreadPool-      5 s
                                                                   QueueCapacity
QUERY  queries by key or id that wait for a thread                 queryThreadPool-     none
                                                                   QueueCapacity
ADMIN  administrators' requests that wait for a thread             queryThreadPool-     5 s
                                                                   QueueCapacity
====== =========================================================== ==================== ==========

=========================== =======================================================================
refusal                     when
=========================== =======================================================================
``[REJECTREQUEST]``         a burst of sends begins while the page cache is busy (the last append
                            took longer than osPageCacheBusyTimeOutMills) or no transient buffer
                            is free
``[OVERLOAD]``              the queue of the class is full
``[PCBUSY_CLEAN_QUEUE]``    the page cache became busy within the burst: the sends behind the slow
                            append had been taken in, and would pile up on it
``[TIMEOUT_CLEAN_QUEUE]``   PULL, ADMIN: no thread became free within the wait. SEND: the burst is
                            older than the wait, and so was the burst before it
=========================== =======================================================================

The sends of a burst came in with one read and are handled one after the other, so the age of the
burst is the time that a send was in the queue. One slow burst refuses nothing: after a pause of
the machine the quickest way out is to store what came in. Two in a row mean that the disk does
not keep up. A send that is appended is never refused, because its producer would send it again;
its wait ends with FLUSH_DISK_TIMEOUT or FLUSH_SLAVE_TIMEOUT. Nothing is timed when
brokerFastFailureEnable is off.

Everything here happens on the event loop. Whoever ends bursts calls :meth:`FlowControl.end_burst`
after each, whether sends were in it or not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from enum import Enum
from typing import NamedTuple, TypeVar

from roquet.broker.config import BrokerConfig
from roquet.remoting.codes import ResponseCode
from roquet.remoting.hooks import RequestRefused
from roquet.runtime.clock import Clock

__all__ = ["OVERLOAD", "REJECT_REQUEST", "FlowControl", "RequestClass"]

REJECT_REQUEST = "[REJECTREQUEST]system busy, start flow control for a while"
OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
_CLEANED = (
    "[{}_CLEAN_QUEUE]broker busy, start flow control for a while, "
    "period in queue: {}ms, size of queue: {}"
)

_NO_BURST = -1
_NS_IN_MS = 1_000_000
_T = TypeVar("_T")


class RequestClass(Enum):
    """Requests that wait for the same thing."""

    SEND = "send"
    PULL = "pull"
    QUERY = "query"
    ADMIN = "admin"


class _Waiting(NamedTuple):
    since_ns: int
    turn: asyncio.Future[None]


class _ThreadQueue:
    """Work of one class that waits for threads."""

    __slots__ = ("capacity", "running", "timer", "wait_ms", "waiting", "workers")

    def __init__(self, *, workers: int, capacity: int, wait_ms: int | None) -> None:
        self.workers = workers
        self.capacity = capacity
        self.wait_ms = wait_ms
        self.running = 0
        self.waiting: deque[_Waiting] = deque()
        self.timer: asyncio.TimerHandle | None = None


class FlowControl:
    """Decides whether work is taken on.

    Attributes:
        sends_waiting: Sends that are appended and not answered; those who append and answer
            count them here.

    Args:
        config: The limits.
        clock: The time.
        is_page_cache_busy: Whether appends take too long.
        is_transient_pool_deficient: Whether no transient buffer is free.
        executor: The threads; ``None`` for those of the event loop.
        workers: How many threads a class may use at a time.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        is_page_cache_busy: Callable[[], bool],
        is_transient_pool_deficient: Callable[[], bool] = lambda: False,
        executor: Executor | None = None,
        workers: int = 8,
    ) -> None:
        self.sends_waiting = 0
        self._clock = clock
        self._monotonic_ns = clock.monotonic_ns
        self._is_page_cache_busy = is_page_cache_busy
        self._is_transient_pool_deficient = is_transient_pool_deficient
        self._executor = executor
        self._send_capacity = config.send_queue_capacity
        self._send_wait_ns = config.wait_ms_in_send_queue * _NS_IN_MS
        self._is_fast_failing = config.fast_failure
        self._burst_began_ns = _NO_BURST
        self._burst_found_busy = False
        self._slow_burst_ended_ns = -self._send_wait_ns - 1
        pull_wait_ms = config.wait_ms_in_pull_queue if config.fast_failure else None
        admin_wait_ms = config.wait_ms_in_admin_queue if config.fast_failure else None
        self._queues = {
            RequestClass.PULL: _ThreadQueue(
                workers=workers, capacity=config.pull_queue_capacity, wait_ms=pull_wait_ms
            ),
            RequestClass.QUERY: _ThreadQueue(
                workers=workers, capacity=config.query_queue_capacity, wait_ms=None
            ),
            RequestClass.ADMIN: _ThreadQueue(
                workers=workers, capacity=config.query_queue_capacity, wait_ms=admin_wait_ms
            ),
        }

    # ------------------------------------------------------------------------------- sends

    def refusal_of_send(self) -> str | None:
        """Why the send at hand must not be appended, as a remark for SYSTEM_BUSY, or ``None``."""
        now_ns = self._monotonic_ns()
        if self._burst_began_ns == _NO_BURST:
            self._burst_began_ns = now_ns
            self._burst_found_busy = (
                self._is_page_cache_busy() or self._is_transient_pool_deficient()
            )
        if self._burst_found_busy:
            return REJECT_REQUEST
        if self.sends_waiting >= self._send_capacity:
            return OVERLOAD
        age_ns = now_ns - self._burst_began_ns
        return None if age_ns < self._send_wait_ns else self._refusal_in_slow_burst(age_ns)

    def _refusal_in_slow_burst(self, age_ns: int) -> str | None:
        if not self._is_fast_failing:
            return None
        age_ms = age_ns // _NS_IN_MS
        if self._is_page_cache_busy():
            return _CLEANED.format("PCBUSY", age_ms, self.sends_waiting)
        if self._burst_began_ns - self._slow_burst_ended_ns <= self._send_wait_ns:
            return _CLEANED.format("TIMEOUT", age_ms, self.sends_waiting)
        return None

    def end_burst(self) -> None:
        """Take note that what one read brought is handled."""
        if self._burst_began_ns == _NO_BURST:
            return
        now_ns = self._monotonic_ns()
        if now_ns - self._burst_began_ns >= self._send_wait_ns:
            self._slow_burst_ended_ns = now_ns
        self._burst_began_ns = _NO_BURST

    # ----------------------------------------------------------------------------- threads

    async def run(self, kind: RequestClass, function: Callable[[], _T]) -> _T:
        """Run something that may block in a thread, when it is its turn.

        Raises:
            RequestRefused: Too much waits already, or this waited too long; nothing was run.
        """
        queue = self._queues[kind]
        if queue.running < queue.workers:
            queue.running += 1
        elif len(queue.waiting) >= queue.capacity:
            raise _busy(OVERLOAD)
        else:
            await self._wait_for_turn(queue)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function)
        finally:
            self._end_turn(queue)

    async def _wait_for_turn(self, queue: _ThreadQueue) -> None:
        turn = asyncio.get_running_loop().create_future()
        entry = _Waiting(self._clock.monotonic_ns(), turn)
        queue.waiting.append(entry)
        self._watch(queue)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):  # a turn that ended in the meantime has removed it
                    queue.waiting.remove(entry)
            elif turn.exception() is None:
                self._end_turn(queue)
            raise

    def _end_turn(self, queue: _ThreadQueue) -> None:
        """Give the thread to whoever waits longest."""
        while queue.waiting:
            turn = queue.waiting.popleft().turn
            if not turn.done():
                turn.set_result(None)
                return
        queue.running -= 1

    def clean_expired(self, kind: RequestClass) -> None:
        """Refuse work that waited too long for a thread; a timer does so by itself."""
        self._clean(self._queues[kind])

    def _clean(self, queue: _ThreadQueue) -> None:
        if queue.wait_ms is None:
            return
        now_ns = self._clock.monotonic_ns()
        while queue.waiting:
            waited_ms = (now_ns - queue.waiting[0].since_ns) // _NS_IN_MS
            if waited_ms < queue.wait_ms:
                return
            turn = queue.waiting.popleft().turn
            if not turn.done():
                remark = _CLEANED.format("TIMEOUT", waited_ms, len(queue.waiting))
                turn.set_exception(_busy(remark))

    def _watch(self, queue: _ThreadQueue) -> None:
        """Look again when the one that waits longest has waited too long."""
        if queue.timer is not None or queue.wait_ms is None:
            return
        waited_ns = self._clock.monotonic_ns() - queue.waiting[0].since_ns
        delay_s = max(queue.wait_ms - waited_ns / _NS_IN_MS, 1) / 1000
        queue.timer = asyncio.get_running_loop().call_later(delay_s, self._look, queue)

    def _look(self, queue: _ThreadQueue) -> None:
        queue.timer = None
        self._clean(queue)
        if queue.waiting:
            self._watch(queue)

    # ----------------------------------------------------------------------------- numbers

    def waiting(self, kind: RequestClass) -> int:
        """How many requests of a class wait."""
        if kind is RequestClass.SEND:
            return self.sends_waiting
        return len(self._queues[kind].waiting)

    def close(self) -> None:
        """Look no more after what waits."""
        for queue in self._queues.values():
            if queue.timer is not None:
                queue.timer.cancel()
                queue.timer = None


def _busy(remark: str) -> RequestRefused:
    return RequestRefused(remark, response_code=ResponseCode.SYSTEM_BUSY)
