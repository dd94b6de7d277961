"""Flow control: how much work may queue, and how excess requests are refused.

Owns the queues of the request classes, their limits, and the four refusals that upstream has for
an overloaded broker. All of them respond with SYSTEM_BUSY, on which producers try another broker.
Upstream has a thread pool with a queue per class; on one event loop each class has another kind of
queue:

====== =========================================================== ==================== ==========
class  its queue                                                   capacity             wait
====== =========================================================== ==================== ==========
SEND   sends that are appended but not acknowledged: they wait for sendThreadPool-      200 ms
       the disk or a slave                                         QueueCapacity
PULL   reads that wait for one of the reader threads               pullThreadPool-      5 s
                                                                   QueueCapacity
QUERY  queries by key or id that wait for a thread                 queryThreadPool-     none
                                                                   QueueCapacity
ADMIN  administrators' requests that wait for a thread             adminBrokerThread-   5 s
                                                                   PoolQueueCapacity
====== =========================================================== ==================== ==========

=========================== =======================================================================
refusal                     when
=========================== =======================================================================
``[REJECTREQUEST]``         a burst of sends starts while the page cache is busy (the last append
                            took longer than osPageCacheBusyTimeOutMills) or no transient buffer
                            is free
``[OVERLOAD]``              the queue of the class is full
``[PCBUSY_CLEAN_QUEUE]``    the page cache became busy within the burst: the sends behind the slow
                            append were already accepted, and would pile up on it
``[TIMEOUT_CLEAN_QUEUE]``   PULL, ADMIN: no thread became free within the wait. SEND: the burst is
                            older than the wait, and so was the burst before it
=========================== =======================================================================

The sends of a burst came in with one read and are handled one after the other, so the age of the
burst is the time that a send was in the queue. One slow burst causes no refusals: after a pause of
the machine, storing what came in is the fastest way to catch up. Two in a row mean that the disk
cannot keep up. A send that is appended is never refused, because its producer would send it again;
its wait ends with FLUSH_DISK_TIMEOUT or FLUSH_SLAVE_TIMEOUT. There are no time limits if
brokerFastFailureEnable is off.

Requests of the classes QUERY, ADMIN and HEAVY wait before they start, in the queues of
:mod:`roquet.remoting.turn_scheduler`, whose limits :func:`class_limits` sets. The queues here hold
work that has started and needs a thread.

Everything here runs on the event loop. :meth:`FlowControl.end_burst` must be called after each
burst, whether it contained sends or not.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from roquet.broker.config import BrokerConfig
from roquet.remoting.codes import ResponseCode
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.turn_scheduler import OVERLOAD, ClassLimits, RequestClass, timed_out_remark
from roquet.runtime.clock import Clock

__all__ = ["OVERLOAD", "REJECT_REQUEST", "FlowControl", "RequestClass", "class_limits"]

REJECT_REQUEST = "[REJECTREQUEST]system busy, start flow control for a while"
_PAGE_CACHE_BUSY = (
    "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, "
    "period in queue: {}ms, size of queue: {}"
)

QUERY_WORKERS = 16
"""Queries in progress: twice the number of threads."""

HEAVY_WORKERS = 2
"""Heavy requests in progress: each may hold a response of several megabytes."""

_NO_BURST = -1
_NS_IN_MS = 1_000_000
_T = TypeVar("_T")


def class_limits(config: BrokerConfig) -> dict[RequestClass, ClassLimits]:
    """Return how many requests of each class may be in progress, and how many may queue."""
    wait_ms = config.wait_ms_in_admin_queue if config.fast_failure else None
    capacity = config.admin_queue_capacity
    return {
        RequestClass.QUERY: ClassLimits(QUERY_WORKERS, config.query_queue_capacity, None),
        RequestClass.ADMIN: ClassLimits(config.admin_workers, capacity, wait_ms),
        RequestClass.HEAVY: ClassLimits(HEAVY_WORKERS, capacity, wait_ms),
    }


class _ThreadQueue:
    """Work of one class that waits for threads, each with the time since when it waits."""

    __slots__ = ("capacity", "running", "timer", "wait_ms", "waiting", "workers")

    def __init__(self, *, workers: int, capacity: int, wait_ms: int | None) -> None:
        self.workers = workers
        self.capacity = capacity
        self.wait_ms = wait_ms
        self.running = 0
        self.waiting: OrderedDict[asyncio.Future[None], int] = OrderedDict()
        self.timer: asyncio.TimerHandle | None = None

    @property
    def oldest_ns(self) -> int:
        return next(iter(self.waiting.values()))


class FlowControl:
    """Decides whether work is accepted.

    Attributes:
        sends_waiting: Sends that are appended but not acknowledged, as counted by the code that
            appends and acknowledges them.

    Args:
        config: The limits.
        clock: The time.
        is_page_cache_busy: Whether appends take too long.
        is_transient_pool_deficient: Whether no transient buffer is free; ``None`` if none are used.
        executor: The threads; ``None`` for those of the event loop.
        workers: How many threads a class may use at a time.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        is_page_cache_busy: Callable[[], bool],
        is_transient_pool_deficient: Callable[[], bool] | None = None,
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
                workers=workers, capacity=config.admin_queue_capacity, wait_ms=admin_wait_ms
            ),
        }

    # ------------------------------------------------------------------------------- sends

    def refusal_of_send(self) -> str | None:
        """Return the SYSTEM_BUSY remark if the current send must be refused, else ``None``."""
        now_ns = self._monotonic_ns()
        if self._burst_began_ns == _NO_BURST:
            self._burst_began_ns = now_ns
            self._burst_found_busy = self._is_page_cache_busy() or (
                self._is_transient_pool_deficient is not None
                and self._is_transient_pool_deficient()
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
            return _PAGE_CACHE_BUSY.format(age_ms, self.sends_waiting)
        if self._burst_began_ns - self._slow_burst_ended_ns <= self._send_wait_ns:
            return timed_out_remark(age_ms, self.sends_waiting)
        return None

    def end_burst(self) -> None:
        """Note that everything from one read has been handled."""
        if self._burst_began_ns == _NO_BURST:
            return
        now_ns = self._monotonic_ns()
        if now_ns - self._burst_began_ns >= self._send_wait_ns:
            self._slow_burst_ended_ns = now_ns
        self._burst_began_ns = _NO_BURST

    # ----------------------------------------------------------------------------- threads

    async def run(self, kind: RequestClass, function: Callable[[], _T]) -> _T:
        """Run a blocking function in a thread once one is free.

        Raises:
            RequestRefused: The queue is full, or the wait was too long; the function did not run.
        """
        queue = self._queues[kind]
        if queue.running < queue.workers:
            queue.running += 1
        elif len(queue.waiting) >= queue.capacity:
            raise _busy(OVERLOAD)
        else:
            await self._wait_for_thread(queue)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function)
        finally:
            self._release_thread(queue)

    async def _wait_for_thread(self, queue: _ThreadQueue) -> None:
        granted = asyncio.get_running_loop().create_future()
        queue.waiting[granted] = self._clock.monotonic_ns()
        self._watch(queue)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                queue.waiting.pop(granted, None)
            elif granted.exception() is None:
                self._release_thread(queue)
            raise

    def _release_thread(self, queue: _ThreadQueue) -> None:
        """Pass the thread to the work that has waited longest."""
        while queue.waiting:
            granted, _ = queue.waiting.popitem(last=False)
            if not granted.done():
                granted.set_result(None)
                return
        queue.running -= 1

    def _clean(self, queue: _ThreadQueue) -> None:
        """Refuse work that waited too long for a thread."""
        if queue.wait_ms is None:
            return
        now_ns = self._clock.monotonic_ns()
        while queue.waiting:
            waited_ms = (now_ns - queue.oldest_ns) // _NS_IN_MS
            if waited_ms < queue.wait_ms:
                return
            granted, _ = queue.waiting.popitem(last=False)
            if not granted.done():
                remark = timed_out_remark(waited_ms, len(queue.waiting))
                granted.set_exception(_busy(remark))

    def _watch(self, queue: _ThreadQueue) -> None:
        """Check again when the oldest waiting work reaches its limit."""
        if queue.timer is not None or queue.wait_ms is None:
            return
        waited_ns = self._clock.monotonic_ns() - queue.oldest_ns
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
        """Stop checking the waiting work."""
        for queue in self._queues.values():
            if queue.timer is not None:
                queue.timer.cancel()
                queue.timer = None


def _busy(remark: str) -> RequestRefused:
    return RequestRefused(remark, response_code=ResponseCode.SYSTEM_BUSY)
