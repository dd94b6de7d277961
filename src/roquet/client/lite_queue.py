"""What a lite pull consumer has of its queues: messages that came and were not polled yet.

Owns :class:`LiteQueue`, the state of one queue, and :class:`LiteCache`, the line in which the
queues with messages wait.

Invariants:

* Batches of a queue are taken in the order of its offsets.
* A queue that was dropped gives no more messages; after a seek, nothing from before it is given.
* How many messages are cached is bounded, per queue and in all, up to one pull more.
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
        next_offset: How far the group is when they are consumed.
        generation: The queue's at the time of the pull.
    """

    queue: LiteQueue
    messages: list[ReceivedMessage]
    next_offset: int
    generation: int

    @property
    def is_stale(self) -> bool:
        """Whether the queue was dropped or moved since."""
        return self.queue.is_dropped or self.generation != self.queue.generation


class LiteQueue:
    """One queue that a consumer reads.

    Attributes:
        queue: Its name on the wire.
        pull_offset: What to pull next; ``None`` before the first pull.
        handed_offset: How far the consumer's caller is, with what it has in hand; ``None``
            before the first pull.
        generation: Grows with every seek.
        is_dropped: Whether it is somebody else's now.
        resumed: Set unless the queue is paused.
        task: What pulls it.
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
        """How far the cached messages lie apart."""
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
        """Have a taker that finds no messages raise this, unless the source is well again."""
        self._problems[source] = problem
        self._arrived.set()

    def is_well(self, source: object) -> None:
        """Forget what was reported of a source."""
        self._problems.pop(source, None)

    def close(self) -> None:
        """Let everybody go who waits."""
        self._is_closed = True
        self._arrived.set()

    def clear(self, queue: LiteQueue) -> None:
        """Throw away what is cached of a queue."""
        for batch in queue.batches:
            self._count(batch, -1)
        queue.batches.clear()
        self._room.set()

    async def take(self, timeout_ms: int | None) -> LiteBatch | None:
        """The next batch; ``None`` if none comes in time, or the cache is closed.

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
