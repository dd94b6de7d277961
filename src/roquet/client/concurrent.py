"""Concurrent consumption: many handler calls at once, in any order.

Owns :class:`ConcurrentConsumption`. A fixed number of workers take messages in the order of the
pulls. Only as many as needed are awake: a worker that starts wakes the next one in the loop's next
iteration, to check for more. So one worker does all the work of a handler that never waits, and a
handler that waits gets all workers within a few iterations. A message whose handler failed is sent
back to its broker, which redelivers it later; if that fails, the message stays here and is retried
after 5 seconds. In broadcasting nothing is redelivered: failed messages are logged and skipped, as
in Apache RocketMQ's client.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import repeat

from roquet.client.consume_stats import ConsumeStats
from roquet.client.handler import ConsumeResult, HandlerCall
from roquet.client.lifetime import end_tasks
from roquet.client.message import ReceivedMessage
from roquet.client.offset_store import OffsetStore
from roquet.client.process_queue import ProcessQueue
from roquet.client.push_options import PushOptions
from roquet.client.send_back import SendBack
from roquet.client.unpacking import unpack
from roquet.model.message_queue import MessageQueue
from roquet.model.sys_flag import COMPRESSED
from roquet.runtime.clock import Clock

__all__ = ["ConcurrentConsumption"]

log = logging.getLogger(__name__)

AGAIN_MS = 5_000
OVERDUE_LEVEL = 3
OVERDUE_CHECK_MS = 60_000
OVERDUE_AT_ONCE = 16
CALLS_PER_PASS = 32
"""A handler that never waits would block the loop for everybody else."""

UNSETTLED = "Messages of %s were not settled"
"""Not the handler's fault: they stay unfinished, so nothing is committed past them, and the next
owner of the queue gets them again."""

_Work = tuple[list[ReceivedMessage], ProcessQueue, MessageQueue]
_PlainWork = tuple[ReceivedMessage, ProcessQueue, MessageQueue]


class ConcurrentConsumption:
    """Consumes messages in any order.

    Args:
        options: The consumer's settings.
        call: Calls the handler.
        back: Sends messages back.
        offsets: The consumer's offsets.
        stats: The statistics.
        queues: The consumer's queues.
        clock: The clock.
    """

    def __init__(
        self,
        options: PushOptions,
        call: HandlerCall,
        back: SendBack,
        offsets: OffsetStore,
        stats: ConsumeStats,
        *,
        queues: Mapping[MessageQueue, ProcessQueue],
        clock: Clock,
    ) -> None:
        self._options = options
        self._call = call
        self._back = back
        self._offsets = offsets
        self._stats = stats
        self._queues = queues
        self._clock = clock
        self._batch_max = options.consume_batch_max if call.takes_batches else 1
        self._ready: deque[_Work] = deque()
        # Single messages, and a handler without hooks.
        self._ready_plain: deque[_PlainWork] = deque()
        self._workers: list[asyncio.Task[None]] = []
        self._idle: dict[asyncio.Task[None], asyncio.Future[None]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_stopping = False

    def start(self) -> None:
        """Start consuming."""
        loop = asyncio.get_running_loop()
        work = self._work if self._call.plain is None else self._work_plainly
        self._workers = [loop.create_task(work()) for _ in range(self._options.concurrency)]
        self._watcher = loop.create_task(self._watch())

    def take_in(
        self, messages: list[ReceivedMessage], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        """Put pulled messages into their process queue, and have them consumed."""
        process_queue.put(messages)
        self._submit(messages, process_queue, queue)

    def _submit(
        self, messages: list[ReceivedMessage], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        if self._call.plain is not None:
            self._ready_plain += zip(messages, repeat(process_queue), repeat(queue))
        else:
            step = self._batch_max
            for start in range(0, len(messages), step):
                self._ready.append((messages[start : start + step], process_queue, queue))
        self._wake()

    def _wake(self) -> None:
        """Wake one worker if there is work."""
        while self._idle and (self._ready or self._ready_plain):
            _, woken = self._idle.popitem()
            if not woken.done():
                woken.set_result(None)
                break

    async def _wait(self) -> None:
        """Wait for work; before doing it, wake the next worker to check for more."""
        loop = asyncio.get_running_loop()
        me = asyncio.current_task()
        assert me is not None
        woken = self._idle[me] = loop.create_future()
        await woken
        if self._idle:
            loop.call_soon(self._wake)

    def begin_stop(self) -> None:
        """Start no more calls."""
        self._is_stopping = True

    async def stop(self, *, timeout_ms: int) -> None:
        """Start no more calls, wait for the running ones until the timeout, then cancel them."""
        self.begin_stop()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._watcher is not None:
            self._watcher.cancel()
        # A handler may be closing the consumer.
        busy = set(self._workers) - self._idle.keys() - {asyncio.current_task()}
        for worker in self._idle:
            worker.cancel()
        try:
            if busy and timeout_ms:
                await asyncio.wait(busy, timeout=timeout_ms / 1000)
        finally:
            await end_tasks([*self._workers, *([] if self._watcher is None else [self._watcher])])

    # ----------------------------------------------------------------------------- consuming

    async def _work(self) -> None:
        calls = 0
        while not self._is_stopping:
            if not self._ready:
                await self._wait()
                continue
            messages, process_queue, queue = self._ready.popleft()
            try:
                if not process_queue.is_dropped:
                    await self._consume(messages, process_queue, queue)
            except Exception:
                log.exception(UNSETTLED, queue)
            calls += 1
            if calls % CALLS_PER_PASS == 0:
                await asyncio.sleep(0)

    async def _work_plainly(self) -> None:
        """The same as :meth:`_work`, for single messages and a handler without hooks."""
        handle = self._call.plain
        assert handle is not None
        clock = self._clock
        calls = 0
        while not self._is_stopping:
            if not self._ready_plain:
                await self._wait()
                continue
            message, process_queue, queue = self._ready_plain.popleft()
            if process_queue.is_dropped:
                continue
            messages = (message,)
            try:
                started_ns = clock.monotonic_ns()
                process_queue.begin(messages, started_ns)
                if message.sys_flag & COMPRESSED:
                    await unpack(messages)
                try:
                    answer = await handle(message)
                except Exception as error:  # noqa: BLE001 - whatever it is, the message is retried
                    result = self._call.result_of_failure(messages, queue, error)
                    await self._settle(list(messages), result, started_ns, process_queue, queue)
                else:
                    if answer is None and not process_queue.is_dropped:
                        self._stats.consumed(queue.topic, 1, failed=0, started_ns=started_ns)
                        self._finish(messages, process_queue, queue)
                    else:
                        result = self._call.result_of(answer)
                        await self._settle(list(messages), result, started_ns, process_queue, queue)
            except Exception:
                log.exception(UNSETTLED, queue)
            calls += 1
            if calls % CALLS_PER_PASS == 0:
                await asyncio.sleep(0)

    async def _consume(
        self, messages: list[ReceivedMessage], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        started_ns = self._clock.monotonic_ns()
        process_queue.begin(messages, started_ns)
        result, _ = await self._call.call(messages, queue)
        await self._settle(messages, result, started_ns, process_queue, queue)

    async def _settle(
        self,
        messages: list[ReceivedMessage],
        result: ConsumeResult,
        started_ns: int,
        process_queue: ProcessQueue,
        queue: MessageQueue,
    ) -> None:
        if process_queue.is_dropped:
            log.warning(
                "%s was revoked while %d messages were being consumed; they may be redelivered",
                queue,
                len(messages),
            )
            return
        consumed = result.count_of(messages)
        self._stats.consumed(
            queue.topic, consumed, failed=len(messages) - consumed, started_ns=started_ns
        )
        done = messages
        if consumed < len(messages):
            kept = await self._give_back(messages[consumed:], result.delay_level, process_queue)
            if kept:
                done = [each for each in messages if each not in kept]
                self._submit_later(kept, process_queue, queue)
        self._finish(done, process_queue, queue)

    def _finish(
        self, messages: Sequence[ReceivedMessage], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        queue_offset = process_queue.finish(messages)
        if queue_offset is not None and not process_queue.is_dropped:
            self._offsets.update(queue, queue_offset, increase_only=True)

    async def _give_back(
        self, messages: list[ReceivedMessage], delay_level: int, process_queue: ProcessQueue
    ) -> list[ReceivedMessage]:
        """Send messages back; returns those that could not be sent back."""
        kept: list[ReceivedMessage] = []
        for message in messages:
            if self._options.is_broadcasting:
                log.error(
                    "%s of %s failed and is skipped: broadcasting has no retries",
                    message.message_id,
                    message.topic,
                )
            elif message in process_queue and not await self._back.send_back(
                message, delay_level=delay_level
            ):
                message.reconsume_times += 1
                kept.append(message)
        return kept

    def _submit_later(
        self, messages: list[ReceivedMessage], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        def submit() -> None:
            self._timers.discard(timer)
            self._submit(messages, process_queue, queue)

        if not self._is_stopping:
            timer = asyncio.get_running_loop().call_later(AGAIN_MS / 1000, submit)
            self._timers.add(timer)

    # ---------------------------------------------------------------------- overdue handlers

    async def _watch(self) -> None:
        timeout_ms = self._options.consume_timeout_ms
        while True:
            await asyncio.sleep(min(timeout_ms, OVERDUE_CHECK_MS) / 1000)
            for queue, process_queue in list(self._queues.items()):
                try:
                    await self._give_back_overdue(queue, process_queue, timeout_ms)
                except Exception:
                    log.exception("Overdue messages of %s could not be sent back", queue)

    async def _give_back_overdue(
        self, queue: MessageQueue, process_queue: ProcessQueue, timeout_ms: int
    ) -> None:
        if self._options.is_broadcasting:
            return
        for _ in range(OVERDUE_AT_ONCE):
            message = process_queue.overdue(timeout_ms)
            if message is None or process_queue.is_dropped:
                return
            if not await self._back.send_back(message, delay_level=OVERDUE_LEVEL):
                return
            log.warning(
                "The handler has held %s of %s for too long; it will be redelivered",
                message.message_id,
                queue,
            )
            if message in process_queue:
                self._finish([message], process_queue, queue)
