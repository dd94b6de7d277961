"""One connection, on either side.

Owns the lifetime of a connection. :mod:`roquet.remoting.input` and :mod:`roquet.remoting.output`
own its bytes, :mod:`roquet.remoting.request_dispatcher` handles the requests of the peer, and
:mod:`roquet.remoting.request_sender` sends ours. Servers and clients use the same class, because
either side may send requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import Header
from roquet.remoting.input import Input
from roquet.remoting.output import Output
from roquet.remoting.processor import Port, RequestContext, Response
from roquet.remoting.request_dispatcher import RequestDispatcher
from roquet.remoting.request_sender import RequestSender

if TYPE_CHECKING:
    from roquet.remoting.endpoint import Endpoint

__all__ = ["Connection"]

log = logging.getLogger(__name__)


class Connection(asyncio.BufferedProtocol):
    """One connection, on either side.

    Attributes:
        id: A number that no other connection of the endpoint has.
        port: The server port that accepted it.
        remote_address: The peer, as ``host:port``.
        attributes: Facts about the peer that the layers above keep.
        input: What is read from it.
        sender: Sends our requests.
        outgoing: Our pending requests.
        write_request: Sends a request of compiled code.
    """

    def __init__(self, endpoint: Endpoint, *, port: Port = Port.MAIN) -> None:
        self.id = 0
        self.port = port
        self.remote_address = ""
        self.attributes: dict[str, object] = {}
        self._endpoint = endpoint
        self._loop = loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = loop.create_future()
        self._close_callbacks: list[Callable[[Connection], None]] = []
        self._output = output = Output(self, endpoint, loop)
        self.sender = RequestSender(self, endpoint, output, loop)
        self.outgoing = self.sender.outgoing
        self.write_request = output.write_request
        self._dispatcher = dispatcher = RequestDispatcher(self, endpoint, output)
        self.input = Input(self, endpoint, output, dispatcher, self.outgoing, loop=loop)
        # The loop calls these at every read, so nothing stands in between.
        self.get_buffer = self.input.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = self.input.buffer_updated  # type: ignore[method-assign]
        self._unwritten_seen = 0
        self._counted_bytes = 0

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"<Connection {self.id} {self.remote_address} {state}>"

    # ----------------------------------------------------------------------- life and death

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop: the connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        is_tls = transport.get_extra_info("sslcontext") is not None
        self._output.open(self._transport, is_tls=is_tls)
        self.remote_address = _address(self._transport.get_extra_info("peername"))
        self.input.open(self._transport, is_tls=is_tls)
        self.id = self._endpoint.opened(self)
        if self._endpoint.hot_path is not None:
            self.input.hot_reader = self._endpoint.hot_path.open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop: the connection is closed."""
        self._endpoint.lost(self)
        self._dispatcher.close()
        # References to the connection must not keep its buffers and hot reader alive.
        self._output.clear()
        self.input.clear()
        self._forget_held()
        reason = "the peer closed it" if exc is None else str(exc) or type(exc).__name__
        self.sender.close(reason)
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
        """Register a callback to run once, on the loop, when the connection is closed."""
        if self._closed.done():
            self._loop.call_soon(callback, self)
        else:
            self._close_callbacks.append(callback)

    def close(self) -> None:
        """Close once the pending responses are written."""
        self._output.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        await asyncio.shield(self._closed)

    def cut_off(self, reason: str, held_bytes: int) -> None:
        """Disconnect a peer that makes us hold too much, or for too long."""
        self._endpoint.statistics.overload_closed += 1
        more = self._endpoint.log_limiter.allow("cut off")
        if more is not None:
            log.warning(
                "%s is cut off with %d bytes: %s%s", self.remote_address, held_bytes, reason, more
            )
        self.abort()
        self.input.drop_frames()
        self._forget_held()

    @property
    def held_bytes(self) -> int:
        """Bytes of half-read frames and unwritten responses."""
        return self.input.buffered_bytes + self._output.held_bytes

    def count_held(self) -> int:
        """Report to the endpoint how much is held."""
        held_bytes = self.held_bytes
        change = held_bytes - self._counted_bytes
        if change and not self.is_closed:
            self._counted_bytes = held_bytes
            self.input.is_counted = held_bytes > 0
            self._endpoint.count_held(change)
        return held_bytes

    def _forget_held(self) -> None:
        held_bytes, self._counted_bytes = self._counted_bytes, 0
        self.input.is_counted = False
        self._endpoint.count_held(-held_bytes)

    def last_activity_ns(self) -> int:
        """When bytes last moved, on the monotonic clock."""
        unwritten = self._output.unwritten_bytes
        if unwritten < self._unwritten_seen:
            self._output.activity_ns = self._endpoint.clock.monotonic_ns()
        self._unwritten_seen = unwritten
        return max(self.input.activity_ns, self._output.activity_ns)

    def overdue(self, now_ns: int) -> str | None:
        """Why the peer is overdue, if it is; called periodically."""
        if self._output.has_stalled(now_ns):
            return "it does not read its responses"
        if self.input.has_stalled(now_ns):
            return "a frame takes too long to arrive"
        return None

    def eof_received(self) -> bool:
        """Called by the loop at end of file; return whether to keep the connection for now."""
        return self.input.eof_received()

    # ----------------------------------------------------------------- writing and requests

    def answer(self, context: RequestContext, answer: Response | None) -> None:
        """Respond to a pending request; does nothing for a one-way request."""
        self._dispatcher.answer(context, answer)

    def write_frames(self, frames: bytes) -> None:
        """Write encoded responses; does nothing if the connection is closed."""
        if not self.is_closed:
            self._output.write(frames)

    def pause_writing(self) -> None:
        """Called by the transport: the peer does not read as fast as we write."""
        self._output.pause()

    def resume_writing(self) -> None:
        """Called by the transport: the peer reads again."""
        if self._output.resume():
            self.input.pump()

    async def wait_writable(self) -> None:
        """Wait until the peer has read enough of our output, or is gone."""
        await self._output.wait_writable()

    async def send_request(
        self, code: int, header: Header | None = None, *, body: bytes = b"", timeout_ms: int
    ) -> RemotingCommand:
        """As :meth:`roquet.remoting.request_sender.RequestSender.send_request`."""
        return await self.sender.send_request(code, header, body=body, timeout_ms=timeout_ms)

    def send_oneway(self, code: int, header: Header | None = None, *, body: bytes = b"") -> None:
        """As :meth:`roquet.remoting.request_sender.RequestSender.send_oneway`."""
        self.sender.send_oneway(code, header, body=body)


def _address(peer: object) -> str:
    if isinstance(peer, tuple) and len(peer) >= 2:
        host, port = peer[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(peer or "unknown")
