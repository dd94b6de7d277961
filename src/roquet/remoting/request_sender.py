"""Sends our own requests on one connection, whichever side opened it.

Decides whether a request may be sent now, runs the hooks around it, and fails it when the
connection breaks. :mod:`roquet.remoting.outgoing` matches responses to requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from roquet.errors import AnswerLost, SendFailed
from roquet.remoting.codec import encode_command
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import Header
from roquet.remoting.hooks import RpcCall, RpcHook
from roquet.remoting.outgoing import OutgoingRequests
from roquet.remoting.output import Output

if TYPE_CHECKING:
    from roquet.remoting.connection import Connection
    from roquet.remoting.endpoint import Endpoint

__all__ = ["RequestSender"]

log = logging.getLogger(__name__)


class RequestSender:
    """Sends requests to the peer of a connection.

    Args:
        connection: The connection.
        endpoint: What its connections share.
        output: Where requests are written.
        loop: The event loop.

    Attributes:
        outgoing: Our requests that are still pending.
    """

    __slots__ = ("_connection", "_endpoint", "_limits", "_output", "outgoing")

    def __init__(
        self,
        connection: Connection,
        endpoint: Endpoint,
        output: Output,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._limits = endpoint.limits
        self._output = output
        self.outgoing = OutgoingRequests(loop)

    @property
    def is_ready(self) -> bool:
        """Whether a request can be sent now: the connection is open and its peer reads."""
        return self._output.blocked is None and not self._connection.is_closed

    def takes_frames(self) -> bool:
        """Whether compiled code may send a request now."""
        output = self._output
        if (
            output.blocked is not None
            or self._connection.input.hot_reader is None
            or len(self.outgoing.waiting) >= self._limits.max_outgoing
        ):
            return False
        # The checks for the first request of this pass of the loop still hold.
        return output.is_scheduled or not (self._connection.is_closed or self._endpoint.hooks)

    async def send_request(
        self, code: int, header: Header | None = None, *, body: bytes = b"", timeout_ms: int
    ) -> RemotingCommand:
        """Send a request and wait for the response, whatever its code is.

        Raises:
            SendFailed: The connection is closed or its peer does not read.
            RequestTimeout: No response arrived in time.
        """
        return await self.invoke(self._endpoint.request(code, header, body), timeout_ms=timeout_ms)

    def send_oneway(self, code: int, header: Header | None = None, *, body: bytes = b"") -> None:
        """Send a one-way request.

        Raises:
            SendFailed: The connection is closed or its peer does not read.
        """
        self.invoke_oneway(self._endpoint.request(code, header, body, oneway=True))

    async def invoke(
        self, request: RemotingCommand, *, timeout_ms: int | None = None
    ) -> RemotingCommand:
        """Like :meth:`send_request`, with a given request; its opaque is set here.

        Without a timeout the caller limits the wait.
        """
        call = RpcCall(self._connection, request)
        self._send(call)
        peer = self._connection.remote_address
        response = await self.outgoing.wait(request, peer, timeout_ms=timeout_ms)
        if self._endpoint.hooks:
            self._run_hooks(lambda hook: hook.after_response(call, response), AnswerLost)
        return response

    def invoke_oneway(self, request: RemotingCommand) -> None:
        """Like :meth:`send_oneway`, with a given request."""
        self._send(RpcCall(self._connection, request))

    def close(self, reason: str) -> None:
        """Fail all pending requests, because the connection is closed."""
        lost = "lost before the response arrived"
        self.outgoing.fail(partial(self._send_failed, lost, reason, kind=AnswerLost))

    def _send(self, call: RpcCall) -> None:
        if self._connection.is_closed:
            raise self._send_failed("closed")
        if self._output.blocked is not None:
            raise self._send_failed("full: the peer does not read")
        if len(self.outgoing) >= self._limits.max_outgoing:
            raise self._send_failed("full: too many requests are pending")
        request = call.request
        request.opaque = self.outgoing.free_opaque()
        if self._endpoint.hooks:
            self._run_hooks(lambda hook: hook.before_request(call), SendFailed)
        self._endpoint.statistics.requests_sent += 1
        self._output.write(encode_command(request))

    def _run_hooks(self, run: Callable[[RpcHook], None], kind: type[SendFailed]) -> None:
        """Run hooks around a request of ours; if one raises, our caller gets a failed send."""
        for hook in self._endpoint.hooks:
            try:
                run(hook)
            except Exception as error:
                more = self._endpoint.log_limiter.allow("hook")
                if more is not None:
                    connection = self._connection
                    log.warning(
                        "a hook stopped a request to %s%s", connection, more, exc_info=error
                    )
                raise self._send_failed("blocked by a hook", str(error), kind=kind) from error

    def _send_failed(
        self, what: str, detail: str | None = None, *, kind: type[SendFailed] = SendFailed
    ) -> SendFailed:
        return kind(
            f"The connection to {self._connection.remote_address or 'the peer'} is {what}",
            detail=detail,
            hint="The next request opens a new connection.",
        )
