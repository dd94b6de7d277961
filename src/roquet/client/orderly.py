"""Orderly consumption: the messages of a queue one after the other.

Owns :class:`OrderlyConsumption`. A queue is consumed in runs: messages are taken, handled and
committed until there are none left, or for a minute, so that other queues can run too. When a
handler fails, the queue waits for a moment and the same messages are retried: nothing overtakes
them. A message that failed too often goes to the retry topic of the group, and from there to its
dead letters.

Invariants:

* At most one handler has messages of a queue, even while an old process queue of it finishes.
* In clustering mode, a handler starts only while its broker has locked the queue for this client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from weakref import WeakValueDictionary

from roquet.client.consume_stats import ConsumeStats
from roquet.client.handler import ConsumeResult, HandlerCall
from roquet.client.lifetime import end_tasks
from roquet.client.message import ReceivedMessage
from roquet.client.offset_store import OffsetStore
from roquet.client.process_queue import ProcessQueue
from roquet.client.push_options import PushOptions
from roquet.client.send_back import SendBack
from roquet.model.message_queue import MessageQueue
from roquet.runtime.clock import Clock

__all__ = ["OrderlyConsumption"]

log = logging.getLogger(__name__)

RUN_MS_MAX = 60_000
NEXT_RUN_MS = 10
LOCK_SOON_MS = 10
LOCK_LATER_MS = 3_000
SUSPEND_MS_MIN = 10
SUSPEND_MS_MAX = 30_000
CALLS_PER_PASS = 32
_NS_PER_MS = 1_000_000


class OrderlyConsumption:
    """Consumes the messages of each queue in order.

    Args:
        options: The consumer's settings.
        call: Calls the handler.
        back: Sends messages back.
        offsets: The consumer's offsets.
        stats: The statistics.
        clock: The clock.
        lock: Locks a queue at its broker for this client; returns whether that worked.
        max_reconsume_times: How often a message may fail.
    """

    def __init__(
        self,
        options: PushOptions,
        call: HandlerCall,
        back: SendBack,
        offsets: OffsetStore,
        stats: ConsumeStats,
        *,
        clock: Clock,
        lock: Callable[[MessageQueue], Awaitable[bool]],
        max_reconsume_times: int,
    ) -> None:
        self._options = options
        self._call = call
        self._back = back
        self._offsets = offsets
        self._stats = stats
        self._clock = clock
        self._lock = lock
        self._max_reconsume_times = max_reconsume_times
        self._batch_max = options.consume_batch_max if call.takes_batches else 1
        self._slots = asyncio.Semaphore(options.concurrency)
        self._locks: WeakValueDictionary[MessageQueue, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._handling: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    def start(self) -> None:
        """Start consuming: nothing to do until messages arrive."""

    def take_in(
        self, messages: list[ReceivedMessage], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        """Put pulled messages into their process queue, and have them consumed."""
        if process_queue.put(messages):
            self._spawn(self._run(process_queue, queue))

    async def wait_idle(self, queue: MessageQueue, *, timeout_ms: int) -> bool:
        """Wait until no handler has messages of a queue; returns False on timeout."""
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._lock_of(queue):
                return True
        except TimeoutError:
            return False

    def begin_stop(self) -> None:
        """Start no more calls."""
        self._is_stopping = True

    async def stop(self, *, timeout_ms: int) -> None:
        """Start no more calls, wait for the running ones until the timeout, then cancel them."""
        self.begin_stop()
        for task in self._tasks - self._handling:
            task.cancel()
        # A handler may be closing the consumer.
        handling = self._handling - {asyncio.current_task()}
        try:
            if handling and timeout_ms:
                await asyncio.wait(handling, timeout=timeout_ms / 1000)
        finally:
            await end_tasks(list(self._tasks))

    # ---------------------------------------------------------------------------------- runs

    async def _run(self, process_queue: ProcessQueue, queue: MessageQueue) -> None:
        async with self._slots:
            started_ns = self._clock.monotonic_ns()
            calls = 0
            wait_ms = 0
            while wait_ms == 0:
                if process_queue.is_dropped or self._is_stopping:
                    return
                if self._options.is_locking and not process_queue.is_locked:
                    self._spawn(self._lock_and_go_on(process_queue, queue))
                    return
                if self._clock.monotonic_ns() - started_ns > RUN_MS_MAX * _NS_PER_MS:
                    wait_ms = NEXT_RUN_MS
                    break
                found = await self._step(process_queue, queue)
                if found is None:
                    return
                wait_ms = found
                calls += 1
                if calls % CALLS_PER_PASS == 0:
                    await asyncio.sleep(0)
        self._spawn(self._go_on_later(process_queue, queue, wait_ms))

    async def _step(self, process_queue: ProcessQueue, queue: MessageQueue) -> int | None:
        """Consume the next messages; returns how long the queue waits then, ``None`` at the end."""
        async with self._lock_of(queue):
            messages = [] if process_queue.is_dropped else process_queue.take(self._batch_max)
            return await self._handle(messages, process_queue, queue) if messages else None

    async def _handle(
        self, messages: list[ReceivedMessage], process_queue: ProcessQueue, queue: MessageQueue
    ) -> int:
        """Call the handler; returns how long the queue waits, which is 0 unless it failed."""
        me = asyncio.current_task()
        assert me is not None
        self._handling.add(me)
        try:
            started_ns = self._clock.monotonic_ns()
            result, _ = await self._call.call(messages, queue)
            consumed = result.count_of(messages)
            self._stats.consumed(
                queue.topic, consumed, failed=len(messages) - consumed, started_ns=started_ns
            )
            return await self._settle(messages, result, process_queue, queue)
        except Exception:
            # Not the handler's fault: the taken messages are retried, in order.
            log.exception("Messages of %s were not settled", queue)
            process_queue.rollback()
            return self._options.suspend_ms
        finally:
            self._handling.discard(me)

    async def _settle(
        self,
        messages: list[ReceivedMessage],
        result: ConsumeResult,
        process_queue: ProcessQueue,
        queue: MessageQueue,
    ) -> int:
        failed = messages[result.count_of(messages) :]
        comes_again = bool(failed) and await self._comes_again(failed)
        if comes_again:
            process_queue.put_back(failed)
        queue_offset = process_queue.commit()
        if queue_offset is not None and not process_queue.is_dropped:
            self._offsets.update(queue, queue_offset, increase_only=False)
        if not comes_again:
            return 0
        wait_ms = self._options.suspend_ms if result.suspend_ms is None else result.suspend_ms
        return min(max(wait_ms, SUSPEND_MS_MIN), SUSPEND_MS_MAX)

    async def _comes_again(self, messages: list[ReceivedMessage]) -> bool:
        """Return whether failed messages are retried here; otherwise they were sent back."""
        comes_again = False
        for message in messages:
            if message.reconsume_times >= self._max_reconsume_times and (
                await self._back.send_again(message)
            ):
                continue
            message.reconsume_times += 1
            comes_again = True
        return comes_again

    # --------------------------------------------------------------------------------- later

    async def _go_on_later(
        self, process_queue: ProcessQueue, queue: MessageQueue, wait_ms: int
    ) -> None:
        await asyncio.sleep(wait_ms / 1000)
        self._spawn(self._run(process_queue, queue))

    async def _lock_and_go_on(self, process_queue: ProcessQueue, queue: MessageQueue) -> None:
        await asyncio.sleep(LOCK_SOON_MS / 1000)
        if process_queue.is_dropped:
            return
        is_locked = await self._lock(queue)
        await self._go_on_later(process_queue, queue, LOCK_SOON_MS if is_locked else LOCK_LATER_MS)

    def _lock_of(self, queue: MessageQueue) -> asyncio.Lock:
        lock = self._locks.get(queue)
        if lock is None:
            lock = self._locks[queue] = asyncio.Lock()
        return lock

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        if self._is_stopping:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
