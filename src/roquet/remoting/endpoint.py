"""What all connections of one server, or of one client, share.

Owns the limits, the counters, the requests in flight in all, and the set of open connections.

Three limits keep memory bounded whatever peers do:

* Requests in flight, by number and by bytes, for a connection and in all. Beyond them no further
  frame is taken and the socket is not read, so TCP slows the peer down.
* Bytes waiting to be written to one peer. Beyond the high mark a server takes no requests of that
  peer; a peer for which still more piles up (answers of requests already in flight) is cut off.
  A client goes on reading, because two sides that wait for each other to read wait for ever.
* Bytes held in all, half-read frames and unwritten answers together. Beyond it the connection
  that holds most is cut off. Waiting would not help: half-read frames free nothing until their
  peers send the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from roquet.remoting.codes import LanguageCode
from roquet.remoting.frame import MAX_FRAME_BYTES, SerializeType
from roquet.remoting.frame_lane import FrameLane
from roquet.remoting.hooks import RpcHook
from roquet.remoting.processor import Answer, ProcessorRegistry
from roquet.runtime.clock import Clock

if TYPE_CHECKING:
    from roquet.remoting.connection import Connection

__all__ = ["Endpoint", "LogLimiter", "RemotingLimits", "RemotingStatistics"]

log = logging.getLogger(__name__)

_Positive = Annotated[int, Meta(ge=1)]

READ_BUFFER_BYTES = 512 << 10
"""The most that one read brings, with what the last one of the connection has left."""

LARGE_HOLDING_BYTES = 1 << 20
"""A connection that holds less than this is not looked at when memory in all is counted."""


class RemotingLimits(Struct, frozen=True, kw_only=True):
    """How much peers may make us hold.

    Attributes:
        max_frame_bytes: The longest frame to accept.
        max_connections: Connections of a server; further ones are closed at once.
        max_in_flight: Requests of one connection that are being handled.
        max_in_flight_bytes: Bytes of those requests.
        max_in_flight_in_all: Requests of all connections that are being handled.
        max_in_flight_bytes_in_all: Bytes of those requests.
        write_high_bytes: Unwritten bytes of a connection beyond which its requests wait.
        write_max_bytes: Unwritten bytes of a connection beyond which it is cut off.
        max_held_bytes: Half-read and unwritten bytes of all connections.
        max_outgoing: Requests that we sent on one connection and that are not answered.
        idle_timeout_ms: A connection without traffic is closed after this; upstream's 120 s.
    """

    max_frame_bytes: _Positive = MAX_FRAME_BYTES
    max_connections: _Positive = 20_000
    max_in_flight: _Positive = 4_096
    max_in_flight_bytes: _Positive = 64 << 20
    max_in_flight_in_all: _Positive = 100_000
    max_in_flight_bytes_in_all: _Positive = 256 << 20
    write_high_bytes: _Positive = 4 << 20
    write_max_bytes: _Positive = 64 << 20
    max_held_bytes: _Positive = 512 << 20
    max_outgoing: _Positive = 65_535
    idle_timeout_ms: _Positive = 120_000


class RemotingStatistics(Struct, kw_only=True):
    """What happened so far.

    Attributes:
        connections_opened: Connections that were made.
        connections_closed: Connections that ended, however.
        connections_refused: Closed at once, because there were too many.
        idle_closed: Closed because nothing moved on them.
        overload_closed: Cut off because they held too much memory.
        tls_refused: Handshakes that failed, or plain text where TLS is demanded.
        bad_frames: Connections closed because of bytes that are no frame or header.
        requests: Requests that came in.
        requests_unknown: Requests with a code that nobody handles.
        processor_errors: Requests whose processor or hook failed unexpectedly.
        requests_sent: Requests that we sent.
        unmatched_responses: Answers to nothing that is open, most of them late.
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
        """What to append to the message of that kind, or ``None`` to say nothing now."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._next_ns.get(kind, now_ns):
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return None
        self._next_ns[kind] = now_ns + self._interval_ns
        suppressed = self._suppressed.pop(kind, 0)
        return f" ({suppressed} more like this)" if suppressed else ""


class Endpoint:
    """What all connections of one server, or of one client, share.

    Args:
        registry: Who answers requests.
        limits: How much peers may make us hold.
        hooks: What runs around every request.
        clock: The time.
        language: What we say we are written in.
        serialize_type: How our headers are written. ``None``: answers as their requests are,
            requests as JSON.
        reads_while_unwritten: Whether a peer that does not read is still read from.

    Attributes:
        large: Connections that hold much, as :meth:`held` saw them last.
        read_buffer: Where every read of every connection goes.
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
    ) -> None:
        self.registry = registry
        self.limits = limits
        self.hooks = list(hooks)
        self.clock = clock
        self.language = language
        self.serialize_type = serialize_type
        self.reads_while_unwritten = reads_while_unwritten
        self.read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self.statistics = RemotingStatistics()
        self.log_limiter = LogLimiter(clock)
        self.connections: set[Connection] = set()
        self.burst_listeners: list[Callable[[], None]] = []
        self.lane: FrameLane | None = None
        self.close_listeners: list[Callable[[Connection], None]] = []
        self.stopping = False
        self.handshakes: set[object] = set()
        self.in_flight = 0
        self.in_flight_bytes = 0
        self._next_connection_id = 0
        self._running: set[asyncio.Future[Answer | None]] = set()
        self._blocked: dict[Connection, None] = {}
        self.large: set[Connection] = set()
        self._idle_check: asyncio.TimerHandle | None = None

    @property
    def has_room(self) -> bool:
        """Whether one more connection may come in."""
        return len(self.connections) + len(self.handshakes) < self.limits.max_connections

    def opened(self, connection: Connection) -> int:
        """Take a new connection in; gives its number."""
        self.handshakes.discard(connection)
        self.connections.add(connection)
        self.statistics.connections_opened += 1
        self._next_connection_id += 1
        return self._next_connection_id

    def lost(self, connection: Connection) -> None:
        """Forget a connection that ended."""
        self.connections.discard(connection)
        self._blocked.pop(connection, None)
        self.large.discard(connection)
        self.statistics.connections_closed += 1
        for listener in self.close_listeners:
            asyncio.get_running_loop().call_soon(listener, connection)

    def burst_ended(self) -> None:
        """Let those who work by the burst finish it, before its answers are written."""
        for listener in self.burst_listeners:
            listener()

    # ------------------------------------------------------------------ requests in flight

    @property
    def is_full(self) -> bool:
        """Whether no further request may be taken from any connection."""
        limits = self.limits
        return (
            self.in_flight >= limits.max_in_flight_in_all
            or self.in_flight_bytes >= limits.max_in_flight_bytes_in_all
        )

    def block(self, connection: Connection) -> None:
        """Remember a connection that waits until the endpoint is no longer full."""
        self._blocked[connection] = None

    def started(self, running: asyncio.Future[Answer | None], request_bytes: int) -> None:
        """Count a request in, and keep what handles it alive."""
        self._running.add(running)
        self.in_flight += 1
        self.in_flight_bytes += request_bytes

    def finished(self, running: asyncio.Future[Answer | None], request_bytes: int) -> None:
        """Count a request out, and let waiting connections go on."""
        self._running.discard(running)
        self.in_flight -= 1
        self.in_flight_bytes -= request_bytes
        while self._blocked and not self.is_full:
            connection = next(iter(self._blocked))
            del self._blocked[connection]
            connection.pump()

    async def wait_quiet(self, *, grace_ms: int) -> None:
        """Wait until no request is in flight; cancel those that take too long."""
        running = set(self._running)
        if not running:
            return
        _, late = await asyncio.wait(running, timeout=grace_ms / 1000)
        for each in late:
            each.cancel()
        if late:
            await asyncio.wait(late)
            log.warning("%d requests were cancelled after %d ms", len(late), grace_ms)

    # --------------------------------------------------------------------- memory and idling

    def held(self, connection: Connection) -> None:
        """Look at how much a connection holds; cut off whoever holds most beyond the limit."""
        if connection.held_bytes < LARGE_HOLDING_BYTES:
            self.large.discard(connection)
            return
        self.large.add(connection)
        holdings = {each: each.held_bytes for each in self.large}
        total = sum(holdings.values())
        while total > self.limits.max_held_bytes and holdings:
            worst = max(holdings, key=lambda each: holdings[each])
            total -= holdings.pop(worst)
            self.large.discard(worst)
            worst.cut_off("all connections together hold too much")

    def close_idle_connections(self) -> None:
        """Close every connection on which nothing moved for the idle time."""
        deadline_ns = self.clock.monotonic_ns() - self.limits.idle_timeout_ms * 1_000_000
        for connection in list(self.connections):
            if connection.last_activity_ns() <= deadline_ns:
                self.statistics.idle_closed += 1
                connection.abort()

    def watch_idle(self) -> None:
        """Begin to look for idle connections, four times in the idle time."""
        self._idle_check = asyncio.get_running_loop().call_later(
            self.limits.idle_timeout_ms / 4000, self._check_idle
        )

    def _check_idle(self) -> None:
        self.close_idle_connections()
        self.watch_idle()

    async def close(self) -> None:
        """Close every connection and wait until all are gone."""
        if self._idle_check is not None:
            self._idle_check.cancel()
            self._idle_check = None
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
"""How long peers have to read their last answers."""
