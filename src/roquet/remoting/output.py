"""What is written to one connection.

Owns the bytes that wait for the transport, when they are passed on, and what happens if the peer
does not read: callers that can wait do, and a peer that lets too much pile up is disconnected.

Invariants:

* Output of a burst goes out with one call, at its end; so does other output of one pass of the
  loop.
* Sliced frames are copied before control returns to the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquet.remoting.connection import Connection
    from roquet.remoting.endpoint import Endpoint

__all__ = ["Output", "Progress"]

_TLS_WRITE_BYTES = 64 << 10


class Progress:
    """Watches whether a number changes."""

    __slots__ = ("_seen", "_since_ns")

    def __init__(self) -> None:
        self._seen = -1
        self._since_ns = 0

    def has_stalled(self, number: int, now_ns: int, most_ms: int) -> bool:
        """Whether the number has not changed for that long; false if it is negative."""
        if number < 0 or number != self._seen:
            self._seen = number
            self._since_ns = now_ns
            return False
        return now_ns - self._since_ns >= most_ms * 1_000_000


class Output:
    """Writes to a connection.

    Args:
        connection: The connection.
        endpoint: What its connections share.
        loop: Their event loop.

    Attributes:
        in_burst: Whether a burst is being taken, at the end of which :meth:`flush` is called.
        is_scheduled: Whether :meth:`flush` will be called in this pass of the loop.
        blocked: A future while the peer reads too slowly; done when it catches up.
        activity_ns: When the last waiting byte was last written.
    """

    __slots__ = (
        "_connection",
        "_endpoint",
        "_is_tls",
        "_last_write_bytes",
        "_limits",
        "_loop",
        "_parts",
        "_peer_reads",
        "_transport",
        "_waiting_bytes",
        "_written_bytes",
        "activity_ns",
        "blocked",
        "in_burst",
        "is_scheduled",
    )

    def __init__(
        self, connection: Connection, endpoint: Endpoint, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._limits = endpoint.limits
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._is_tls = False
        self._parts: list[bytes | memoryview] = []
        self._waiting_bytes = 0
        self._last_write_bytes = 0
        self._peer_reads = Progress()
        self.in_burst = False
        self.is_scheduled = False
        self.blocked: asyncio.Future[None] | None = None
        self._written_bytes = 0
        self.activity_ns = 0

    def open(self, transport: asyncio.Transport, *, is_tls: bool) -> None:
        """Set the transport to write to."""
        self._transport = transport
        self._is_tls = is_tls
        high_bytes = self._limits.write_high_bytes
        low_bytes = min(self._limits.write_low_bytes, high_bytes)
        transport.set_write_buffer_limits(high=high_bytes, low=low_bytes)

    def clear(self) -> None:
        """Drop all waiting bytes, because the connection is closed."""
        self._parts.clear()
        self._waiting_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes in memory that the peer has not read yet."""
        transport = self._transport
        unwritten = 0 if transport is None else transport.get_write_buffer_size()
        if unwritten:
            # A transport keeps the whole last write until its last byte is written.
            unwritten = max(unwritten, self._last_write_bytes)
        return self._waiting_bytes + unwritten

    @property
    def unwritten_bytes(self) -> int:
        """Bytes that the transport has not yet written to the socket."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # ------------------------------------------------------------------------------ writing

    def write(self, data: bytes) -> None:
        """Write frames, together with all other output of this pass of the loop."""
        self._parts.append(data)
        self._waiting_bytes += len(data)
        if not self.in_burst or self._waiting_bytes >= self._limits.write_high_bytes:
            self._after_write()

    def write_parts(self, head: bytes, parts: Sequence[bytes | memoryview]) -> None:
        """Write a sliced frame; the slices may change once control returns to the event loop."""
        if self.in_burst:
            self._waiting_bytes += sum(len(part) for part in parts)
            self._parts += (head, *parts)
            self._after_write()
        else:
            self.write(b"".join((head, *parts)))

    def write_request(self, frame: bytes) -> None:
        """Send a request of compiled code, which waits for the response."""
        self._endpoint.statistics.requests_sent += 1
        self._parts.append(frame)
        self._waiting_bytes += len(frame)
        if not self.is_scheduled or self._waiting_bytes >= self._limits.write_high_bytes:
            self._after_write()

    def _after_write(self) -> None:
        if self._waiting_bytes >= self._limits.write_high_bytes:
            self.flush()
        elif not (self.in_burst or self.is_scheduled):
            self.is_scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Pass the waiting bytes to the transport."""
        self.is_scheduled = False
        parts = self._parts
        if not parts:
            return
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._waiting_bytes = 0
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._is_tls:
            # A TLS transport hides the progress within one write, but not between several.
            view = memoryview(data)
            for start in range(0, len(data), _TLS_WRITE_BYTES):
                transport.write(view[start : start + _TLS_WRITE_BYTES])
        else:
            transport.write(data)
        self._last_write_bytes = len(data)
        self._written_bytes += len(data)
        unwritten = transport.get_write_buffer_size()
        if not unwritten:
            self.activity_ns = self._endpoint.now_ns()
        elif unwritten > self._limits.write_max_bytes:
            self._connection.cut_off("it does not read its responses", unwritten)
        else:
            self._connection.count_held()

    # ------------------------------------------------------------------------ back-pressure

    def has_stalled(self, now_ns: int) -> bool:
        """Whether the peer has read nothing of our output for too long."""
        unwritten = self.unwritten_bytes
        read_by_peer = self._written_bytes - unwritten if unwritten else -1
        return self._peer_reads.has_stalled(read_by_peer, now_ns, self._limits.write_stall_ms)

    def pause(self) -> None:
        """The peer does not read as fast as we write."""
        if self.blocked is None:
            self.blocked = self._loop.create_future()

    def resume(self) -> bool:
        """The peer reads again, or is gone; return whether output was blocked."""
        blocked, self.blocked = self.blocked, None
        if blocked is None:
            return False
        if not blocked.done():
            blocked.set_result(None)
        self.activity_ns = self._endpoint.now_ns()
        return True

    async def wait_writable(self) -> None:
        """Wait until the peer has read enough of our output, or is gone."""
        while self.blocked is not None:
            await asyncio.shield(self.blocked)
