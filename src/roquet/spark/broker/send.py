"""Sends the rows of a task.

Owns batches, queues, sends in flight, and retries.

Invariants:

* :meth:`Outbox.close` returns only when a broker has acknowledged every row.
* Rows with a sharding key or a queue are sent in row order: a queue has one request in flight at a
  time, and the next one waits for its response.
* The number of requests in flight is bounded, and so is the backlog behind them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from roquet.client.message import Message, SendStatus
from roquet.client.outgoing_message import is_delayed
from roquet.client.producer import Producer
from roquet.client.queue_choice import select_by_sharding_key
from roquet.errors import BadMessage, ClientError, NoRoute, PartlySent
from roquet.model.message_queue import MessageQueue
from roquet.runtime.clock import Clock, SystemClock
from roquet.spark.broker.outgoing import OutgoingRow
from roquet.spark.broker.write_options import WriteOptions

__all__ = ["Outbox", "Sent"]

log = logging.getLogger(__name__)

BATCH_ROWS_MAX = 512
ROW_BYTES = 256
"""The approximate size of a row without its body."""

NO_ROUTE_TIMEOUT_MS = 30_000
_RETRY_FIRST_MS = 50
_RETRY_MAX_MS = 2_000

_T = TypeVar("_T")


@dataclass
class Sent:
    """The result of sending a task's rows.

    Attributes:
        rows: How many rows brokers acknowledged.
        body_bytes: The total size of their bodies.
        less_safe: How many are stored less safely than the broker is configured to.
    """

    rows: int = 0
    body_bytes: int = 0
    less_safe: int = 0


@dataclass
class _Batch:
    """Rows for one queue, or for any queue of a topic."""

    queue: MessageQueue | None
    rows: list[Message] = field(default_factory=list)
    held_bytes: int = 0
    last: asyncio.Task[None] | None = None


class Outbox:
    """Sends the rows of one task.

    Args:
        options: How to send.
        producer: A started producer.
        clock: The time.

    Attributes:
        sent: The result so far.
    """

    def __init__(
        self, options: WriteOptions, producer: Producer, *, clock: Clock | None = None
    ) -> None:
        self._options = options
        self._producer = producer
        self._clock = clock or SystemClock()
        self._room = asyncio.Semaphore(options.in_flight)
        self._batches: dict[tuple[str, MessageQueue | None], _Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self.sent = Sent()

    async def put(self, row: OutgoingRow) -> None:
        """Add a row; waits while too much is in flight.

        Raises:
            ClientError: A row before this one could not be sent.
            BadMessage: The row names a queue that does not exist.
        """
        self._raise_failure()
        message = row.message
        queue = await self._queue_of(row)
        if is_delayed(message):
            # Brokers accept no batches of delayed messages and do not keep their order.
            await self._spawn(_Batch(queue, [message]))
            return
        batch = self._batches.setdefault((message.topic, queue), _Batch(queue))
        size_bytes = len(message.body) + ROW_BYTES
        # Batches are not compressed, so long bodies are sent alone.
        is_long = len(message.body) >= self._options.producer.compress_over_bytes
        if batch.rows and (is_long or batch.held_bytes + size_bytes > self._options.batch_bytes):
            await self._flush(batch)
        batch.rows.append(message)
        batch.held_bytes += size_bytes
        is_full = batch.held_bytes >= self._options.batch_bytes or len(batch.rows) >= BATCH_ROWS_MAX
        if is_long or is_full:
            await self._flush(batch)

    async def settle(self) -> None:
        """Wait for the responses to all requests in flight; unsent rows stay where they are.

        Call it before the loop stops running: a response that is not read in time would count as
        lost, and its rows would be sent again.

        Raises:
            ClientError: A row could not be sent.
        """
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._raise_failure()

    async def close(self) -> Sent:
        """Send the remaining rows, and wait until all are acknowledged.

        Raises:
            ClientError: A row could not be sent.
        """
        for batch in self._batches.values():
            if batch.rows:
                await self._flush(batch)
        await self.settle()
        return self.sent

    async def abort(self) -> None:
        """Stop sending; rows in flight may or may not be stored."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -------------------------------------------------------------------------------- queues

    async def _queue_of(self, row: OutgoingRow) -> MessageQueue | None:
        message = row.message
        if row.queue_id is None and not message.sharding_key:
            return None
        queues = await self._retried(lambda: self._producer.queues(message.topic))
        if message.sharding_key and row.queue_id is None:
            return select_by_sharding_key(queues, message, message.sharding_key)
        found = sorted(
            queue
            for queue in queues
            if queue.queue_id == row.queue_id and row.broker_name in {None, queue.broker_name}
        )
        if not found:
            on = f" on {row.broker_name}" if row.broker_name else ""
            raise BadMessage(
                f"The topic {message.topic} has no queue {row.queue_id}{on} that can be written",
                hint="Leave queueId and brokerName out, or make the topic larger.",
            )
        return found[(row.queue_id or 0) % len(found)]

    # ------------------------------------------------------------------------------- sending

    async def _flush(self, batch: _Batch) -> None:
        if batch.queue is not None and batch.last is not None:
            await asyncio.wait([batch.last])
            self._raise_failure()
        full = _Batch(batch.queue, batch.rows)
        batch.rows, batch.held_bytes = [], 0
        batch.last = await self._spawn(full)

    async def _spawn(self, batch: _Batch) -> asyncio.Task[None]:
        await self._room.acquire()
        self._raise_failure_releasing()
        task = asyncio.create_task(self._deliver(batch))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _raise_failure_releasing(self) -> None:
        if self._failure is not None:
            self._room.release()
            raise self._failure

    async def _deliver(self, batch: _Batch) -> None:
        left = batch.rows

        async def send() -> None:
            nonlocal left
            try:
                if len(left) == 1:
                    results = [await self._producer.send(left[0], queue=batch.queue)]
                else:
                    results = await self._producer.send_batch(left, queue=batch.queue)
            except PartlySent as error:
                self._count(left[: error.sent], 0)
                left = left[error.sent :]
                raise error.__cause__ or error from None
            unsafe = sum(result.status is not SendStatus.SEND_OK for result in results)
            self._count(left, unsafe)

        await self._retried(send)

    async def _retried(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Run ``work`` and retry it while brokers are unreachable."""
        since_ns = self._clock.monotonic_ns()
        wait_ms = _RETRY_FIRST_MS
        while True:
            try:
                return await work()
            except ClientError as error:
                limit_ms = self._options.retry_timeout_ms
                if isinstance(error, NoRoute):
                    # A topic that does not exist will not get a route by waiting.
                    limit_ms = min(limit_ms, NO_ROUTE_TIMEOUT_MS)
                elif not error.retriable:
                    raise
                if (self._clock.monotonic_ns() - since_ns) // 1_000_000 >= limit_ms:
                    raise
                log.info("Retrying: %s", error.message)
            await asyncio.sleep(wait_ms / 1000)
            wait_ms = min(wait_ms * 2, _RETRY_MAX_MS)

    def _count(self, messages: list[Message], less_safe: int) -> None:
        self.sent.rows += len(messages)
        self.sent.body_bytes += sum(len(message.body) for message in messages)
        self.sent.less_safe += less_safe
