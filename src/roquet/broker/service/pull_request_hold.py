"""Held pulls, which wait for messages.

Upstream's PullRequestHoldService, with ManyPullRequest. Owns the pulls that found nothing and may
wait, by queue and by connection, until one of these happens:

* An entry that passes their filter arrives in their queue: they are woken in the burst that
  brought it.
* Their group's offset is reset.
* The sweep, every five seconds, finds that they timed out or that their queue has grown.
* Their connection closes: they are dropped.

Invariants:

* A pull waits in one queue, and is woken once or dropped.
* The number of held pulls is bounded, per connection and in all. A connection above its limit
  releases its own oldest pull; above the total limit, the connection with the most releases its
  oldest. A released pull is woken and finds nothing, so that its client pulls again.
* Long pulls (:mod:`roquet.broker.service.held_pull`) together take at most
  :data:`LONG_PULLS_BYTES_MAX`; further long ones are refused, short ones are not.
* Per iteration of the loop at most :data:`WAKE_BATCH` pulls are woken and about
  :data:`SCAN_BATCH` scanned, whatever their queues. Connections take turns in both, so that one
  with many pulls does not delay the others.
* A queue without held pulls costs one lookup per burst; the cost of closing a connection is
  proportional to its pulls.
* A connection with more than :data:`UNPACKED_MAX` pulls has them packed, which saves memory but
  means decoding them again.

Everything runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from roquet.broker.config import BrokerConfig
from roquet.broker.service.held_pull import HeldPull, QueueKey
from roquet.broker.service.holder_counts import HolderCounts
from roquet.broker.service.pull_arrivals import ArrivedMessages, arrived
from roquet.runtime.clock import Clock
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.results import Bytes

if TYPE_CHECKING:
    from roquet.remoting.connection import Connection

__all__ = ["PullRequestHoldService", "sweep_interval_ms"]

log = logging.getLogger(__name__)

LONG_POLLING_SWEEP_MS = 5_000
WAKE_BATCH = 32
SCAN_BATCH = 1_000
"""Pulls that are scanned per iteration of the loop."""
SCAN_STRIDE = 50
"""Pulls of one connection that are scanned before the next connection's turn."""
HELD_MAX = 100_000
HELD_PER_CONNECTION_MAX = 10_000
GIVEN_UP_MAX = 1_000
"""Due pulls that one connection may have before further ones are refused."""
UNPACKED_MAX = 128
"""Pulls of one connection that are kept decoded."""
LONG_PULLS_BYTES_MAX = 32 << 20
"""Limit on the long pulls of all connections."""
CallSoon = Callable[[Callable[[], None]], object]


class _Waiting:
    """The pulls of one queue, by connection.

    ``seen_offset`` is the end of the entries that were compared with the filters, ``filtered`` how
    many pulls have a filter, ``is_scanned`` whether a scan for an arrival is under way, ``last``
    the pull that came last.
    """

    __slots__ = ("filtered", "is_scanned", "last", "pulls", "seen_offset")

    def __init__(self, seen_offset: int) -> None:
        self.pulls: dict[Connection, dict[HeldPull, None]] = {}
        self.seen_offset = seen_offset
        self.filtered = 0
        self.is_scanned = False
        self.last: HeldPull | None = None


class _Scan:
    """A scan of a queue's pulls, a few of each connection in turn."""

    __slots__ = ("ended", "is_due", "key", "rows")

    def __init__(
        self,
        key: QueueKey,
        waiting: _Waiting,
        is_due: Callable[[HeldPull], bool],
        ended: Callable[[], None] | None,
    ) -> None:
        self.key = key
        self.is_due = is_due
        self.ended = ended
        self.rows: deque[Iterator[HeldPull]] = deque(
            iter(list(row)) for row in waiting.pulls.values()
        )


class PullRequestHoldService:
    """Holds pulls until there are messages for them.

    Args:
        clock: Time.
        max_offset: The end of a queue, by topic and queue id.
        record_at: Returns a record that just arrived, by physical offset and size.
        sweep_interval_ms: How often :meth:`check_hold_requests` is to be called.
        held_max: The limit on all held pulls.
        held_per_connection_max: The limit per connection.
        packs: Whether pulls are packed. Not with hooks, which identify a request by its object.
        call_soon: Schedules a call for the next iteration of the loop.

    Attributes:
        wake: Responds to a held pull; set by the caller of :meth:`suspend`.
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
        packs: bool = True,
        call_soon: CallSoon | None = None,
    ) -> None:
        self.sweep_interval_ms = sweep_interval_ms
        self.wake: Callable[[HeldPull], None] = _nobody
        self._clock = clock
        self._max_offset = max_offset
        self._record_at = record_at
        self._held_max = held_max
        self._held_per_connection_max = held_per_connection_max
        self._unpacked_max = UNPACKED_MAX if packs else held_per_connection_max
        self._call_soon = call_soon or _call_soon
        self._queues: dict[QueueKey, _Waiting] = {}
        self._connections: dict[Connection, dict[HeldPull, None]] = {}
        self._most_held: HolderCounts[Connection] = HolderCounts()
        self._due: dict[Connection, deque[HeldPull]] = {}
        self._turns: deque[Connection] = deque()
        self._due_count = 0
        self._long_bytes = 0
        self._scans: deque[_Scan] = deque()
        self._left_to_wake = WAKE_BATCH
        self._left_to_scan = SCAN_BATCH
        self._awaits_turn = False
        self._unswept: list[QueueKey] = []

    def __len__(self) -> int:
        return self._most_held.total + self._due_count

    # -- waiting ------------------------------------------------------------------------------

    def suspend(self, held: HeldPull) -> bool:
        """Hold a pull; return false if too many are held already."""
        connection = held.connection
        of_connection = self._connections.get(connection)
        if of_connection is None:
            # Kept until the connection closes, so that there is one listener per connection.
            of_connection = self._connections[connection] = {}
            connection.on_close(self.connection_closed)
        if self._long_bytes + held.long_bytes > LONG_PULLS_BYTES_MAX:
            return False
        if not self._has_room(connection, len(of_connection)):
            return False
        key = held.key
        end_offset = self._max_offset(*key)
        waiting = self._queues.get(key)
        if waiting is None:
            waiting = self._queues[key] = _Waiting(end_offset)
        if len(of_connection) >= self._unpacked_max:
            held.pack(waiting.last or held)
        waiting.last = held
        of_connection[held] = None
        self._most_held.add(connection)
        self._long_bytes += held.long_bytes
        waiting.pulls.setdefault(connection, {})[held] = None
        waiting.filtered += held.message_filter is not None
        if end_offset > held.queue_offset:
            # A message arrived between the read, in a thread, and now.
            self._make_due(held)
            self._wake_due()
        return True

    def _has_room(self, connection: Connection, held_count: int) -> bool:
        """Make room for one more pull of a connection; return whether that was possible."""
        if held_count >= self._held_per_connection_max:
            greedy = connection
        elif self._most_held.total >= self._held_max:
            greedy = self._most_held.first()
        else:
            return True
        if greedy is connection and len(self._due.get(connection, ())) >= GIVEN_UP_MAX:
            return False
        self._make_due(next(iter(self._connections[greedy])))
        self._wake_due()
        return True

    def connection_closed(self, connection: Connection) -> None:
        """Drop the pulls of a closed connection."""
        for held in self._connections.pop(connection, ()):
            held.is_dropped = True
            self._take_out(held)
        self._most_held.remove(connection)
        for held in self._due.pop(connection, ()):
            held.is_dropped = True
            self._due_count -= 1

    # -- waking -------------------------------------------------------------------------------

    def notify_arriving(self, queue: ConsumeQueue) -> None:
        """Wake pulls whose messages a burst brought into a queue."""
        if not self._queues:
            return
        key = (queue.topic, queue.queue_id)
        waiting = self._queues.get(key)
        if waiting is None or waiting.is_scanned:
            return
        end_offset = queue.max_queue_offset
        news: ArrivedMessages | None = None
        if waiting.filtered:
            news = arrived(queue, waiting.seen_offset, self._record_at)
        waiting.seen_offset = end_offset

        def is_for(held: HeldPull) -> bool:
            if held.queue_offset >= end_offset:
                return False
            wanted = held.message_filter
            return wanted is None or news is None or news.has(wanted)

        def ended() -> None:
            waiting.is_scanned = False
            if queue.max_queue_offset > end_offset:
                self.notify_arriving(queue)

        waiting.is_scanned = True
        self._wake_some(_Scan(key, waiting, is_for, ended))

    def notify_reset(self, topic: str, queue_id: int, group: str) -> None:
        """Wake the pulls of a group whose offset in a queue was reset."""
        key = (topic, queue_id)
        waiting = self._queues.get(key)
        if waiting is not None:
            self._wake_some(_Scan(key, waiting, lambda held: held.consumer_group == group, None))

    def notify_remapped(self, topic: str, queue_id: int) -> None:
        """Wake all pulls of a queue that another broker may lead now."""
        key = (topic, queue_id)
        waiting = self._queues.get(key)
        if waiting is not None:
            self._wake_some(_Scan(key, waiting, lambda _: True, None))

    def notify_master_online(self) -> None:
        """Wake all pulls of a slave whose master is back, so that they are sent there."""
        for key, waiting in list(self._queues.items()):
            self._wake_some(_Scan(key, waiting, lambda _: True, None))

    def check_hold_requests(self) -> None:
        """Wake pulls that timed out, and those whose queue has grown.

        The latter were skipped because their filter matched nothing new; they get a response all
        the same, so that their next pull starts after those messages.
        """
        if not self._unswept:
            self._unswept = list(self._queues)
            self._sweep()

    def _sweep(self) -> None:
        """Scan queues, as many as one turn allows."""
        now_ns = self._clock.monotonic_ns()
        looked_at = 0
        while self._unswept and looked_at < SCAN_BATCH:
            key = self._unswept.pop()
            waiting = self._queues.get(key)
            if waiting is not None:
                looked_at += sum(map(len, waiting.pulls.values()))
                self._sweep_queue(key, waiting, now_ns)
        if self._unswept:
            self._call_soon(self._sweep)

    def _sweep_queue(self, key: QueueKey, waiting: _Waiting, now_ns: int) -> None:
        end_offset = self._max_offset(*key)

        def is_due(held: HeldPull) -> bool:
            return held.deadline_ns <= now_ns or held.queue_offset < end_offset

        self._wake_some(_Scan(key, waiting, is_due, None))

    def _wake_some(self, scan: _Scan) -> None:
        """Find the due pulls, and wake as many as this turn allows."""
        self._scans.append(scan)
        self._scan()
        self._wake_due()

    def _scan(self) -> None:
        """Continue the scans as far as this turn of the loop allows."""
        while self._scans and self._left_to_scan > 0:
            scan = self._scans[0]
            while scan.rows and self._left_to_scan > 0:
                row = scan.rows.popleft()
                looked_at = list(islice(row, SCAN_STRIDE))
                self._left_to_scan -= len(looked_at) + 1
                for held in looked_at:
                    if not held.is_due and not held.is_dropped and scan.is_due(held):
                        self._make_due(held)
                if len(looked_at) == SCAN_STRIDE:
                    scan.rows.append(row)
            if not scan.rows:
                self._scans.popleft()
                if scan.ended is not None:
                    scan.ended()
        if self._left_to_scan < SCAN_BATCH:
            self._await_turn()

    def _make_due(self, held: HeldPull) -> None:
        """Mark a pull as due, so that it is woken in its turn."""
        connection = held.connection
        held.is_due = True
        del self._connections[connection][held]
        self._most_held.subtract(connection)
        self._take_out(held)
        row = self._due.get(connection)
        if row is None:
            row = self._due[connection] = deque()
            self._turns.append(connection)
        row.append(held)
        self._due_count += 1

    def _take_out(self, held: HeldPull) -> None:
        key = held.key
        connection = held.connection
        waiting = self._queues[key]
        waiting.filtered -= held.message_filter is not None
        self._long_bytes -= held.long_bytes
        if waiting.last is held:
            waiting.last = None
        row = waiting.pulls[connection]
        del row[held]
        if not row:
            del waiting.pulls[connection]
            if not waiting.pulls:
                del self._queues[key]

    def _wake_due(self) -> None:
        """Wake due pulls, one of each connection in turn, as many as this turn allows."""
        while self._turns and self._left_to_wake:
            connection = self._turns.popleft()
            row = self._due.get(connection)
            if row is None:
                continue
            held = row.popleft()
            self._due_count -= 1
            if row:
                self._turns.append(connection)
            else:
                del self._due[connection]
            self._left_to_wake -= 1
            self._wake_one(held)
        if self._left_to_wake < WAKE_BATCH:
            self._await_turn()

    def _await_turn(self) -> None:
        if not self._awaits_turn:
            self._awaits_turn = True
            self._call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._awaits_turn = False
        self._left_to_wake = WAKE_BATCH
        self._left_to_scan = SCAN_BATCH
        self._scan()
        self._wake_due()

    def _wake_one(self, held: HeldPull) -> None:
        try:
            self.wake(held)
        except Exception:
            # One failing pull must not stop the others, nor the burst that woke them.
            log.exception("no response to a pull of %s", held.connection.remote_address)


def sweep_interval_ms(config: BrokerConfig) -> int:
    """How often held pulls are swept: with short polling, as often as they may time out."""
    return LONG_POLLING_SWEEP_MS if config.long_polling else config.short_polling_ms


def _call_soon(callback: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_soon(callback)


def _nobody(held: HeldPull) -> None:
    raise RuntimeError(f"no handler wakes {held.context.request.code_name}")
