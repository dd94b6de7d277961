"""Pulls that wait for a first message.

Upstream's PullRequestHoldService, with PullRequest and ManyPullRequest. Owns the pulls that found
nothing and may wait, by queue and by connection, until one of these:

* Entries arrive in their queue of which one passes their filter: they are woken in the burst that
  brought the entries.
* Their group is told to go on somewhere else.
* The sweep, every five seconds, finds their time over or their queue longer than they know.
* Their connection closes: they are dropped.

Invariants:

* A pull waits in one queue, and is woken once or dropped.
* How many wait is bounded, for one connection and in all.
* At most :data:`WAKE_BATCH` pulls are woken in one turn of the loop, whatever their queues; the
  others follow in the next turns in the order in which they were due, so that a crowd holds up
  nobody.
* A queue on which nobody waits costs one lookup a burst.

Everything happens on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from roquet.broker.config import BrokerConfig
from roquet.format.consume_queue import UNIT, UNIT_BYTES
from roquet.format.consume_queue_ext import CqExtUnit, is_ext_address
from roquet.remoting.headers.pull import PullMessageRequestHeader
from roquet.remoting.processor import RequestContext
from roquet.runtime.clock import Clock
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.reader import MessageFilter, QueueFilter, RecordFilter
from roquet.store.results import Bytes

if TYPE_CHECKING:
    from roquet.remoting.connection import Connection

__all__ = ["HeldPull", "PullRequestHoldService", "sweep_interval_ms"]

log = logging.getLogger(__name__)

LONG_POLLING_SWEEP_MS = 5_000
WAKE_BATCH = 32
SWEEP_BATCH = 2_000
"""Pulls that a sweep looks at in one turn of the loop."""
HELD_MAX = 100_000
HELD_PER_CONNECTION_MAX = 10_000
_CHECKED_ENTRIES_MAX = 1_024
"""Entries of one burst whose tags are looked at; more of them wake everybody."""

_JUDGED_READS_MAX = 4
"""What is judged by expressions when a burst arrives, in reads of pulls that wait for it; whoever
is left then is woken."""

_Entry = tuple[int, int, int, CqExtUnit | None]
"""A queue entry: physical offset, size, tags code, and its ext unit."""

CallSoon = Callable[[Callable[[], None]], object]
QueueKey = tuple[str, int]


class HeldPull:
    """One pull that waits.

    Attributes:
        context: The request, and the way to answer it.
        header: What it asks for.
        message_filter: What it wants; ``None`` for every message.
        deadline_ns: When its time is over, on the monotonic clock.
        is_due: Whether it waits for nothing but its turn to be woken.
        is_dropped: Whether its connection is gone.
    """

    __slots__ = ("context", "deadline_ns", "header", "is_dropped", "is_due", "message_filter")

    def __init__(
        self,
        context: RequestContext,
        header: PullMessageRequestHeader,
        message_filter: MessageFilter | None,
        *,
        deadline_ns: int,
    ) -> None:
        self.context = context
        self.header = header
        self.message_filter = message_filter
        self.deadline_ns = deadline_ns
        self.is_due = False
        self.is_dropped = False


class _Waiting:
    """The pulls of one queue.

    ``seen_offset`` is the end of the entries that were compared with the filters.
    """

    __slots__ = ("pulls", "seen_offset")

    def __init__(self, seen_offset: int) -> None:
        self.pulls: dict[HeldPull, None] = {}
        self.seen_offset = seen_offset


class PullRequestHoldService:
    """Keeps pulls until there is something for them.

    Args:
        clock: Time.
        max_offset: The end of a queue, by topic and queue id.
        record_at: A record that just arrived, by its place in the log and its size.
        sweep_interval_ms: How often :meth:`check_hold_requests` is to be called.
        held_max: Pulls that may wait in all.
        held_per_connection_max: Pulls of one connection that may wait.
        call_soon: Has something called in the next turn of the loop.

    Attributes:
        wake: Answers a pull that waited; set by whoever suspends pulls.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        max_offset: Callable[[str, int], int],
        record_at: Callable[[int, int], Bytes | None],
        sweep_interval_ms: int = LONG_POLLING_SWEEP_MS,
        held_max: int = HELD_MAX,
        held_per_connection_max: int = HELD_PER_CONNECTION_MAX,
        call_soon: CallSoon | None = None,
    ) -> None:
        self.sweep_interval_ms = sweep_interval_ms
        self.wake: Callable[[HeldPull], None] = _nobody
        self._clock = clock
        self._max_offset = max_offset
        self._record_at = record_at
        self._held_max = held_max
        self._held_per_connection_max = held_per_connection_max
        self._call_soon = call_soon or _call_soon
        self._queues: dict[QueueKey, _Waiting] = {}
        self._connections: dict[Connection, set[HeldPull]] = {}
        self._count = 0
        self._due: deque[HeldPull] = deque()
        self._left_in_turn = WAKE_BATCH
        self._awaits_turn = False
        self._unswept: list[QueueKey] = []

    def __len__(self) -> int:
        return self._count

    def held_of(self, connection: Connection) -> int:
        """How many pulls of a connection wait."""
        return len(self._connections.get(connection, ()))

    # -- waiting ------------------------------------------------------------------------------

    def suspend(self, held: HeldPull) -> bool:
        """Keep a pull until there is something for it; false when too many wait already."""
        connection = held.context.connection
        of_connection = self._connections.get(connection)
        if of_connection is None:
            # Kept until the connection closes, so that it is listened to once.
            of_connection = self._connections[connection] = set()
            connection.on_close(self.connection_closed)
        if self._count >= self._held_max or len(of_connection) >= self._held_per_connection_max:
            return False
        key = (held.header.topic, held.header.queue_id)
        end_offset = self._max_offset(*key)
        waiting = self._queues.get(key)
        if waiting is None:
            waiting = self._queues[key] = _Waiting(end_offset)
        self._count += 1
        of_connection.add(held)
        waiting.pulls[held] = None
        if end_offset > held.header.queue_offset:
            # Something arrived between the read, in a thread, and now.
            self._wake_some(key, waiting, lambda each: each is held)
        return True

    def connection_closed(self, connection: Connection) -> None:
        """Drop the pulls of a connection that is gone."""
        for held in self._connections.pop(connection, ()):
            held.is_dropped = True
            self._count -= 1
            if not held.is_due:
                key = (held.header.topic, held.header.queue_id)
                self._take_out(key, self._queues[key], held)

    # -- waking -------------------------------------------------------------------------------

    def notify_arriving(self, queue: ConsumeQueue) -> None:
        """Wake those who wait for what a burst brought into a queue."""
        key = (queue.topic, queue.queue_id)
        waiting = self._queues.get(key)
        if waiting is None:
            return
        end_offset = queue.max_queue_offset
        arrived: _Arrived | None = None
        if any(held.message_filter is not None for held in waiting.pulls):
            arrived = _arrived(queue, waiting.seen_offset, self._record_at)
        waiting.seen_offset = end_offset

        def is_for(held: HeldPull) -> bool:
            if held.header.queue_offset >= end_offset:
                return False
            wanted = held.message_filter
            return wanted is None or arrived is None or arrived.has(wanted)

        self._wake_some(key, waiting, is_for)

    def notify_reset(self, topic: str, queue_id: int, group: str) -> None:
        """Wake those of a group that is to go on somewhere else in a queue."""
        key = (topic, queue_id)
        waiting = self._queues.get(key)
        if waiting is not None:
            self._wake_some(key, waiting, lambda held: held.header.consumer_group == group)

    def check_hold_requests(self) -> None:
        """Wake those whose time is over, and those whose queue is longer than they know.

        The latter were passed over because their filter wants nothing of what came; they are
        answered all the same, so that their next pull starts behind it.
        """
        if not self._unswept:
            self._unswept = list(self._queues)
            self._sweep()

    def _sweep(self) -> None:
        now_ns = self._clock.monotonic_ns()
        looked_at = 0
        while self._unswept and looked_at < SWEEP_BATCH:
            key = self._unswept.pop()
            waiting = self._queues.get(key)
            if waiting is None:
                continue
            looked_at += len(waiting.pulls)
            self._sweep_queue(key, waiting, now_ns)
        if self._unswept:
            self._call_soon(self._sweep)

    def _sweep_queue(self, key: QueueKey, waiting: _Waiting, now_ns: int) -> None:
        end_offset = self._max_offset(*key)

        def is_due(held: HeldPull) -> bool:
            return held.deadline_ns <= now_ns or held.header.queue_offset < end_offset

        self._wake_some(key, waiting, is_due)

    def _wake_some(
        self, key: QueueKey, waiting: _Waiting, is_due: Callable[[HeldPull], bool]
    ) -> None:
        """Take those that are due out of a queue, and wake as many as may be in this turn."""
        for held in [held for held in waiting.pulls if is_due(held)]:
            held.is_due = True
            self._take_out(key, waiting, held)
            self._due.append(held)
        if self._due:
            self._wake_due()

    def _take_out(self, key: QueueKey, waiting: _Waiting, held: HeldPull) -> None:
        del waiting.pulls[held]
        if not waiting.pulls:
            del self._queues[key]

    def _wake_due(self) -> None:
        """Wake those who are due, as far as this turn of the loop allows."""
        due = self._due
        while due and self._left_in_turn:
            held = due.popleft()
            if not held.is_dropped:
                self._left_in_turn -= 1
                self._count -= 1
                self._connections[held.context.connection].discard(held)
                self._wake_one(held)
        if self._left_in_turn < WAKE_BATCH and not self._awaits_turn:
            self._awaits_turn = True
            self._call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._awaits_turn = False
        self._left_in_turn = WAKE_BATCH
        self._wake_due()

    def _wake_one(self, held: HeldPull) -> None:
        try:
            self.wake(held)
        except Exception:
            # One pull must not keep the others, nor the burst that woke them, from going on.
            log.exception("a pull of %s was not answered", held.context.connection.remote_address)


def sweep_interval_ms(config: BrokerConfig) -> int:
    """How often held pulls are looked at: with short polling as often as they may be asked for."""
    return LONG_POLLING_SWEEP_MS if config.long_polling else config.short_polling_ms


class _Arrived:
    """What a burst brought into a queue; looked at as far as somebody asks.

    Args:
        queue: The queue.
        units: Its new entries.
        record_at: A record by its place in the log and its size.
    """

    __slots__ = ("_codes", "_entries", "_queue", "_reads_left", "_record_at", "_units")

    def __init__(
        self, queue: ConsumeQueue, units: bytes, record_at: Callable[[int, int], Bytes | None]
    ) -> None:
        self._queue = queue
        self._units = units
        self._record_at = record_at
        self._codes: set[int] | None = None
        self._entries: list[_Entry] | None = None
        self._reads_left = float(_JUDGED_READS_MAX)

    def has(self, wanted: MessageFilter) -> bool:
        """Whether something is wanted, or may be and cannot be told cheaply."""
        try:
            if wanted.by_record is None:
                return wanted.by_queue is None or self._has_code(wanted.by_queue)
            return self._has_record(wanted, wanted.by_record)
        except Exception:
            # Whoever pulls is told of it; the burst goes on.
            log.exception("a filter failed")
            return True

    def _has_code(self, by_queue: QueueFilter) -> bool:
        if self._codes is None:
            if self._queue.ext is None:
                self._codes = {tags_code for _, _, tags_code in UNIT.iter_unpack(self._units)}
            else:
                self._codes = {tags_code for _, _, tags_code, _ in self._all_entries()}
        return any(is_ext_address(code) or by_queue(code, None) for code in self._codes)

    def _has_record(self, wanted: MessageFilter, by_record: RecordFilter) -> bool:
        entries = self._all_entries()
        reads = len(entries) / (wanted.entries_max or _CHECKED_ENTRIES_MAX)
        if reads > min(1, self._reads_left):
            return True
        self._reads_left -= reads
        by_queue = wanted.by_queue
        for physical_offset, size_bytes, tags_code, ext in entries:
            is_lost = ext is None and is_ext_address(tags_code)
            if by_queue is not None and not is_lost and not by_queue(tags_code, ext):
                continue
            record = self._record_at(physical_offset, size_bytes)
            if record is None or by_record(memoryview(record)):
                return True
        return False

    def _all_entries(self) -> list[_Entry]:
        """The entries with the tags codes of their ext units, where they have such."""
        if self._entries is None:
            self._entries = [
                self._entry(physical_offset, size_bytes, tags_code)
                for physical_offset, size_bytes, tags_code in UNIT.iter_unpack(self._units)
            ]
        return self._entries

    def _entry(self, physical_offset: int, size_bytes: int, tags_code: int) -> _Entry:
        if self._queue.ext is not None and is_ext_address(tags_code):
            unit = self._queue.ext.get(tags_code)
            if unit is not None:
                return physical_offset, size_bytes, unit.tags_code, unit
        return physical_offset, size_bytes, tags_code, None


def _arrived(
    queue: ConsumeQueue, seen_offset: int, record_at: Callable[[int, int], Bytes | None]
) -> _Arrived | None:
    """The entries from an offset on; ``None`` when they cannot be told cheaply."""
    count = queue.max_queue_offset - seen_offset
    if not 0 < count <= _CHECKED_ENTRIES_MAX:
        return None
    units = queue.read_units(seen_offset, count)
    if len(units) != count * UNIT_BYTES:
        return None
    return _Arrived(queue, units, record_at)


def _call_soon(callback: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_soon(callback)


def _nobody(held: HeldPull) -> None:
    raise RuntimeError(f"nobody answers {held.context.request.code_name}")
