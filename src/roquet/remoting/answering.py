"""The requests that come in on one connection, until they are answered.

Owns what of them is under way. A processor answers at once, later, or never if nobody waits; hooks
run around it. Whatever goes wrong becomes an answer: a refusal in its own words, anything
unexpected without its text.
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
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    Answer,
    AnswerInParts,
    RequestContext,
    unknown_code_response,
)

if TYPE_CHECKING:
    from roquet.remoting.connection import Connection
    from roquet.remoting.endpoint import Endpoint

__all__ = ["Answering"]

log = logging.getLogger(__name__)

_GO_AWAY_SINCE = version_ordinal("V5_3_1")
"""Clients after this version understand that they are to go away."""


class Answering:
    """Has requests handled, and writes their answers.

    Args:
        connection: Where they come from.
        endpoint: What its connections share.
    """

    def __init__(self, connection: Connection, endpoint: Endpoint) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._limits = endpoint.limits
        self._table = endpoint.registry.table(connection.port)
        self._in_flight = 0
        self._in_flight_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no further request may be taken from this connection."""
        return (
            self._in_flight >= self._limits.max_in_flight
            or self._in_flight_bytes >= self._limits.max_in_flight_bytes
        )

    def handle(self, request: RemotingCommand, request_bytes: int) -> None:
        """Have a request handled."""
        endpoint = self._endpoint
        endpoint.statistics.requests += 1
        registration = self._table.get(request.code)
        if registration is None:
            endpoint.statistics.requests_unknown += 1
            self._write(request, unknown_code_response(request))
            return
        if endpoint.stopping and request.version > _GO_AWAY_SINCE:
            answer = create_response(request, ResponseCode.GO_AWAY, remark="please go away")
            self._write(request, answer)
            return
        context = RequestContext(self._connection, request, registration.permission)
        try:
            for hook in endpoint.hooks:
                hook.before_request(context)
            result = registration.handle(context)
            if not (result is None or isinstance(result, (RemotingCommand, AnswerInParts))):
                self._wait(context, asyncio.ensure_future(result), request_bytes)
                return
        except Exception as error:  # noqa: BLE001 - whatever it is, the peer gets an answer
            result = self._failure(request, error)
        if result is not None or request.is_oneway:
            self.answer(context, result)

    def _wait(
        self, context: RequestContext, running: asyncio.Future[Answer | None], request_bytes: int
    ) -> None:
        self._in_flight += 1
        self._in_flight_bytes += request_bytes
        self._endpoint.started(running, request_bytes)
        running.add_done_callback(partial(self._finish, context, request_bytes))

    def _finish(
        self, context: RequestContext, request_bytes: int, running: asyncio.Future[Answer | None]
    ) -> None:
        self._in_flight -= 1
        self._in_flight_bytes -= request_bytes
        if not running.cancelled():
            error = running.exception()
            if isinstance(error, Exception):
                answer: Answer | None = self._failure(context.request, error)
            else:
                answer = running.result()
            if answer is not None or context.request.is_oneway:
                self.answer(context, answer)
        self._connection.go_on_reading()
        self._endpoint.finished(running, request_bytes)

    def _failure(self, request: RemotingCommand, error: Exception) -> RemotingCommand:
        if isinstance(error, RequestRefused):
            return create_response(request, error.response_code, remark=error.message)
        if isinstance(error, RoquetError):
            remark = error.message
        else:
            # The text of an unexpected error may hold paths or secrets; it stays in our log.
            remark = f"{type(error).__name__} while handling {request.code_name}"
            self._endpoint.statistics.processor_errors += 1
            more = self._endpoint.log_limiter.allow("processor")
            if more is not None:
                peer = self._connection.remote_address
                log.error("%s of %s%s", remark, peer, more, exc_info=error)
        return create_response(request, ResponseCode.SYSTEM_ERROR, remark=remark)

    def answer(self, context: RequestContext, answer: Answer | None) -> None:
        """Run the hooks that see an answer, then write it; nothing for a one-way request."""
        request = context.request
        hooks = self._endpoint.hooks
        if hooks:
            command = answer.command if isinstance(answer, AnswerInParts) else answer
            try:
                for hook in hooks:
                    hook.after_response(context, command)
            except Exception as error:  # noqa: BLE001 - whatever it is, the peer gets an answer
                answer = self._failure(request, error)
        if answer is not None:
            self._write(request, answer)

    def _write(self, request: RemotingCommand, answer: Answer) -> None:
        connection = self._connection
        if request.flag & ONEWAY_FLAG or connection.is_closed:
            return
        if isinstance(answer, AnswerInParts):
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
                connection.write(encode_command(command))
                return
            head = encode_command_head(command, body_bytes=sum(len(part) for part in parts))
        except ProtocolError as error:
            self._write(request, self._failure(request, error))
            return
        connection.write_parts(head, parts)
