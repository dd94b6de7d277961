"""The broker as a whole: store, tables, processors and ports on one event loop.

Upstream's BrokerController. Owns the order of startup and shutdown; :mod:`roquet.broker.components`
and :mod:`roquet.broker.processors` create what is started.

.. code-block:: text

    start   tables ─► store (recovery in a thread) ─► ports ─► timers ─► name servers
    stop    name servers ─► ports ─► timers ─► tables ─► store

Invariants:

* No request is served before the store is recovered, and no name server knows of the broker before
  it serves requests.
* At shutdown the broker first leaves the name servers, so that clients move away while it still
  serves them; the store is closed last, and cleanly.
* If the log can no longer be written to disk, the broker fails: :meth:`Broker.wait_failed` returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from roquet.broker.components import Environment, make_components
from roquet.broker.config import BrokerConfig, replace
from roquet.broker.hot.path import make_hot_path
from roquet.broker.message_services import MessageServices
from roquet.broker.plugins import BrokerHooks, load_hooks
from roquet.broker.processor.pull_message import PullMessageProcessor
from roquet.broker.processor.send_message import SendMessageProcessor
from roquet.broker.processors import admin_processors, client_processors
from roquet.broker.service.closed_connections import ClosedConnectionCleaner
from roquet.broker.service.flow_control import class_limits
from roquet.broker.service.housekeeping import PeriodicTasks, persist_tables, schedule_housekeeping
from roquet.broker.service.linger import Linger
from roquet.broker.service.timers import LoopTimers
from roquet.broker.slave_services import SlaveServices
from roquet.broker.stats.feeds import ChannelActivity, ServiceFeed
from roquet.errors import ConfigError, RoquetError, StoreError
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import RemotingStatistics, server_limits
from roquet.remoting.processor import Port, ProcessorRegistry
from roquet.remoting.server import RemotingServer, ServerConfig, fast_port
from roquet.remoting.tls import TlsMode
from roquet.remoting.tls_settings import TlsSettings
from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.files import Files
from roquet.runtime.open_files import DescriptorBudget
from roquet.runtime.randomness import Randomness, seeded
from roquet.store.config import MessageStoreConfig
from roquet.store.config import replace as replace_store_settings
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.plugin import plug_in_faults

__all__ = ["Broker"]

log = logging.getLogger(__name__)

ACKNOWLEDGE_GRACE_MS = 3_000
"""How long sends that wait for the disk or a slave may delay the shutdown."""


class Broker:
    """A broker.

    Args:
        config: Its identity and limits.
        store_config: The settings of its store.
        tls: Its TLS settings.
        clock: The time.
        files: The file system.
        random: Chooses queues for producers that do not.
        hooks: Hooks besides those that the settings name.

    Attributes:
        topics: The topics.
        groups: The consumer groups.
        offsets: The offsets of consumer groups.
        store: The message store.
        stats: The counters.
        hooks: The hooks of plug-ins.
        config: The settings.
        components: All of its components.
        fast_port: The second port, without pulls.

    Raises:
        ConfigError: The settings are invalid.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig | None = None,
        *,
        tls: TlsSettings | None = None,
        clock: Clock | None = None,
        files: Files | None = None,
        random: Randomness | None = None,
        hooks: BrokerHooks | None = None,
    ) -> None:
        clock, files = clock or SystemClock(), files or Files()
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[OSError] = self._loop.create_future()
        # Copies, because administrators may change settings while the broker runs.
        config = replace(config)
        log_store = DefaultMessageStore(
            Path(config.store_root),
            replace_store_settings(store_config or MessageStoreConfig()),
            files=files,
            clock=clock,
            post=self._post,
            on_fatal=self._store_failed,
        )
        environment = Environment(
            clock=clock,
            files=files,
            random=random or seeded(),
            timers=LoopTimers(),
            tls=tls or TlsSettings(),
            hooks=load_hooks(config, hooks),
        )
        self.components = components = make_components(config, log_store, environment)
        self.config = components.config
        self.hooks = components.hooks
        self.store = components.store
        self.topics = components.topics
        self.groups = components.groups
        self.offsets = components.offsets
        self.stats = components.stats
        self.fast_port = 0
        self._registry = ProcessorRegistry()
        self._server = self._make_server()
        self._tasks = PeriodicTasks()
        self._services: MessageServices | None = None
        self._slave: SlaveServices | None = None
        self._is_stopped = False
        self._is_loaded = False

    def _make_server(self) -> RemotingServer:
        components, config = self.components, self.config
        limits = server_limits(
            idle_timeout_ms=config.channel_idle_seconds_max * 1000,
            write_high_bytes=config.write_high_bytes,
            write_low_bytes=config.write_low_bytes,
            write_stall_ms=config.write_stall_ms,
            max_held_bytes=config.max_held_bytes,
            max_connections=config.connections_max,
        )
        server = RemotingServer(
            self._registry,
            ServerConfig(
                limits=limits, tls=components.tls.to_config(), class_limits=class_limits(config)
            ),
            hooks=components.hooks.rpc,
            clock=components.clock,
            files=components.files,
            budget=DescriptorBudget(components.log_store.health.open_files_max),
        )
        server.add_burst_listener(components.store.finish_burst)
        server.add_burst_listener(components.flow.end_burst)
        server.add_response_listener(Linger(components.clock).answered)
        leaving = ClosedConnectionCleaner(
            (components.producers.connection_closed, components.consumers.connection_closed),
            self._loop.call_soon,
        )
        server.add_close_listener(leaving.connection_closed)
        return server

    # ---------------------------------------------------------------------- start and stop

    async def start(self) -> list[ConfigError]:
        """Load the tables, recover the store, listen, and register.

        Returns:
            The faults of files whose backup was used.

        Raises:
            ConfigError: A file or a port is unusable.
            StoreError: The store cannot be opened.
        """
        components = self.components
        problems = [table.load() for table in (components.settings, *components.tables)]
        with plug_in_faults(components.store):
            await asyncio.to_thread(components.store.load)
        self._is_loaded = True
        try:
            with plug_in_faults(components.store):
                components.store.start()
            services = await self._listen()
            schedule_housekeeping(self._tasks, components)
            self._tasks.start()
            services.start()
            if self._slave is not None:
                self._slave.start()
            await components.registration.start()
        except BaseException:
            await self.stop()
            raise
        return [problem for problem in problems if problem is not None]

    async def _listen(self) -> MessageServices:
        bind_address = self.config.bind_address
        port = await self._server.start(bind_address, self.config.listen_port)
        self.components.advertised.port = port
        # Nothing is awaited until all processors are registered, so no request finds only some of
        # them.
        self._services = services = self._add_processors()
        await self._listen_for_slaves(bind_address)
        fast = fast_port(self.config.listen_port)
        self.fast_port = await self._server.start(bind_address, fast, kind=Port.FAST)
        return services

    async def _listen_for_slaves(self, bind_address: str) -> None:
        components, listen_port = self.components, self.config.listen_port
        port: int | None = components.log_store.config.ha_listen_port
        if not port and components.tls.mode is TlsMode.ENFORCING:
            port = None  # it speaks no TLS, and whoever reaches it reads every message
        elif not port:
            port = listen_port + 1 if listen_port else 0
        await components.ha.start(bind_address, port)
        components.advertised.ha_port = components.ha.listen_port

    def _add_processors(self) -> MessageServices:
        components = self.components
        sends, pulls = SendMessageProcessor(components), PullMessageProcessor(components)
        services = MessageServices(components)
        if components.ha.is_slave:
            self._slave = SlaveServices(components, pulls.response)
        sends.half_stored.append(lambda topic: components.transaction_metrics.add(topic, 1))
        hot_path = make_hot_path(components, sends, pulls)
        if hot_path is not None:
            self._server.set_hot_path(hot_path)
        ServiceFeed(components.stats, services, components.clock)
        ChannelActivity(components.stats, self._server.statistics)
        for source in (
            sends,
            pulls,
            *client_processors(components),
            *services.processors,
            *admin_processors(components),
        ):
            self._registry.add(source)
        return services

    async def stop(self) -> None:
        """Leave the name servers, finish pending requests, close the store; safe to call twice.

        Raises:
            StoreError: Some table could not be saved, on a disk that had not failed before;
                everything else is closed in order.
        """
        if self._is_stopped:
            return
        self._is_stopped = True
        components = self.components
        await components.registration.stop()
        if self._slave is not None:
            await self._slave.stop()
        await self._wait_acknowledged()
        await self._server.stop()
        if self._services is not None:
            self._services.stop()
        await self._tasks.stop()
        components.flow.close()
        await components.ha.stop()
        await components.client.close()
        failures: list[RoquetError] = []
        try:
            if self._is_loaded:  # else the files are another broker's, or must not be created
                failures = await persist_tables(components.tables)
        finally:
            await asyncio.to_thread(components.store.shutdown)
        if failures:
            self._report_unsaved(failures)

    def _report_unsaved(self, failures: list[RoquetError]) -> None:
        detail = "; ".join(f"{each.message} {each.detail or ''}" for each in failures)
        if self._failed.done():
            # The disk has failed before, and the owner gets that error.
            log.error("The broker stopped without saving all of its tables: %s", detail)
            return
        raise StoreError(
            "The broker stopped without saving all of its tables.",
            detail=detail,
            hint="Messages are safe. Offsets, topics or groups are those of the last save: "
            "consumers may get messages again. Check the disk and the permissions of 'config'.",
        )

    async def __aenter__(self) -> Self:
        for problem in await self.start():
            log.warning("%s", problem)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _wait_acknowledged(self) -> None:
        """Wait until sends that wait for the disk or a slave have their responses."""
        log_store = self.components.log_store
        acks = log_store.acks
        if not acks:
            return
        done = asyncio.Event()
        acks.wait(log_store.commit_log.wrote_offset, lambda _: done.set())
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), ACKNOWLEDGE_GRACE_MS / 1000)

    async def wait_failed(self) -> OSError:
        """Wait until the log can no longer be written to disk; return the disk's error."""
        return await asyncio.shield(self._failed)

    # --------------------------------------------------------------------------- addresses

    @property
    def port(self) -> int:
        """The listening port; 0 before it listens."""
        return self.components.advertised.port

    @property
    def address(self) -> str:
        """The address for clients."""
        return self.components.advertised.address

    @property
    def connections(self) -> frozenset[Connection]:
        """The open connections."""
        return self._server.connections

    @property
    def connections_max(self) -> int:
        """The current limit on open connections."""
        return self._server.connections_max

    @property
    def statistics(self) -> RemotingStatistics:
        """The connection statistics so far."""
        return self._server.statistics

    # ------------------------------------------------------------------------------ wiring

    async def wait_registered(self) -> None:
        """Wait until the reachable name servers know all topics, with a time limit."""
        await self.components.registration.wait_registered()

    def _post(self, function: Callable[[], None]) -> None:
        """Run a function on the loop; called by threads of the store."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function)

    def _store_failed(self, error: OSError) -> None:
        """Report a failed disk; called by a thread of the store."""

        def fail() -> None:
            if not self._failed.done():
                self._failed.set_result(error)

        self._post(fail)
