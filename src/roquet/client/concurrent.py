"""Consumption in any order: many calls of the handler at once.

Owns :class:`ConcurrentConsumption`. A fixed number of workers take messages as they were pulled. A
message whose handler failed is given back to its broker, which delivers it again later; one that
cannot be given back stays here and is tried again after 5 seconds. In broadcasting nobody delivers
again: what failed is logged and passed over, as in Apache RocketMQ's client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from roquet.client.consume_stats import ConsumeStats
from roquet.client.handler import HandlerCall
from roquet.client.message import ReceivedMessage
from roquet.client.offset_store import OffsetStore
from roquet.client.process_queue import ProcessQueue
from roquet.client.push_options import PushOptions
from roquet.client.send_back import SendBack
from roquet.model.message_queue import MessageQueue
from roquet.runtime.clock import Clock

__all__ = ["ConcurrentConsumption"]

log = logging.getLogger(__name__)

AGAIN_MS = 5_000
OVERDUE_LEVEL = 3
OVERDUE_CHECK_MS = 60_000
OVERDUE_AT_ONCE = 16
CALLS_PER_TURN = 32
"""A handler that never waits would keep the loop from everybody else."""

_Work = tuple[list[ReceivedMessage], ProcessQueue, MessageQueue]


class ConcurrentConsumption:
    """Consumes messages in any order.

    Args:
        options: The consumer's settings.
        call: Calls the handler.
        back: Gives messages back.
        offsets: How far the consumer is.
        stats: Counts.
        queues: The queues that the consumer has.
        clock: The time.
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
        self._ready: asyncio.Queue[_Work] = asyncio.Queue()
        self._workers: list[asyncio.Task[None]] = []
        self._busy: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_stopping = False

    def start(self) -> None:
        """Begin to consume."""
        loop = asyncio.get_running_loop()
        self._workers = [loop.create_task(self._work()) for _ in range(self._options.concurrency)]
        self._workers.append(loop.create_task(self._watch()))

    def take_in(
        self, messages: list[ReceivedMessage], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        """Put messages that were pulled into their process queue, and have them consumed."""
        process_queue.put(messages)
        self._submit(messages, process_queue, queue)

    def _submit(
        self, messages: list[ReceivedMessage], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        step = self._batch_max
        for start in range(0, len(messages), step):
            self._ready.put_nowait((messages[start : start + step], process_queue, queue))

    def begin_stop(self) -> None:
        """Begin no more calls."""
        self._is_stopping = True

    async def stop(self, *, timeout_ms: int) -> None:
        """Begin no more calls, and wait for those that run; then stop them."""
        self.begin_stop()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        for worker in self._workers:
            if worker not in self._busy:
                worker.cancel()
        if self._busy and timeout_ms:
            await asyncio.wait(list(self._busy), timeout=timeout_ms / 1000)
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    # ----------------------------------------------------------------------------- consuming

    async def _work(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        calls = 0
        while not self._is_stopping:
            messages, process_queue, queue = await self._ready.get()
            self._busy.add(me)
            try:
                if not process_queue.is_dropped and not self._is_stopping:
                    await self._consume(messages, process_queue, queue)
            except Exception:
                # Not the handler's: the messages stay unfinished, so nothing is committed past
                # them, and whoever gets the queue next gets them again.
                log.exception("Messages of %s were not settled", queue)
            finally:
                self._busy.discard(me)
            calls += 1
            if calls % CALLS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _consume(
        self, messages: list[ReceivedMessage], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        process_queue.begin(messages)
        started_ns = self._clock.monotonic_ns()
        result, _ = await self._call.call(messages, queue)
        if process_queue.is_dropped:
            log.warning(
                "%s was taken away while %d messages were consumed; others may get them again",
                queue,
                len(messages),
            )
            return
        consumed = result.count_of(messages)
        self._stats.consumed(
            queue.topic, consumed, failed=len(messages) - consumed, started_ns=started_ns
        )
        await self._settle(messages, consumed, result.delay_level, process_queue, queue)

    async def _settle(
        self,
        messages: list[ReceivedMessage],
        consumed: int,
        delay_level: int,
        process_queue: ProcessQueue,
        queue: MessageQueue,
    ) -> None:
        done = messages
        if consumed < len(messages):
            kept = await self._give_back(messages[consumed:], delay_level, process_queue)
            if kept:
                done = [each for each in messages if each not in kept]
                self._submit_later(kept, process_queue, queue)
        self._finish(done, process_queue, queue)

    def _finish(
        self, messages: list[ReceivedMessage], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        queue_offset = process_queue.finish(messages)
        if queue_offset is not None and not process_queue.is_dropped:
            self._offsets.update(queue, queue_offset, increase_only=True)

    async def _give_back(
        self, messages: list[ReceivedMessage], delay_level: int, process_queue: ProcessQueue
    ) -> list[ReceivedMessage]:
        """Give messages back; those that could not be are the answer."""
        kept: list[ReceivedMessage] = []
        for message in messages:
            if self._options.is_broadcasting:
                log.error(
                    "%s of %s failed and is passed over: broadcasting has no retries",
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

    # -------------------------------------------------------------------- handlers that hang

    async def _watch(self) -> None:
        timeout_ms = self._options.consume_timeout_ms
        while True:
            await asyncio.sleep(min(timeout_ms, OVERDUE_CHECK_MS) / 1000)
            for queue, process_queue in list(self._queues.items()):
                try:
                    await self._give_back_overdue(queue, process_queue, timeout_ms)
                except Exception:
                    log.exception("Overdue messages of %s were not given back", queue)

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
                "The handler has had %s of %s for too long; it will come again",
                message.message_id,
                queue,
            )
            if message in process_queue:
                self._finish([message], process_queue, queue)
