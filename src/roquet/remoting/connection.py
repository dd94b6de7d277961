"""One connection, on either side.

Owns the way of bytes between a socket and the processors, in both directions: requests that come
in and are answered, and requests that we send and whose answers come in. Servers and clients use
the same class, because both sides may ask.

Invariants:

* Work is done by the burst. All frames that a read brought are taken, their answers are written
  with one call; answers that become ready later in one turn of the loop share one as well.
* A frame is taken only while the limits of :class:`~roquet.remoting.endpoint.Endpoint` allow it.
  Otherwise it stays in the decoder and the socket is not read.
* Answers in parts are copied before control returns to the event loop.
* All connections of an endpoint are read into one buffer. What is left of a read when control
  returns to the event loop is copied, and put before the bytes of the next one.
* A frame or header that cannot be read ends the connection: there is no opaque to answer to, and
  where the next frame starts is unknown. A header of the wrong content gets an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from roquet.errors import ProtocolError, SendFailed
from roquet.remoting.answering import Answering
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.frame import Frame, FrameDecoder, Received, SerializeType, encode_frame
from roquet.remoting.frame_lane import ConnectionLane
from roquet.remoting.headers.base import Header
from roquet.remoting.hooks import RpcCall, RpcHook
from roquet.remoting.outgoing import OutgoingRequests
from roquet.remoting.processor import Answer, Port, RequestContext

if TYPE_CHECKING:
    from roquet.remoting.endpoint import Endpoint

__all__ = ["Connection"]

log = logging.getLogger(__name__)

TURN_NS = 5_000_000
"""How long a connection is read before everything else on the loop has its turn."""

_LARGE_READ_BYTES = 128 << 10
"""After a shorter read, no more is waiting."""


class Connection(asyncio.BufferedProtocol):
    """One connection, on either side.

    Attributes:
        id: A number that no other connection of the endpoint has.
        port: On which of a server's ports it came in.
        remote_address: The peer, as ``host:port``.
        attributes: Whatever the layers above want to remember of the peer.
        outgoing: Our requests that are not answered.
        lane: A shorter way for frames that are all alike, if there is one.
    """

    def __init__(self, endpoint: Endpoint, *, port: Port = Port.MAIN) -> None:
        self.id = 0
        self.port = port
        self.remote_address = ""
        self.attributes: dict[str, object] = {}
        self._endpoint = endpoint
        self._limits = endpoint.limits
        self._decoder = FrameDecoder(max_frame_bytes=endpoint.limits.max_frame_bytes)
        self.lane: ConnectionLane | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._close_callbacks: list[Callable[[Connection], None]] = []
        self.outgoing = OutgoingRequests(self._loop)
        self._output: list[bytes | memoryview] = []
        self._output_bytes = 0
        self._flush_scheduled = False
        self._answering = Answering(self, endpoint)
        self._pumping = False
        self._read_at = 0
        self._reading_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._activity_ns = 0
        self._turn_began_ns = 0
        self._unwritten_seen = 0

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"<Connection {self.id} {self.remote_address} {state}>"

    # ----------------------------------------------------------------------- life and death

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop: the connection is there."""
        self._transport = cast("asyncio.Transport", transport)
        high_bytes = self._limits.write_high_bytes
        self._transport.set_write_buffer_limits(high=high_bytes, low=high_bytes // 4)
        self.remote_address = _address(self._transport.get_extra_info("peername"))
        self._activity_ns = self._endpoint.clock.monotonic_ns()
        self.id = self._endpoint.opened(self)
        if self._endpoint.lane is not None:
            self.lane = self._endpoint.lane.open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop: the connection is gone."""
        self._endpoint.lost(self)
        self._output.clear()
        self._output_bytes = 0
        reason = "the peer closed it" if exc is None else str(exc) or type(exc).__name__
        self.outgoing.fail(partial(self._send_failed, "lost before the answer came", reason))
        self.resume_writing()
        self._closed.set_result(None)
        for callback in self._close_callbacks:
            self._loop.call_soon(callback, self)
        self._close_callbacks.clear()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport is None or self._closed.done() or self._transport.is_closing()

    def on_close(self, callback: Callable[[Connection], None]) -> None:
        """Have something called once, from the loop, when the connection is gone."""
        if self._closed.done():
            self._loop.call_soon(callback, self)
        else:
            self._close_callbacks.append(callback)

    def close(self) -> None:
        """Close after what is already answered was written."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await asyncio.shield(self._closed)

    def cut_off(self, reason: str) -> None:
        """Close at once a peer that makes us hold too much."""
        self._endpoint.statistics.overload_closed += 1
        more = self._endpoint.log_limiter.allow("cut off")
        if more is not None:
            held = self.held_bytes
            log.warning(
                "%s is cut off with %d bytes: %s%s", self.remote_address, held, reason, more
            )
        self.abort()

    @property
    def held_bytes(self) -> int:
        """Bytes of half-read frames and unwritten answers."""
        return self._decoder.buffered_bytes + self._output_bytes + self._unwritten_bytes()

    def _unwritten_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def last_activity_ns(self) -> int:
        """When bytes last moved, on the monotonic clock."""
        unwritten = self._unwritten_bytes()
        if unwritten < self._unwritten_seen:
            self._activity_ns = self._endpoint.clock.monotonic_ns()
        self._unwritten_seen = unwritten
        return self._activity_ns

    # ------------------------------------------------------------------------------ reading

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the loop's interface
        """Called by the loop: where a read may put bytes."""
        shared = self._endpoint.read_buffer
        waiting = self._decoder.buffered_bytes
        if not waiting or waiting > len(shared) // 2:
            self._read_at = 0
            return shared
        shared[:waiting] = self._decoder.waiting
        self._read_at = waiting
        return shared[waiting:]

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop: a read brought bytes."""
        endpoint, decoder = self._endpoint, self._decoder
        began_ns = self._activity_ns = endpoint.clock.monotonic_ns()
        if self.is_closed:
            return
        read = endpoint.read_buffer[: self._read_at + nbytes]
        if self._read_at == decoder.buffered_bytes:
            decoder.lend(read)
        else:
            decoder.feed(read)
        self._pump()
        decoder.keep()
        if endpoint.large or decoder.buffered_bytes:
            endpoint.held(self)
        if nbytes < _LARGE_READ_BYTES:
            self._turn_began_ns = 0
        else:
            self._end_long_turn(self._turn_began_ns or began_ns)

    def _end_long_turn(self, began_ns: int) -> None:
        """Have everything else go on as well, when a peer sends as fast as it is served.

        A loop may read the same socket dozens of times in a row, each time a quarter of a MiB, with
        timers and other connections waiting.
        """
        transport = self._transport
        if self._endpoint.clock.monotonic_ns() - began_ns < TURN_NS:
            self._turn_began_ns = began_ns
            return
        self._turn_began_ns = 0
        if transport is not None and not (self._reading_paused or transport.is_closing()):
            self._reading_paused = True
            transport.pause_reading()
            self._loop.call_soon(self.pump)

    def pump(self) -> None:
        """Take frames as far as the limits allow, then write the answers that are ready."""
        if not (self._pumping or self.is_closed):
            self._pump()

    def _pump(self) -> None:
        self._pumping = True
        starved = False
        fault: ProtocolError | None = None
        try:
            while not (starved or self._must_wait()):
                if self.lane is not None:
                    self._decoder.take_with(self._take_by_lane)
                frame = self._decoder.next_frame()
                if frame is None:
                    starved = True
                else:
                    self._take(frame)
        except ProtocolError as error:
            fault = error
        finally:
            self._pumping = False
        self._endpoint.burst_ended()
        if fault is not None:
            self._end_stream(fault)
        self._flush()
        self._steer_reading(starved=starved)

    def _take_by_lane(self, data: Received, position: int) -> int:
        """Let the lane take frames; where the first is that it left."""
        endpoint = self._endpoint
        if self.lane is None or endpoint.hooks or endpoint.stopping:
            return position
        position, requests, answers = self.lane.take(data, position)
        endpoint.statistics.requests += requests
        if answers:
            self.write(answers)
        return position

    def go_on_reading(self) -> None:
        """Take frames again, if that was stopped and may go on."""
        if self._reading_paused:
            self.pump()

    def _must_wait(self) -> bool:
        endpoint = self._endpoint
        if self._writable is not None and not endpoint.reads_while_unwritten:
            return True
        return endpoint.in_flight > 0 and (self._answering.is_full or endpoint.is_full)

    def _steer_reading(self, *, starved: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._must_wait():
            if self._endpoint.is_full:
                self._endpoint.block(self)
            if not self._reading_paused:
                self._reading_paused = True
                self._endpoint.statistics.reading_paused += 1
                transport.pause_reading()
            return
        if not starved:
            self._loop.call_soon(self.pump)
        elif self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()

    def _end_stream(self, error: ProtocolError) -> None:
        self._endpoint.statistics.bad_frames += 1
        more = self._endpoint.log_limiter.allow("bad frame")
        if more is not None:
            parts = [error.message, error.detail, error.hint]
            reason = "; ".join(part for part in parts if part)
            log.warning("%s is closed: %s%s", self.remote_address, reason, more)
        self.close()

    def _take(self, frame: Frame) -> None:
        command = decode_command(frame)
        if not command.is_response:
            self._answering.handle(command, len(frame.header) + len(frame.body))
        elif not self.outgoing.answered(command):
            self._endpoint.statistics.unmatched_responses += 1

    # ------------------------------------------------------------------------------ writing

    def answer(self, context: RequestContext, answer: Answer | None) -> None:
        """Answer a request that was left open; nothing for a one-way request."""
        self._answering.answer(context, answer)

    def write_frames(self, frames: bytes) -> None:
        """Write answers that are frames already; nothing when the connection is gone."""
        if not self.is_closed:
            self.write(frames)

    def write_parts(self, head: bytes, parts: Sequence[bytes | memoryview]) -> None:
        """Write a frame in parts, which may change when control returns to the event loop."""
        if self._pumping:
            self._output_bytes += sum(len(part) for part in parts)
            self._output += (head, *parts)
            self._after_write()
        else:
            self.write(b"".join((head, *parts)))

    def write(self, data: bytes) -> None:
        """Write frames, together with whatever else is written in this turn of the loop."""
        self._output.append(data)
        self._output_bytes += len(data)
        self._after_write()

    def _after_write(self) -> None:
        if self._output_bytes >= self._limits.write_high_bytes:
            self._flush()
        elif not (self._pumping or self._flush_scheduled):
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        output = self._output
        if not output:
            return
        data = output[0] if len(output) == 1 else b"".join(output)
        output.clear()
        self._output_bytes = 0
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        unwritten = transport.get_write_buffer_size()
        if not unwritten:
            self._activity_ns = self._endpoint.clock.monotonic_ns()
        elif unwritten > self._limits.write_max_bytes:
            self.cut_off("it does not read its answers")
        else:
            self._endpoint.held(self)

    def pause_writing(self) -> None:
        """Called by the transport: the peer does not read as fast as we write."""
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Called by the transport: the peer reads again."""
        writable, self._writable = self._writable, None
        if writable is not None:
            if not writable.done():
                writable.set_result(None)
            self._activity_ns = self._endpoint.clock.monotonic_ns()
            self.pump()

    @property
    def is_writable(self) -> bool:
        """Whether a request can be sent now: the connection is open and its peer reads."""
        return self._writable is None and not self.is_closed

    async def wait_writable(self) -> None:
        """Wait until the peer has read enough of what was written, or is gone."""
        while self._writable is not None:
            await asyncio.shield(self._writable)

    # ------------------------------------------------------------------------------- asking

    async def send_request(
        self, code: int, header: Header | None = None, *, body: bytes = b"", timeout_ms: int
    ) -> RemotingCommand:
        """Ask the peer and wait for its answer, whatever its response code is.

        Raises:
            SendFailed: The connection is gone or its peer does not read.
            RequestTimeout: No answer came in time.
        """
        return await self.invoke(self._request(code, header, body), timeout_ms=timeout_ms)

    def send_oneway(self, code: int, header: Header | None = None, *, body: bytes = b"") -> None:
        """Tell the peer something, without an answer.

        Raises:
            SendFailed: The connection is gone or its peer does not read.
        """
        self.invoke_oneway(self._request(code, header, body, oneway=True))

    async def invoke(
        self, request: RemotingCommand, *, timeout_ms: int | None = None
    ) -> RemotingCommand:
        """As :meth:`send_request`, with a request that is already made; its opaque is set here.

        Without a time-out the caller bounds the wait.
        """
        call = RpcCall(self, request)
        self._send(call)
        response = await self.outgoing.wait(request, self.remote_address, timeout_ms=timeout_ms)
        if self._endpoint.hooks:
            self._run_hooks(lambda hook: hook.after_response(call, response))
        return response

    def begin(
        self,
        code: int,
        template: bytes,
        values: tuple[object, ...],
        body: bytes,
        *,
        timeout_ms: int,
    ) -> asyncio.Future[RemotingCommand] | None:
        """As :meth:`invoke`, with a JSON header that is written already, but for some values.

        Args:
            code: The request code that the header says.
            template: The header with places for the values and, last, for the opaque, in the form
                of the operator ``%``.
            values: The values.
            body: The body.
            timeout_ms: How long the answer may take.

        Returns:
            What will be the answer; ``None`` when the request has to be made in the usual way,
            because a hook must see it or it cannot be sent now.
        """
        outgoing = self.outgoing
        if self._endpoint.hooks or not self.is_writable:
            return None
        if len(outgoing) >= self._limits.max_outgoing:
            return None
        opaque = outgoing.free_opaque()
        self.write(encode_frame(SerializeType.JSON, template % (*values, opaque), body))
        self._endpoint.statistics.requests_sent += 1
        return outgoing.expect(opaque, code, self.remote_address, timeout_ms=timeout_ms)

    def takes_frames(self) -> bool:
        """Whether the lane may send a request now."""
        if (
            self._writable is not None
            or self.lane is None
            or len(self.outgoing.waiting) >= self._limits.max_outgoing
        ):
            return False
        # What was found when the first request of this turn of the loop was written still holds.
        return self._flush_scheduled or not (self.is_closed or self._endpoint.hooks)

    def write_request(self, frame: bytes) -> None:
        """Send a request of the lane, which waits for the answer."""
        self._endpoint.statistics.requests_sent += 1
        self._output.append(frame)
        self._output_bytes += len(frame)
        if not self._flush_scheduled or self._output_bytes >= self._limits.write_high_bytes:
            self._after_write()

    def invoke_oneway(self, request: RemotingCommand) -> None:
        """As :meth:`send_oneway`, with a request that is already made."""
        self._send(RpcCall(self, request))

    def _request(
        self, code: int, header: Header | None, body: bytes, *, oneway: bool = False
    ) -> RemotingCommand:
        endpoint = self._endpoint
        return create_request(
            code,
            header,
            opaque=0,
            body=body,
            oneway=oneway,
            language=endpoint.language,
            serialize_type=endpoint.serialize_type or SerializeType.JSON,
        )

    def _send(self, call: RpcCall) -> None:
        if self.is_closed:
            raise self._send_failed("closed")
        if self._writable is not None:
            raise self._send_failed("full: the peer does not read")
        if len(self.outgoing) >= self._limits.max_outgoing:
            raise self._send_failed("full: too many requests wait for an answer")
        request = call.request
        request.opaque = self.outgoing.free_opaque()
        if self._endpoint.hooks:
            self._run_hooks(lambda hook: hook.before_request(call))
        self._endpoint.statistics.requests_sent += 1
        self.write(encode_command(request))

    def _run_hooks(self, run: Callable[[RpcHook], None]) -> None:
        """Run hooks around a request of ours; what one raises is for our caller a failed send."""
        for hook in self._endpoint.hooks:
            try:
                run(hook)
            except Exception as error:
                more = self._endpoint.log_limiter.allow("hook")
                if more is not None:
                    log.warning("a hook keeps a request from %s%s", self, more, exc_info=error)
                raise self._send_failed("closed to it by a hook", str(error)) from error

    def _send_failed(self, what: str, detail: str | None = None) -> SendFailed:
        return SendFailed(
            f"The connection to {self.remote_address or 'the peer'} is {what}",
            detail=detail,
            hint="The next request makes a new connection.",
        )


def _address(peer: object) -> str:
    if isinstance(peer, tuple) and len(peer) >= 2:
        host, port = peer[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(peer or "unknown")
