"""Delays, returns and transactions of a broker, as one part.

Owns the wiring of these services with each other: which tables they keep, which requests they
answer, and the order in which they start and stop. A slave has the tables and answers that it
cannot, but delivers and checks nothing.
"""

from __future__ import annotations

from roquet.broker.admin.half_message import HalfMessageAdmin
from roquet.broker.config import BrokerConfig
from roquet.broker.hooks import ConsumeMessageHook
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.manager.delay_offset import DelayOffsetManager
from roquet.broker.manager.producer import ProducerManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.manager.transaction_metrics import TransactionMetrics
from roquet.broker.processor.end_transaction import EndTransactionProcessor
from roquet.broker.processor.send_back import SendBackProcessor
from roquet.broker.service.check_request import TransactionChecker
from roquet.broker.service.flow_control import FlowControl
from roquet.broker.service.schedule_message import ScheduleMessageService
from roquet.broker.service.timers import Timers
from roquet.broker.service.transaction_check import TransactionCheckService
from roquet.broker.service.transaction_op import TransactionOps, TransactionSettings
from roquet.model.host import Host
from roquet.runtime.clock import Clock
from roquet.runtime.randomness import Randomness
from roquet.store.config import BrokerRole
from roquet.store.message_store import MessageStore

__all__ = ["MessageServices"]


class MessageServices:
    """The services; the store must be recovered and the tables loaded.

    Args:
        config: Who the broker is and what it allows.
        settings: When transactions are checked.
        store: The messages.
        topics: The topics; some are made here.
        groups: The consumer groups.
        offsets: How far the checks are.
        producers: Who is asked about transactions.
        delay_offsets: How far deliveries are.
        metrics: How many half messages there are.
        flow: What keeps the broker from taking more than it can.
        clock: The time.
        timers: The event loop.
        store_host: The broker's address in records.
        random: Chooses queues.
        consume_hooks: Called around returns.

    Attributes:
        schedule: Delivers delayed messages.
        send_back: Takes messages back.
        end_transaction: Ends transactions.
        ops: Takes down what is ended.
        checks: Asks producers.
        half_messages: Resumes checks.
    """

    def __init__(
        self,
        config: BrokerConfig,
        settings: TransactionSettings,
        *,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        producers: ProducerManager,
        delay_offsets: DelayOffsetManager,
        metrics: TransactionMetrics,
        flow: FlowControl,
        clock: Clock,
        timers: Timers,
        store_host: Host,
        random: Randomness,
        consume_hooks: list[ConsumeMessageHook] | None = None,
    ) -> None:
        self._is_slave = store.config.broker_role is BrokerRole.SLAVE
        self.schedule = ScheduleMessageService(
            store=store, offsets=delay_offsets, clock=clock, timers=timers
        )
        self.send_back = SendBackProcessor(
            config,
            store=store,
            topics=topics,
            groups=groups,
            store_host=store_host,
            flow=flow,
            random=random,
            consume_hooks=consume_hooks,
        )
        self.ops = TransactionOps(
            settings, store=store, clock=clock, timers=timers, store_host=store_host
        )
        self.end_transaction = EndTransactionProcessor(
            settings, store=store, ops=self.ops, metrics=metrics, clock=clock, flow=flow
        )
        self.checks = TransactionCheckService(
            settings,
            store=store,
            topics=topics,
            offsets=offsets,
            ops=self.ops,
            metrics=metrics,
            checker=TransactionChecker(config, producers=producers, clock=clock),
            clock=clock,
            timers=timers,
        )
        self.half_messages = HalfMessageAdmin(store=store, metrics=metrics, flow=flow)
        store.add_arriving_listener(self.schedule.notify_arriving)

    @property
    def processors(self) -> tuple[object, ...]:
        """What answers requests."""
        return self.send_back, self.end_transaction, self.half_messages

    def start(self) -> None:
        """Deliver and check from now on."""
        if not self._is_slave:
            self.schedule.start()
            self.checks.start()

    def stop(self) -> None:
        """Deliver and check nothing more, and write down which transactions are ended.

        To be called when no request comes in any more, before the tables are written.
        """
        self.checks.stop()
        self.schedule.stop()
        self.ops.stop()
