"""Fair turns: how one event loop is shared by all connections of an endpoint.

Owns the order in which requests outside the hot path are handled, and how long they may hold
the loop. Nothing here depends on sockets or frames; connections and their requests appear as
:class:`Waiter` and :class:`QueuedRequest`.

**Connections.** A connection takes frames in turns of at most :data:`TURN_NS` and
:data:`TURN_REQUESTS`, shorter ones while others wait. The rest stays in its decoder, and the
connection waits in one of three rings for its next turn:

.. code-block:: text

    ring    who waits there                                            share of the loop's pass
    FRESH   had no turn yet, because others have used up this pass     until 1/2 of BUDGET_NS
    BUSY    used up its last turn with sends, pulls, client requests   until 3/4
    ADMIN   used up its last turn, with a request of a queued class    until the end

A ring that is not empty gets at least one turn in every pass of the loop, and time that a ring does
not use goes to the next one. A connection that sends a request now and then is served as soon as it
is read; one that pipelines thousands of requests waits only for its own. The hot path is not
bounded by turns but by the bytes of a read; only its long output, that of pulls, counts as time of
the pass.

**Classes.** Each processor states the :class:`RequestClass` of its requests. SEND, PULL and CLIENT
are handled as they are taken. QUERY, ADMIN and HEAVY have queues like upstream's thread pools: a
class limits how many requests are in progress, how many wait, and for how long. Requests of a class
start in the order in which their connection sent them; connections take turns. A full queue refuses
requests with ``[OVERLOAD]``, except that each connection may have one request waiting, so that no
peer can lock others out. A request that waited too long is refused with ``[TIMEOUT_CLEAN_QUEUE]``.
Both are upstream's words, with SYSTEM_BUSY.

Everything runs on the event loop.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol, TypeAlias

__all__ = [
    "BUDGET_NS",
    "OVERLOAD",
    "SHORT_TURN_NS",
    "TURN_NS",
    "TURN_REQUESTS",
    "ClassLimits",
    "QueuedRequest",
    "RequestClass",
    "RequestInProgress",
    "Ring",
    "Turn",
    "TurnScheduler",
    "Waiter",
    "timed_out_remark",
]

TURN_NS = 2_000_000
"""How long one connection may hold the loop with requests outside the hot path."""

TURN_REQUESTS = 128
"""How many requests of a connection are handled in a turn."""

SHORT_TURN_NS = TURN_NS // 8
SHORT_TURN_REQUESTS = TURN_REQUESTS // 8
"""The same while other connections wait for a turn."""

BUDGET_NS = 4_000_000
"""How long all connections together may hold the loop in one pass, without the hot path."""

BUDGET_REQUESTS = 256
"""How many requests may be handled in one pass: each may start a task, which runs in the next."""

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
_TIMED_OUT = (
    "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
    "period in queue: {}ms, size of queue: {}"
)
_NS_IN_MS = 1_000_000


class RequestClass(Enum):
    """Requests of similar cost, grouped like upstream's thread pools."""

    SEND = "send"
    PULL = "pull"
    CLIENT = "client"
    """Heartbeats, offsets, locks: short, and clients rely on their order."""
    QUERY = "query"
    ADMIN = "admin"
    HEAVY = "heavy"
    """Administrators' requests that write files or may return megabytes."""


class ClassLimits(NamedTuple):
    """How many requests of a class may be in progress and wait.

    Attributes:
        workers: Requests in progress; those that complete at once do not count.
        capacity: Requests that wait.
        wait_ms: How long one may wait; ``None`` for no limit.
    """

    workers: int
    capacity: int
    wait_ms: int | None


DEFAULT_LIMITS: Mapping[RequestClass, ClassLimits] = {
    RequestClass.QUERY: ClassLimits(workers=16, capacity=20_000, wait_ms=None),
    RequestClass.ADMIN: ClassLimits(workers=16, capacity=10_000, wait_ms=5_000),
    RequestClass.HEAVY: ClassLimits(workers=2, capacity=10_000, wait_ms=5_000),
}
"""The queued classes, with upstream's numbers."""


class Ring(IntEnum):
    """Where a connection waits for a turn."""

    FRESH = 0
    BUSY = 1
    ADMIN = 2


_RING_ENDS_NS = (BUDGET_NS // 2, BUDGET_NS * 3 // 4, BUDGET_NS)


class Waiter(Protocol):
    """A connection that has frames left."""

    def take_turn(self) -> None:
        """Take frames for one turn; wait again if some are left."""
        ...


_Ring: TypeAlias = OrderedDict[Waiter, None]


class RequestInProgress(Protocol):
    """A request in progress."""

    def add_done_callback(self, callback: Callable[[object], None], /) -> object:
        """Add a callback for when it is done."""
        ...


class QueuedRequest(Protocol):
    """One request of a queued class."""

    @property
    def owner(self) -> Waiter:
        """The connection it came from."""
        ...

    def wait(self) -> None:
        """Called if the request has to wait."""
        ...

    def start(self) -> RequestInProgress | None:
        """Handle the request; return a future if it does not complete at once."""
        ...

    def refuse(self, remark: str) -> None:
        """Respond with SYSTEM_BUSY."""
        ...

    def drop(self) -> None:
        """Forget the request, because its connection is closed."""
        ...


def timed_out_remark(waited_ms: int, queue_size: int) -> str:
    """The remark for a request that waited too long."""
    return _TIMED_OUT.format(waited_ms, queue_size)


class Turn:
    """One connection's turn.

    Attributes:
        began_ns: When it began.
        requests: How many requests were handled.
        ring: Where the connection waits for its next turn, if it needs one.
    """

    __slots__ = ("_ends_ns", "_now_ns", "_requests_max", "began_ns", "requests", "ring")

    def __init__(self, now_ns: Callable[[], int], *, is_short: bool) -> None:
        self._now_ns = now_ns
        self._requests_max = SHORT_TURN_REQUESTS if is_short else TURN_REQUESTS
        self.began_ns = now_ns()
        self._ends_ns = self.began_ns + (SHORT_TURN_NS if is_short else TURN_NS)
        self.requests = 0
        self.ring = Ring.BUSY

    def goes_on(self) -> bool:
        """Count a handled request; return whether there is time for another."""
        self.requests += 1
        return self.requests < self._requests_max and self._now_ns() < self._ends_ns


class _Queue:
    """The waiting requests of one class, by connection."""

    __slots__ = ("limits", "running", "size", "waiting")

    def __init__(self, limits: ClassLimits) -> None:
        self.limits = limits
        self.running = 0
        self.size = 0
        self.waiting: OrderedDict[Waiter, deque[tuple[int, QueuedRequest]]] = OrderedDict()

    @property
    def has_worker(self) -> bool:
        return self.running < self.limits.workers

    def add(self, work: QueuedRequest, now_ns: int) -> bool:
        """Queue a request, unless there is no room for it."""
        mine = self.waiting.get(work.owner)
        if mine is not None and self.size >= self.limits.capacity:
            return False
        if mine is None:
            mine = self.waiting[work.owner] = deque()
        mine.append((now_ns, work))
        self.size += 1
        return True

    def pop(self) -> QueuedRequest:
        """The next request; its connection goes to the end of the line."""
        owner, mine = self.waiting.popitem(last=False)
        _, work = mine.popleft()
        if mine:
            self.waiting[owner] = mine
        self.size -= 1
        return work

    def pop_expired(self, now_ns: int, *, most: int) -> list[tuple[int, QueuedRequest]]:
        """Remove and return requests that waited too long, with their wait in milliseconds."""
        expired: list[tuple[int, QueuedRequest]] = []
        if self.limits.wait_ms is None:
            return expired
        deadline_ns = now_ns - self.limits.wait_ms * _NS_IN_MS
        for owner, mine in list(self.waiting.items()):
            while mine and mine[0][0] <= deadline_ns and len(expired) < most:
                since_ns, work = mine.popleft()
                expired.append(((now_ns - since_ns) // _NS_IN_MS, work))
            if not mine:
                del self.waiting[owner]
        self.size -= len(expired)
        return expired

    def forget(self, owner: Waiter) -> deque[tuple[int, QueuedRequest]]:
        """Remove all waiting requests of a connection."""
        mine = self.waiting.pop(owner, None) or deque()
        self.size -= len(mine)
        return mine


class TurnScheduler:
    """Shares the loop among the connections of an endpoint.

    Args:
        now_ns: The monotonic clock.
        call_soon: Calls a function in the next pass of the loop.
        call_later: Calls a function after a number of milliseconds.
        limits: The queued classes.

    Attributes:
        is_spent: Whether this pass has no time left for requests outside the hot path.
        queued: The classes that have a queue.
    """

    def __init__(
        self,
        now_ns: Callable[[], int],
        *,
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[int, Callable[[], None]], object],
        limits: Mapping[RequestClass, ClassLimits] | None = None,
    ) -> None:
        self.now_ns = now_ns
        self.is_spent = False
        self._call_soon = call_soon
        self._call_later = call_later
        self._rings: tuple[_Ring, ...] = tuple(OrderedDict() for _ in Ring)
        self._queues = {
            kind: _Queue(each) for kind, each in {**DEFAULT_LIMITS, **(limits or {})}.items()
        }
        self.queued = frozenset(self._queues)
        self._pass_began_ns = 0
        self._spent_ns = 0
        self._requests = 0
        self._is_running = False
        self._is_scheduled = False
        self._is_watching = False

    # ------------------------------------------------------------------------- connections

    def begin(self) -> Turn:
        """Begin the turn of a connection."""
        turn = Turn(self.now_ns, is_short=any(self._rings))
        self._begin_pass(turn.began_ns)
        return turn

    def end(self, turn: Turn) -> None:
        """End the turn of a connection."""
        self._requests += turn.requests
        if self._is_running:
            return
        self._spend(self.now_ns() - turn.began_ns)

    def spend(self, output_bytes: int) -> None:
        """Count what the hot path has written for a connection; a byte takes about a nanosecond."""
        if not self._is_running:
            self._begin_pass(self.now_ns())
            self._spend(output_bytes)

    def _begin_pass(self, now_ns: int) -> None:
        if now_ns - self._pass_began_ns > BUDGET_NS and not self.is_spent:
            # Without a backlog nothing marks the end of a pass; this is long enough.
            self._pass_began_ns = now_ns
            self._spent_ns = self._requests = 0

    def _spend(self, time_ns: int) -> None:
        self._spent_ns += time_ns
        if self._spent_ns >= BUDGET_NS or self._requests >= BUDGET_REQUESTS:
            self.is_spent = True
            self._schedule()

    def wait(self, waiter: Waiter, ring: Ring) -> None:
        """Give a connection another turn in a later pass of the loop."""
        self._rings[ring][waiter] = None
        self._schedule()

    def forget(self, waiter: Waiter) -> None:
        """Forget a closed connection and its requests."""
        for ring in self._rings:
            ring.pop(waiter, None)
        for queue in self._queues.values():
            for _, work in queue.forget(waiter):
                work.drop()

    # ----------------------------------------------------------------------------- classes

    def submit(self, kind: RequestClass, work: QueuedRequest) -> None:
        """Handle, queue or refuse a request of a queued class."""
        queue = self._queues[kind]
        if queue.has_worker and not queue.waiting:
            self._start(queue, work)
        elif not queue.add(work, self.now_ns()):
            work.refuse(OVERLOAD)
        else:
            work.wait()
            self._watch()

    def _start(self, queue: _Queue, work: QueuedRequest) -> None:
        pending = work.start()
        if pending is None:
            return
        queue.running += 1

        def ended(_: object) -> None:
            queue.running -= 1
            if queue.waiting:
                self._schedule()

        pending.add_done_callback(ended)

    # ----------------------------------------------------------------------------- passes

    def _schedule(self) -> None:
        if not (self._is_scheduled or self._is_running):
            self._is_scheduled = True
            self._call_soon(self._run)

    def _run(self) -> None:
        """One pass: turns for waiting connections, then requests of the queued classes."""
        self._is_scheduled = False
        self._is_running = True
        self.is_spent = False
        began_ns = self.now_ns()
        try:
            for ring, end_ns in zip(self._rings, _RING_ENDS_NS, strict=True):
                self._run_ring(ring, began_ns + end_ns)
            for queue in self._queues.values():
                self._run_queue(queue, began_ns + BUDGET_NS)
        finally:
            self._is_running = False
            self._pass_began_ns = self.now_ns()
            self._spent_ns = self._requests = 0
            if any(self._rings) or any(q.waiting and q.has_worker for q in self._queues.values()):
                self._schedule()

    def _run_ring(self, ring: _Ring, ends_ns: int) -> None:
        self._requests = 0
        for _ in range(BUDGET_REQUESTS):
            if not ring:
                return
            waiter, _ = ring.popitem(last=False)
            waiter.take_turn()
            if self.now_ns() >= ends_ns or self._requests >= BUDGET_REQUESTS // 2:
                return

    def _run_queue(self, queue: _Queue, ends_ns: int) -> None:
        for _ in range(TURN_REQUESTS):
            if not (queue.waiting and queue.has_worker):
                return
            self._start(queue, queue.pop())
            if self.now_ns() >= ends_ns:
                return

    def _watch(self) -> None:
        """Look for requests that wait too long, every tenth of the shortest limit."""
        waits = [q.limits.wait_ms for q in self._queues.values() if q.limits.wait_ms is not None]
        if waits and not self._is_watching:
            self._is_watching = True
            self._call_later(max(min(waits) // 10, 1), self._refuse_expired)

    def _refuse_expired(self) -> None:
        self._is_watching = False
        now_ns = self.now_ns()
        for queue in self._queues.values():
            expired = queue.pop_expired(now_ns, most=BUDGET_REQUESTS)
            for waited_ms, work in expired:
                work.refuse(timed_out_remark(waited_ms, queue.size))
            if len(expired) == BUDGET_REQUESTS and not self._is_watching:
                self._is_watching = True
                self._call_later(1, self._refuse_expired)
        if any(queue.waiting for queue in self._queues.values()):
            self._watch()
