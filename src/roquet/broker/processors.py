"""What answers producers and consumers.

Owns which parts of the broker each processor is given; the rest of the broker knows them as objects
with processors.
"""

from __future__ import annotations

from msgspec import Struct

from roquet.broker.admin.connection import ConnectionAdmin
from roquet.broker.admin.offset import OffsetAdmin
from roquet.broker.admin.queue_lock import QueueLockAdmin
from roquet.broker.config import BrokerConfig
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.consumer_filter import ConsumerFilterManager, compile_expression
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.manager.producer import ProducerManager
from roquet.broker.manager.rebalance_lock import RebalanceLockManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.plugins import BrokerHooks
from roquet.broker.processor.client_manage import ClientManageProcessor
from roquet.broker.processor.consumer_manage import ConsumerManageProcessor
from roquet.broker.processor.pull_message import PullMessageProcessor
from roquet.broker.processor.query_message import QueryMessageProcessor
from roquet.broker.processor.recall_message import RecallMessageProcessor
from roquet.broker.processor.reply_message import ReplyMessageProcessor
from roquet.broker.processor.send_message import SendMessageProcessor
from roquet.broker.service.flow_control import FlowControl
from roquet.broker.service.housekeeping import PeriodicTasks
from roquet.broker.service.pull_request_hold import PullRequestHoldService, sweep_interval_ms
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.model.host import Host
from roquet.runtime.clock import Clock
from roquet.runtime.randomness import Randomness
from roquet.store.message_store import MessageStore

__all__ = ["BrokerParts", "client_processors", "make_pull_processor", "make_send_processor"]


class BrokerParts(Struct, frozen=True, kw_only=True):
    """The parts of a broker that its clients' requests are about.

    Attributes:
        store_host: The broker's address in records and message ids.
    """

    config: BrokerConfig
    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    producers: ProducerManager
    consumers: ConsumerManager
    filters: ConsumerFilterManager
    locks: RebalanceLockManager
    flow: FlowControl
    stats: BrokerStats
    clock: Clock
    random: Randomness
    store_host: Host
    hooks: BrokerHooks


def make_send_processor(parts: BrokerParts) -> SendMessageProcessor:
    """What takes messages."""
    return SendMessageProcessor(
        parts.config,
        store=parts.store,
        topics=parts.topics,
        groups=parts.groups,
        clock=parts.clock,
        store_host=parts.store_host,
        flow=parts.flow,
        random=parts.random,
        locks=parts.locks,
        stats=parts.stats,
        send_hooks=parts.hooks.send,
    )


def make_pull_processor(parts: BrokerParts, tasks: PeriodicTasks) -> PullMessageProcessor:
    """What hands messages out, and keeps pulls that have to wait."""
    hold = PullRequestHoldService(
        parts.clock,
        max_offset=parts.store.max_offset_in_queue,
        record_at=parts.store.select_one,
        sweep_interval_ms=sweep_interval_ms(parts.config),
        held_max=parts.config.pull_queue_capacity,
    )
    parts.store.add_arriving_listener(hold.notify_arriving)
    parts.offsets.reset_assigned.append(hold.notify_reset)
    tasks.every(hold.sweep_interval_ms, "sweep of held pulls", hold.check_hold_requests)
    return PullMessageProcessor(
        parts.config,
        store=parts.store,
        topics=parts.topics,
        groups=parts.groups,
        consumers=parts.consumers,
        filters=parts.filters,
        offsets=parts.offsets,
        hold=hold,
        clock=parts.clock,
        flow=parts.flow,
        stats=parts.stats,
        consume_hooks=parts.hooks.consume,
    )


def client_processors(parts: BrokerParts) -> list[object]:
    """What answers the other requests of clients, for the registry."""
    return [
        QueryMessageProcessor(store=parts.store, flow=parts.flow),
        RecallMessageProcessor(parts.config),
        ReplyMessageProcessor(
            parts.config,
            store=parts.store,
            topics=parts.topics,
            groups=parts.groups,
            producers=parts.producers,
            clock=parts.clock,
            store_host=parts.store_host,
            random=parts.random,
            stats=parts.stats,
            send_hooks=parts.hooks.send,
        ),
        ClientManageProcessor(
            parts.config,
            topics=parts.topics,
            groups=parts.groups,
            producers=parts.producers,
            consumers=parts.consumers,
            clock=parts.clock,
            compile_expression=compile_expression,
            stats=parts.stats,
        ),
        ConsumerManageProcessor(
            parts.config,
            store=parts.store,
            topics=parts.topics,
            groups=parts.groups,
            consumers=parts.consumers,
            offsets=parts.offsets,
        ),
        OffsetAdmin(store=parts.store, offsets=parts.offsets, flow=parts.flow),
        QueueLockAdmin(locks=parts.locks),
        ConnectionAdmin(producers=parts.producers, consumers=parts.consumers, clock=parts.clock),
    ]
