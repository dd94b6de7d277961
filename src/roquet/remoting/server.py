"""The server: ports, connections, and an orderly shutdown.

Owns :class:`RemotingServer`. Several ports share one registry of processors, one set of limits and
one TLS context. The main port handles everything; the fast port, two below it, only the codes whose
processors declare it, which excludes pulls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import Struct

from roquet.remoting.codes import LanguageCode
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import Endpoint, RemotingLimits, RemotingStatistics
from roquet.remoting.frame import SerializeType
from roquet.remoting.hooks import RpcHook
from roquet.remoting.hot_reader import HotPath
from roquet.remoting.listener import Listener, bind
from roquet.remoting.processor import Port, ProcessorRegistry
from roquet.remoting.tls import ServerTls, ServerTlsConfig
from roquet.remoting.turn_scheduler import ClassLimits, RequestClass, TurnScheduler
from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.files import Files
from roquet.runtime.garbage import ReclaimableMemory
from roquet.runtime.open_files import DescriptorBudget

__all__ = ["RemotingServer", "ServerConfig", "fast_port"]


class ServerConfig(Struct, frozen=True, kw_only=True):
    """How a server listens.

    Attributes:
        limits: How much peers may make it hold.
        tls: The TLS settings.
        tls_poll_ms: How often it checks whether the certificate changed.
        serialize_type: How its headers are encoded; like the request's if ``None``.
        class_limits: How much of a request class may be in progress and wait, if not the default.
    """

    limits: RemotingLimits = RemotingLimits()
    tls: ServerTlsConfig = ServerTlsConfig()
    tls_poll_ms: int = 10_000
    serialize_type: SerializeType | None = None
    class_limits: Mapping[RequestClass, ClassLimits] = msgspec.field(default_factory=dict)


def fast_port(main_port: int) -> int:
    """The fast port of a main port; 0, any free one, if the main port is 0.

    Example:
        >>> fast_port(10911)
        10909
    """
    return main_port - 2 if main_port else 0


class RemotingServer:
    """Handles requests with the processors of a registry.

    Args:
        registry: The processors.
        config: How to listen.
        hooks: What runs around every request.
        clock: The time.
        files: The file system.
        budget: How many of the process's descriptors connections may use.

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
        budget: DescriptorBudget | None = None,
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
            class_limits=self._config.class_limits,
            reclaimable=ReclaimableMemory(),
        )
        self._budget = budget or DescriptorBudget()
        self._listeners: list[Listener] = []
        self._tls_poll: asyncio.TimerHandle | None = None

    @property
    def statistics(self) -> RemotingStatistics:
        """The counters so far."""
        return self._endpoint.statistics

    @property
    def connections(self) -> frozenset[Connection]:
        """The open connections."""
        return frozenset(self._endpoint.connections)

    @property
    def turns(self) -> TurnScheduler:
        """How the loop is shared among the connections."""
        return self._endpoint.turns

    @property
    def connections_max(self) -> int:
        """How many connections may be open at the moment."""
        return min(self._config.limits.max_connections, self._budget.connections_max)

    @property
    def in_flight(self) -> int:
        """Requests that are being handled."""
        return self._endpoint.in_flight

    def add_burst_listener(self, listener: Callable[[], None]) -> None:
        """Add a callback after the requests of one read, before their responses are written."""
        self._endpoint.burst_listeners.append(listener)

    def add_response_listener(self, listener: Callable[[int], None]) -> None:
        """Add a callback after the responses to a read are written, unless they are long.

        It gets the nanoseconds between this read and the one before on the same connection.
        """
        self._endpoint.response_listeners.append(listener)

    def add_close_listener(self, listener: Callable[[Connection], None]) -> None:
        """Add a callback for every connection that is closed."""
        self._endpoint.close_listeners.append(listener)

    def set_hot_path(self, hot_path: HotPath) -> None:
        """Let a hot path handle plain frames of new connections, unless there are hooks."""
        self._endpoint.hot_path = hot_path

    async def start(self, host: str, port: int, *, kind: Port = Port.MAIN) -> int:
        """Listen on one more port.

        Args:
            host: A name or address of this machine.
            port: The port number; 0 for any free one.
            kind: Which processors handle its requests.

        Returns:
            The port number.

        Raises:
            ConfigError: The address cannot be listened on.
        """
        listening = await bind(host, port)
        if not self._listeners:
            self._endpoint.watch()
            self._watch_tls()
        listener = Listener(listening, self._endpoint, port=kind, tls=self.tls, budget=self._budget)
        listener.start()
        self._listeners.append(listener)
        return listener.port_number

    async def stop(self, *, grace_ms: int = 3_000) -> None:
        """Stop accepting, let requests in flight finish, then close every connection.

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
