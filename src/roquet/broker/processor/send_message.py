"""Sends: SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.

Owns the path of a message from its request to the store, and of the result back to the producer.
This is the reference path: the hot path (:mod:`roquet.broker.hot`) handles plain sends and stores
what these steps would have stored. They run in upstream's order, because the producer gets the
first error found:

1. the broker accepts sends (flow control, role), there is a body, the hooks agree
2. the broker has started to accept sends, the topic exists or may be created, the queue exists
3. a retry that was tried too often becomes a dead letter
4. the unique key, the priority's queue, the key that compaction needs
5. transactions are allowed
6. the store accepts writes; batches, timers and delays
7. the target: the half topic for a transaction, the schedule topic for a delay

Invariants:

* A response reports a message as stored only after the store has confirmed it.
* A send that waits for the disk or a slave is counted by flow control until its response is sent,
  and keeps neither body nor properties, so that it takes little memory.
* One-way sends get no response.
* A send that creates a topic waits until the topic is in the file, and later sends wait behind it.
  The number of waiting sends is bounded, like those that wait for the disk, and so are their bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from roquet.broker.components import BrokerComponents
from roquet.broker.hooks import (
    SendMessageContext,
    run_after,
)
from roquet.broker.manager.topic_queue_mapping import MappedQueue
from roquet.broker.processor.inner_message import (
    added_properties,
)
from roquet.broker.processor.new_topics import NewTopics
from roquet.broker.processor.send_answer import SendAnswers
from roquet.broker.processor.send_check import NewTopic, Refusal, TopicCheck, TopicPlan
from roquet.broker.processor.send_prepare import PreparedMessage, SendPreparation
from roquet.broker.processor.send_request import (
    before_send,
    born_host_of,
    chosen_queue_id,
    not_open_yet,
    note_answer,
    note_append,
)
from roquet.broker.processor.static_offset import not_leader
from roquet.broker.service.flow_control import OVERLOAD, REJECT_REQUEST
from roquet.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from roquet.model.topic_config import PERM_WRITE
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import Action, Permission, RequestContext, Resource, processor
from roquet.remoting.turn_scheduler import RequestClass
from roquet.store.config import BrokerRole
from roquet.store.message_store import PutDone
from roquet.store.results import PutMessageResult, PutMessageStatus

__all__ = ["SendMessageProcessor"]

_MAY_SEND = Permission(Action.PUB, Resource.TOPIC)
_PROPERTIES_FIELDS = ("i", "properties")

_Counted = tuple[str, int, int]
"""Where a send is counted: topic, queue id in the response, and arrival time."""


class SendMessageProcessor:
    """Stores messages from producers.

    Args:
        components: The broker's components.

    Attributes:
        send_hooks: Called around every send; if there are any, no send is plain.
        half_stored: Called with the topic of every stored half message.
        plain_topics: Called with a topic and its number of write queues when a plan without rules
            is created for it; valid until :meth:`forget_topics`.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self.send_hooks = components.hooks.send
        self.half_stored: list[Callable[[str], object]] = []
        self.plain_topics: list[Callable[[str, int], object]] = []
        self._config = components.config
        self._store = components.store
        self._submit = components.store.submit
        self._clock = components.clock
        self._store_host = components.store_host
        self._flow = components.flow
        self._stats = components.stats
        self._random = components.random
        self._suffix = added_properties(components.config)
        self._topics = components.topics
        self._plans: dict[str, TopicPlan] = {}
        self._new_topics = NewTopics(components.topics, components.store.finish_burst)
        self._starts_ms = components.config.start_accept_send_timestamp_ms
        role = components.store.config.broker_role
        self._may_wait = components.store.config.is_sync_flush or role is BrokerRole.SYNC_MASTER
        self._is_slave = role is BrokerRole.SLAVE
        self._is_guarded = self._is_slave or self._starts_ms > 0
        self._mappings = components.mappings
        self._check = TopicCheck(components)
        self._answers = SendAnswers(components)
        self._prepare = SendPreparation(components, self._answers)
        components.topics.changed.append(self.forget_topics)

    def forget_topics(self) -> None:
        """Discard all plans, so that every topic is checked again."""
        self._plans.clear()

    @processor(
        RequestCode.SEND_MESSAGE,
        header=SendMessageRequestHeader,
        permission=_MAY_SEND,
        request_class=RequestClass.SEND,
    )
    @processor(
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        header=SendMessageRequestHeaderV2,
        permission=_MAY_SEND,
        request_class=RequestClass.SEND,
    )
    def send(
        self, context: RequestContext, header: SendMessageRequestHeader
    ) -> RemotingCommand | None:
        """Store one message, or all messages of a batch."""
        remark = self._flow.refusal_of_send()
        if remark is not None:
            return context.response(ResponseCode.SYSTEM_BUSY, remark=remark)
        request = context.request
        if self._is_slave and not self._config.slave_acting_master:
            return context.response(ResponseCode.SYSTEM_BUSY, remark=REJECT_REQUEST)
        queue = self._mappings.queue_of(header, any_queue=True)
        if queue is not None:
            if queue.leader is None:
                broker_name = queue.detail.broker_name or ""
                return not_leader(context, header.topic, header.queue_id, broker_name)
            header.queue_id = queue.leader.queue_id
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
        return self._send_checked(context, header, hooked, queue)

    def _send_checked(
        self,
        context: RequestContext,
        header: SendMessageRequestHeader,
        hooked: SendMessageContext | None,
        queue: MappedQueue | None,
    ) -> RemotingCommand | None:
        if header.topic in self._new_topics:
            return self._wait_for_topic(context, header, hooked, queue)
        prepared = self._prepared(context, header)
        if isinstance(prepared, NewTopic):
            return self._wait_for_topic(context, header, hooked, queue)
        return self._send_prepared(context, header, prepared, hooked, queue)

    def _send_prepared(
        self,
        context: RequestContext,
        header: SendMessageRequestHeader,
        prepared: PreparedMessage | Refusal,
        hooked: SendMessageContext | None,
        queue: MappedQueue | None,
    ) -> RemotingCommand | None:
        if isinstance(prepared, Refusal):
            answer = self._answers.refused(context.request, prepared)
            if hooked is not None and prepared.is_of_store:
                self._after(hooked, answer, None)
            return answer
        self._submit_prepared(context, header.topic, prepared, hooked, queue)
        return None

    def _wait_for_topic(
        self,
        context: RequestContext,
        header: SendMessageRequestHeader,
        hooked: SendMessageContext | None,
        queue: MappedQueue | None,
    ) -> RemotingCommand | None:
        """Continue the send once the topic is in the file."""

        def go_on(error: Exception | None) -> bool:
            answer: RemotingCommand | None
            if error is not None:
                answer = context.failure(error)
            else:
                try:
                    prepared = self._prepared(context, header)
                    if isinstance(prepared, NewTopic):
                        return False
                    answer = self._send_prepared(context, header, prepared, hooked, queue)
                except Exception as failure:  # noqa: BLE001 - the peer gets a response
                    answer = context.failure(failure)
            self._flow.sends_waiting -= 1
            if answer is not None:
                context.reply(answer)
            return True

        self._flow.sends_waiting += 1
        if self._new_topics.wait(header.topic, len(context.request.body), go_on):
            return None
        self._flow.sends_waiting -= 1
        return context.response(ResponseCode.SYSTEM_BUSY, remark=OVERLOAD)

    def _prepared(
        self, context: RequestContext, header: SendMessageRequestHeader
    ) -> PreparedMessage | Refusal | NewTopic:
        if self._starts_ms and not self._is_open():
            return not_open_yet(self._starts_ms)
        plan = self._plan(header)
        if isinstance(plan, (Refusal, NewTopic)):
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
        """Whether sends are accepted yet; once they are, this is not checked again."""
        if self._clock.now_ms() < self._starts_ms:
            return False
        self._starts_ms = 0
        self._is_guarded = self._is_slave
        return True

    def _plan(self, header: SendMessageRequestHeader) -> TopicPlan | Refusal | NewTopic:
        plan = self._plans.get(header.topic)
        if plan is not None:
            return plan
        checked = self._check.check(header)
        if header.topic in self._new_topics:
            return checked
        if isinstance(checked, TopicPlan) and self._config.broker_permission & PERM_WRITE:
            self._plans[header.topic] = checked
            if checked.is_plain and not self._is_guarded:
                for told in self.plain_topics:
                    told(header.topic, checked.write_queue_nums)
        return checked

    def _submit_prepared(
        self,
        context: RequestContext,
        topic: str,
        prepared: PreparedMessage,
        hooked: SendMessageContext | None,
        queue: MappedQueue | None,
    ) -> None:
        if queue is not None:
            prepared = prepared._replace(queue_id=queue.queue_id)
        message, queue_id, unique_key, is_inner_batch = prepared
        is_oneway = context.request.is_oneway
        counted = (message.topic, queue_id, self._clock.now_ms())
        done: PutDone
        if hooked is not None:
            done = partial(self._stored_hooked, context, counted, prepared, hooked)
        elif is_oneway:
            done = partial(self._count, counted)
        elif is_inner_batch:
            done = partial(self._stored, context, counted, unique_key, is_inner_batch=True)
        else:
            done = partial(self._stored, context, counted, unique_key)
        if queue is not None:
            done = partial(_tell_logical_offset, queue, done)
        if message.topic == TRANS_HALF_TOPIC:
            done = partial(self._half_stored, topic, done)
        elif message.topic == SCHEDULE_TOPIC:
            done = partial(self._delayed_stored, message.queue_id, done)
        elif message.topic != topic:
            done = partial(self._dead_letter_stored, message.topic, done)
        self._submit(message, done)
        if not is_oneway:
            self._flow.sends_waiting += 1
        if self._may_wait:
            _let_go(context.request)

    def _stored(
        self,
        context: RequestContext,
        counted: _Counted,
        unique_key: str | None,
        result: PutMessageResult,
        *,
        is_inner_batch: bool = False,
    ) -> None:
        self._flow.sends_waiting -= 1
        self._count(counted, result)
        context.reply(
            self._answers.of(
                context.request, result, counted[1], unique_key, is_inner_batch=is_inner_batch
            )
        )

    def _count(self, counted: _Counted, result: PutMessageResult) -> None:
        appended = result.append
        if appended is None or not result.is_stored:
            return
        topic, queue_id, began_ms = counted
        self._stats.add_puts(topic, appended.message_count, appended.wrote_bytes)
        self._stats.add_put_latency(topic, queue_id, self._clock.now_ms() - began_ms)

    def _half_stored(self, topic: str, done: PutDone, result: PutMessageResult) -> None:
        if result.is_ok:
            for listener in self.half_stored:
                listener(topic)
        done(result)

    def _delayed_stored(self, queue_id: int, done: PutDone, result: PutMessageResult) -> None:
        if result.append is not None and result.is_stored:
            self._stats.add_queue_puts(SCHEDULE_TOPIC, queue_id, 1, result.append.wrote_bytes)
        done(result)

    def _dead_letter_stored(self, topic: str, done: PutDone, result: PutMessageResult) -> None:
        # Its topic may have been created for this message.
        self._topics.when_kept(topic, partial(done, result))

    # ------------------------------------------------------------------------------- hooks

    def _stored_hooked(
        self,
        context: RequestContext,
        counted: _Counted,
        prepared: PreparedMessage,
        hooked: SendMessageContext,
        result: PutMessageResult,
    ) -> None:
        self._count(counted, result)
        answer = self._answers.of(
            context.request,
            result,
            prepared.queue_id,
            prepared.unique_key,
            is_inner_batch=prepared.is_inner_batch,
        )
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


def _tell_logical_offset(queue: MappedQueue, done: PutDone, result: PutMessageResult) -> None:
    """Report the message's offset in its logical queue to the producer."""
    appended, leader = result.append, queue.leader
    if appended is not None and leader is not None:
        logical_offset = leader.logical_loosely(appended.queue_offset)
        appended = msgspec.structs.replace(appended, queue_offset=logical_offset)
        result = msgspec.structs.replace(result, append=appended)
    done(result)


def _let_go(request: RemotingCommand) -> None:
    """Drop the parts of a request that its response does not need."""
    request.body = b""
    if request.ext_fields is not None:
        for name in _PROPERTIES_FIELDS:
            request.ext_fields.pop(name, None)
