"""Consumption in any order: many calls of the handler at once.

Owns :class:`ConcurrentConsumption`. A fixed number of workers take messages as they were pulled. No
more of them are awake than it takes: a worker that begins has the next one look, in the loop's next
turn, whether something is left, so that one worker does all the work of a handler that never waits,
and a handler that waits has all workers within a few turns. A
message whose handler failed is given back to its broker, which delivers it again later; one that
cannot be given back stays here and is tried again after 5 seconds. In broadcasting nobody delivers
again: what failed is logged and passed over, as in Apache RocketMQ's client.
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

UNSETTLED = "Messages of %s were not settled"
"""It was not the handler: they stay unfinished, so that nothing is committed past them, and whoever
gets the queue next gets them again."""

_Work = tuple[list[ReceivedMessage], ProcessQueue, MessageQueue]
_PlainWork = tuple[ReceivedMessage, ProcessQueue, MessageQueue]


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
        self._ready: deque[_Work] = deque()
        # Single messages for a handler that is called without anything around it.
        self._ready_plain: deque[_PlainWork] = deque()
        self._workers: list[asyncio.Task[None]] = []
        self._idle: dict[asyncio.Task[None], asyncio.Future[None]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_stopping = False

    def start(self) -> None:
        """Begin to consume."""
        loop = asyncio.get_running_loop()
        work = self._work if self._call.plain is None else self._work_plainly
        self._workers = [loop.create_task(work()) for _ in range(self._options.concurrency)]
        self._watcher = loop.create_task(self._watch())

    def take_in(
        self, messages: list[ReceivedMessage], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        """Put messages that were pulled into their process queue, and have them consumed."""
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
        """Wake one worker, if there is something to do."""
        while self._idle and (self._ready or self._ready_plain):
            _, turn = self._idle.popitem()
            if not turn.done():
                turn.set_result(None)
                break

    async def _wait(self) -> None:
        """Wait for something to do; before it is done, the next worker is told to look."""
        loop = asyncio.get_running_loop()
        me = asyncio.current_task()
        assert me is not None
        turn = self._idle[me] = loop.create_future()
        await turn
        if self._idle:
            loop.call_soon(self._wake)

    def begin_stop(self) -> None:
        """Begin no more calls."""
        self._is_stopping = True

    async def stop(self, *, timeout_ms: int) -> None:
        """Begin no more calls, and wait for those that run; then stop them."""
        self.begin_stop()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._watcher is not None:
            self._watcher.cancel()
        # A handler may be what closes the consumer.
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
            if calls % CALLS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _work_plainly(self) -> None:
        """The same as :meth:`_work`, for single messages and a handler with nothing around it."""
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
            if calls % CALLS_PER_TURN == 0:
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
                "%s was taken away while %d messages were consumed; others may get them again",
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
