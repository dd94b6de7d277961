"""The parts of a running lite pull consumer.

Owns the pulls of its queues, the rebalancing, and the callbacks of the client instance. Queues,
topics and the group have their names on the wire, with the namespace.

Invariants:

* While the members of the group cannot be queried, the assignment of queues stays as it is.
* A revoked queue is dropped first, then its offset is stored.
* Offsets are stored only for queues that are assigned to the consumer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from roquet.client.expression import Expression, subscription_of
from roquet.client.expression_check import check_expression
from roquet.client.group_share import readable_queues, share_of_queues, start_offset
from roquet.client.hooks import ConsumeContext, ConsumeHook, run_hooks
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import end_tasks, finish
from roquet.client.lite_options import LitePullOptions
from roquet.client.lite_queue import LiteBatch, LiteCache, LiteQueue
from roquet.client.message import ReceivedMessage
from roquet.client.offset_store import LocalFileOffsetStore, OffsetStore, RemoteBrokerOffsetStore
from roquet.client.pull_api import PullApi, PullResult, PullStatus
from roquet.client.state_changes import StateChanges
from roquet.client.trace import traced_consumption
from roquet.errors import BrokerRefused, NoRoute, ProtocolError, RoquetError
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import EXPRESSION_TYPE_TAG, SubscriptionData
from roquet.remoting.bodies.client import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    ProcessQueueInfo,
)
from roquet.remoting.codes import ResponseCode
from roquet.remoting.headers.pull import PullFlag

__all__ = ["RunningLitePull"]

log = logging.getLogger(__name__)

HALF_HOUR_MS = 30 * 60_000
FLOW_CONTROL_MS = 20
PULL_FLAGS = PullFlag.SUSPEND | PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL

_LASTING = frozenset(
    {
        ResponseCode.NO_PERMISSION,
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)
"""Response codes of permanent errors."""


class RunningLitePull:
    """A running lite pull consumer.

    Args:
        client: The client instance; closed by :meth:`close`.
        group: The group as users write it.
        options: The settings.
        hooks: Hooks that run when a poll has messages.

    Attributes:
        client: The client instance.
        group: The group.
        queues: The queues that are read.
        cache: The messages that wait to be polled.
        offsets: The consumed offsets.
        api: Sends the requests to brokers.
    """

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        options: LitePullOptions,
        hooks: Sequence[ConsumeHook] = (),
    ) -> None:
        self.client = client
        self.group = client.wrap(group)
        self.queues: dict[MessageQueue, LiteQueue] = {}
        self.cache = LiteCache(options)
        self.api = PullApi(client, self.group)
        self._options = options
        self._is_broadcasting = options.message_model is MessageModel.BROADCASTING
        self.offsets: OffsetStore
        if self._is_broadcasting:
            self.offsets = LocalFileOffsetStore(
                client.client_id, self.group, folder=options.offsets_folder
            )
        else:
            self.offsets = RemoteBrokerOffsetStore(self.api)
        self._hooks, self._trace = traced_consumption(
            client, group, hooks, options.trace_topic if options.trace else None
        )
        self._in_hand: set[LiteQueue] = set()
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._is_assigned = False
        self._started_ms = client.clock.now_ms()
        self._share_lock = asyncio.Lock()
        self._news = StateChanges()
        self._is_share_wanted = asyncio.Event()
        self._sharing: asyncio.Task[None] | None = None

    # ---------------------------------------------------------------------- start and close

    async def start(self, assigned: Iterable[MessageQueue] | None) -> None:
        """Start; if that fails, the caller has to close the client.

        Raises:
            ConfigError: The client has another consumer of the group.
            RoquetError: Local offsets cannot be read.
        """
        await self.offsets.load()
        self.client.register_consumer(self.group, self)
        try:
            if assigned is None:
                await self.join()
            else:
                await self.assign(assigned)
        except BaseException:
            await self._stop()
            raise
        self._sharing = asyncio.get_running_loop().create_task(self._share_on())

    async def close(self) -> None:
        """Stop pulling, store the offsets, and leave the group."""
        await finish(self._stop, self.client.close)

    async def _stop(self) -> None:
        self.cache.close()
        tasks = [each.task for each in self.queues.values()] + [self._sharing]
        await finish(
            lambda: end_tasks(each for each in tasks if each is not None),
            self._stop_tracing,
            self._persist_last,
            lambda: self.client.unregister_consumer(self.group),
        )

    async def _stop_tracing(self) -> None:
        if self._trace is not None:
            await self._trace.close()

    async def _persist_last(self) -> None:
        try:
            await self.persist_offsets()
        except RoquetError as error:
            log.warning("%s: not all offsets were stored: %s", self.group, error.message)

    def wire_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue as it is on the wire."""
        return MessageQueue(self.client.wrap(queue.topic), queue.broker_name, queue.queue_id)

    def user_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue as users see it."""
        return MessageQueue(self.client.unwrap(queue.topic), queue.broker_name, queue.queue_id)

    # --------------------------------------------------------------------- which queues

    def subscribe(self, topic: str, expression: Expression) -> None:
        """Record the subscription to a topic."""
        wire_topic = self.client.wrap(topic)
        self._subscriptions[wire_topic] = subscription_of(
            wire_topic, expression, version_ms=self.client.clock.now_ms()
        )

    async def check(self, topic: str, expression: Expression) -> None:
        """Have brokers check an expression.

        Raises:
            BadExpression: A broker cannot parse it.
        """
        wanted = subscription_of(self.client.wrap(topic), expression, version_ms=0)
        await check_expression(self.client, self.group, wanted)

    async def join(self) -> None:
        """Send the subscriptions to the brokers, and rebalance the queues."""
        await self.client.routes.refresh(list(self._subscriptions))
        await self.client.heartbeat()
        await self.share()

    async def unsubscribe(self, topic: str) -> None:
        """Drop all queues of a topic."""
        wire_topic = self.client.wrap(topic)
        async with self._share_lock:
            await self._have(wire_topic, [])
            self._subscriptions.pop(wire_topic, None)
        self.cache.is_well(wire_topic)
        self._news.forget(wire_topic)

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues, and no others."""
        self._is_assigned = True
        wanted = [self.wire_queue(each) for each in queues]
        await self.client.routes.refresh(sorted({each.topic for each in wanted}))
        await self.client.heartbeat()
        async with self._share_lock:
            for topic in {each.topic for each in [*wanted, *self.queues]}:
                await self._have(topic, [each for each in wanted if each.topic == topic])

    async def share(self) -> bool:
        """Rebalance all subscribed topics; returns whether this client has its share."""
        if self._is_assigned:
            return True
        is_shared = True
        async with self._share_lock:
            for topic in list(self._subscriptions):
                try:
                    mine = await self._share_of(topic)
                except RoquetError as error:
                    if self._news.is_new(topic, error.message):
                        log.warning("%s: %s is not shared: %s", self.group, topic, error.message)
                    if isinstance(error, NoRoute) or not self._has_route(topic):
                        self.cache.report(topic, error)
                    is_shared = False
                    continue
                self.cache.is_well(topic)
                self._news.forget(topic)
                if mine is None:
                    is_shared = False
                else:
                    await self._have(topic, mine)
        return is_shared

    def _has_route(self, topic: str) -> bool:
        return self.client.routes.known_publish(topic) is not None

    async def _share_of(self, topic: str) -> list[MessageQueue] | None:
        if self._is_broadcasting:
            return await readable_queues(self.client, topic)
        return await share_of_queues(self.client, self.group, topic, self._options.allocate)

    async def _share_on(self) -> None:
        is_shared = False
        while True:
            wait_ms = self._options.rebalance_ms if is_shared else self._options.retry_ms
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._is_share_wanted.wait()
            except TimeoutError:
                pass
            self._is_share_wanted.clear()
            try:
                is_shared = await self.share()
            except Exception:
                log.exception("%s: rebalancing failed", self.group)
                is_shared = False

    async def _have(self, topic: str, wanted: list[MessageQueue]) -> None:
        for queue in [each for each in self.queues if each.topic == topic]:
            if queue not in wanted:
                await self._drop(queue)
        for queue in wanted:
            if queue not in self.queues:
                self.offsets.remove(queue)
                own = self.queues[queue] = LiteQueue(queue)
                self._begin(own)

    async def _drop(self, queue: MessageQueue) -> None:
        own = self.queues.pop(queue)
        own.is_dropped = True
        self.cache.clear(own)
        self.cache.is_well(own)
        self._in_hand.discard(own)
        if own.task is not None:
            await end_tasks([own.task])
        try:
            await self.offsets.persist([queue])
        except RoquetError as error:
            log.warning("%s: the offset of %s was not stored: %s", self.group, queue, error.message)
        self.offsets.remove(queue)
        self.api.forget(queue)

    # -------------------------------------------------------------------------------- pulls

    def move(self, own: LiteQueue, queue_offset: int) -> None:
        """Continue from an offset; messages pulled before are discarded."""
        own.generation += 1
        self.cache.clear(own)
        if own.task is not None:
            own.task.cancel()
        own.pull_offset = queue_offset
        self.hand(own, queue_offset)
        self._begin(own)

    def run_hooks(self, batch: LiteBatch) -> None:
        """Run the hooks for messages that a caller gets."""
        if self._hooks:
            context = ConsumeContext(
                group=self.client.unwrap(self.group),
                messages=batch.messages,
                queue=self.user_queue(batch.queue.queue),
                started_ms=self.client.clock.now_ms(),
                is_polled=True,
            )
            run_hooks(self._hooks, ConsumeHook.before_consume, context)
            context.is_success = True
            run_hooks(self._hooks, ConsumeHook.after_consume, context)

    def hand(self, own: LiteQueue, queue_offset: int) -> None:
        """Record the offset after the messages that the caller has got."""
        own.handed_offset = queue_offset
        self._in_hand.add(own)

    def settle(self) -> None:
        """Mark all messages that the caller has got as consumed."""
        for own in self._in_hand:
            self.note(own)
        self._in_hand.clear()

    def note(self, own: LiteQueue) -> None:
        """Mark the messages of a queue that the caller has got as consumed."""
        if own.handed_offset is not None and not own.is_dropped:
            self.offsets.update(own.queue, own.handed_offset, increase_only=False)

    def _begin(self, own: LiteQueue) -> None:
        own.task = asyncio.get_running_loop().create_task(self._pull_on(own))

    async def _pull_on(self, own: LiteQueue) -> None:
        while not own.is_dropped:
            await own.resumed.wait()
            await self.cache.wait_room(own)
            try:
                await self._pull(own)
            except RoquetError as error:
                await self._pull_failed(own, error)
            except Exception:
                log.exception("%s: a pull of %s failed", self.group, own.queue)
                await asyncio.sleep(self._options.retry_ms / 1000)

    async def _pull_failed(self, own: LiteQueue, error: RoquetError) -> None:
        code = error.response_code if isinstance(error, BrokerRefused) else None
        if code == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(FLOW_CONTROL_MS / 1000)
            return
        log.warning("%s: %s (%s)", self.group, error.message, error.detail)
        if code in _LASTING or isinstance(error, ProtocolError | NoRoute):
            self.cache.report(own, error)
        await asyncio.sleep(self._options.retry_ms / 1000)
        await self.client.routes.refresh([own.queue.topic])

    async def _pull(self, own: LiteQueue) -> None:
        if own.pull_offset is None:
            timestamp_ms = self._options.consume_from_timestamp_ms
            own.pull_offset = await start_offset(
                own.queue,
                self.offsets,
                self.api,
                where=self._options.consume_from,
                timestamp_ms=self._started_ms - HALF_HOUR_MS
                if timestamp_ms is None
                else timestamp_ms,
            )
            self.hand(own, own.pull_offset)
        own.pulled_ms = self.client.clock.now_ms()
        found = await self.api.pull(
            own.queue,
            own.pull_offset,
            subscription=self._pulled_subscription(own.queue.topic),
            max_messages=self._options.pull_batch_max,
            sys_flag=PULL_FLAGS,
            suspend_ms=self._options.suspend_ms,
        )
        self._pulled(own, found)

    def _pulled(self, own: LiteQueue, found: PullResult) -> None:
        if found.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "%s: %s has no offset %s, only %s to %s; continuing at %s",
                self.group,
                own.queue,
                own.pull_offset,
                found.min_offset,
                found.max_offset,
                found.next_offset,
            )
        self.cache.is_well(own)
        if found.messages:
            self.cache.put(LiteBatch(own, found.messages, found.next_offset, own.generation))
        elif own.handed_offset == own.pull_offset:
            # The caller has got everything before: messages that do not match need no second pull.
            self.hand(own, found.next_offset)
        own.pull_offset = found.next_offset

    def _pulled_subscription(self, topic: str) -> SubscriptionData:
        found = self._subscriptions[topic]
        if found.expression_type == EXPRESSION_TYPE_TAG:
            return structs.replace(found, sub_version=0)  # as Java does
        return found

    # ------------------------------------------------------ callbacks of the client instance

    def heartbeat_data(self) -> ConsumerData:
        """Return the data for heartbeats, without assigned queues, as in Java."""
        subscriptions = [] if self._is_assigned else list(self._subscriptions.values())
        return ConsumerData(
            consume_from_where=self._options.consume_from,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            group_name=self.group,
            message_model=self._options.message_model,
            subscription_data_set=subscriptions,
        )

    def rebalance_now(self) -> None:
        """Rebalance the queues soon."""
        self._is_share_wanted.set()

    async def persist_offsets(self) -> None:
        """Store the consumed offsets."""
        await self.offsets.persist(list(self.queues))

    def reset_offsets(self, topic: str, queue_offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from these offsets."""
        for queue, queue_offset in queue_offsets.items():
            own = self.queues.get(queue)
            if own is not None and queue.topic == topic:
                self.offsets.update(queue, queue_offset, increase_only=False)
                self.move(own, queue_offset)

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the consumer's offset in each of its queues of a topic."""
        return self.offsets.offsets(topic)

    def running_info(self) -> ConsumerRunningInfo:
        """Return the consumer's state, for administrators."""
        committed = self.offsets.offsets()
        return ConsumerRunningInfo(
            properties={
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_CONSUME_TYPE": ConsumeType.CONSUME_ACTIVELY.value,
                "PROP_NAMESERVER_ADDR": ";".join(self.client.options.namesrv_addresses),
            },
            subscription_set=self.heartbeat_data().subscription_data_set,
            queues={
                queue: ProcessQueueInfo(
                    cached_msg_count=own.cached_messages,
                    cached_msg_size_in_mib=own.cached_bytes >> 20,
                    cached_msg_min_offset=_edge(own, 0),
                    cached_msg_max_offset=_edge(own, -1),
                    commit_offset=committed.get(queue, -1),
                    last_pull_timestamp_ms=own.pulled_ms,
                    last_consume_timestamp_ms=own.polled_ms,
                )
                for queue, own in self.queues.items()
            },
        )

    async def consume_directly(
        self,
        message: ReceivedMessage,
        broker_name: str,  # noqa: ARG002 - what the client instance calls it with
    ) -> ConsumeMessageDirectlyResult:
        """Refuse: there is no handler."""
        return ConsumeMessageDirectlyResult(
            consume_result=CMResult.CR_THROW_EXCEPTION,
            remark=f"The consumer polls; it has no handler for {message.message_id}",
        )


def _edge(own: LiteQueue, index: int) -> int:
    return own.batches[index].messages[index].queue_offset if own.batches else 0
