"""Collects messages for a moment and sends them as one batch.

Owns the open batches. Messages of one topic, queue, tag and ``wait_store_ok`` share a batch, as in
Apache RocketMQ's client. A batch is sent when its time is up or it is large enough.

Invariants:

* Every message gets its own result or error; one whose caller stopped waiting is sent anyway,
  because it may already be on its way.
* The messages of a batch keep the order in which they were added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias

from roquet.client.message import Message, SendResult
from roquet.client.outgoing_message import batched_bytes, is_delayed
from roquet.model.message_queue import MessageQueue
from roquet.model.topic import is_retry_topic

__all__ = ["Accumulator"]

SendBatch: TypeAlias = Callable[
    [Sequence[Message], MessageQueue | None], Awaitable[Sequence[SendResult]]
]


class _Key(NamedTuple):
    topic: str
    queue: MessageQueue | None
    tags: str | None
    wait_store_ok: bool


class _Batch:
    __slots__ = ("messages", "results", "size_bytes", "timer", "wire_bytes")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.results: list[asyncio.Future[SendResult]] = []
        self.size_bytes = 0
        self.wire_bytes = 0
        self.timer: asyncio.TimerHandle | None = None


class Accumulator:
    """Collects messages into batches.

    Args:
        send: Sends a batch, and returns a result for each message.
        linger_ms: How long a message may wait.
        linger_bytes: A batch with this many body bytes is sent at once.
        max_bytes: The maximum size of a batch on the wire.
    """

    def __init__(
        self, send: SendBatch, *, linger_ms: int, linger_bytes: int, max_bytes: int
    ) -> None:
        self._max_bytes = max_bytes
        self._send = send
        self._linger_ms = linger_ms
        self._linger_bytes = linger_bytes
        self._open: dict[_Key, _Batch] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def takes(self, message: Message) -> bool:
        """Return whether a message may be part of a batch, and benefits from it."""
        return not (
            is_delayed(message)
            or message.system_properties
            or is_retry_topic(message.topic)
            or len(message.body) >= self._linger_bytes
        )

    async def send(self, message: Message, queue: MessageQueue | None) -> SendResult:
        """Send a message with others, and wait until a broker has stored it."""
        key = _Key(message.topic, queue, message.tags, message.wait_store_ok)
        batch = self._open.get(key)
        loop = asyncio.get_running_loop()
        wire_bytes = batched_bytes(message)
        if batch is not None and batch.wire_bytes + wire_bytes > self._max_bytes:
            self._close_batch(key)
            batch = None
        if batch is None:
            batch = self._open[key] = _Batch()
            batch.timer = loop.call_later(self._linger_ms / 1000, self._close_batch, key)
        result: asyncio.Future[SendResult] = loop.create_future()
        batch.messages.append(message)
        batch.results.append(result)
        batch.size_bytes += len(message.body)
        batch.wire_bytes += wire_bytes
        if batch.size_bytes >= self._linger_bytes:
            self._close_batch(key)
        return await result

    async def flush(self) -> None:
        """Send all waiting messages, and wait until that is done."""
        for key in list(self._open):
            self._close_batch(key)
        while self._sending:
            await asyncio.wait(list(self._sending))

    def _close_batch(self, key: _Key) -> None:
        batch = self._open.pop(key)
        if batch.timer is not None:
            batch.timer.cancel()
        task = asyncio.get_running_loop().create_task(self._send_batch(batch, key.queue))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_batch(self, batch: _Batch, queue: MessageQueue | None) -> None:
        try:
            results = await self._send(batch.messages, queue)
        except BaseException as error:
            for waiting in batch.results:
                if not waiting.done():
                    waiting.set_exception(error) if isinstance(
                        error, Exception
                    ) else waiting.cancel()
            if not isinstance(error, Exception):
                raise
            return
        for waiting, result in zip(batch.results, results, strict=True):
            if not waiting.done():
                waiting.set_result(result)
