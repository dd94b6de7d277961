"""The client: one connection to each address, made when it is needed.

Owns :class:`RemotingClient`. A connection is shared by all requests to its address and made anew
by the first request after it was lost. The peer may ask as well; a registry answers.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self

from msgspec import Struct

from roquet.errors import ClientClosed, ConfigError, ConnectFailed
from roquet.remoting.codes import LanguageCode, ResponseCode
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import Endpoint, RemotingLimits, RemotingStatistics
from roquet.remoting.frame import SerializeType
from roquet.remoting.frame_lane import FrameLane
from roquet.remoting.headers.base import Header
from roquet.remoting.hooks import RpcHook
from roquet.remoting.outgoing import Slots, request_timeout
from roquet.remoting.processor import ProcessorRegistry
from roquet.remoting.tls import ClientTlsConfig, client_context
from roquet.runtime.clock import Clock, SystemClock

__all__ = ["ClientConfig", "RemotingClient", "split_address"]


class ClientConfig(Struct, frozen=True, kw_only=True):
    """How a client connects and asks.

    Attributes:
        limits: How much peers may make it hold.
        tls: How it speaks TLS; ``None`` for plain text.
        connect_timeout_ms: How long a connection may take to be made.
        request_timeout_ms: How long a request may take that says nothing else.
        max_in_flight: Requests to all addresses that are not answered; further ones wait.
        serialize_type: How its headers are written.
        language: What it says it is written in.
    """

    limits: RemotingLimits = RemotingLimits()
    tls: ClientTlsConfig | None = None
    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 3_000
    max_in_flight: int = 65_535
    serialize_type: SerializeType = SerializeType.JSON
    language: LanguageCode = LanguageCode.PYTHON


def split_address(address: str) -> tuple[str, int]:
    """Host and port of an address.

    Raises:
        ConfigError: It is no address.

    Example:
        >>> split_address("[::1]:9876")
        ('::1', 9876)
    """
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) <= 65_535:
        raise ConfigError(
            f"{address!r} is no address",
            hint="Write host:port, and an IPv6 host in brackets.",
        )
    return host, int(port)


class RemotingClient:
    """Sends requests, over one connection to each address.

    Args:
        registry: Who answers requests of the peers.
        config: How to connect and ask.
        hooks: What runs around every request.
        clock: The time.
        on_connect: Called with the address of every new connection.
        lane: A shorter way for answers that are all alike.

    Raises:
        ConfigError: The TLS settings cannot be used.
    """

    def __init__(
        self,
        registry: ProcessorRegistry | None = None,
        config: ClientConfig | None = None,
        *,
        hooks: Iterable[RpcHook] = (),
        clock: Clock | None = None,
        on_connect: Callable[[str], None] | None = None,
        lane: FrameLane | None = None,
    ) -> None:
        self._on_connect = on_connect
        self._config = config or ClientConfig()
        tls = self._config.tls
        self._tls: ssl.SSLContext | None = None if tls is None else client_context(tls)
        self._endpoint = Endpoint(
            registry or ProcessorRegistry(),
            self._config.limits,
            hooks=hooks,
            clock=clock or SystemClock(),
            language=self._config.language,
            serialize_type=self._config.serialize_type,
            reads_while_unwritten=True,
        )
        self._endpoint.lane = lane
        self._slots = Slots(self._config.max_in_flight)
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._watching = False
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def statistics(self) -> RemotingStatistics:
        """What happened so far."""
        return self._endpoint.statistics

    @property
    def connections(self) -> frozenset[Connection]:
        """The open connections."""
        return frozenset(self._endpoint.connections)

    def close_idle_connections(self) -> None:
        """Close connections on which nothing moved for the idle time; also done by a timer."""
        self._endpoint.close_idle_connections()

    async def invoke(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        """Ask and wait for the answer, whatever its response code is.

        A server that says GO_AWAY is asked once more on a new connection, as upstream does.

        Raises:
            ConnectFailed: There is no connection to be had; nothing was sent.
            SendFailed: The connection broke before the answer came.
            RequestTimeout: No answer came in time.
        """
        request = self._request(code, header, body, oneway=False)
        timeout_ms = timeout_ms or self._config.request_timeout_ms
        connection = self._connections.get(address)
        if connection is None or not (connection.is_writable and self._slots.take_free()):
            return await self._invoke_patiently(address, request, timeout_ms)
        # The usual case: there is nothing to wait for but the answer.
        try:
            answer = await connection.invoke(request, timeout_ms=timeout_ms)
        finally:
            self._slots.give_back()
        if answer.code == ResponseCode.GO_AWAY:
            self._lost(address, connection)
            answer = await self._invoke_patiently(address, request, timeout_ms)
        return answer

    async def invoke_template(
        self,
        address: str,
        code: int,
        template: bytes,
        values: tuple[object, ...],
        *,
        body: bytes = b"",
        timeout_ms: int,
    ) -> RemotingCommand | None:
        """As :meth:`invoke`, for requests that are all alike; see :meth:`Connection.begin`.

        Returns:
            The answer; ``None`` when the request has to be made with :meth:`invoke`: nothing was
            sent, or the server said GO_AWAY and did nothing.

        Raises:
            SendFailed: The connection broke before the answer came.
            RequestTimeout: No answer came in time.
        """
        connection = self._connections.get(address)
        if connection is None or not self._slots.take_free():
            return None
        try:
            future = connection.begin(code, template, values, body, timeout_ms=timeout_ms)
            if future is None:
                return None
            answer = await future
        finally:
            self._slots.give_back()
        if answer.code == ResponseCode.GO_AWAY:
            self._lost(address, connection)
            return None
        return answer

    def take_connection(self, address: str) -> Connection | None:
        """A connection for one request that is a frame already, if there is nothing to wait for.

        Whoever gets one gives it back with :meth:`give_back_connection`, after the answer.
        """
        connection = self._connections.get(address)
        if connection is None or not connection.takes_frames() or not self._slots.take_free():
            return None
        return connection

    def give_back_connection(
        self, address: str, connection: Connection, *, goes_away: bool = False
    ) -> None:
        """The request is done; ``goes_away`` if the server said that it answers no more."""
        self._slots.give_back()
        if goes_away:
            self._lost(address, connection)

    async def _invoke_patiently(
        self, address: str, request: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Ask, after waiting for a slot, a connection and a peer that reads."""
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._slot():
                connection = await self.connect(address)
                await connection.wait_writable()
                answer = await connection.invoke(request)
                if answer.code == ResponseCode.GO_AWAY:
                    # Not done, and nothing will be on this connection; another may lead elsewhere.
                    self._lost(address, connection)
                    connection = await self.connect(address)
                    answer = await connection.invoke(request)
                return answer
        except TimeoutError:
            raise request_timeout(address, request.code, timeout_ms) from None

    async def invoke_oneway(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        timeout_ms: int | None = None,
    ) -> None:
        """Tell something, without an answer; waits while the peer does not read.

        Raises:
            ConnectFailed: There is no connection to be had.
            SendFailed: The connection broke.
            RequestTimeout: It could not be sent in time.
        """
        request = self._request(code, header, body, oneway=True)
        timeout_ms = timeout_ms or self._config.request_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._slot():
                connection = await self.connect(address)
                await connection.wait_writable()
                connection.invoke_oneway(request)
        except TimeoutError:
            raise request_timeout(address, code, timeout_ms) from None

    async def connect(self, address: str) -> Connection:
        """The connection to an address; made if there is none.

        Raises:
            ConnectFailed: There is no connection to be had.
            ClientClosed: The client is closed.
            ConfigError: The address is none.
        """
        connection = self._connections.get(address)
        if connection is not None and not connection.is_closed:
            return connection
        if self._closed:
            raise ClientClosed("The client is closed")
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(address))
            self._connecting[address] = task
            task.add_done_callback(partial(self._opened, address))
        # Other callers may wait for the same connection: one that gives up must not end it.
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Close every connection; open requests end with :class:`~roquet.errors.SendFailed`."""
        self._closed = True
        connecting = list(self._connecting.values())
        for task in connecting:
            task.cancel()
        if connecting:
            await asyncio.wait(connecting)
        await self._endpoint.close()

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        await self._slots.take()
        try:
            yield
        finally:
            self._slots.give_back()

    async def _open(self, address: str) -> Connection:
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        if not self._watching:
            self._watching = True
            self._endpoint.watch_idle()
        try:
            async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
                _, connection = await loop.create_connection(
                    partial(Connection, self._endpoint), host, port, ssl=self._tls
                )
        except TimeoutError:
            reason = f"no connection within {self._config.connect_timeout_ms} ms"
        except (OSError, ssl.CertificateError) as error:
            reason = str(error)
        else:
            return connection
        raise ConnectFailed(
            f"Cannot connect to {address}",
            detail=reason,
            hint="Is the server running there, and does it speak TLS if the client does?",
        )

    def _opened(self, address: str, task: asyncio.Task[Connection]) -> None:
        del self._connecting[address]
        if task.cancelled() or task.exception() is not None:
            return
        connection = task.result()
        self._connections[address] = connection
        connection.on_close(partial(self._lost, address))
        if self._on_connect is not None:
            self._on_connect(address)

    def _lost(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]

    def _request(
        self, code: int, header: Header | None, body: bytes, *, oneway: bool
    ) -> RemotingCommand:
        return create_request(
            code,
            header,
            opaque=0,
            body=body,
            oneway=oneway,
            language=self._config.language,
            serialize_type=self._config.serialize_type,
        )
