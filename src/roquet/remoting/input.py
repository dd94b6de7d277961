"""What is read from one connection.

Owns the bytes that were read and not yet taken as frames, and when the socket is read again: frames
go to the hot reader first, requests that it leaves to :mod:`roquet.remoting.request_dispatcher`,
responses to :mod:`roquet.remoting.outgoing`.

Invariants:

* Work is done in bursts: all frames of one read are taken, then their responses are written.
* The hot reader takes all frames that it can, which is bounded by the bytes of a read. Other
  requests are taken in turns (:mod:`roquet.remoting.turn_scheduler`): what is left stays in the
  decoder, and the socket is not read until the connection's next turn.
* Long reads are counted over all connections (:mod:`roquet.remoting.read_budget`), and a connection
  beyond the budget of a pass is read in a later one.
* A frame is taken only while the limits of :class:`~roquet.remoting.endpoint.Endpoint` allow it.
  Otherwise it stays in the decoder and the socket is not read.
* All connections of an endpoint are read into one buffer. What is left of a read when control
  returns to the event loop is copied, and put before the bytes of the next one.
* A frame or header that cannot be decoded ends the connection: there is no opaque to respond to,
  and where the next frame starts is unknown. A header with wrong content gets a response.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from roquet.errors import ProtocolError
from roquet.remoting.codec import decode_command
from roquet.remoting.frame import Frame, FrameDecoder, Received
from roquet.remoting.hot_reader import HOT_OUTPUT_BYTES, HotReader
from roquet.remoting.outgoing import OutgoingRequests
from roquet.remoting.output import Output, Progress
from roquet.remoting.read_budget import SPENT_READ_BYTES
from roquet.remoting.request_dispatcher import RequestDispatcher
from roquet.remoting.turn_scheduler import Ring, Turn

if TYPE_CHECKING:
    from roquet.remoting.connection import Connection
    from roquet.remoting.endpoint import Endpoint

__all__ = ["Input"]

log = logging.getLogger(__name__)

LONG_READ_NS = 5_000_000
"""How long one connection is read before everything else on the loop gets its turn."""

_LARGE_READ_BYTES = 128 << 10
"""After a shorter read, the socket is empty."""

_MUCH_BYTES = 16 << 10
"""Hot path responses of this length count against the time that all connections share."""

_COPIED_AT_WILL_BYTES = 4 << 10
"""Up to this size, leftover bytes are copied in front of the next read, however short it is."""


class Input:
    """Reads from a connection.

    Args:
        connection: The connection.
        endpoint: What its connections share.
        output: Where responses go.
        dispatcher: Handles the requests that the hot reader leaves.
        outgoing: Our pending requests.
        loop: The event loop.

    Attributes:
        hot_reader: Takes plain frames before they are decoded, if not ``None``.
        activity_ns: When a byte last came, or the last one was written.
        is_counted: Whether the endpoint counts bytes that the connection holds.
    """

    def __init__(
        self,
        connection: Connection,
        endpoint: Endpoint,
        output: Output,
        dispatcher: RequestDispatcher,
        outgoing: OutgoingRequests,
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._output = output
        self._dispatcher = dispatcher
        self._outgoing = outgoing
        self._loop = loop
        self._decoder = FrameDecoder(max_frame_bytes=endpoint.limits.max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._is_tls = False
        self.hot_reader: HotReader | None = None
        self.activity_ns = 0
        self._gap_ns = 0
        self.is_counted = False
        self._waits_for_turn = False
        self._waits_to_read = False
        self._peer_is_done = False
        self._read_at = 0
        self._last_read_bytes = 0
        self._reading_paused = False
        self._is_held_back = False
        self._turn_began_ns = 0
        self._read_bytes = 0
        self._frame_comes = Progress()
        self._hot_has_more = False
        self._pulls_much = False

    def open(self, transport: asyncio.Transport, *, is_tls: bool) -> None:
        """Set the transport to read from."""
        self._transport = transport
        self._is_tls = is_tls
        self.activity_ns = self._endpoint.now_ns()

    def clear(self) -> None:
        """Drop all bytes and the hot reader, because the connection is closed."""
        self._decoder.clear()
        self.hot_reader = None

    def drop_frames(self) -> None:
        """Drop the bytes of a peer that is cut off, unless a burst is being taken from them."""
        if not self._output.in_burst:
            self._decoder.clear()

    @property
    def buffered_bytes(self) -> int:
        """Bytes that were read and not yet taken as frames."""
        return self._decoder.buffered_bytes

    @property
    def is_silent(self) -> bool:
        """Whether the peer has not sent a byte yet."""
        return self._last_read_bytes == 0

    def has_stalled(self, now_ns: int) -> bool:
        """Whether the rest of a frame takes too long to arrive."""
        waiting = self._decoder.buffered_bytes
        frame_start = self._read_bytes - waiting if waiting and not self._reading_paused else -1
        idle_ms = self._endpoint.limits.idle_timeout_ms
        return self._frame_comes.has_stalled(frame_start, now_ns, idle_ms)

    # ------------------------------------------------------------------------------ reading

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the loop's interface
        """Called by the loop: return the buffer for the next read."""
        shared = self._endpoint.read_buffer
        waiting = self._decoder.buffered_bytes
        if self._endpoint.reads.is_spent:
            self._read_at = 0
            return shared[:SPENT_READ_BYTES]
        if not waiting or waiting > len(shared) // 2 or self._trickles(waiting):
            self._read_at = 0
            return shared
        shared[:waiting] = self._decoder.waiting
        self._read_at = waiting
        return shared[waiting:]

    def _trickles(self, waiting_bytes: int) -> bool:
        """Whether reads are so short that copying leftover bytes each time dominates."""
        return waiting_bytes > _COPIED_AT_WILL_BYTES and waiting_bytes > 4 * self._last_read_bytes

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop: a read brought bytes."""
        endpoint, decoder = self._endpoint, self._decoder
        began_ns = endpoint.now_ns()
        self._gap_ns = began_ns - self.activity_ns
        self.activity_ns = began_ns
        if self._transport is None or self._transport.is_closing():
            return
        self._last_read_bytes = nbytes
        self._read_bytes += nbytes
        read = endpoint.read_buffer[: self._read_at + nbytes]
        if self._read_at != decoder.buffered_bytes:
            decoder.feed(read)
            is_done = False
        elif self._read_at:
            decoder.lend(read)
            is_done = False
        else:
            is_done = self._take_burst(read)
        if not is_done:
            self._handle_read()
        elif self.is_counted:
            self._connection.count_held()
        if nbytes < SPENT_READ_BYTES or (
            nbytes < _LARGE_READ_BYTES and not endpoint.reads.is_spent
        ):
            self._turn_began_ns = 0
        elif not endpoint.reads.allows_more(nbytes):
            self._wait_to_read()
        else:
            self._end_long_turn(self._turn_began_ns or began_ns)

    def _take_burst(self, read: memoryview) -> bool:
        """Let the hot reader take a whole read, as it nearly always can.

        Returns false if something is left; the decoder then has it. The responses so far are
        written together with those to the rest.
        """
        endpoint, output = self._endpoint, self._output
        if (
            self.hot_reader is None
            or self._waits_for_turn
            or (self._pulls_much and endpoint.turns.is_spent)
            or self._must_wait()
        ):
            self._decoder.lend(read)
            return False
        output.in_burst = True
        try:
            position = self._take_plain(read, 0)
        finally:
            output.in_burst = False
        if position != len(read):
            self._decoder.lend(read, position)
            return False
        self._hot_has_more = False
        endpoint.burst_ended()
        self._respond()
        if output.blocked is not None or self._reading_paused:
            self._steer_reading(starved=True, ring=None)
        return True

    def _respond(self) -> None:
        """Write the responses of a burst, and report them unless they are long."""
        self._output.flush()
        if not self._pulls_much:
            self._endpoint.responded(self._gap_ns)

    def _handle_read(self) -> None:
        """Take frames from the decoder, and keep the leftover bytes."""
        if not self._waits_for_turn:
            self._pump()
        self._decoder.keep()
        if self.is_counted or self._decoder.buffered_bytes:
            self._connection.count_held()

    def _wait_to_read(self) -> None:
        """Leave the rest in the socket until others have been read."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            self._turn_began_ns = 0
            self._waits_to_read = True
            self._pause_reading(transport)
            self._endpoint.reads.wait(self)

    def read_on(self) -> None:
        """Called when this connection may be read again."""
        self._waits_to_read = False
        self.go_on_reading()

    def _end_long_turn(self, began_ns: int) -> None:
        """Let everything else proceed when a peer sends as fast as it is served.

        A loop may read the same socket dozens of times in a row, each time a quarter of a MiB, with
        timers and other connections waiting.
        """
        transport = self._transport
        if self._endpoint.now_ns() - began_ns < LONG_READ_NS:
            self._turn_began_ns = began_ns
            return
        self._turn_began_ns = 0
        if transport is not None and not (self._reading_paused or transport.is_closing()):
            self._pause_reading(transport)
            self._loop.call_soon(self.pump)

    def eof_received(self) -> bool:
        """Called by the loop at end of file; return whether to keep the connection for now."""
        if not self._waits_for_turn or self._transport is None:
            return False
        # Earlier requests are still handled. If the peer is gone, writing a response will show it.
        self._peer_is_done = not self._is_tls
        return self._peer_is_done

    def pump(self) -> None:
        """Take frames as far as the limits allow, then write the responses that are ready."""
        if not (self._output.in_burst or self._waits_for_turn or self._connection.is_closed):
            self._pump()

    def take_turn(self) -> None:
        """Called when it is this connection's turn: take more of the waiting frames."""
        self._waits_for_turn = False
        self.pump_alone()

    def pump_alone(self) -> None:
        """Like :meth:`pump`, but an error closes only this connection."""
        try:
            self.pump()
        except Exception:
            self._endpoint.statistics.processor_errors += 1
            more = self._endpoint.log_limiter.allow("pump")
            if more is not None:
                log.exception("%s is closed after an error%s", self._connection, more)
            self._connection.abort()

    def _pump(self) -> None:
        output = self._output
        output.in_burst = True
        starved = False
        turn: Turn | None = None
        fault: ProtocolError | None = None
        ring: Ring | None = None
        turns, decoder = self._endpoint.turns, self._decoder
        try:
            while not (starved or self._must_wait()):
                if not self._hot_has_more:
                    if self._pulls_much and turns.is_spent and decoder.buffered_bytes:
                        ring = Ring.FRESH
                        break
                    decoder.take_with(self._take_plain)
                if self._hot_has_more:
                    self._hot_has_more = False
                    if turn is None and not turns.is_spent:
                        turn = turns.begin()
                    if turn is not None and turn.goes_on():
                        continue
                    ring = Ring.BUSY
                    break
                if turn is None and turns.is_spent and decoder.buffered_bytes:
                    ring = Ring.FRESH
                    break
                frame = decoder.next_frame()
                if frame is None:
                    starved = True
                    continue
                if turn is None:
                    turn = turns.begin()
                next_ring = self._take(frame)
                if next_ring is not None:
                    turn.ring = max(turn.ring, next_ring)
                    if not turn.goes_on() or self._connection.is_closed:
                        ring = turn.ring
                        break
        except ProtocolError as error:
            fault = error
        finally:
            output.in_burst = False
        if turn is not None:
            turns.end(turn)
        self._endpoint.burst_ended()
        if fault is not None:
            self._end_stream(fault)
            # The traceback refers to this frame, and the cycle would outlive the call.
            fault = None
        self._respond()
        self._steer_reading(starved=starved, ring=ring)

    def _take_plain(self, data: Received, position: int) -> int:
        """Let the hot reader take frames; return where the first remaining one starts."""
        endpoint = self._endpoint
        if self.hot_reader is None or endpoint.hooks or endpoint.stopping:
            return position
        position, requests, responses = self.hot_reader.take(data, position)
        endpoint.statistics.requests += requests
        if responses:
            self._output.write(responses)
            size = len(responses)
            self._pulls_much = size >= _MUCH_BYTES
            if self._pulls_much:
                endpoint.turns.spend(size)
                self._hot_has_more = size >= HOT_OUTPUT_BYTES
        return position

    def go_on_reading(self) -> None:
        """Resume taking frames, if that was paused and the limits allow it."""
        if self._reading_paused:
            self.pump_alone()

    def _must_wait(self) -> bool:
        endpoint = self._endpoint
        if self._output.blocked is not None and not endpoint.reads_while_unwritten:
            return True
        return endpoint.in_flight > 0 and (self._dispatcher.is_full or endpoint.is_full)

    def _steer_reading(self, *, starved: bool, ring: Ring | None) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._must_wait():
            if self._endpoint.is_full:
                self._endpoint.block(self)
            if not self._is_held_back:
                self._is_held_back = True
                self._endpoint.statistics.reading_paused += 1
            self._pause_reading(transport)
            return
        self._is_held_back = False
        if not starved:
            self._pause_reading(transport)
            self._waits_for_turn = True
            self._endpoint.turns.wait(self, Ring.BUSY if ring is None else ring)
        elif self._peer_is_done:
            self._connection.close()
        elif self._reading_paused and not self._waits_to_read:
            self._reading_paused = False
            transport.resume_reading()

    def _pause_reading(self, transport: asyncio.Transport) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            transport.pause_reading()

    def _end_stream(self, error: ProtocolError) -> None:
        self._endpoint.statistics.bad_frames += 1
        more = self._endpoint.log_limiter.allow("bad frame")
        if more is not None:
            parts = [error.message, error.detail, error.hint]
            reason = "; ".join(part for part in parts if part)
            log.warning("%s is closed: %s%s", self._connection.remote_address, reason, more)
        self._connection.close()

    def _take(self, frame: Frame) -> Ring | None:
        """Handle a frame; return the ring to wait in, if it was a request that ends the turn."""
        command = decode_command(frame)
        if not command.is_response:
            return self._dispatcher.handle(command, len(frame.header) + len(frame.body))
        if not self._outgoing.answered(command):
            self._endpoint.statistics.unmatched_responses += 1
        return None
