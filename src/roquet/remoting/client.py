"""The client: one connection to each address, opened on demand.

Owns :class:`RemotingClient`. A connection is shared by all requests to its address and reopened by
the first request after it was lost. The peer may send requests as well; a registry handles them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Self

from msgspec import Struct

from roquet.errors import ClientClosed, ConfigError, ConnectFailed
from roquet.remoting.codes import LanguageCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import Endpoint, RemotingLimits, RemotingStatistics
from roquet.remoting.frame import SerializeType
from roquet.remoting.headers.base import Header
from roquet.remoting.hooks import RpcHook
from roquet.remoting.hot_reader import HotPath
from roquet.remoting.outgoing import RequestSlots, request_timeout
from roquet.remoting.processor import ProcessorRegistry
from roquet.remoting.tls import ClientTlsConfig, client_context
from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.exhaustion import exhaustion_hint, is_exhausted

__all__ = ["ClientConfig", "RemotingClient", "split_address"]


class ClientConfig(Struct, frozen=True, kw_only=True):
    """How a client connects and sends requests.

    Attributes:
        limits: How much peers may make it hold.
        tls: The TLS settings; ``None`` for plain text.
        connect_timeout_ms: How long opening a connection may take.
        request_timeout_ms: The timeout of requests that do not set one.
        max_in_flight: Pending requests to all addresses together; further ones wait.
        serialize_type: How its headers are written.
        language: The language that it reports.
    """

    limits: RemotingLimits = RemotingLimits()
    tls: ClientTlsConfig | None = None
    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 3_000
    max_in_flight: int = 65_535
    serialize_type: SerializeType = SerializeType.JSON
    language: LanguageCode = LanguageCode.PYTHON


def split_address(address: str) -> tuple[str, int]:
    """Split an address into host and port.

    Raises:
        ConfigError: It is not an address.

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
        registry: Handles requests from peers.
        config: How to connect and send requests.
        hooks: What runs around every request.
        clock: The time.
        on_connect: Called with the address of every new connection.
        hot_path: Takes plain responses before they are decoded, if given.

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
        hot_path: HotPath | None = None,
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
        self._endpoint.hot_path = hot_path
        self._slots = RequestSlots(self._config.max_in_flight)
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._watching = False
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def statistics(self) -> RemotingStatistics:
        """The counters so far."""
        return self._endpoint.statistics

    @property
    def connections(self) -> frozenset[Connection]:
        """The open connections."""
        return frozenset(self._endpoint.connections)

    async def invoke(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        """Send a request and wait for the response, whatever its code is.

        After GO_AWAY, the request is sent once more on a new connection, as upstream does.

        Raises:
            ConnectFailed: Connecting failed; nothing was sent.
            SendFailed: The request could not be sent.
            AnswerLost: The connection broke before the response arrived.
            RequestTimeout: No response arrived in time.
        """
        request = self._endpoint.request(code, header, body)
        timeout_ms = timeout_ms or self._config.request_timeout_ms
        connection = self._connections.get(address)
        if connection is None or not (connection.sender.is_ready and self._slots.take_free()):
            return await self._invoke_patiently(address, request, timeout_ms)
        # The usual case: there is nothing to wait for but the response.
        try:
            answer = await connection.sender.invoke(request, timeout_ms=timeout_ms)
        finally:
            self._slots.give_back()
        if answer.code == ResponseCode.GO_AWAY:
            self._lost(address, connection)
            answer = await self._invoke_patiently(address, request, timeout_ms)
        return answer

    def take_connection(self, address: str) -> Connection | None:
        """Take a connection for one encoded request, if there is nothing to wait for.

        The caller gives it back with :meth:`give_back_connection`, after the response.
        """
        connection = self._connections.get(address)
        if (
            connection is None
            or not connection.sender.takes_frames()
            or not self._slots.take_free()
        ):
            return None
        return connection

    def give_back_connection(
        self, address: str, connection: Connection, *, goes_away: bool = False
    ) -> None:
        """Return a connection after its request; ``goes_away`` if the server sent GO_AWAY."""
        self._slots.give_back()
        if goes_away:
            self._lost(address, connection)

    async def _invoke_patiently(
        self, address: str, request: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Send a request after waiting for a slot, a connection and a peer that reads."""
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._slot():
                connection = await self.connect(address)
                await connection.wait_writable()
                answer = await connection.sender.invoke(request)
                if answer.code == ResponseCode.GO_AWAY:
                    # The request was not handled, and none will be on this connection; try another.
                    self._lost(address, connection)
                    connection = await self.connect(address)
                    answer = await connection.sender.invoke(request)
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
        """Send a one-way request; waits while the peer does not read.

        Raises:
            ConnectFailed: Connecting failed.
            SendFailed: The connection broke.
            RequestTimeout: It could not be sent in time.
        """
        request = self._endpoint.request(code, header, body, oneway=True)
        timeout_ms = timeout_ms or self._config.request_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._slot():
                connection = await self.connect(address)
                await connection.wait_writable()
                connection.sender.invoke_oneway(request)
        except TimeoutError:
            raise request_timeout(address, code, timeout_ms) from None

    async def connect(self, address: str) -> Connection:
        """Return the connection to an address; opens one if needed.

        Raises:
            ConnectFailed: Connecting failed.
            ClientClosed: The client is closed.
            ConfigError: The address is not valid.
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
        # Other callers may wait for the same connection; one that gives up must not cancel it.
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Close every connection; pending requests get :class:`~roquet.errors.SendFailed`."""
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
            self._endpoint.watch()
        hint = "Is the server running there, and does it speak TLS if the client does?"
        try:
            async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
                _, connection = await loop.create_connection(
                    partial(Connection, self._endpoint), host, port, ssl=self._tls
                )
        except TimeoutError:
            reason = f"no connection within {self._config.connect_timeout_ms} ms"
        except (OSError, ssl.CertificateError) as error:
            reason = str(error)
            if is_exhausted(error):
                hint = f"This process is short itself: {exhaustion_hint(error)}."
        else:
            return connection
        raise ConnectFailed(
            f"Cannot connect to {address}",
            detail=reason,
            hint=hint,
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
