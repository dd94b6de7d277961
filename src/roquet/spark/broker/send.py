"""How a task sends its rows.

Owns batches, queues, what is on the way, and trying again.

Invariants:

* :meth:`Outbox.close` returns only when a broker has acknowledged every row.
* Rows with a sharding key or a queue are sent in the order of the rows: a queue has one request on
  the way at a time, and the next one waits until it is answered.
* The number of requests on the way is bounded, and so is what waits for them.
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
"""What a row has besides its body, about."""

NO_ROUTE_TIMEOUT_MS = 30_000
_RETRY_FIRST_MS = 50
_RETRY_MAX_MS = 2_000

_T = TypeVar("_T")


@dataclass
class Sent:
    """What became of a task's rows.

    Attributes:
        rows: How many brokers acknowledged.
        body_bytes: How long their bodies are together.
        less_safe: How many are stored less safely than the broker is configured to.
    """

    rows: int = 0
    body_bytes: int = 0
    less_safe: int = 0


@dataclass
class _Lane:
    """Rows for one queue, or for any queue of a topic."""

    queue: MessageQueue | None
    rows: list[Message] = field(default_factory=list)
    held_bytes: int = 0
    last: asyncio.Task[None] | None = None


class Outbox:
    """Sends the rows of one task.

    Args:
        options: How to send.
        producer: A producer that is started.
        clock: The time.

    Attributes:
        sent: What became of the rows so far.
    """

    def __init__(
        self, options: WriteOptions, producer: Producer, *, clock: Clock | None = None
    ) -> None:
        self._options = options
        self._producer = producer
        self._clock = clock or SystemClock()
        self._room = asyncio.Semaphore(options.in_flight)
        self._lanes: dict[tuple[str, MessageQueue | None], _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self.sent = Sent()

    async def put(self, row: OutgoingRow) -> None:
        """Take a row; waits while too much is on the way.

        Raises:
            ClientError: A row before this one could not be sent.
            BadMessage: The row names a queue that there is not.
        """
        self._raise_failure()
        message = row.message
        queue = await self._queue_of(row)
        if is_delayed(message):
            # Brokers take no batches of them, and keep no order between them.
            await self._spawn(_Lane(queue, [message]))
            return
        lane = self._lanes.setdefault((message.topic, queue), _Lane(queue))
        size_bytes = len(message.body) + ROW_BYTES
        # In a batch nothing is compressed, so long bodies go alone.
        is_long = len(message.body) >= self._options.producer.compress_over_bytes
        if lane.rows and (is_long or lane.held_bytes + size_bytes > self._options.batch_bytes):
            await self._flush(lane)
        lane.rows.append(message)
        lane.held_bytes += size_bytes
        is_full = lane.held_bytes >= self._options.batch_bytes or len(lane.rows) >= BATCH_ROWS_MAX
        if is_long or is_full:
            await self._flush(lane)

    async def settle(self) -> None:
        """Wait until all that is on the way is answered; what waits to be sent goes on waiting.

        To be called before the loop stands still: an answer that nobody takes would be missed, and
        its rows sent again.

        Raises:
            ClientError: A row could not be sent.
        """
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._raise_failure()

    async def close(self) -> Sent:
        """Send what is left, and wait until all is acknowledged.

        Raises:
            ClientError: A row could not be sent.
        """
        for lane in self._lanes.values():
            if lane.rows:
                await self._flush(lane)
        await self.settle()
        return self.sent

    async def abort(self) -> None:
        """Stop; what is on the way may or may not be stored."""
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

    async def _flush(self, lane: _Lane) -> None:
        if lane.queue is not None and lane.last is not None:
            await asyncio.wait([lane.last])
            self._raise_failure()
        full = _Lane(lane.queue, lane.rows)
        lane.rows, lane.held_bytes = [], 0
        lane.last = await self._spawn(full)

    async def _spawn(self, lane: _Lane) -> asyncio.Task[None]:
        await self._room.acquire()
        self._raise_failure_releasing()
        task = asyncio.create_task(self._deliver(lane))
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

    async def _deliver(self, lane: _Lane) -> None:
        left = lane.rows

        async def send() -> None:
            nonlocal left
            try:
                if len(left) == 1:
                    results = [await self._producer.send(left[0], queue=lane.queue)]
                else:
                    results = await self._producer.send_batch(left, queue=lane.queue)
            except PartlySent as error:
                self._count(left[: error.sent], 0)
                left = left[error.sent :]
                raise error.__cause__ or error from None
            unsafe = sum(result.status is not SendStatus.SEND_OK for result in results)
            self._count(left, unsafe)

        await self._retried(send)

    async def _retried(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Work, done again while brokers do not answer."""
        since_ns = self._clock.monotonic_ns()
        wait_ms = _RETRY_FIRST_MS
        while True:
            try:
                return await work()
            except ClientError as error:
                limit_ms = self._options.retry_timeout_ms
                if isinstance(error, NoRoute):
                    # Of a topic that there is not, this is all there will ever be.
                    limit_ms = min(limit_ms, NO_ROUTE_TIMEOUT_MS)
                elif not error.retriable:
                    raise
                if (self._clock.monotonic_ns() - since_ns) // 1_000_000 >= limit_ms:
                    raise
                log.info("Trying again: %s", error.message)
            await asyncio.sleep(wait_ms / 1000)
            wait_ms = min(wait_ms * 2, _RETRY_MAX_MS)

    def _count(self, messages: list[Message], less_safe: int) -> None:
        self.sent.rows += len(messages)
        self.sent.body_bytes += sum(len(message.body) for message in messages)
        self.sent.less_safe += less_safe
