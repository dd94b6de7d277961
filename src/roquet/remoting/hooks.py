"""Hooks around every request, before it is handled or sent and after its response is known.

Owns :class:`RpcCall`, one request in either direction, and :class:`RpcHook`. Servers use hooks to
check signatures and to count, clients to sign. Hooks run on the event loop and never wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.errors import RoquetError
from roquet.remoting.codes import ResponseCode
from roquet.remoting.command import RemotingCommand

if TYPE_CHECKING:
    from roquet.remoting.connection import Connection
    from roquet.remoting.processor import Permission

__all__ = ["RequestRefused", "RpcCall", "RpcHook"]


class RequestRefused(RoquetError):
    """Ends a request with a given response code and remark.

    Hooks and processors raise it; the peer gets the code and the message.

    Args:
        message: The remark.
        response_code: The response code.
    """

    default_code = "request_refused"

    def __init__(self, message: str, *, response_code: int = ResponseCode.SYSTEM_ERROR) -> None:
        super().__init__(message)
        self.response_code = response_code


class RpcCall:
    """One request, incoming or outgoing.

    Attributes:
        connection: Where it came from, or goes to.
        request: The request.
        permission: What its processor requires; ``None`` for a request that we send.
    """

    __slots__ = ("connection", "permission", "request")

    def __init__(
        self,
        connection: Connection,
        request: RemotingCommand,
        permission: Permission | None = None,
    ) -> None:
        self.connection = connection
        self.request = request
        self.permission = permission

    @property
    def is_incoming(self) -> bool:
        """Whether a peer sent it."""
        return self.permission is not None


class RpcHook:
    """Code that runs around requests; subclasses override what they need.

    Requests with an unhandled code are refused before any hook sees them.
    """

    def before_request(self, call: RpcCall) -> None:
        """Inspect or change a request before it is handled or sent.

        Raises:
            RequestRefused: The request is not to be handled; carries the response.

        Example:
            from roquet.remoting.hooks import RpcCall, RpcHook

            class Count(RpcHook):
                requests = 0

                def before_request(self, call: RpcCall) -> None:
                    self.requests += 1

            Count().before_request(call)
        """

    def after_response(self, call: RpcCall, response: RemotingCommand | None) -> None:
        """Inspect a response before it is sent, or after it arrived; one-way requests have none.

        Example:
            from roquet.remoting.command import RemotingCommand
            from roquet.remoting.hooks import RpcCall, RpcHook

            class Refusals(RpcHook):
                count = 0

                def after_response(self, call: RpcCall, response: RemotingCommand | None) -> None:
                    self.count += response is not None and response.code != 0

            Refusals().after_response(call, None)
        """
