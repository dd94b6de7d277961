"""The server: ports, connections, and an orderly end.

Owns :class:`RemotingServer`. Several ports share one registry of processors, one set of limits and
one TLS context. The main port answers everything; the fast port, two below it, leaves out what its
processors do not declare for it, which is how pulls stay away from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from msgspec import Struct

from roquet.remoting.codes import LanguageCode
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import Endpoint, RemotingLimits, RemotingStatistics
from roquet.remoting.frame import SerializeType
from roquet.remoting.frame_lane import FrameLane
from roquet.remoting.hooks import RpcHook
from roquet.remoting.listener import Listener, bind
from roquet.remoting.processor import Port, ProcessorRegistry
from roquet.remoting.tls import ServerTls, ServerTlsConfig
from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.files import Files

__all__ = ["RemotingServer", "ServerConfig", "fast_port"]


class ServerConfig(Struct, frozen=True, kw_only=True):
    """How a server listens.

    Attributes:
        limits: How much peers may make it hold.
        tls: How it speaks TLS.
        tls_poll_ms: How often it looks whether the certificate changed.
        serialize_type: How its headers are written; as the request's when ``None``.
    """

    limits: RemotingLimits = RemotingLimits()
    tls: ServerTlsConfig = ServerTlsConfig()
    tls_poll_ms: int = 10_000
    serialize_type: SerializeType | None = None


def fast_port(main_port: int) -> int:
    """The fast port that belongs to a main port; any free one if that is any free one.

    Example:
        >>> fast_port(10911)
        10909
    """
    return main_port - 2 if main_port else 0


class RemotingServer:
    """Answers requests with the processors of a registry.

    Args:
        registry: Who answers what.
        config: How to listen.
        hooks: What runs around every request.
        clock: The time.
        files: The door to the file system.

    Raises:
        ConfigError: The TLS settings cannot be used.
    """

    def __init__(
        self,
        registry: ProcessorRegistry,
        config: ServerConfig | None = None,
        *,
        hooks: Iterable[RpcHook] = (),
        clock: Clock | None = None,
        files: Files | None = None,
    ) -> None:
        self._config = config or ServerConfig()
        self.tls = ServerTls(self._config.tls, files or Files())
        self._endpoint = Endpoint(
            registry,
            self._config.limits,
            hooks=hooks,
            clock=clock or SystemClock(),
            language=LanguageCode.JAVA,
            serialize_type=self._config.serialize_type,
            reads_while_unwritten=False,
        )
        self._listeners: list[Listener] = []
        self._tls_poll: asyncio.TimerHandle | None = None

    @property
    def statistics(self) -> RemotingStatistics:
        """What happened so far."""
        return self._endpoint.statistics

    @property
    def connections(self) -> frozenset[Connection]:
        """The open connections."""
        return frozenset(self._endpoint.connections)

    @property
    def in_flight(self) -> int:
        """Requests that are being handled."""
        return self._endpoint.in_flight

    def add_burst_listener(self, listener: Callable[[], None]) -> None:
        """Have something called when the requests of one read were taken, before the answers."""
        self._endpoint.burst_listeners.append(listener)

    def add_close_listener(self, listener: Callable[[Connection], None]) -> None:
        """Have something called for every connection that ended."""
        self._endpoint.close_listeners.append(listener)

    def set_lane(self, lane: FrameLane) -> None:
        """Have ordinary frames of new connections handled by a lane, unless there are hooks."""
        self._endpoint.lane = lane

    def close_idle_connections(self) -> None:
        """Close connections on which nothing moved for the idle time; also done by a timer."""
        self._endpoint.close_idle_connections()

    async def start(self, host: str, port: int, *, kind: Port = Port.MAIN) -> int:
        """Listen on one more port.

        Args:
            host: A name or address of this machine.
            port: The number of the port; 0 for any free one.
            kind: Which processors answer there.

        Returns:
            The number of the port.

        Raises:
            ConfigError: The address cannot be listened on.
        """
        listening = await bind(host, port)
        if not self._listeners:
            self._endpoint.watch_idle()
            self._watch_tls()
        listener = Listener(listening, self._endpoint, port=kind, tls=self.tls)
        listener.start()
        self._listeners.append(listener)
        return listener.port_number

    async def stop(self, *, grace_ms: int = 3_000) -> None:
        """Accept no more, let requests in flight finish, then close every connection.

        Args:
            grace_ms: How long requests have before they are cancelled.
        """
        self._endpoint.stopping = True
        if self._tls_poll is not None:
            self._tls_poll.cancel()
            self._tls_poll = None
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await listener.stop()
        await self._endpoint.wait_quiet(grace_ms=grace_ms)
        await self._endpoint.close()

    def _watch_tls(self) -> None:
        if self.tls.context is not None:
            self._tls_poll = asyncio.get_running_loop().call_later(
                self._config.tls_poll_ms / 1000, self._poll_tls
            )

    def _poll_tls(self) -> None:
        self.tls.reload_if_changed()
        self._watch_tls()
