"""The name server as a whole: its port, its timer, and its notifications to brokers.

Owns :class:`Namesrv`, which connects the tables and processors to sockets, files and time. It runs
on one event loop; threads write the files.

Invariants:

* A broker is dropped when its connection closes, or when the scan finds it silent, whichever is
  first.
* Brokers that leave together are dropped in steps, so that route queries are handled meanwhile.
* Nothing waits for a broker that is notified: notifications are one-way, have a timeout, and may be
  lost, since brokers also poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Self

from roquet.errors import ConfigError, RoquetError
from roquet.model.properties_text import parse_properties
from roquet.namesrv.config import Configuration, NamesrvConfig
from roquet.namesrv.config_processor import ConfigProcessor
from roquet.namesrv.kv_config import KVConfigManager
from roquet.namesrv.processor import NamesrvProcessor
from roquet.namesrv.registration import MinBrokerIdChange
from roquet.namesrv.route_info import RouteInfoManager
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import server_limits
from roquet.remoting.hooks import RpcCall, RpcHook
from roquet.remoting.processor import ProcessorRegistry
from roquet.remoting.server import RemotingServer, ServerConfig
from roquet.remoting.tls import ServerTlsConfig
from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files

__all__ = ["Namesrv"]

log = logging.getLogger(__name__)

NOTIFY_TIMEOUT_MS = 300
DROPPED_A_STEP = 4
"""How many brokers are dropped in one pass of the loop."""


class Namesrv:
    """A name server.

    Args:
        config: The settings at the start.
        tls: The TLS settings.
        clock: The time.
        files: The file system.

    Attributes:
        routes: Brokers and topics.
        kv_config: Values by namespace and key.
        configuration: The settings in force.
        port: Where it listens, once started.

    Raises:
        ConfigError: The TLS settings cannot be used.
    """

    def __init__(
        self,
        config: NamesrvConfig,
        *,
        tls: ServerTlsConfig | None = None,
        clock: Clock | None = None,
        files: Files | None = None,
    ) -> None:
        clock = clock or SystemClock()
        files = files or Files()
        changes = ConfigFile(Path(config.config_store_path), files, decode=parse_properties)
        self.configuration = Configuration(config, changes)
        self.kv_config = KVConfigManager.at(Path(config.kv_config_path), files)
        self.routes = RouteInfoManager(lambda: self.configuration.current, clock)
        self.port = 0
        self._config = config
        self._server = RemotingServer(
            ProcessorRegistry(
                NamesrvProcessor(
                    routes=self.routes,
                    kv_config=self.kv_config,
                    configuration=self.configuration,
                    clock=clock,
                    notify=self._notify,
                ),
                ConfigProcessor(self.kv_config, self.configuration),
            ),
            ServerConfig(
                limits=server_limits(
                    idle_timeout_ms=config.channel_idle_seconds_max * 1000,
                    max_connections=config.connections_max,
                ),
                tls=tls or ServerTlsConfig(),
            ),
            hooks=[_BrokerWatch(self._connection_closed, self._tidy_later)],
            clock=clock,
            files=files,
        )
        self._client = RemotingClient(clock=clock)
        self._scan: asyncio.TimerHandle | None = None
        self._lost: deque[Connection] = deque()
        self._tidying: asyncio.Handle | None = None
        self._news: set[asyncio.Task[None]] = set()

    @property
    def connections_max(self) -> int:
        """How many connections may be open at the moment."""
        return self._server.connections_max

    async def start(self) -> list[ConfigError]:
        """Load the files, and listen.

        Returns:
            Problems with files whose backup was used.

        Raises:
            ConfigError: A file or the port cannot be used.
            StoreError: A file cannot be read.
        """
        problems = [self.kv_config.load(), self.configuration.load()]
        self.port = await self._server.start(self._config.bind_address, self._config.listen_port)
        self.configuration.listens_on(self.port)
        self._scan_later()
        return [problem for problem in problems if problem is not None]

    async def stop(self) -> None:
        """Finish the requests in flight, then close."""
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None
        if self._tidying is not None:
            self._tidying.cancel()
        await self._server.stop()
        for task in self._news:
            task.cancel()
        await asyncio.gather(*self._news, return_exceptions=True)
        await self._client.close()

    async def __aenter__(self) -> Self:
        for problem in await self.start():
            log.warning("%s", problem)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def scan_not_active_brokers(self) -> None:
        """Drop silent brokers and close their connections; a timer does the same."""
        dropped = self.routes.scan_not_active(limit=DROPPED_A_STEP)
        for silent in dropped:
            if isinstance(silent.connection, Connection):
                silent.connection.close()
            if silent.change is not None:
                self._notify(silent.change)
        if len(dropped) == DROPPED_A_STEP:
            asyncio.get_running_loop().call_soon(self.scan_not_active_brokers)
        self._tidy_later()

    def _scan_later(self) -> None:
        interval_ms = self._config.scan_not_active_broker_interval_ms
        self._scan = asyncio.get_running_loop().call_later(interval_ms / 1000, self._scan_now)

    def _scan_now(self) -> None:
        self.scan_not_active_brokers()
        self._scan_later()

    def _connection_closed(self, connection: Connection) -> None:
        self._lost.append(connection)
        self._tidy_lost()

    def _tidy_lost(self) -> None:
        """Drop some of the brokers that left; the others follow in later passes."""
        if self._lost:
            connection = self._lost[0]
            for change in self.routes.connection_closed(connection, limit=DROPPED_A_STEP):
                self._notify(change)
            if not self.routes.has_brokers_of(connection):
                self._lost.popleft()
        self._tidy_later()

    def _tidy_later(self) -> None:
        if self._tidying is None and (self._lost or not self.routes.is_swept):
            self._tidying = asyncio.get_running_loop().call_soon(self._tidy)

    def _tidy(self) -> None:
        self._tidying = None
        self.routes.sweep()
        self._tidy_lost()

    def _notify(self, change: MinBrokerIdChange) -> None:
        loop = asyncio.get_running_loop()
        for address in change.addresses:
            task = loop.create_task(self._tell(address, change))
            self._news.add(task)
            task.add_done_callback(self._news.discard)

    async def _tell(self, address: str, change: MinBrokerIdChange) -> None:
        try:
            await self._client.invoke_oneway(
                address,
                RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
                change.header,
                timeout_ms=NOTIFY_TIMEOUT_MS,
            )
        except RoquetError as error:
            log.warning("Broker %s was not notified of the smallest id: %s", address, error.message)


_LEAVING_CODES = frozenset({RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER})
"""Requests that may remove a broker from a name."""


class _BrokerWatch(RpcHook):
    """Watches for brokers that leave, and for the end of connections on which one registered."""

    def __init__(self, closed: Callable[[Connection], None], left: Callable[[], None]) -> None:
        self._closed = closed
        self._left = left
        self._watched: set[Connection] = set()

    def after_response(self, call: RpcCall, response: RemotingCommand | None) -> None:
        """Watch a connection from its first registration on."""
        del response
        connection = call.connection
        code = call.request.code
        if code not in _LEAVING_CODES:
            return
        self._left()
        if code == RequestCode.REGISTER_BROKER and connection not in self._watched:
            self._watched.add(connection)
            connection.on_close(self._lost)

    def _lost(self, connection: Connection) -> None:
        self._watched.discard(connection)
        self._closed(connection)
