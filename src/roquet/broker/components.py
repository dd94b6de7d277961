"""The components of a broker, in one container.

Owns which components there are and the order in which they are created: a component gets only
components created before it. Processors and services take the container and keep it, or the few
components they need, so a component added here is available to all of them.
"""

from __future__ import annotations

from ipaddress import ip_address

from msgspec import Struct

from roquet.broker.config import BrokerConfig
from roquet.broker.expression_filter import make_filters
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.consumer_filter import ConsumerFilterManager
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.manager.delay_offset import DelayOffsetManager
from roquet.broker.manager.dynamic_settings import DynamicSettings
from roquet.broker.manager.producer import ProducerManager
from roquet.broker.manager.rebalance_lock import RebalanceLockManager
from roquet.broker.manager.rebalance_lock_file import RebalanceLockFile
from roquet.broker.manager.request_mode import RequestModeManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.manager.topic_queue_mapping import TopicQueueMappingManager
from roquet.broker.manager.transaction_metrics import TransactionMetrics
from roquet.broker.plugins import BrokerHooks
from roquet.broker.service.advertised_addresses import AdvertisedAddresses
from roquet.broker.service.broker_rpc import BrokerRpc
from roquet.broker.service.consumer_notices import ConsumerNotices
from roquet.broker.service.flow_control import FlowControl
from roquet.broker.service.master_address import MasterAddress
from roquet.broker.service.pull_request_hold import PullRequestHoldService, sweep_interval_ms
from roquet.broker.service.registration import NamesrvRegistration
from roquet.broker.service.timers import Timers
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.ha.service import HaService
from roquet.model.delay_level import DelayLevels
from roquet.model.host import Host
from roquet.remoting.client import RemotingClient
from roquet.remoting.tls_settings import TlsSettings
from roquet.runtime.clock import Clock
from roquet.runtime.files import Files
from roquet.runtime.randomness import Randomness
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.message_store import MessageStore
from roquet.store.plugin import build_store

__all__ = ["BrokerComponents", "Environment", "make_components"]


class Environment(Struct, frozen=True, kw_only=True):
    """What a broker is given from outside.

    Attributes:
        clock: The time.
        files: The file system.
        random: Chooses queues for producers that do not.
        timers: The event loop.
        tls: The TLS settings.
        hooks: The hooks of plug-ins.
    """

    clock: Clock
    files: Files
    random: Randomness
    timers: Timers
    tls: TlsSettings
    hooks: BrokerHooks


class BrokerComponents(Environment, frozen=True, kw_only=True):
    """The components of a broker, besides what it was given.

    Attributes:
        config: The broker's identity and limits.
        log_store: The message store, without plug-ins.
        store: The message store, through its plug-ins.
        topics: The topics.
        mappings: The queue mappings of static topics.
        groups: The consumer groups.
        offsets: The offsets of consumer groups.
        delay_offsets: The offsets of the delay levels.
        request_modes: How groups request the messages of topics.
        transaction_metrics: How many half messages there are.
        settings: The settings that can be changed while the broker runs.
        stats: The counters.
        producers: The connected producers.
        consumers: The connected consumers.
        filters: The filter expressions of groups, other than tags.
        locks: The queue locks of consumers.
        lock_file: Keeps the queue locks across restarts.
        flow: Limits the work that the broker accepts.
        hold: Holds pulls that wait for messages.
        advertised: The broker's addresses, once it listens.
        client: Sends requests to name servers and other brokers.
        master: Where the master of a slave is.
        registration: Keeps the name servers informed.
        rpc: Sends requests to other brokers by name.
        ha: Replicates the log.
    """

    config: BrokerConfig
    log_store: DefaultMessageStore
    store: MessageStore
    topics: TopicConfigManager
    mappings: TopicQueueMappingManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    delay_offsets: DelayOffsetManager
    request_modes: RequestModeManager
    transaction_metrics: TransactionMetrics
    settings: DynamicSettings
    stats: BrokerStats
    producers: ProducerManager
    consumers: ConsumerManager
    filters: ConsumerFilterManager
    locks: RebalanceLockManager
    lock_file: RebalanceLockFile
    flow: FlowControl
    hold: PullRequestHoldService
    advertised: AdvertisedAddresses
    client: RemotingClient
    master: MasterAddress
    registration: NamesrvRegistration
    rpc: BrokerRpc
    ha: HaService

    @property
    def store_host(self) -> Host:
        """The broker's address in records and message ids; known once it listens."""
        return Host.parse(self.advertised.address)

    @property
    def broker_ip(self) -> str:
        """The address in remarks: the one for clients, or that of the records."""
        return self.config.broker_ip1 or str(ip_address(self.store_host.ip))

    @property
    def tables(
        self,
    ) -> tuple[
        ConsumerOffsetManager,
        TopicConfigManager,
        TopicQueueMappingManager,
        SubscriptionGroupManager,
        DelayOffsetManager,
        RequestModeManager,
        TransactionMetrics,
        ConsumerFilterManager,
        RebalanceLockFile,
    ]:
        """The tables that are loaded at startup and saved periodically, in that order."""
        return (
            self.offsets,
            self.topics,
            self.mappings,
            self.groups,
            self.delay_offsets,
            self.request_modes,
            self.transaction_metrics,
            self.filters,
            self.lock_file,
        )


def make_components(
    config: BrokerConfig, log_store: DefaultMessageStore, environment: Environment
) -> BrokerComponents:
    """Create the components of a broker on a store that is not loaded yet.

    Raises:
        ConfigError: The settings are invalid.
    """
    clock, files = environment.clock, environment.files
    delay_levels = DelayLevels(log_store.config.message_delay_levels)
    topics = TopicConfigManager.at(config, files, clock, delay_level_count=delay_levels.max_level)
    log_store.queues.is_batch_topic = topics.has_batch_queues
    mappings = TopicQueueMappingManager.at(config, files, clock)
    mappings.changed.append(topics.tell_changed)
    consumers = ConsumerManager(config, clock, notify=ConsumerNotices(environment.timers).notify)
    locks = RebalanceLockManager(clock)
    store = build_store(log_store.config, log_store)
    advertised = AdvertisedAddresses(config)
    client = RemotingClient(clock=clock)
    master = MasterAddress()
    registration = NamesrvRegistration(
        config,
        client=client,
        topics=topics,
        mappings=mappings,
        advertised=advertised,
        clock=clock,
        master=master,
    )
    return BrokerComponents(
        clock=clock,
        files=files,
        random=environment.random,
        timers=environment.timers,
        tls=environment.tls,
        hooks=environment.hooks,
        config=config,
        log_store=log_store,
        store=store,
        topics=topics,
        mappings=mappings,
        groups=SubscriptionGroupManager.at(config, files, clock),
        offsets=ConsumerOffsetManager.at(config, files, clock),
        delay_offsets=DelayOffsetManager.at(config, files, clock, flush=log_store.flush),
        request_modes=RequestModeManager.at(config, files, clock),
        transaction_metrics=TransactionMetrics.at(config, files, clock),
        settings=DynamicSettings.at(config, log_store.config, files, clock),
        stats=BrokerStats(config.cluster_name, clock, is_system=topics.is_system),
        producers=ProducerManager(config, clock),
        consumers=consumers,
        filters=make_filters(config, files, clock, store=log_store, consumers=consumers),
        locks=locks,
        lock_file=RebalanceLockFile.at(config, files, locks=locks),
        flow=FlowControl(
            config,
            clock,
            is_page_cache_busy=log_store.components.timing.is_os_page_cache_busy,
            is_transient_pool_deficient=(
                log_store.is_transient_store_pool_deficient
                if log_store.config.uses_transient_pool
                else None
            ),
        ),
        hold=PullRequestHoldService(
            clock,
            max_offset=store.max_offset_in_queue,
            record_at=store.select_one,
            sweep_interval_ms=sweep_interval_ms(config),
            held_max=config.pull_queue_capacity,
            packs=not environment.hooks.rpc,
        ),
        advertised=advertised,
        client=client,
        master=master,
        registration=registration,
        rpc=BrokerRpc(client, lambda: registration.addresses, timeout_ms=config.forward_timeout_ms),
        ha=HaService(log_store, clock),
    )
