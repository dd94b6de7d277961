"""How a task gets its part of a queue.

Owns the pulls of a task. A part is read in windows, several at a time, because a broker gives few
messages for a request (32 by default, 8 from the disk) and each takes a way there and back. The
windows come out in order, as records still unread.

Invariants:

* Nothing is passed over in silence: records are in the order of their offsets, without a gap when
  nothing is filtered. A gap is an error, or with ``failOnDataLoss=false`` a warning.
* What is held is bounded: a window that gets long stops, and goes on when it is its turn.
* A broker that does not answer is asked again until it has been silent for too long.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import struct
from collections import deque
from dataclasses import dataclass

from roquet.client.expression import subscription_of
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import Lifetime
from roquet.client.pull_api import PullApi, PulledRecords, PullStatus
from roquet.errors import ClientError, NoRoute, RoquetError
from roquet.model import sys_flag as flags
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SUBSCRIBE_ALL
from roquet.spark.broker.offsets import queue_text
from roquet.spark.broker.planning import Loss, QueueRange, lost
from roquet.spark.broker.read_options import ReadOptions

__all__ = ["Fetch", "Piece"]

log = logging.getLogger(__name__)

WINDOWS_AT_ONCE = 8
WINDOW_OFFSETS_MAX = 1_024
WINDOW_BYTES = 1 << 20
WINDOW_BYTES_MAX = 4 << 20
ATTEMPTS_MIN = 3
_RETRY_FIRST_MS = 50
_RETRY_MAX_MS = 2_000
_ABSENT_RETRY_MS = 100

# size, magic and crc, queue id, flag, queue offset, physical offset, system flag
_HEAD = struct.Struct(">i16xq8xi")
_WRAPPED = flags.INNER_BATCH | flags.NEED_UNWRAP


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Records of one answer, cut to the offsets that are wanted.

    Attributes:
        data: Records as a commit log has them, one behind the other.
        offset_delta: What a static topic adds to the offsets in the records.
        start_offset: Offsets below this one are not wanted.
        end_offset: Nor are this one and those above.
        is_plain: Whether every record is one message of a wanted offset.
    """

    data: bytes
    offset_delta: int
    start_offset: int
    end_offset: int
    is_plain: bool


@dataclass(frozen=True)
class _Window:
    """What was read of a window, and where it stopped."""

    pieces: list[Piece]
    stopped_at: int


class Fetch(Lifetime):
    """Reads a part of a queue.

    Args:
        options: How to read.
        wanted: The part.
    """

    def __init__(self, options: ReadOptions, wanted: QueueRange) -> None:
        self._options = options
        self._wanted = wanted
        self._next_offset = wanted.start_offset
        self._windows: deque[tuple[int, asyncio.Task[_Window]]] = deque()
        self._read_bytes = 0
        self._read_offsets = 0
        self._running: _Puller | None = None

    async def start(self) -> None:
        """Begin; nobody is asked yet."""
        client = await ClientInstance.open(self._options.client)
        self._running = _Puller(client, self._options, self._wanted.queue)

    async def close(self) -> None:
        """Leave, also in the middle."""
        tasks = [task for _, task in self._windows]
        self._windows.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        running, self._running = self._running, None
        if running is not None:
            await running.client.close()

    async def next(self) -> list[Piece] | None:
        """The next records, in order; ``None`` at the end.

        Raises:
            DataLost: Messages are missing, and that is an error.
            ClientError: The broker refused, or was silent for too long.
            ProtocolError: An answer cannot be read.
        """
        self._fill()
        if not self._windows:
            return None
        end_offset, task = self._windows.popleft()
        window = await task
        if window.stopped_at < end_offset:
            self._windows.appendleft(
                (end_offset, asyncio.create_task(self._read(window.stopped_at, end_offset)))
            )
        self._fill()
        return window.pieces

    def _fill(self) -> None:
        # How long records are is not known before the first window.
        most = WINDOWS_AT_ONCE if self._read_offsets else 1
        while len(self._windows) < most and self._next_offset < self._wanted.end_offset:
            start = self._next_offset
            self._next_offset = min(start + self._window_offsets(), self._wanted.end_offset)
            task = asyncio.create_task(self._read(start, self._next_offset))
            self._windows.append((self._next_offset, task))

    def _window_offsets(self) -> int:
        if not self._read_offsets:
            return self._options.pull_batch
        mean_bytes = self._read_bytes // self._read_offsets + 1
        return max(1, min(WINDOW_OFFSETS_MAX, WINDOW_BYTES // mean_bytes))

    async def _read(self, start_offset: int, end_offset: int) -> _Window:
        assert self._running is not None
        at = start_offset
        pieces: list[Piece] = []
        held_bytes = 0
        while at < end_offset and held_bytes < WINDOW_BYTES_MAX:
            found = await self._running.pull(at, end_offset)
            if found.status is PullStatus.FOUND:
                pieces += self._running.cut(found, at, end_offset)
                held_bytes += len(found.data)
            at = found.next_offset
        self._read_bytes += held_bytes
        self._read_offsets += min(at, end_offset) - start_offset
        return _Window(pieces, min(at, end_offset))


class _Puller:
    """Pulls of one queue that go on over restarts of its broker, and say what is missing."""

    def __init__(self, client: ClientInstance, options: ReadOptions, queue: MessageQueue) -> None:
        self.client = client
        self._options = options
        self._queue = queue
        self._wire = MessageQueue(client.wrap(queue.topic), queue.broker_name, queue.queue_id)
        self._api = PullApi(client, client.wrap(options.group))
        self._subscription = subscription_of(self._wire.topic, options.expression, version_ms=0)
        self._is_filtered = options.expression != SUBSCRIBE_ALL

    async def pull(self, at: int, end_offset: int) -> PulledRecords:
        """An answer that leads on: its next offset is behind ``at``."""
        silent_since_ns = self.client.clock.monotonic_ns()
        wait_ms = _RETRY_FIRST_MS
        for attempt in itertools.count(1):
            waited_ms = (self.client.clock.monotonic_ns() - silent_since_ns) // 1_000_000
            # While Spark is busy with rows the loop stands still, and time passes all the same.
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
                log.info("Trying %s again: %s", queue_text(self._queue), error.message)
                self._api.forget(self._wire)
                await asyncio.sleep(wait_ms / 1000)
                await self._refresh_route()
            else:
                is_doubtful = self._is_doubtful(found, at) and attempt < ATTEMPTS_MIN
                if found.next_offset > at and not is_doubtful:
                    self._check_loss(found, at, end_offset)
                    return found
                # A slave may not have it yet, nor a broker that is about to recover its queues.
                if is_last:
                    why = f"the queue ends at {found.max_offset}, it may have been made anew"
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
        """Whether the broker passes over messages that its queue still has.

        It may be removing them; but a slave that may not be read from answers so too.
        """
        return (
            found.status is PullStatus.NO_MATCHED_MESSAGE
            and not self._is_filtered
            and found.min_offset <= at
        )

    def _check_loss(self, found: PulledRecords, at: int, end_offset: int) -> None:
        # With no filter, a broker passes over only what it is removing.
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

    def cut(self, found: PulledRecords, at: int, end_offset: int) -> list[Piece]:
        """The wanted records of an answer; a gap between them is looked at."""
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
                    why = "the broker passes over them"
                    self._report(Loss(self._queue, expected, queue_offset, why))
                expected = queue_offset + 1
                begin = position if begin < 0 else begin
                end = position + size
            position += size
        if is_plain and begin < 0:
            return []
        return [
            Piece(
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
