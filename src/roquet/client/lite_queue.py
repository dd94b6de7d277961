"""The cache of a lite pull consumer: messages that were pulled and not polled yet.

Owns :class:`LiteQueue`, the state of one queue, and :class:`LiteCache`, the line of queues with
messages.

Invariants:

* Batches of a queue are taken in the order of its offsets.
* A dropped queue returns no more messages; after a seek, nothing from before it is returned.
* The number of cached messages is bounded, per queue and in total, plus at most one pull.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from roquet.client.lite_options import LitePullOptions
from roquet.client.message import ReceivedMessage
from roquet.errors import RoquetError
from roquet.model.message_queue import MessageQueue

__all__ = ["LiteBatch", "LiteCache", "LiteQueue"]


class LiteBatch(NamedTuple):
    """Messages of one pull.

    Attributes:
        queue: Their queue.
        messages: At least one.
        next_offset: The group's offset once they are consumed.
        generation: The queue's generation at the time of the pull.
    """

    queue: LiteQueue
    messages: list[ReceivedMessage]
    next_offset: int
    generation: int

    @property
    def is_stale(self) -> bool:
        """Whether the queue was dropped or had a seek since."""
        return self.queue.is_dropped or self.generation != self.queue.generation


class LiteQueue:
    """A queue that a consumer reads.

    Attributes:
        queue: Its name on the wire.
        pull_offset: The next offset to pull; ``None`` before the first pull.
        handed_offset: The offset after the messages that the caller has got; ``None`` before the
            first pull.
        generation: Increases with every seek.
        is_dropped: Whether the queue belongs to another client now.
        resumed: Set unless the queue is paused.
        task: The task that pulls it.
        pulled_ms: When it was last pulled.
        polled_ms: When messages of it were last taken.
    """

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.pull_offset: int | None = None
        self.handed_offset: int | None = None
        self.generation = 0
        self.is_dropped = False
        self.resumed = asyncio.Event()
        self.resumed.set()
        self.task: asyncio.Task[None] | None = None
        self.pulled_ms = 0
        self.polled_ms = 0
        self.batches: deque[LiteBatch] = deque()
        self.cached_messages = 0
        self.cached_bytes = 0

    @property
    def cached_span(self) -> int:
        """The span of the cached offsets."""
        if not self.batches:
            return 0
        first, last = self.batches[0].messages[0], self.batches[-1].messages[-1]
        return last.queue_offset - first.queue_offset


class LiteCache:
    """The messages of all queues that wait to be polled.

    Args:
        options: The limits.
    """

    def __init__(self, options: LitePullOptions) -> None:
        self._options = options
        # A queue is in line once for each of its batches, and more often after a seek.
        self._line: deque[LiteQueue] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._messages = 0
        self._problems: dict[object, RoquetError] = {}
        self._is_closed = False

    def put(self, batch: LiteBatch) -> None:
        """Put a batch at the end of the line."""
        queue = batch.queue
        queue.batches.append(batch)
        self._count(batch, 1)
        self._line.append(queue)
        self._arrived.set()

    def report(self, source: object, problem: RoquetError) -> None:
        """Have the next take without messages raise this, unless the source recovers first."""
        self._problems[source] = problem
        self._arrived.set()

    def is_well(self, source: object) -> None:
        """Clear the reported problem of a source."""
        self._problems.pop(source, None)

    def close(self) -> None:
        """Close the cache, and wake all waiters."""
        self._is_closed = True
        self._arrived.set()

    def clear(self, queue: LiteQueue) -> None:
        """Discard the cached messages of a queue."""
        for batch in queue.batches:
            self._count(batch, -1)
        queue.batches.clear()
        self._room.set()

    async def take(self, timeout_ms: int | None) -> LiteBatch | None:
        """Return the next batch; ``None`` if none comes in time, or the cache is closed.

        Raises:
            RoquetError: There are no messages, and a problem was reported.
        """
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while (batch := self._pop()) is None and not self._is_closed:
                    if self._problems:
                        raise self._problems.pop(next(iter(self._problems)))
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return None
        return batch

    async def wait_room(self, queue: LiteQueue) -> None:
        """Wait until more messages of a queue may be pulled."""
        while self._is_full(queue):
            self._room.clear()
            await self._room.wait()

    def _is_full(self, queue: LiteQueue) -> bool:
        options = self._options
        return (
            self._messages > options.cached_messages_max_of_all
            or queue.cached_messages > options.cached_messages_max
            or queue.cached_bytes > options.cached_mib_max << 20
            or queue.cached_span > options.span_max
        )

    def _pop(self) -> LiteBatch | None:
        while self._line:
            queue = self._line.popleft()
            if queue.batches and not queue.is_dropped:
                batch = queue.batches.popleft()
                self._count(batch, -1)
                self._room.set()
                return batch
        return None

    def _count(self, batch: LiteBatch, sign: int) -> None:
        count = sign * len(batch.messages)
        self._messages += count
        batch.queue.cached_messages += count
        batch.queue.cached_bytes += sign * sum(each.store_size for each in batch.messages)
