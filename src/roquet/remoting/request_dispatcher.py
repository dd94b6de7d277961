"""Handles the requests that arrive on one connection.

Tracks the requests in flight. A request whose class has a queue waits for its turn, any other is
handled at once. A processor responds at once, later, or not at all for a one-way request; hooks
run around it. Every failure becomes a response: a refusal with its own text, an unexpected error
without its text.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from roquet.errors import ProtocolError, RoquetError
from roquet.remoting.codec import encode_command, encode_command_head
from roquet.remoting.codes import ResponseCode, version_ordinal
from roquet.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand, create_response
from roquet.remoting.output import Output
from roquet.remoting.processor import (
    Registration,
    RequestContext,
    Response,
    SlicedResponse,
    failure_response,
    unknown_code_response,
)
from roquet.remoting.turn_scheduler import RequestClass, Ring

if TYPE_CHECKING:
    from roquet.remoting.connection import Connection
    from roquet.remoting.endpoint import Endpoint

__all__ = ["RequestDispatcher"]

log = logging.getLogger(__name__)

_GO_AWAY_SINCE = version_ordinal("V5_3_1")
"""Clients after this version understand GO_AWAY."""


_READS = frozenset({RequestClass.PULL, RequestClass.QUERY})
"""Requests that change nothing, so they can be cancelled when the connection is closed."""


class _Request:
    """A request of a class that has a queue."""

    __slots__ = ("_bytes", "_dispatcher", "_registration", "_request", "_waited", "owner")

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        request: RemotingCommand,
        registration: Registration,
        request_bytes: int,
    ) -> None:
        self.owner = dispatcher.connection.input
        self._dispatcher = dispatcher
        self._request = request
        self._registration = registration
        self._bytes = request_bytes
        self._waited = False

    def wait(self) -> None:
        self._waited = True
        self._dispatcher.count_in(self._bytes)

    def start(self) -> asyncio.Future[Response | None] | None:
        pending = self._dispatcher.start(self._request, self._registration, self._bytes)
        self.drop()
        return pending

    def refuse(self, remark: str) -> None:
        self._dispatcher.refuse(self._request, remark)
        self.drop()

    def drop(self) -> None:
        if self._waited:
            self._waited = False
            self._dispatcher.count_out(self._bytes)


class RequestDispatcher:
    """Dispatches requests to processors and writes their responses.

    Args:
        connection: Where requests come from.
        endpoint: What its connections share.
        output: Where responses are written.
    """

    def __init__(self, connection: Connection, endpoint: Endpoint, output: Output) -> None:
        self.connection = connection
        self._output = output
        self._endpoint = endpoint
        self._limits = endpoint.limits
        self._turns = endpoint.turns
        self._table = endpoint.registry.table(connection.port)
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._reads: set[asyncio.Future[Response | None]] = set()

    @property
    def is_full(self) -> bool:
        """Whether no further request may be taken from this connection."""
        return (
            self._in_flight >= self._limits.max_in_flight
            or self._in_flight_bytes >= self._limits.max_in_flight_bytes
        )

    def handle(self, request: RemotingCommand, request_bytes: int) -> Ring:
        """Handle a request; return the ring where its connection waits if the turn is over."""
        endpoint = self._endpoint
        endpoint.statistics.requests += 1
        registration = self._table.get(request.code)
        if registration is None:
            endpoint.statistics.requests_unknown += 1
            self._write(request, unknown_code_response(request))
            return Ring.BUSY
        if endpoint.stopping and request.version > _GO_AWAY_SINCE:
            answer = create_response(request, ResponseCode.GO_AWAY, remark="please go away")
            self._write(request, answer)
            return Ring.BUSY
        kind = registration.request_class
        if kind in self._turns.queued:
            self._turns.submit(kind, _Request(self, request, registration, request_bytes))
            return Ring.ADMIN
        self.start(request, registration, request_bytes)
        return Ring.BUSY

    def start(
        self, request: RemotingCommand, registration: Registration, request_bytes: int
    ) -> asyncio.Future[Response | None] | None:
        """Call the processor; return a future if it does not respond at once."""
        endpoint = self._endpoint
        context = RequestContext(self.connection, request, registration.permission)
        try:
            for hook in endpoint.hooks:
                hook.before_request(context)
            result = registration.handle(context)
            if not (result is None or isinstance(result, (RemotingCommand, SlicedResponse))):
                running = asyncio.ensure_future(result)
                self.count_in(request_bytes)
                endpoint.running.add(running)
                if registration.request_class in _READS:
                    self._reads.add(running)
                running.add_done_callback(partial(self._finish, context, request_bytes))
                return running
        except Exception as error:  # noqa: BLE001 - whatever it is, the peer gets a response
            result = self._failure(request, error)
        if result is not None or request.is_oneway:
            self.answer(context, result)
        return None

    def _finish(
        self, context: RequestContext, request_bytes: int, running: asyncio.Future[Response | None]
    ) -> None:
        self._endpoint.running.discard(running)
        self._reads.discard(running)
        if not running.cancelled():
            error = running.exception()
            if isinstance(error, Exception):
                answer: Response | None = self._failure(context.request, error)
            else:
                answer = running.result()
            if answer is not None or context.request.is_oneway:
                self.answer(context, answer)
        self.count_out(request_bytes)

    def close(self) -> None:
        """Cancel reads in progress, because their peer is gone."""
        for running in self._reads:
            running.cancel()

    def refuse(self, request: RemotingCommand, remark: str) -> None:
        """Refuse a request, because there are too many."""
        self._write(request, create_response(request, ResponseCode.SYSTEM_BUSY, remark=remark))

    def count_in(self, request_bytes: int) -> None:
        """Count a request that waits or is in progress."""
        self._in_flight += 1
        self._in_flight_bytes += request_bytes
        self._endpoint.count_in(request_bytes)

    def count_out(self, request_bytes: int) -> None:
        """Count it out, and resume waiting connections."""
        self._in_flight -= 1
        self._in_flight_bytes -= request_bytes
        self.connection.input.go_on_reading()
        self._endpoint.count_out(request_bytes)

    def _failure(self, request: RemotingCommand, error: Exception) -> RemotingCommand:
        response = failure_response(request, error)
        if not isinstance(error, RoquetError):
            self._endpoint.statistics.processor_errors += 1
            more = self._endpoint.log_limiter.allow("processor")
            if more is not None:
                peer = self.connection.remote_address
                log.error("%s of %s%s", response.remark, peer, more, exc_info=error)
        return response

    def answer(self, context: RequestContext, answer: Response | None) -> None:
        """Run the response hooks, then write the response; writes none for a one-way request."""
        request = context.request
        hooks = self._endpoint.hooks
        if hooks:
            command = answer.command if isinstance(answer, SlicedResponse) else answer
            try:
                for hook in hooks:
                    hook.after_response(context, command)
            except Exception as error:  # noqa: BLE001 - whatever it is, the peer gets a response
                answer = self._failure(request, error)
        if answer is not None:
            self._write(request, answer)

    def _write(self, request: RemotingCommand, answer: Response) -> None:
        if request.flag & ONEWAY_FLAG or self.connection.is_closed:
            return
        if isinstance(answer, SlicedResponse):
            command, parts = answer
        else:
            command, parts = answer, None
        command.opaque = request.opaque
        command.flag |= RESPONSE_FLAG
        serialize_type = self._endpoint.serialize_type
        command.serialize_type = (
            request.serialize_type if serialize_type is None else serialize_type
        )
        try:
            if parts is None:
                self._output.write(encode_command(command))
                return
            head = encode_command_head(command, body_bytes=sum(len(part) for part in parts))
        except ProtocolError as error:
            self._write(request, self._failure(request, error))
            return
        self._output.write_parts(head, parts)
