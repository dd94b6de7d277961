"""What answers administrators beyond topics, groups, offsets, connections and the broker's state.

Owns which parts each of them is given, so that the broker has one line for all.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from roquet.broker.admin.clean_up import CleanUpAdmin
from roquet.broker.admin.client_relay import ClientRelayAdmin
from roquet.broker.admin.config_update import ConfigUpdateAdmin, forget_old_settings
from roquet.broker.admin.consume_stats import ConsumeStatsAdmin
from roquet.broker.admin.delay_offset import DelayOffsetAdmin
from roquet.broker.admin.forbidden import ForbiddenAdmin
from roquet.broker.admin.group_offset import GroupOffsetAdmin
from roquet.broker.admin.queue_dump import QueueDumpAdmin
from roquet.broker.admin.replication import ReplicationAdmin
from roquet.broker.admin.reset_offset import ResetOffsetAdmin
from roquet.broker.admin.stats import StatsAdmin
from roquet.broker.admin.subscription import SubscriptionAdmin
from roquet.broker.config import BrokerConfig
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.consumer_filter import ConsumerFilterManager
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.manager.delay_offset import DelayOffsetManager
from roquet.broker.manager.dynamic_settings import DynamicSettings
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.service.flow_control import FlowControl
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.runtime.clock import Clock
from roquet.store.message_store import MessageStore

__all__ = ["AdminParts", "admin_processors"]


class AdminParts(Struct, frozen=True, kw_only=True):
    """The parts of a broker that administrators ask about.

    Attributes:
        address: Where clients find the broker.
        delay_offsets: How far the delay levels are; ``None`` where nothing is delayed.
    """

    config: BrokerConfig
    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    consumers: ConsumerManager
    filters: ConsumerFilterManager
    offsets: ConsumerOffsetManager
    settings: DynamicSettings
    stats: BrokerStats
    flow: FlowControl
    clock: Clock
    address: Callable[[], str]
    delay_offsets: DelayOffsetManager | None = None


def admin_processors(parts: AdminParts) -> list[object]:
    """Objects with processors, for the registry; to be called once for a broker."""
    config, store, flow = parts.config, parts.store, parts.flow
    topics, groups = parts.topics, parts.groups
    consumers, offsets = parts.consumers, parts.offsets
    forget_old_settings(parts.settings, topics=topics, clock=parts.clock)
    sources: list[object] = [
        ConsumeStatsAdmin(
            config,
            store=store,
            topics=topics,
            groups=groups,
            consumers=consumers,
            offsets=offsets,
            flow=flow,
            address=parts.address,
            get_tps=parts.stats.group_get_tps,
        ),
        SubscriptionAdmin(consumers=consumers, offsets=offsets, flow=flow, address=parts.address),
        ResetOffsetAdmin(
            config,
            store=store,
            topics=topics,
            groups=groups,
            consumers=consumers,
            offsets=offsets,
            flow=flow,
        ),
        ClientRelayAdmin(
            config, store=store, topics=topics, groups=groups, consumers=consumers, flow=flow
        ),
        GroupOffsetAdmin(
            store=store, topics=topics, consumers=consumers, offsets=offsets, flow=flow
        ),
        QueueDumpAdmin(store=store, consumers=consumers, filters=parts.filters, flow=flow),
        CleanUpAdmin(store=store, topics=topics),
        ForbiddenAdmin(groups=groups, topics=topics),
        ConfigUpdateAdmin(settings=parts.settings),
        StatsAdmin(stats=parts.stats),
        ReplicationAdmin(store=store),
    ]
    if parts.delay_offsets is not None:
        sources.append(DelayOffsetAdmin(delay_offsets=parts.delay_offsets))
    return sources
