"""The state shared by all connections of one server or client.

Owns the limits, the counters, the total of requests in flight, and the set of open connections.

Three limits keep memory bounded whatever peers do:

* Requests in flight, by number and by bytes, per connection and in total. Beyond them no further
  frame is taken and the socket is not read, so TCP slows the peer down.
* Bytes waiting to be written to one peer. Beyond the high water mark a server takes no requests
  from that peer until the low one is reached; a peer for which still more piles up (responses to
  requests in flight) is disconnected, and so is one that reads nothing for a while. A client keeps
  reading, because two sides that wait for each other to read would deadlock.
* Bytes held in total, half-read frames and unwritten responses together. Beyond the limit those
  that hold most are disconnected. Waiting would not help: half-read frames free nothing until their
  peers send the rest.

A frame has as long to arrive as a connection may be idle, however its bytes trickle in. Freed
memory that the allocator keeps is returned to the system once there is much of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from roquet.remoting.codes import LanguageCode
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.frame import MAX_FRAME_BYTES, SerializeType
from roquet.remoting.headers.base import Header
from roquet.remoting.hooks import RpcHook
from roquet.remoting.hot_reader import HotPath
from roquet.remoting.processor import ProcessorRegistry, Response
from roquet.remoting.read_budget import ReadBudget
from roquet.remoting.turn_scheduler import ClassLimits, RequestClass, TurnScheduler
from roquet.runtime.clock import Clock
from roquet.runtime.garbage import ReclaimableMemory
from roquet.runtime.memory import give_back

if TYPE_CHECKING:
    from roquet.remoting.connection import Connection
    from roquet.remoting.input import Input

__all__ = ["Endpoint", "LogLimiter", "RemotingLimits", "RemotingStatistics", "server_limits"]

log = logging.getLogger(__name__)

_Positive = Annotated[int, Meta(ge=1)]

READ_BUFFER_BYTES = 512 << 10
"""The size of the read buffer: one read, and the leftover bytes of the connection's last one."""

NETTY_HIGH_BYTES = 64 << 10
NETTY_LOW_BYTES = 32 << 10
"""Netty's water marks."""

WATCH_STEP = 500
"""How many connections are checked in one pass of the loop."""

GIVE_BACK_BYTES = 8 << 20
"""After this much was freed, memory is returned to the system."""


class RemotingLimits(Struct, frozen=True, kw_only=True):
    """How much peers may make us hold.

    Attributes:
        max_frame_bytes: The longest frame to accept.
        max_connections: Connections of a server; further ones are closed at once.
        max_in_flight: Requests in flight of one connection.
        max_in_flight_bytes: Bytes of those requests.
        max_in_flight_in_all: Requests in flight of all connections.
        max_in_flight_bytes_in_all: Bytes of those requests.
        write_high_bytes: Unwritten bytes of a connection beyond which its requests wait.
        write_low_bytes: Requests are taken again once there are no more than this.
        write_max_bytes: Unwritten bytes of a connection beyond which it is closed.
        write_stall_ms: How long a peer may read nothing while bytes are unwritten.
        max_held_bytes: Half-read and unwritten bytes of all connections.
        max_outgoing: Our pending requests on one connection.
        idle_timeout_ms: A connection without traffic is closed after this; upstream's 120 s.
    """

    max_frame_bytes: _Positive = MAX_FRAME_BYTES
    max_connections: _Positive = 20_000
    max_in_flight: _Positive = 4_096
    max_in_flight_bytes: _Positive = 32 << 20
    max_in_flight_in_all: _Positive = 100_000
    max_in_flight_bytes_in_all: _Positive = 64 << 20
    write_high_bytes: _Positive = 4 << 20
    write_low_bytes: _Positive = 1 << 20
    write_max_bytes: _Positive = 32 << 20
    write_stall_ms: _Positive = 30_000
    max_held_bytes: _Positive = 80 << 20
    max_outgoing: _Positive = 65_535
    idle_timeout_ms: _Positive = 120_000


def server_limits(
    *,
    idle_timeout_ms: int,
    write_high_bytes: int = 0,
    write_low_bytes: int = 0,
    **others: int,
) -> RemotingLimits:
    """The limits of a server; as upstream, Netty's water marks unless both are given."""
    if not (write_high_bytes and write_low_bytes):
        write_high_bytes, write_low_bytes = NETTY_HIGH_BYTES, NETTY_LOW_BYTES
    return RemotingLimits(
        idle_timeout_ms=idle_timeout_ms,
        write_high_bytes=write_high_bytes,
        write_low_bytes=write_low_bytes,
        **others,
    )


class RemotingStatistics(Struct, kw_only=True):
    """Counters of an endpoint.

    Attributes:
        connections_opened: Connections opened.
        connections_closed: Connections closed, for any reason.
        connections_refused: Closed at once, because there were too many.
        idle_closed: Closed because they had no traffic.
        overload_closed: Closed because they held too much memory, or for too long.
        tls_refused: Handshakes that failed, or plain text where TLS is enforced.
        bad_frames: Connections closed because of an invalid frame or header.
        requests: Requests received.
        requests_unknown: Requests with a code that has no processor.
        processor_errors: Requests whose processor or hook failed unexpectedly.
        requests_sent: Requests that we sent.
        unmatched_responses: Responses without a pending request, mostly late ones.
        reading_paused: How often a connection was not read because of a limit.
    """

    connections_opened: int = 0
    connections_closed: int = 0
    connections_refused: int = 0
    idle_closed: int = 0
    overload_closed: int = 0
    tls_refused: int = 0
    bad_frames: int = 0
    requests: int = 0
    requests_unknown: int = 0
    processor_errors: int = 0
    requests_sent: int = 0
    unmatched_responses: int = 0
    reading_paused: int = 0


class LogLimiter:
    """Lets one message of a kind through in an interval, so that no peer can fill the log."""

    def __init__(self, clock: Clock, *, interval_ms: int = 1_000) -> None:
        self._clock = clock
        self._interval_ns = interval_ms * 1_000_000
        self._next_ns: dict[str, int] = {}
        self._suppressed: dict[str, int] = {}

    def allow(self, kind: str) -> str | None:
        """What to append to the message of that kind, or ``None`` to skip it."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._next_ns.get(kind, now_ns):
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return None
        self._next_ns[kind] = now_ns + self._interval_ns
        suppressed = self._suppressed.pop(kind, 0)
        return f" ({suppressed} more like this)" if suppressed else ""


class Endpoint:
    """The state shared by all connections of one server or client.

    Args:
        registry: Finds the processors of requests.
        limits: How much peers may make us hold.
        hooks: What runs around every request.
        clock: The time.
        language: The language that we report.
        serialize_type: How our headers are written. ``None``: responses like their requests,
            requests as JSON.
        reads_while_unwritten: Whether a peer that does not read is still read from.
        class_limits: How much of a request class may be in progress and wait, if not the default.
        reclaimable: Says when other memory is worth returning to the system.

    Attributes:
        turns: Shares the loop among the connections.
        reads: Shares the bytes that a pass of the loop reads.
        running: Requests in progress, kept alive.
        held_bytes: What all connections held when last counted.
        read_buffer: The buffer for the reads of all connections.
    """

    def __init__(
        self,
        registry: ProcessorRegistry,
        limits: RemotingLimits,
        *,
        hooks: Iterable[RpcHook],
        clock: Clock,
        language: LanguageCode,
        serialize_type: SerializeType | None,
        reads_while_unwritten: bool,
        class_limits: Mapping[RequestClass, ClassLimits] | None = None,
        reclaimable: ReclaimableMemory | None = None,
    ) -> None:
        self.registry = registry
        self.limits = limits
        self.hooks = list(hooks)
        self.clock = clock
        self.now_ns = clock.monotonic_ns
        self.language = language
        self.serialize_type = serialize_type
        self.reads_while_unwritten = reads_while_unwritten
        self.read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self.statistics = RemotingStatistics()
        self.log_limiter = LogLimiter(clock)
        self.reads = ReadBudget(_call_soon)
        self.turns = TurnScheduler(
            clock.monotonic_ns,
            call_soon=_call_soon,
            call_later=lambda wait_ms, run: asyncio.get_running_loop().call_later(
                wait_ms / 1000, run
            ),
            limits=class_limits,
        )
        self.connections: set[Connection] = set()
        self.burst_listeners: list[Callable[[], None]] = []
        self.response_listeners: list[Callable[[int], None]] = []
        self.hot_path: HotPath | None = None
        self.close_listeners: list[Callable[[Connection], None]] = []
        self.stopping = False
        self.handshakes: set[object] = set()
        self.in_flight = 0
        self.in_flight_bytes = 0
        self._next_connection_id = 0
        self.running: set[asyncio.Future[Response | None]] = set()
        self._blocked: OrderedDict[Input, None] = OrderedDict()
        self.held_bytes = 0
        self._freed_bytes = 0
        self._reclaimable = reclaimable
        self._is_counting = False
        self._watch: asyncio.TimerHandle | None = None

    @property
    def has_room(self) -> bool:
        """Whether one more connection is allowed."""
        return len(self.connections) + len(self.handshakes) < self.limits.max_connections

    def opened(self, connection: Connection) -> int:
        """Add a new connection, and return its number."""
        self.handshakes.discard(connection)
        self.connections.add(connection)
        self.statistics.connections_opened += 1
        self._next_connection_id += 1
        return self._next_connection_id

    def lost(self, connection: Connection) -> None:
        """Forget a connection that ended."""
        self.connections.discard(connection)
        self.turns.forget(connection.input)
        self.reads.forget(connection.input)
        self._blocked.pop(connection.input, None)
        self.statistics.connections_closed += 1
        for listener in self.close_listeners:
            asyncio.get_running_loop().call_soon(listener, connection)

    def request(
        self, code: int, header: Header | None, body: bytes, *, oneway: bool = False
    ) -> RemotingCommand:
        """Make a request of ours; its opaque is set when it is sent."""
        return create_request(
            code,
            header,
            opaque=0,
            body=body,
            oneway=oneway,
            language=self.language,
            serialize_type=self.serialize_type or SerializeType.JSON,
        )

    def burst_ended(self) -> None:
        """Call the burst listeners, before the responses of the burst are written."""
        for listener in self.burst_listeners:
            listener()

    def responded(self, gap_ns: int) -> None:
        """Call the response listeners, after the responses of a burst are written."""
        for listener in self.response_listeners:
            listener(gap_ns)

    # ------------------------------------------------------------------ requests in flight

    @property
    def is_full(self) -> bool:
        """Whether no further request may be taken from any connection."""
        limits = self.limits
        return (
            self.in_flight >= limits.max_in_flight_in_all
            or self.in_flight_bytes >= limits.max_in_flight_bytes_in_all
        )

    def block(self, waiting: Input) -> None:
        """Resume reading a connection once the endpoint is no longer full."""
        self._blocked[waiting] = None

    def count_in(self, request_bytes: int) -> None:
        """Count a request in."""
        self.in_flight += 1
        self.in_flight_bytes += request_bytes

    def count_out(self, request_bytes: int) -> None:
        """Count a request out, and resume waiting connections."""
        self.in_flight -= 1
        self.in_flight_bytes -= request_bytes
        while self._blocked and not self.is_full:
            waiting, _ = self._blocked.popitem(last=False)
            waiting.pump_alone()

    async def wait_quiet(self, *, grace_ms: int) -> None:
        """Wait until no request is in flight; cancel those that take too long."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + grace_ms / 1000
        while self.in_flight and loop.time() < ends_s:
            # Queued requests start when others are done.
            if self.running:
                await asyncio.wait(set(self.running), timeout=ends_s - loop.time())
            await asyncio.sleep(0)
        late = set(self.running)
        for each in late:
            each.cancel()
        if late:
            await asyncio.wait(late)
            log.warning("%d requests were cancelled after %d ms", len(late), grace_ms)

    # --------------------------------------------------------------------- memory and idling

    def count_held(self, change: int) -> None:
        """Count more, or fewer, held bytes of a connection."""
        self.held_bytes += change
        if change < 0:
            self._freed_bytes -= change
        elif self.held_bytes > self.limits.max_held_bytes and not self._is_counting:
            self._cut_off_largest()

    def _cut_off_largest(self) -> None:
        """Make room, and enough not to need this again at once."""
        self._is_counting = True
        try:
            holdings = [
                (each.count_held(), each) for each in self.connections if not each.is_closed
            ]
        finally:
            self._is_counting = False
        goal_bytes = self.limits.max_held_bytes * 7 // 8
        if self.held_bytes <= goal_bytes:
            return
        holdings.sort(key=lambda holding: holding[0], reverse=True)
        for held_bytes, connection in holdings:
            if self.held_bytes <= goal_bytes:
                return
            connection.cut_off("all connections together hold too much", held_bytes)

    def watch_over(self, connections: Iterable[Connection]) -> None:
        """Close those of some connections that were idle or stalled for too long."""
        now_ns = self.clock.monotonic_ns()
        idle_since_ns = now_ns - self.limits.idle_timeout_ms * 1_000_000
        for connection in list(connections):
            if connection.last_activity_ns() <= idle_since_ns:
                self.statistics.idle_closed += 1
                connection.abort()
            elif (reason := connection.overdue(now_ns)) is not None:
                connection.cut_off(reason, connection.held_bytes)

    def watch(self) -> None:
        """Start the timer that looks for idle connections and stalled peers."""
        interval_ms = min(self.limits.idle_timeout_ms, self.limits.write_stall_ms) / 4
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(interval_ms / 1000, self._begin_look)

    def _begin_look(self) -> None:
        is_reclaimable = self._reclaimable is not None and self._reclaimable.is_seen()
        if is_reclaimable or self._freed_bytes >= GIVE_BACK_BYTES:
            self._freed_bytes = 0
            asyncio.get_running_loop().run_in_executor(None, give_back)
        self._look(list(self.connections))

    def _look(self, left: list[Connection]) -> None:
        """Check some of the connections; all at once would take too long."""
        self.watch_over(left[-WATCH_STEP:])
        del left[-WATCH_STEP:]
        if left:
            loop = asyncio.get_running_loop()
            self._watch = loop.call_later(0.001, self._look, left)
        else:
            self.watch()

    async def close(self) -> None:
        """Close every connection and wait until all are closed."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        closing = list(self.connections)
        for connection in closing:
            connection.close()
        if not closing:
            return
        waiting = [asyncio.ensure_future(each.wait_closed()) for each in closing]
        _, late = await asyncio.wait(waiting, timeout=_CLOSE_TIMEOUT_S)
        for connection in list(self.connections):
            connection.abort()
        if late:
            await asyncio.wait(late)


_CLOSE_TIMEOUT_S = 1.0
"""How long peers have to read their last responses."""


def _call_soon(run: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(run)
