"""The name server as a whole: its port, its timer, and news that it sends to brokers.

Owns :class:`Namesrv`, which joins the tables and processors to sockets, files and time. All of it
runs on one event loop; what requests change in files is written there too, since that is a few
hundred bytes at the hand of an operator.

Invariants:

* A broker is dropped when its connection closes, or when the scan finds it silent, whichever is
  first.
* Nothing waits for a broker that is told something: news are one-way, have a limit of time, and
  may be lost, since brokers also ask by themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from roquet.errors import ConfigError, RoquetError
from roquet.model.properties_text import parse_properties
from roquet.namesrv.config import Configuration, NamesrvConfig
from roquet.namesrv.kv_config import KVConfigManager
from roquet.namesrv.processor import NamesrvProcessor
from roquet.namesrv.registration import MinBrokerIdChange
from roquet.namesrv.route_info import RouteInfoManager
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import RemotingLimits
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


class Namesrv:
    """A name server.

    Args:
        config: The settings at the start.
        tls: How it speaks TLS.
        clock: The time.
        files: The door to the file system.

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
                )
            ),
            ServerConfig(
                limits=RemotingLimits(idle_timeout_ms=config.channel_idle_seconds_max * 1000),
                tls=tls or ServerTlsConfig(),
            ),
            hooks=[_BrokerWatch(self._connection_closed)],
            clock=clock,
            files=files,
        )
        self._client = RemotingClient(clock=clock)
        self._scan: asyncio.TimerHandle | None = None
        self._news: set[asyncio.Task[None]] = set()

    async def start(self) -> list[ConfigError]:
        """Read what is kept in files, and listen.

        Returns:
            What is wrong with files whose backup was used.

        Raises:
            ConfigError: A file cannot be used, or the port.
            StoreError: A file cannot be read.
        """
        problems = [self.kv_config.load(), self.configuration.load()]
        self.port = await self._server.start(self._config.bind_address, self._config.listen_port)
        self.configuration.listens_on(self.port)
        self._scan_later()
        return [problem for problem in problems if problem is not None]

    async def stop(self) -> None:
        """Answer what was asked, then close."""
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None
        await self._server.stop()
        for task in self._news:
            task.cancel()
        await asyncio.gather(*self._news, return_exceptions=True)
        await self._client.close()

    async def __aenter__(self) -> Self:
        for problem in await self.start():
            log.warning("%s", problem)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def scan_not_active_brokers(self) -> None:
        """Drop silent brokers and close their connections; also done by a timer."""
        for silent in self.routes.scan_not_active():
            if isinstance(silent.connection, Connection):
                silent.connection.close()
            if silent.change is not None:
                self._notify(silent.change)

    def _scan_later(self) -> None:
        interval_ms = self._config.scan_not_active_broker_interval_ms
        self._scan = asyncio.get_running_loop().call_later(interval_ms / 1000, self._scan_now)

    def _scan_now(self) -> None:
        self.scan_not_active_brokers()
        self._scan_later()

    def _connection_closed(self, connection: Connection) -> None:
        for change in self.routes.connection_closed(connection):
            self._notify(change)

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
            log.warning("Broker %s was not told of the least id: %s", address, error.message)


class _BrokerWatch(RpcHook):
    """Hears of the end of every connection by which a broker registered."""

    def __init__(self, closed: Callable[[Connection], None]) -> None:
        self._closed = closed
        self._watched: set[Connection] = set()

    def after_response(self, call: RpcCall, response: RemotingCommand | None) -> None:
        """Watch a connection from its first registration on."""
        del response
        connection = call.connection
        if call.request.code == RequestCode.REGISTER_BROKER and connection not in self._watched:
            self._watched.add(connection)
            connection.on_close(self._lost)

    def _lost(self, connection: Connection) -> None:
        self._watched.discard(connection)
        self._closed(connection)
