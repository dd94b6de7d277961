"""The parts of a running push consumer, and the callbacks of its client instance.

Owns :class:`RunningPushConsumer`, a :class:`~roquet.client.callbacks.ConsumerCallbacks`.

Invariant: a closing consumer stops pulling, waits for its handlers, stores its offsets, and only
then releases its queues to others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping

from roquet.client.concurrent import ConcurrentConsumption
from roquet.client.consume_stats import ConsumeStats
from roquet.client.expression_check import check_expression
from roquet.client.handler import HandlerCall
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import end_tasks, finish
from roquet.client.message import ReceivedMessage
from roquet.client.offset_store import (
    LocalFileOffsetStore,
    OffsetStore,
    RemoteBrokerOffsetStore,
)
from roquet.client.orderly import OrderlyConsumption
from roquet.client.process_queue import ProcessQueue
from roquet.client.pull_api import PullApi
from roquet.client.pulling import Consumption, Pulling
from roquet.client.push_options import PushOptions
from roquet.client.rebalance import Rebalancer
from roquet.client.send_back import SendBack
from roquet.client.trace import TraceDispatcher
from roquet.errors import BadExpression, RoquetError
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.remoting.bodies.client import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
)

__all__ = ["RunningPushConsumer"]

log = logging.getLogger(__name__)

RETRIES = 16
RETRIES_IN_ORDER = 2**31 - 1


class RunningPushConsumer:
    """A running push consumer.

    Args:
        client: The client.
        group: The group on the wire.
        options: The settings.
        call: Calls the handler.
        subscriptions: The subscriptions by topic on the wire; they may change.
        trace: Sends the traces, if tracing is on.
    """

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        options: PushOptions,
        call: HandlerCall,
        subscriptions: Mapping[str, SubscriptionData],
        *,
        trace: TraceDispatcher | None = None,
    ) -> None:
        self.client = client
        self.group = group
        self.options = options
        self._call = call
        self._subscriptions = subscriptions
        self._trace = trace
        self._started_ms = client.clock.now_ms()
        self._tasks: set[asyncio.Task[None]] = set()
        api = PullApi(client, group)
        self.offsets: OffsetStore = (
            LocalFileOffsetStore(client.client_id, group, folder=options.offsets_folder)
            if options.is_broadcasting
            else RemoteBrokerOffsetStore(api)
        )
        retries = options.max_reconsume_times
        if retries < 0:
            retries = RETRIES_IN_ORDER if options.orderly else RETRIES
        self._back = SendBack(client, group, max_reconsume_times=retries)
        self._stats = ConsumeStats(client.clock)
        self.rebalancer = Rebalancer(
            client,
            group,
            options,
            subscriptions=subscriptions,
            offsets=self.offsets,
            api=api,
            user=self,
        )
        self._orderly = self._orderly_consumption(retries) if options.orderly else None
        self._consumption: Consumption = self._orderly or ConcurrentConsumption(
            options,
            call,
            self._back,
            self.offsets,
            self._stats,
            queues=self.rebalancer.queues,
            clock=client.clock,
        )
        self.pulling = Pulling(
            client,
            group,
            options,
            subscriptions=subscriptions,
            api=api,
            offsets=self.offsets,
            stats=self._stats,
            consumption=self._consumption,
            rebalancer=self.rebalancer,
        )

    def _orderly_consumption(self, retries: int) -> OrderlyConsumption:
        return OrderlyConsumption(
            self.options,
            self._call,
            self._back,
            self.offsets,
            self._stats,
            clock=self.client.clock,
            lock=self.rebalancer.lock,
            max_reconsume_times=retries,
        )

    # ---------------------------------------------------------------------- start and close

    async def start(self) -> None:
        """Send a heartbeat, and start to rebalance, pull and consume.

        Raises:
            BadExpression: A broker cannot parse an expression.
            RoquetError: Local offsets cannot be read.
        """
        await self.offsets.load()
        await self.client.routes.refresh(sorted(self._subscriptions))
        for subscription in list(self._subscriptions.values()):
            await check_expression(self.client, self.group, subscription)
        await self.client.heartbeat()
        self._consumption.start()
        self._spawn(self.rebalancer.run())
        if self.options.is_locking:
            self._spawn(self.rebalancer.run_locks())

    async def close(self) -> None:
        """Stop in the order above, and leave the client instance."""
        self._consumption.begin_stop()
        await finish(
            lambda: end_tasks(list(self._tasks)),
            self.pulling.stop,
            lambda: self._consumption.stop(timeout_ms=self.options.stop_timeout_ms),
            self._back.close,
            self._stop_tracing,
            self._persist_last,
            self._give_queues_up,
            lambda: self.client.unregister_consumer(self.group),
            self.client.close,
        )

    async def _stop_tracing(self) -> None:
        if self._trace is not None:
            await self._trace.close()

    async def _give_queues_up(self) -> None:
        for process_queue in self.rebalancer.queues.values():
            process_queue.is_dropped = True
        self._call.close()
        if self.options.is_locking:
            await self.rebalancer.unlock_all()

    async def _persist_last(self) -> None:
        try:
            await self.persist_offsets()
        except RoquetError as error:
            log.error(  # noqa: TRY400 - what matters is in the message
                "%s: the last offsets were not stored, messages will be redelivered: %s (%s)",
                self.group,
                error.message,
                error.detail,
            )

    def subscriptions_changed(self, changed: SubscriptionData | None = None) -> None:
        """Send a heartbeat, and rebalance; a bad expression is logged."""
        self._spawn(self._introduce(changed))

    async def _introduce(self, changed: SubscriptionData | None) -> None:
        await self.client.routes.refresh(sorted(self._subscriptions))
        if changed is not None:
            try:
                await check_expression(self.client, self.group, changed)
            except BadExpression as error:
                log.error(  # noqa: TRY400 - what matters is in the message
                    "%s: %s (%s)", self.group, error.message, error.detail
                )
        await self.client.heartbeat()
        self.rebalancer.rebalance_soon()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------ callbacks of the rebalancer

    def queue_added(
        self, queue: MessageQueue, process_queue: ProcessQueue, queue_offset: int
    ) -> None:
        """Start pulling a new queue from this offset on."""
        self.pulling.start_queue(queue, process_queue, queue_offset)

    async def wait_idle(self, queue: MessageQueue, *, timeout_ms: int) -> bool:
        """Wait until no handler has a message of a queue; returns False on timeout."""
        if self._orderly is None:
            return True
        return await self._orderly.wait_idle(queue, timeout_ms=timeout_ms)

    def queues_changed(self, topic: str, queues: Iterable[MessageQueue]) -> None:
        """Handle a change of the consumer's queues of a topic."""
        self.pulling.share_limits(topic, queues)

    # ------------------------------------------------------- callbacks of the client instance

    def heartbeat_data(self) -> ConsumerData:
        """Return the data for heartbeats: the group, its kind and its subscriptions."""
        return ConsumerData(
            consume_from_where=self.options.consume_from,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            group_name=self.group,
            message_model=self.options.message_model,
            subscription_data_set=list(self._subscriptions.values()),
        )

    def rebalance_now(self) -> None:
        """Rebalance the queues soon, because the group changed."""
        self.rebalancer.rebalance_soon()

    async def persist_offsets(self) -> None:
        """Store the consumer's offsets."""
        await self.offsets.persist(list(self.rebalancer.queues))

    def reset_offsets(self, topic: str, queue_offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from these offsets."""
        for queue, process_queue in self.rebalancer.queues.items():
            queue_offset = queue_offsets.get(queue)
            if queue.topic == topic and queue_offset is not None:
                process_queue.is_dropped = True
                process_queue.clear()
                self.offsets.update_and_freeze(queue, queue_offset)
                self._spawn(self.rebalancer.drop(queue, process_queue))

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the consumer's offset in each of its queues of a topic."""
        return self.offsets.offsets(topic)

    def running_info(self) -> ConsumerRunningInfo:
        """Return the consumer's state, for administrators."""
        noted = self.offsets.offsets()
        options = self.options
        return ConsumerRunningInfo(
            properties={
                "PROP_CLIENT_VERSION": "V5_4_0",
                "PROP_CONSUMEORDERLY": "true" if options.orderly else "false",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_CONSUME_TYPE": ConsumeType.CONSUME_PASSIVELY.value,
                "PROP_NAMESERVER_ADDR": ";".join(self.client.options.namesrv_addresses),
                "PROP_THREADPOOL_CORE_SIZE": str(options.concurrency),
                "consumeMessageBatchMaxSize": str(options.consume_batch_max),
                "consumeFromWhere": options.consume_from.value,
                "consumerGroup": self.group,
                "messageModel": options.message_model.value,
                "pullBatchSize": str(options.pull_batch_max),
                "pullThresholdForQueue": str(options.cached_messages_max),
            },
            queues={
                queue: process_queue.info(noted.get(queue, -1))
                for queue, process_queue in self.rebalancer.queues.items()
            },
            subscription_set=list(self._subscriptions.values()),
            status_table={topic: self._stats.status(topic) for topic in self._subscriptions},
        )

    async def consume_directly(
        self, message: ReceivedMessage, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        """Have the handler consume one message now, out of turn."""
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        message.topic = self.client.wrap(message.topic)
        self.pulling.restore_topic(message)
        return await self._call.call_directly(message, queue, in_order=self.options.orderly)
