"""Processors: which function handles which request code.

Owns the declaration of processors and the registry in which a server or client finds them. A
processor is declared where it is defined, with all its properties:

.. code-block:: python

    class PullMessage:
        @processor(
            RequestCode.PULL_MESSAGE,
            header=PullMessageRequestHeader,
            permission=Permission(Action.SUB, Resource.TOPIC),
            ports={Port.MAIN},
            request_class=RequestClass.PULL,
        )
        def pull(self, context: RequestContext, header: PullMessageRequestHeader) -> Response:
            return context.response(ResponseCode.SUCCESS)

Invariants:

* A processor without a permission does not import, so none can be forgotten.
* A code has at most one processor on a port; a code without one is refused in upstream's words.
* A processor that does not state a class is in ADMIN, as upstream has it.
* If a processor returns at once, its response is part of the burst. If it returns an awaitable, the
  request is in flight, and counted, until that is done. If it returns ``None`` for a request that
  is not one-way, it responds later with :meth:`RequestContext.reply`, and the code that keeps the
  context limits how many are kept.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar, cast

from roquet.errors import RoquetError
from roquet.remoting.codes import ResponseCode, request_code_name
from roquet.remoting.command import RemotingCommand, create_response
from roquet.remoting.headers.base import Header, decode_header
from roquet.remoting.hooks import RequestRefused, RpcCall
from roquet.remoting.turn_scheduler import RequestClass

if TYPE_CHECKING:
    from roquet.remoting.connection import Connection

__all__ = [
    "ALL_PORTS",
    "PUBLIC",
    "Action",
    "Permission",
    "Port",
    "ProcessorRegistry",
    "ProcessorResult",
    "Registration",
    "RequestContext",
    "Resource",
    "Response",
    "SlicedResponse",
    "declared_codes",
    "failure_response",
    "processor",
    "unknown_code_response",
]

log = logging.getLogger(__name__)


class Port(Enum):
    """The ports of a server; each may handle different codes."""

    MAIN = "main"
    FAST = "fast"
    """The listen port minus two, without pulls, so that sends never wait behind them."""


ALL_PORTS = frozenset(Port)


class Action(Enum):
    """What a request does to a resource, in the terms of RocketMQ's access control."""

    ANY = "Any"
    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Resource(Enum):
    """What a permission is about."""

    NONE = "None"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Permission(NamedTuple):
    """What a caller must be allowed to do for a request."""

    action: Action
    resource: Resource


PUBLIC = Permission(Action.ANY, Resource.NONE)
"""No permission needed beyond connecting."""


class SlicedResponse(NamedTuple):
    """A response whose body is given in slices, so that slices of the log need no joining.

    The slices are written or copied before control returns to the event loop.
    """

    command: RemotingCommand
    body_slices: Sequence[bytes | memoryview]


Response: TypeAlias = RemotingCommand | SlicedResponse
ProcessorResult: TypeAlias = Response | Awaitable[Response | None] | None


class RequestContext(RpcCall):
    """A received request, and how to respond to it."""

    __slots__ = ("_replied",)

    def __init__(
        self, connection: Connection, request: RemotingCommand, permission: Permission
    ) -> None:
        self.connection = connection
        self.request = request
        self.permission = permission
        self._replied = False

    def response(
        self,
        code: int,
        header: Header | None = None,
        *,
        remark: str | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """Make a response to the request, without sending it."""
        return create_response(self.request, code, header, remark=remark, body=body)

    def failure(self, error: Exception) -> RemotingCommand:
        """Make a response to a request that failed after its processor returned."""
        answer = failure_response(self.request, error)
        if not isinstance(error, RoquetError):
            log.error("%s of %s", answer.remark, self.connection.remote_address, exc_info=error)
        return answer

    def reply(self, answer: Response | None) -> None:
        """Respond to a request whose processor returned ``None``.

        Nothing is sent if the request was one-way or the connection is closed.

        Raises:
            RuntimeError: There was a response before.
        """
        if self._replied:
            raise RuntimeError(f"{self.request.code_name} was answered twice")
        self._replied = True
        self.connection.answer(self, answer)


class _Declaration(NamedTuple):
    code: int
    header_type: type[Header] | None
    permission: Permission
    ports: frozenset[Port]
    request_class: RequestClass


class Registration(NamedTuple):
    """One processor of one code, and its ports."""

    code: int
    name: str
    header_type: type[Header] | None
    permission: Permission
    ports: frozenset[Port]
    handle: Callable[[RequestContext], ProcessorResult]
    """Decodes the header and calls the processor; raises ProtocolError for a bad header."""
    request_class: RequestClass = RequestClass.ADMIN


_MARK = "_roquet_processors"
_Function = TypeVar("_Function")


def processor(
    *codes: int,
    permission: Permission,
    header: type[Header] | None = None,
    ports: Iterable[Port] = ALL_PORTS,
    request_class: RequestClass = RequestClass.ADMIN,
) -> Callable[[_Function], _Function]:
    """Declare that a function or method handles requests.

    With a header type it is called with the context and the header, otherwise with the context
    alone.

    Args:
        codes: The request codes.
        permission: What a caller must be allowed to do.
        header: The type of the ext fields.
        ports: Where it handles the codes.
        request_class: Which requests it shares the event loop with.

    Raises:
        TypeError: The declaration is incomplete, or the function takes other parameters.
    """
    if not codes:
        raise TypeError("a processor states at least one request code")
    if not isinstance(permission, Permission):
        raise TypeError(f"the processor of {request_code_name(codes[0])} states no permission")
    port_set = frozenset(ports)
    if not port_set:
        raise TypeError(f"the processor of {request_code_name(codes[0])} has no port")

    def declare(function: _Function) -> _Function:
        if not inspect.isfunction(function):
            raise TypeError(f"{function!r} is no function")
        parameters = [name for name in inspect.signature(function).parameters if name != "self"]
        if len(parameters) != (1 if header is None else 2):
            wanted = "context" if header is None else "context, header"
            raise TypeError(f"{function.__qualname__} must take ({wanted})")
        declared: list[_Declaration] = getattr(function, _MARK, [])
        new = [_Declaration(code, header, permission, port_set, request_class) for code in codes]
        setattr(function, _MARK, declared + new)
        return function

    return declare


class ProcessorRegistry:
    """Finds the processor of a request.

    Args:
        sources: Declared functions, and objects with declared methods.

    Example:
        >>> @processor(34, permission=PUBLIC)
        ... def heart_beat(context: RequestContext) -> Response:
        ...     return context.response(ResponseCode.SUCCESS)
        >>> list(ProcessorRegistry(heart_beat).table(Port.MAIN))
        [34]
    """

    def __init__(self, *sources: object) -> None:
        self._by_port: dict[Port, dict[int, Registration]] = {port: {} for port in Port}
        for source in sources:
            self.add(source)

    def add(self, source: object) -> None:
        """Add a declared function, or all declared methods of an object.

        Raises:
            TypeError: Nothing is declared there.
            ValueError: A code already has a processor on that port.
        """
        found = list(_registrations(source))
        if not found:
            raise TypeError(f"{source!r} declares no processor")
        for registration in found:
            for port in registration.ports:
                known = self._by_port[port].setdefault(registration.code, registration)
                if known is not registration:
                    raise ValueError(
                        f"{request_code_name(registration.code)} has two processors on port "
                        f"{port.value}: {known.name} and {registration.name}"
                    )

    def find(self, code: int, port: Port) -> Registration | None:
        """The processor of a code on a port."""
        return self._by_port[port].get(code)

    def table(self, port: Port) -> dict[int, Registration]:
        """All processors of a port by code; a live view."""
        return self._by_port[port]


def declared_codes(function: object) -> list[int]:
    """The codes that a function is declared to handle; none for anything else.

    Example:
        >>> @processor(34, 35, permission=PUBLIC)
        ... def answer(context: RequestContext) -> Response:
        ...     return context.response(ResponseCode.SUCCESS)
        >>> declared_codes(answer), declared_codes(len)
        ([34, 35], [])
    """
    declared: list[_Declaration] = getattr(function, _MARK, [])
    return [each.code for each in declared]


def _registrations(source: object) -> Iterable[Registration]:
    if inspect.isfunction(source) or inspect.ismethod(source):
        yield from _bound(source)
        return
    names = sorted({name for kind in type(source).__mro__ for name in vars(kind)})
    for name in names:
        if hasattr(inspect.getattr_static(source, name), _MARK):
            yield from _bound(getattr(source, name))


def _bound(function: FunctionType | MethodType) -> Iterable[Registration]:
    declared: list[_Declaration] = getattr(function, _MARK, [])
    for each in declared:
        yield Registration(
            code=each.code,
            name=function.__qualname__,
            header_type=each.header_type,
            permission=each.permission,
            ports=each.ports,
            handle=_handler(function, each.header_type),
            request_class=each.request_class,
        )


def _handler(
    function: FunctionType | MethodType, header_type: type[Header] | None
) -> Callable[[RequestContext], ProcessorResult]:
    if header_type is None:
        return cast("Callable[[RequestContext], ProcessorResult]", function)
    typed = cast("Callable[[RequestContext, Header], ProcessorResult]", function)

    def handle(context: RequestContext) -> ProcessorResult:
        return typed(context, decode_header(header_type, context.request.ext_fields))

    return handle


def failure_response(request: RemotingCommand, error: Exception) -> RemotingCommand:
    """The response to a request that failed; a refusal has its own text.

    The text of an unexpected error may hold paths or secrets, so only our log gets it.
    """
    if isinstance(error, RequestRefused):
        return create_response(request, error.response_code, remark=error.message)
    if isinstance(error, RoquetError):
        remark = error.message
    else:
        remark = f"{type(error).__name__} while handling {request.code_name}"
    return create_response(request, ResponseCode.SYSTEM_ERROR, remark=remark)


def unknown_code_response(request: RemotingCommand) -> RemotingCommand:
    """The response to a code without a processor.

    The remark is upstream's, with its leading space; the name of the code follows if it has one.
    """
    remark = f" request type {request.code} not supported"
    name = request.code_name
    if name != str(request.code):
        remark = f"{remark}: {name}"
    return create_response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
