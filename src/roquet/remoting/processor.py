"""Processors: which function answers which request code.

Owns the declaration of a processor and the registry by which a server or client finds it. A
processor is declared where it is written, and says everything about itself:

.. code-block:: python

    class PullMessage:
        @processor(
            RequestCode.PULL_MESSAGE,
            header=PullMessageRequestHeader,
            permission=Permission(Action.SUB, Resource.TOPIC),
            ports={Port.MAIN},
        )
        def pull(self, context: RequestContext, header: PullMessageRequestHeader) -> Answer:
            return context.response(ResponseCode.SUCCESS)

Invariants:

* A processor without a permission does not import, so none can be forgotten.
* A code has one processor at most on a port; a code without one is answered with upstream's
  words.
* A processor that returns at once is answered in the burst that brought the request. One that
  returns an awaitable is in flight, and counted, until it is done. One that returns ``None`` for a
  request that wants an answer gives it later by :meth:`RequestContext.reply`, and whoever keeps
  the context bounds how many are kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar, cast

from roquet.remoting.codes import ResponseCode, request_code_name
from roquet.remoting.command import RemotingCommand, create_response
from roquet.remoting.headers.base import Header, decode_header
from roquet.remoting.hooks import RpcCall

if TYPE_CHECKING:
    from roquet.remoting.connection import Connection

__all__ = [
    "ALL_PORTS",
    "PUBLIC",
    "Action",
    "Answer",
    "AnswerInParts",
    "Permission",
    "Port",
    "ProcessorRegistry",
    "ProcessorResult",
    "Registration",
    "RequestContext",
    "Resource",
    "declared_codes",
    "processor",
    "unknown_code_response",
]


class Port(Enum):
    """The ports of a server; each may know other codes."""

    MAIN = "main"
    FAST = "fast"
    """The listen port minus two, without pulls, so that sends never wait behind them."""


ALL_PORTS = frozenset(Port)


class Action(Enum):
    """What a request does to a resource, in the words of RocketMQ's access control."""

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
    """What a caller must be allowed to do, to have a request handled."""

    action: Action
    resource: Resource


PUBLIC = Permission(Action.ANY, Resource.NONE)
"""Whoever may connect may ask."""


class AnswerInParts(NamedTuple):
    """An answer whose body is written from parts, so that slices of the log need no joining.

    The parts are used up before control returns to the event loop.
    """

    command: RemotingCommand
    body_parts: Sequence[bytes | memoryview]


Answer: TypeAlias = RemotingCommand | AnswerInParts
ProcessorResult: TypeAlias = Answer | Awaitable[Answer | None] | None


class RequestContext(RpcCall):
    """A request that came in, and the way to answer it."""

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

    def reply(self, answer: Answer | None) -> None:
        """Answer a request whose processor returned ``None``.

        Nothing is sent when the request was one-way or the connection is gone.

        Raises:
            RuntimeError: It was answered before.
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


class Registration(NamedTuple):
    """One processor on the ports where it answers one code."""

    code: int
    name: str
    header_type: type[Header] | None
    permission: Permission
    ports: frozenset[Port]
    handle: Callable[[RequestContext], ProcessorResult]
    """Reads the header and calls the processor; raises ProtocolError for a bad header."""


_MARK = "_roquet_processors"
_Function = TypeVar("_Function")


def processor(
    *codes: int,
    permission: Permission,
    header: type[Header] | None = None,
    ports: Iterable[Port] = ALL_PORTS,
) -> Callable[[_Function], _Function]:
    """Declare that a function or method answers requests.

    With a header type it is called with the context and the header, otherwise with the context
    alone.

    Args:
        codes: The request codes.
        permission: What a caller must be allowed to do.
        header: How the ext fields are read.
        ports: Where it answers.

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
        new = [_Declaration(code, header, permission, port_set) for code in codes]
        setattr(function, _MARK, declared + new)
        return function

    return declare


class ProcessorRegistry:
    """Finds the processor of a request.

    Args:
        sources: Declared functions, and objects with declared methods.

    Example:
        >>> @processor(34, permission=PUBLIC)
        ... def heart_beat(context: RequestContext) -> Answer:
        ...     return context.response(ResponseCode.SUCCESS)
        >>> ProcessorRegistry(heart_beat).codes()
        [34]
    """

    def __init__(self, *sources: object) -> None:
        self._by_port: dict[Port, dict[int, Registration]] = {port: {} for port in Port}
        for source in sources:
            self.add(source)

    def add(self, source: object) -> None:
        """Take a declared function, or all declared methods of an object.

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
        """All processors of a port by code, as the registry sees them from now on."""
        return self._by_port[port]

    def codes(self, port: Port | None = None) -> list[int]:
        """The codes that have a processor, on one port or on any."""
        ports = Port if port is None else (port,)
        return sorted({code for each in ports for code in self._by_port[each]})

    def registrations(self) -> list[Registration]:
        """Every processor, once for each of its codes, by code."""
        unique = {
            (each.code, each.name): each
            for table in self._by_port.values()
            for each in table.values()
        }
        return [unique[key] for key in sorted(unique)]


def declared_codes(function: object) -> list[int]:
    """The codes that a function is declared to answer; none for anything else.

    Example:
        >>> @processor(34, 35, permission=PUBLIC)
        ... def answer(context: RequestContext) -> Answer:
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


def unknown_code_response(request: RemotingCommand) -> RemotingCommand:
    """The answer to a code that nobody handles.

    The words are upstream's, with their first space; the name of a code that has one follows.
    """
    remark = f" request type {request.code} not supported"
    name = request.code_name
    if name != str(request.code):
        remark = f"{remark}: {name}"
    return create_response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
