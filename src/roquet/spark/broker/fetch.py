"""Reads a task's range of a queue.

Owns the pulls of a task. A range is read in chunks, several at a time, because a broker returns
few messages per request (32 by default, 8 from disk) and each request costs a round trip. The
chunks are returned in order, as undecoded records.

Invariants:

* Nothing is skipped silently: records come in the order of their offsets, without a gap unless
  there is a filter. A gap is an error, or with ``failOnDataLoss=false`` a warning.
* Buffers are bounded: a chunk that gets long pauses until it is the next to return.
* Pulls are retried while the broker is unreachable, up to a timeout.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from dataclasses import dataclass

from roquet.client.expression import subscription_of
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import Lifetime
from roquet.client.pull_api import PullApi, PulledRecords, PullStatus
from roquet.errors import ClientError, NoRoute, RoquetError
from roquet.format.record_layout import RECORD
from roquet.model import sys_flag as flags
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SUBSCRIBE_ALL
from roquet.spark.broker.offsets import queue_text
from roquet.spark.broker.planning import Loss, QueueRange, lost
from roquet.spark.broker.read_options import ReadOptions

__all__ = ["Fetch", "FetchedRecords"]

log = logging.getLogger(__name__)

CHUNKS_AT_ONCE = 8
CHUNK_OFFSETS_MAX = 1_024
CHUNK_BYTES = 1 << 20
CHUNK_BYTES_MAX = 4 << 20
ATTEMPTS_MIN = 3
_RETRY_FIRST_MS = 50
_RETRY_MAX_MS = 2_000
_ABSENT_RETRY_MS = 100

_HEAD = RECORD.only("totalSize", "queueOffset", "sysFlag")
_WRAPPED = flags.INNER_BATCH | flags.NEED_UNWRAP


@dataclass(frozen=True, kw_only=True)
class FetchedRecords:
    """Records of one response, cut to the requested offsets.

    Attributes:
        data: Concatenated records in the format of the commit log.
        offset_delta: What a static topic adds to the offsets in the records.
        start_offset: The first requested offset.
        end_offset: The end of the requested offsets, exclusive.
        is_plain: Whether every record is a single message with a requested offset.
    """

    data: bytes
    offset_delta: int
    start_offset: int
    end_offset: int
    is_plain: bool


@dataclass(frozen=True)
class _Chunk:
    """The records read from a chunk so far, and where reading paused."""

    pieces: list[FetchedRecords]
    stopped_at: int


class Fetch(Lifetime):
    """Reads a range of a queue.

    Args:
        options: How to read.
        wanted: The range.
    """

    def __init__(self, options: ReadOptions, wanted: QueueRange) -> None:
        self._options = options
        self._wanted = wanted
        self._next_offset = wanted.start_offset
        self._chunks: deque[tuple[int, asyncio.Task[_Chunk]]] = deque()
        self._read_bytes = 0
        self._read_offsets = 0
        self._running: _Puller | None = None

    async def start(self) -> None:
        """Start the client; sends no request yet."""
        client = await ClientInstance.open(self._options.client)
        self._running = _Puller(client, self._options, self._wanted.queue)

    async def close(self) -> None:
        """Close the client, even in the middle of the range."""
        tasks = [task for _, task in self._chunks]
        self._chunks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        running, self._running = self._running, None
        if running is not None:
            await running.client.close()

    async def next(self) -> list[FetchedRecords] | None:
        """Return the next records in order; ``None`` at the end.

        Raises:
            DataLost: Messages are missing, and ``failOnDataLoss`` is on.
            ClientError: The broker refused, or was unreachable for too long.
            ProtocolError: A response cannot be decoded.
        """
        self._fill()
        if not self._chunks:
            return None
        end_offset, task = self._chunks.popleft()
        chunk = await task
        if chunk.stopped_at < end_offset:
            self._chunks.appendleft(
                (end_offset, asyncio.create_task(self._read(chunk.stopped_at, end_offset)))
            )
        self._fill()
        return chunk.pieces

    def _fill(self) -> None:
        # The size of records is unknown until the first chunk has been read.
        most = CHUNKS_AT_ONCE if self._read_offsets else 1
        while len(self._chunks) < most and self._next_offset < self._wanted.end_offset:
            start = self._next_offset
            self._next_offset = min(start + self._chunk_offsets(), self._wanted.end_offset)
            task = asyncio.create_task(self._read(start, self._next_offset))
            self._chunks.append((self._next_offset, task))

    def _chunk_offsets(self) -> int:
        if not self._read_offsets:
            return self._options.pull_batch
        mean_bytes = self._read_bytes // self._read_offsets + 1
        return max(1, min(CHUNK_OFFSETS_MAX, CHUNK_BYTES // mean_bytes))

    async def _read(self, start_offset: int, end_offset: int) -> _Chunk:
        assert self._running is not None
        at = start_offset
        pieces: list[FetchedRecords] = []
        held_bytes = 0
        while at < end_offset and held_bytes < CHUNK_BYTES_MAX:
            found = await self._running.pull(at, end_offset)
            if found.status is PullStatus.FOUND:
                pieces += self._running.cut(found, at, end_offset)
                held_bytes += len(found.data)
            at = found.next_offset
        self._read_bytes += held_bytes
        self._read_offsets += min(at, end_offset) - start_offset
        return _Chunk(pieces, min(at, end_offset))


class _Puller:
    """Pulls one queue across restarts of its broker, and reports missing messages."""

    def __init__(self, client: ClientInstance, options: ReadOptions, queue: MessageQueue) -> None:
        self.client = client
        self._options = options
        self._queue = queue
        self._wire = MessageQueue(client.wrap(queue.topic), queue.broker_name, queue.queue_id)
        self._api = PullApi(client, client.wrap(options.group))
        self._subscription = subscription_of(self._wire.topic, options.expression, version_ms=0)
        self._is_filtered = options.expression != SUBSCRIBE_ALL

    async def pull(self, at: int, end_offset: int) -> PulledRecords:
        """Return a response that makes progress: its next offset is greater than ``at``."""
        silent_since_ns = self.client.clock.monotonic_ns()
        wait_ms = _RETRY_FIRST_MS
        for attempt in itertools.count(1):
            waited_ms = (self.client.clock.monotonic_ns() - silent_since_ns) // 1_000_000
            # While Spark consumes rows the loop does not run, but the clock does.
            is_last = waited_ms >= self._options.retry_timeout_ms and attempt >= ATTEMPTS_MIN
            try:
                found = await self._api.pull_records(
                    self._wire,
                    at,
                    subscription=self._subscription,
                    max_messages=min(self._options.pull_batch, end_offset - at)
                    if not self._is_filtered
                    else self._options.pull_batch,
                    timeout_ms=self._options.pull_timeout_ms,
                )
            except ClientError as error:
                if is_last or not (error.retriable or isinstance(error, NoRoute)):
                    raise self._failed(error, at) from error
                log.info("Retrying %s: %s", queue_text(self._queue), error.message)
                self._api.forget(self._wire)
                await asyncio.sleep(wait_ms / 1000)
                await self._refresh_route()
            else:
                is_doubtful = self._is_doubtful(found, at) and attempt < ATTEMPTS_MIN
                if found.next_offset > at and not is_doubtful:
                    self._check_loss(found, at, end_offset)
                    return found
                # A slave may lag behind, and a broker may still be recovering its queues.
                if is_last:
                    why = f"the queue ends at {found.max_offset}, it may have been recreated"
                    self._report(Loss(self._queue, at, end_offset, why))
                    return _nothing(found, end_offset)
                self._api.forget(self._wire)
                await asyncio.sleep(max(wait_ms, _ABSENT_RETRY_MS) / 1000)
            wait_ms = min(wait_ms * 2, _RETRY_MAX_MS)
        raise AssertionError("counting never ends")

    async def _refresh_route(self) -> None:
        try:
            await self.client.routes.route(self._wire.topic, refresh=True)
        except RoquetError as error:
            log.debug("%s", error.message)

    def _failed(self, error: ClientError, at: int) -> ClientError:
        return type(error)(
            f"Reading {queue_text(self._queue)} failed at offset {at}: {error.message}",
            detail=error.detail,
            hint=error.hint,
        )

    def _is_doubtful(self, found: PulledRecords, at: int) -> bool:
        """Whether the broker skips messages that its queue still has.

        It may be deleting them, but a slave that does not allow reads responds like this, too.
        """
        return (
            found.status is PullStatus.NO_MATCHED_MESSAGE
            and not self._is_filtered
            and found.min_offset <= at
        )

    def _check_loss(self, found: PulledRecords, at: int, end_offset: int) -> None:
        # Without a filter, a broker skips only messages that it is deleting.
        if found.status is PullStatus.FOUND or (
            found.status is PullStatus.NO_MATCHED_MESSAGE and self._is_filtered
        ):
            return
        upto = min(found.next_offset, end_offset)
        why = f"removed by retention, the queue begins at {found.min_offset}"
        self._report(Loss(self._queue, at, upto, why))

    def _report(self, loss: Loss) -> None:
        if self._options.fail_on_data_loss:
            raise lost([loss])
        log.warning("%s", loss)

    def cut(self, found: PulledRecords, at: int, end_offset: int) -> list[FetchedRecords]:
        """Return the requested records of a response, and check gaps between them."""
        data, delta = found.data, found.offset_delta
        position, begin, end = 0, -1, 0
        expected = at
        is_plain = True
        while position < len(data):
            if len(data) - position < _HEAD.size:
                is_plain = False
                break
            size, queue_offset, sys_flag = _HEAD.unpack_from(data, position)
            queue_offset += delta
            if size <= _HEAD.size or position + size > len(data) or sys_flag & _WRAPPED == _WRAPPED:
                is_plain = False
                break
            if queue_offset >= end_offset:
                break
            if queue_offset >= at:
                if queue_offset != expected and not self._is_filtered:
                    why = "the broker skips them"
                    self._report(Loss(self._queue, expected, queue_offset, why))
                expected = queue_offset + 1
                begin = position if begin < 0 else begin
                end = position + size
            position += size
        if is_plain and begin < 0:
            return []
        return [
            FetchedRecords(
                data=data if not is_plain or (begin, end) == (0, len(data)) else data[begin:end],
                offset_delta=delta,
                start_offset=at,
                end_offset=end_offset,
                is_plain=is_plain,
            )
        ]


def _nothing(found: PulledRecords, next_offset: int) -> PulledRecords:
    return PulledRecords(
        status=PullStatus.NO_MATCHED_MESSAGE,
        next_offset=next_offset,
        min_offset=found.min_offset,
        max_offset=found.max_offset,
        offset_delta=0,
        data=b"",
    )
