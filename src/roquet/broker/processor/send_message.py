"""Sends: SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.

Owns the way of a message from its request to the store, and of the store's word back to the
producer. Two ways lead to the store. Nearly all messages are plain: a known topic without rules,
properties without a meaning to the broker; their checks are one look at the plan of the topic. All
others go step by step, in the order in which upstream does it, because the first fault is the one
that the producer hears of:

1. the broker takes sends (flow control, role), there is a body, the hooks agree
2. the broker takes sends by now, the topic exists or may be made, the queue exists
3. a retry that was tried too often becomes a dead letter
4. the unique key, the priority's queue, the key that compaction needs
5. transactions are allowed
6. the store takes writes; batches, timers and delays
7. the place: the half topic for a transaction, the schedule topic for a delay

Invariants:

* An answer says that a message is stored only when the store has said so.
* A send that waits for the disk or a slave is counted by flow control until it is answered, and
  keeps neither body nor properties, so that what waits is small.
* One-way sends are not answered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from roquet.broker.config import BrokerConfig, broker_ip
from roquet.broker.hooks import (
    SendMessageContext,
    SendMessageHook,
    run_after,
)
from roquet.broker.manager.rebalance_lock import RebalanceLockManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.processor.inner_message import (
    SPECIAL,
    added_properties,
    encoded,
    read_properties,
)
from roquet.broker.processor.send_answer import SendAnswers
from roquet.broker.processor.send_check import Refusal, TopicCheck, TopicPlan
from roquet.broker.processor.send_prepare import Prepared, SendPreparation, is_waiting
from roquet.broker.processor.send_request import (
    before_send,
    born_host_of,
    chosen_queue_id,
    not_open_yet,
    note_answer,
    note_append,
)
from roquet.broker.service.flow_control import REJECT_REQUEST, FlowControl
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.model import sys_flag as flags
from roquet.model.host import Host
from roquet.model.message import BrokerMessage
from roquet.model.properties import PROPERTIES_BYTES_MAX, UNIQ_CLIENT_MESSAGE_ID_KEYIDX
from roquet.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from roquet.model.topic_config import PERM_WRITE
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import Action, Permission, RequestContext, Resource, processor
from roquet.runtime.clock import Clock
from roquet.runtime.randomness import Randomness
from roquet.store.config import BrokerRole
from roquet.store.message_store import MessageStore, PutDone
from roquet.store.results import PutMessageResult, PutMessageStatus

__all__ = ["SendMessageProcessor"]

_MAY_SEND = Permission(Action.PUB, Resource.TOPIC)
_SPECIAL_FLAGS = flags.TRANSACTION_MASK | flags.INNER_BATCH
_PROPERTIES_FIELDS = ("i", "properties")

_Place = tuple[str, int, int]
"""Where a send is counted: topic, queue id of the answer, and when the send came."""


class SendMessageProcessor:
    """Takes messages of producers.

    Args:
        config: What the broker allows and says of itself.
        store: What keeps the messages.
        topics: The topics; may make new ones.
        groups: The groups, whose retries come in like other messages.
        clock: The time.
        store_host: The broker's address in records and message ids.
        flow: What keeps the broker from taking more than it can.
        random: Chooses queues for those who do not.
        locks: Which groups consume in order.
        send_hooks: The hooks, if others have them too.
        stats: The broker's counters; without them, nobody sees what is counted.

    Attributes:
        send_hooks: Called around every send; with any, no send is plain.
        half_stored: Told the topic of every half message that was stored.
        approve_topic: Told of a topic, with its number of write queues, when a plan without rules
            is made for it; holds until :meth:`forget_topics`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        clock: Clock,
        store_host: Host,
        flow: FlowControl,
        random: Randomness,
        locks: RebalanceLockManager | None = None,
        send_hooks: list[SendMessageHook] | None = None,
        stats: BrokerStats | None = None,
    ) -> None:
        self.send_hooks = [] if send_hooks is None else send_hooks
        self.half_stored: list[Callable[[str], object]] = []
        self.approve_topic: Callable[[str, int], None] | None = None
        self._config = config
        self._store = store
        self._submit = store.submit
        self._clock = clock
        self._store_host = store_host
        self._flow = flow
        self._stats = BrokerStats(config.cluster_name, clock) if stats is None else stats
        self._random = random
        self._suffix = added_properties(config)
        self._plans: dict[str, TopicPlan] = {}
        self._starts_ms = config.start_accept_send_timestamp_ms
        role = store.config.broker_role
        self._may_wait = store.config.is_sync_flush or role is BrokerRole.SYNC_MASTER
        self._is_slave = role is BrokerRole.SLAVE
        self._is_guarded = self._is_slave or self._starts_ms > 0
        shown_ip = broker_ip(config, store_host)
        self._check = TopicCheck(config, topics, broker_ip=shown_ip)
        self._answers = SendAnswers(config, store=store, clock=clock, store_host=store_host)
        self._prepare = SendPreparation(
            config,
            answers=self._answers,
            store=store,
            topics=topics,
            groups=groups,
            locks=locks,
            clock=clock,
            store_host=store_host,
            broker_ip=shown_ip,
            random=random,
        )
        topics.changed.append(self.forget_topics)

    def forget_topics(self) -> None:
        """Check every topic anew."""
        self._plans.clear()

    @processor(RequestCode.SEND_MESSAGE, header=SendMessageRequestHeader, permission=_MAY_SEND)
    @processor(
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        header=SendMessageRequestHeaderV2,
        permission=_MAY_SEND,
    )
    def send(
        self, context: RequestContext, header: SendMessageRequestHeader
    ) -> RemotingCommand | None:
        """Store one message, or all messages of a batch."""
        remark = self._flow.refusal_of_send()
        if remark is not None:
            return context.response(ResponseCode.SYSTEM_BUSY, remark=remark)
        request = context.request
        plan = self._plans.get(header.topic)
        if (
            plan is None
            or not plan.is_plain
            or self._is_guarded
            or self.send_hooks
            or header.batch
            or not request.body
            or not 0 <= header.queue_id < plan.queue_id_limit
            or header.sys_flag & _SPECIAL_FLAGS
        ):
            return self._send_carefully(context, header)
        text = header.properties
        if not text or len(text) > PROPERTIES_BYTES_MAX:
            return self._send_carefully(context, header)
        properties, is_verbatim = read_properties(text)
        unique_key = properties.get(UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        if not is_verbatim or unique_key is None or not SPECIAL.isdisjoint(properties):
            return self._send_carefully(context, header)
        message = BrokerMessage(
            header.topic,
            header.queue_id,
            request.body,
            encoded(text) + self._suffix,
            header.flag,
            header.sys_flag,
            header.born_timestamp_ms,
            born_host_of(context.connection),
            self._store_host,
            header.reconsume_times or 0,
            0,
            is_waiting(properties),
        )
        place = (header.topic, header.queue_id, self._clock.now_ms())
        if request.is_oneway:
            self._submit(message, partial(self._count, place))
            return None
        self._submit(message, partial(self._stored, context, place, unique_key))
        self._flow.sends_waiting += 1
        if self._may_wait:
            _let_go(request)
        return None

    def _stored(
        self,
        context: RequestContext,
        place: _Place,
        unique_key: str | None,
        result: PutMessageResult,
    ) -> None:
        self._flow.sends_waiting -= 1
        self._count(place, result)
        context.reply(self._answers.of(context.request, result, place[1], unique_key))

    def _count(self, place: _Place, result: PutMessageResult) -> None:
        appended = result.append
        if appended is None or not result.is_stored:
            return
        topic, queue_id, began_ms = place
        messages = len(appended.physical_offsets)
        self._stats.add_puts(topic, messages, appended.wrote_bytes)
        self._stats.add_put_latency(topic, queue_id, self._clock.now_ms() - began_ms)

    # ------------------------------------------------------------------------ step by step

    def _send_carefully(
        self, context: RequestContext, header: SendMessageRequestHeader
    ) -> RemotingCommand | None:
        request = context.request
        if self._is_slave and not self._config.slave_acting_master:
            return context.response(ResponseCode.SYSTEM_BUSY, remark=REJECT_REQUEST)
        if not request.body:
            raise RequestRefused("the message body is null")
        hooked = before_send(
            self.send_hooks,
            context,
            header,
            self._config,
            store_host=self._store_host,
            clock=self._clock,
        )
        prepared = self._prepared(context, header)
        if isinstance(prepared, Refusal):
            answer = self._answers.refused(request, prepared)
            if hooked is not None and prepared.is_of_store:
                self._after(hooked, answer, None)
            return answer
        self._submit_prepared(context, header.topic, prepared, hooked)
        return None

    def _prepared(
        self, context: RequestContext, header: SendMessageRequestHeader
    ) -> Prepared | Refusal:
        if self._starts_ms and not self._is_open():
            return not_open_yet(self._starts_ms)
        plan = self._plan(header)
        if isinstance(plan, Refusal):
            return plan
        queue_id = chosen_queue_id(context, header, plan, self._random)
        if isinstance(queue_id, Refusal):
            return queue_id
        if self._is_slave:
            return self._answers.refusal(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        prepare = self._prepare.batch if header.batch else self._prepare.single
        born_host = born_host_of(context.connection)
        return prepare(context.request, header, plan, queue_id, born_host)

    def _is_open(self) -> bool:
        """Whether sends are taken by now; once they are, nobody asks any more."""
        if self._clock.now_ms() < self._starts_ms:
            return False
        self._starts_ms = 0
        self._is_guarded = self._is_slave
        return True

    def _plan(self, header: SendMessageRequestHeader) -> TopicPlan | Refusal:
        plan = self._plans.get(header.topic)
        if plan is not None:
            return plan
        checked = self._check.check(header)
        if isinstance(checked, TopicPlan) and self._config.broker_permission & PERM_WRITE:
            self._plans[header.topic] = checked
            if checked.is_plain and not self._is_guarded and self.approve_topic is not None:
                self.approve_topic(header.topic, checked.write_queue_nums)
        return checked

    def _submit_prepared(
        self,
        context: RequestContext,
        topic: str,
        prepared: Prepared,
        hooked: SendMessageContext | None,
    ) -> None:
        message, queue_id, unique_key = prepared
        is_oneway = context.request.is_oneway
        place = (message.topic, queue_id, self._clock.now_ms())
        done: PutDone
        if hooked is not None:
            done = partial(self._stored_hooked, context, place, prepared, hooked)
        elif not is_oneway:
            done = partial(self._stored, context, place, unique_key)
        else:
            done = partial(self._count, place)
        if message.topic == TRANS_HALF_TOPIC:
            done = partial(self._half_stored, topic, done)
        elif message.topic == SCHEDULE_TOPIC:
            done = partial(self._delayed_stored, message.queue_id, done)
        self._submit(message, done)
        if not is_oneway:
            self._flow.sends_waiting += 1
        if self._may_wait:
            _let_go(context.request)

    def _half_stored(self, topic: str, done: PutDone, result: PutMessageResult) -> None:
        if result.is_ok:
            for listener in self.half_stored:
                listener(topic)
        done(result)

    def _delayed_stored(self, queue_id: int, done: PutDone, result: PutMessageResult) -> None:
        if result.append is not None and result.is_stored:
            self._stats.add_queue_puts(SCHEDULE_TOPIC, queue_id, 1, result.append.wrote_bytes)
        done(result)

    # ------------------------------------------------------------------------------- hooks

    def _stored_hooked(
        self,
        context: RequestContext,
        place: _Place,
        prepared: Prepared,
        hooked: SendMessageContext,
        result: PutMessageResult,
    ) -> None:
        self._count(place, result)
        answer = self._answers.of(context.request, result, prepared.queue_id, prepared.unique_key)
        if not context.request.is_oneway:
            self._flow.sends_waiting -= 1
            context.reply(answer)
        self._after(hooked, answer, result)

    def _after(
        self,
        hooked: SendMessageContext,
        answer: RemotingCommand,
        result: PutMessageResult | None,
    ) -> None:
        note_answer(hooked, answer)
        note_append(hooked, None if result is None else result.append)
        run_after(self.send_hooks, hooked)


def _let_go(request: RemotingCommand) -> None:
    """Keep no more of a request than its answer needs."""
    request.body = b""
    if request.ext_fields is not None:
        for name in _PROPERTIES_FIELDS:
            request.ext_fields.pop(name, None)
