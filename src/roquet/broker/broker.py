"""The broker as a whole: store, tables, processors and ports on one event loop.

Upstream's BrokerController. Owns the order of start and stop, and the wiring: which part hears of
what. The parts know nothing of each other beyond what they are given here.

.. code-block:: text

    start   tables ─► store (recovery in a thread) ─► ports ─► timers ─► name servers
    stop    name servers ─► ports ─► timers ─► tables ─► store

Invariants:

* Nothing is answered before the store is recovered, and no name server knows of the broker before
  it answers.
* At stop the broker first leaves the name servers, so that clients turn away while it still
  answers; the store is the last to go, and is left as a clean one.
* A log that can no longer be put on disk ends the broker: :meth:`Broker.wait_failed` returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from roquet.broker.admin.group import GroupAdmin
from roquet.broker.admin.processors import AdminParts, admin_processors
from roquet.broker.admin.runtime_info import RuntimeInfoAdmin
from roquet.broker.admin.topic import TopicAdmin
from roquet.broker.config import BrokerConfig, replace
from roquet.broker.expression_filter import make_filters
from roquet.broker.lane import make_frame_lane
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.manager.delay_offset import DelayOffsetManager
from roquet.broker.manager.dynamic_settings import DynamicSettings
from roquet.broker.manager.producer import ProducerManager
from roquet.broker.manager.rebalance_lock import RebalanceLockManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.manager.transaction_metrics import TransactionMetrics
from roquet.broker.message_services import MessageServices
from roquet.broker.plugins import BrokerHooks, load_hooks
from roquet.broker.processor.pull_message import PullMessageProcessor
from roquet.broker.processor.send_message import SendMessageProcessor
from roquet.broker.processors import (
    BrokerParts,
    client_processors,
    make_pull_processor,
    make_send_processor,
)
from roquet.broker.service.consumer_notices import ConsumerNotices
from roquet.broker.service.flow_control import FlowControl
from roquet.broker.service.housekeeping import PeriodicTasks, keep_house, persist_tables
from roquet.broker.service.linger import Linger
from roquet.broker.service.registration import NamesrvRegistration
from roquet.broker.service.timers import LoopTimers
from roquet.broker.service.transaction_op import TransactionSettings
from roquet.broker.stats.broker_stats import SAMPLE_INTERVAL_MS, BrokerStats
from roquet.broker.stats.feeds import ChannelActivity, ServiceFeed
from roquet.errors import ConfigError
from roquet.model.delay_level import DelayLevels
from roquet.model.host import Host
from roquet.remoting.client import RemotingClient
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import RemotingLimits, RemotingStatistics
from roquet.remoting.processor import Port, ProcessorRegistry
from roquet.remoting.server import RemotingServer, ServerConfig, fast_port
from roquet.remoting.tls_settings import TlsSettings
from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.files import Files
from roquet.runtime.network import advertised_ip, joined
from roquet.runtime.randomness import Randomness, seeded
from roquet.store.config import MessageStoreConfig
from roquet.store.config import replace as replace_store_settings
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.plugin import build_store, plug_in_faults

__all__ = ["Broker"]

log = logging.getLogger(__name__)

ACKNOWLEDGE_GRACE_MS = 3_000
"""How long sends that wait for the disk or a slave may delay the stop."""


class Broker:
    """A broker.

    Args:
        config: Who it is and what it allows.
        store_config: How it keeps messages.
        tls: How it speaks TLS.
        clock: The time.
        files: The door to the file system.
        random: Chooses queues for producers that do not.
        hooks: Hooks besides those that the settings name.

    Attributes:
        topics: The topics.
        groups: The consumer groups.
        offsets: How far groups have consumed.
        producers: Who produces.
        consumers: Who consumes.
        filters: What groups filter by, other than tags.
        store: The messages.
        port: Where it listens, once started.
        fast_port: The second port, without pulls.

    Raises:
        ConfigError: The settings cannot be used.
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
        # Copies, because administrators may change settings while the broker runs.
        self.config = config = replace(config)
        store_config = replace_store_settings(store_config or MessageStoreConfig())
        self._clock = clock = clock or SystemClock()
        self._files = files = files or Files()
        self._random = random or seeded()
        self._tls = tls or TlsSettings()
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[OSError] = self._loop.create_future()
        self._log_store = DefaultMessageStore(
            Path(config.store_root),
            store_config,
            files=files,
            clock=clock,
            post=self._post,
            on_fatal=self._store_failed,
        )
        self.store = build_store(store_config, self._log_store)
        self.hooks = load_hooks(config, hooks)
        levels = DelayLevels(store_config.message_delay_levels).max_level
        self.topics = TopicConfigManager.at(config, files, clock, delay_level_count=levels)
        self.groups = SubscriptionGroupManager.at(config, files, clock)
        self.offsets = ConsumerOffsetManager.at(config, files, clock)
        self.delay_offsets = DelayOffsetManager.at(
            config, files, clock, flush=self._log_store.flush
        )
        self.transaction_metrics = TransactionMetrics.at(config, files, clock)
        self.settings = DynamicSettings.at(config, store_config, files, clock)
        self.stats = BrokerStats(config.cluster_name, clock, is_system=self.topics.is_system)
        self.producers = ProducerManager(config, clock)
        self.consumers = ConsumerManager(config, clock, notify=ConsumerNotices(self._loop).notify)
        self.filters = make_filters(
            config, files, clock, store=self._log_store, consumers=self.consumers
        )
        self._tables = (
            self.offsets,
            self.topics,
            self.groups,
            self.delay_offsets,
            self.transaction_metrics,
            self.filters,
        )
        self.locks = RebalanceLockManager(clock)
        self.port = 0
        self.fast_port = 0
        self._registry = ProcessorRegistry()
        self._server = self._make_server()
        self._client = RemotingClient(clock=clock)
        self._tasks = PeriodicTasks()
        self._flow = FlowControl(
            config,
            clock,
            is_page_cache_busy=self._log_store.is_os_page_cache_busy,
            is_transient_pool_deficient=self._log_store.is_transient_store_pool_deficient,
        )
        self._registration: NamesrvRegistration | None = None
        self._services: MessageServices | None = None
        self._is_stopped = False

    def _make_server(self) -> RemotingServer:
        limits = RemotingLimits(idle_timeout_ms=self.config.channel_idle_seconds_max * 1000)
        server = RemotingServer(
            self._registry,
            ServerConfig(limits=limits, tls=self._tls.to_config()),
            hooks=self.hooks.rpc,
            clock=self._clock,
            files=self._files,
        )
        server.add_burst_listener(self._burst_ended)
        server.add_burst_listener(Linger(self._clock).burst_ended)
        server.add_close_listener(self._connection_closed)
        return server

    # ---------------------------------------------------------------------- start and stop

    async def start(self) -> list[ConfigError]:
        """Read the tables, recover the store, listen, and register.

        Returns:
            What is wrong with files whose backup was used.

        Raises:
            ConfigError: A file cannot be used, or a port.
            StoreError: The store cannot be opened.
        """
        problems = [table.load() for table in (self.settings, *self._tables)]
        with plug_in_faults(self.store):
            await asyncio.to_thread(self.store.load)
        try:
            with plug_in_faults(self.store):
                self.store.start()
            await self._listen()
            self._start_tasks()
            await self._register()
        except BaseException:
            await self.stop()
            raise
        return [problem for problem in problems if problem is not None]

    async def _listen(self) -> None:
        bind_address = self.config.bind_address
        self.port = await self._server.start(bind_address, self.config.listen_port)
        # Nothing is awaited until all processors are known, so no request meets a broker
        # that has but half of them.
        self._add_processors()
        fast = fast_port(self.config.listen_port)
        self.fast_port = await self._server.start(bind_address, fast, kind=Port.FAST)

    def _add_processors(self) -> None:
        store_host = Host.parse(self.address)
        parts = BrokerParts(
            config=self.config,
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            producers=self.producers,
            consumers=self.consumers,
            filters=self.filters,
            locks=self.locks,
            flow=self._flow,
            stats=self.stats,
            clock=self._clock,
            random=self._random,
            store_host=store_host,
            hooks=self.hooks,
        )
        sends, pulls = make_send_processor(parts), make_pull_processor(parts, self._tasks)
        sends.half_stored.append(lambda topic: self.transaction_metrics.add(topic, 1))
        self._add_lane(sends, pulls, store_host)
        self._services = self._make_services(store_host)
        ServiceFeed(self.stats, self._services, self._clock)
        ChannelActivity(self.stats, self._server.statistics)
        for source in (
            sends,
            pulls,
            *client_processors(parts),
            *self._services.processors,
            *self._admin_processors(),
        ):
            self._registry.add(source)

    def _make_services(self, store_host: Host) -> MessageServices:
        return MessageServices(
            self.config,
            TransactionSettings.of(self.config),
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            producers=self.producers,
            delay_offsets=self.delay_offsets,
            metrics=self.transaction_metrics,
            flow=self._flow,
            clock=self._clock,
            timers=LoopTimers(),
            store_host=store_host,
            random=self._random,
            consume_hooks=self.hooks.consume,
        )

    def _admin_processors(self) -> Iterator[object]:
        self._tasks.every(SAMPLE_INTERVAL_MS, "sampling of statistics", self.stats.sample_in_turns)

        def topic_deleted(topic: str) -> None:
            self.stats.topic_deleted(topic)
            self.transaction_metrics.forget((topic,))

        store, flow = self.store, self._flow
        yield TopicAdmin(
            self.config,
            store=store,
            topics=self.topics,
            offsets=self.offsets,
            flow=flow,
            registered=self.wait_registered,
            put_tps=self.stats.topic_put_tps,
            dropped=topic_deleted,
        )
        yield GroupAdmin(
            groups=self.groups, offsets=self.offsets, flow=flow, dropped=self.stats.group_deleted
        )
        yield RuntimeInfoAdmin(
            self.config,
            store=store,
            flow=flow,
            clock=self._clock,
            files=self._files,
            tls=self._tls,
            config_version=self.settings.data_version,
            delay_offsets=self.delay_offsets.table,
            stats=self.stats,
        )
        yield from admin_processors(
            AdminParts(
                config=self.config,
                store=store,
                topics=self.topics,
                groups=self.groups,
                consumers=self.consumers,
                filters=self.filters,
                offsets=self.offsets,
                settings=self.settings,
                stats=self.stats,
                flow=flow,
                clock=self._clock,
                address=lambda: self.address,
                delay_offsets=self.delay_offsets,
            )
        )

    def _add_lane(
        self, sends: SendMessageProcessor, pulls: PullMessageProcessor, store_host: Host
    ) -> None:
        """Have plain requests handled by a lane; plug-ins of the store see all puts."""
        if self.store is not self._log_store:
            return
        lane = make_frame_lane(
            self.config,
            store=self._log_store,
            topics=self.topics,
            groups=self.groups,
            consumers=self.consumers,
            offsets=self.offsets,
            sends=sends,
            pulls=pulls,
            flow=self._flow,
            stats=self.stats,
            clock=self._clock,
            store_host=store_host,
        )
        if lane is not None:
            self._server.set_lane(lane)

    def _start_tasks(self) -> None:
        keep_house(
            self._tasks,
            self.config,
            producers=self.producers,
            consumers=self.consumers,
            locks=self.locks,
            tables=self._tables,
        )
        self._tasks.start()
        if self._services is not None:
            self._services.start()

    async def _register(self) -> None:
        self._registration = NamesrvRegistration(
            self.config,
            client=self._client,
            topics=self.topics,
            address=lambda: self.address,
            ha_address=lambda: self.ha_address,
            clock=self._clock,
        )
        await self._registration.start()

    async def stop(self) -> None:
        """Leave the name servers, answer what was asked, and close the store; safe to call twice.

        Raises:
            StoreError: A table cannot be written.
        """
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._registration is not None:
            await self._registration.stop()
        await self._wait_acknowledged()
        await self._server.stop()
        if self._services is not None:
            self._services.stop()
        await self._tasks.stop()
        self._flow.close()
        await self._client.close()
        try:
            await persist_tables(self._tables)
        finally:
            await asyncio.to_thread(self.store.shutdown)

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

    async def _wait_acknowledged(self) -> None:
        """Let sends that wait for the disk or a slave get their answers."""
        acks = self._log_store.acks
        if not acks:
            return
        done = asyncio.Event()
        acks.wait(self._log_store.commit_log.wrote_offset, lambda _: done.set())
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), ACKNOWLEDGE_GRACE_MS / 1000)

    async def wait_failed(self) -> OSError:
        """Wait until the log can no longer be put on disk; what the disk said."""
        return await asyncio.shield(self._failed)

    # ------------------------------------------------------------------------------ places

    @property
    def address(self) -> str:
        """Where clients find the broker."""
        return self._address(self.config.broker_ip1, self.port)

    @property
    def ha_address(self) -> str:
        """Where slaves find it: the port above the one for clients."""
        return self._address(self.config.broker_ip2, self.port + 1)

    def _address(self, ip: str, port: int) -> str:
        return joined(advertised_ip(ip or self.config.bind_address), port)

    @property
    def connections(self) -> frozenset[Connection]:
        """The open connections."""
        return self._server.connections

    @property
    def statistics(self) -> RemotingStatistics:
        """What happened on the connections so far."""
        return self._server.statistics

    # ------------------------------------------------------------------------------ wiring

    def _burst_ended(self) -> None:
        self.store.finish_burst()
        self._flow.end_burst()

    def _connection_closed(self, connection: Connection) -> None:
        self.producers.connection_closed(connection)
        self.consumers.connection_closed(connection)

    async def wait_registered(self) -> None:
        """Wait until the name servers that answer know all topics, or for a while."""
        if self._registration is not None:
            await self._registration.wait_registered()

    def _post(self, function: Callable[[], None]) -> None:
        """Called by threads of the store that have something for the loop."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(function)

    def _store_failed(self, error: OSError) -> None:
        """Called by a thread of the store."""

        def fail() -> None:
            if not self._failed.done():
                self._failed.set_result(error)

        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(fail)
