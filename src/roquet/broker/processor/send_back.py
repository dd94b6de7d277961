"""Messages that consumers failed to consume: CONSUMER_SEND_MSG_BACK.

Upstream's consumerSendMsgBack. Moves such a message to its group's retry topic, after a delay, or
to its dead letter topic:

=============================================== ====================================================
redeliveries exhausted, or                      %DLQ%group, queue 0, with DELAY 0
the consumer gives up (delay level < 0)
delay level > 0                                 %RETRY%group after that delay
delay level 0                                   %RETRY%group after level 3 + number of retries
=============================================== ====================================================

The group sets the maximum of redeliveries, or the request of a client since version 3.4.9. The new
record has the properties of the old one and these:

================== ================================================================================
RETRY_TOPIC        the topic from which the group first got it
ORIGIN_MESSAGE_ID  the id that it had there
DELAY              the level
WAIT               false: the consumer does not wait until it is on disk
================== ================================================================================

Invariants:

* A message is acknowledged only when its copy is in the log; the consumer then continues, and
  would not send it back again.
* Neither topic nor record is created for a group that does not exist.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from roquet.broker.components import BrokerComponents
from roquet.broker.hooks import (
    ConsumeMessageContext,
    StatsType,
    namespace_of,
    run_after,
)
from roquet.broker.log_lookup import LogLookup
from roquet.broker.processor.inner_message import TIMER_REQUESTS, delayed_placement
from roquet.broker.processor.send_check import SUGGESTION, Refusal
from roquet.broker.stored_copy import TopicQueue, copied
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.delay_level import DelayLevels
from roquet.model.message import BrokerMessage, StoredMessage
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic import dlq_topic, retry_topic
from roquet.model.topic_config import PERM_READ, PERM_WRITE
from roquet.remoting.codes import RequestCode, ResponseCode, version_ordinal
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from roquet.remoting.processor import Action, Permission, RequestContext, Resource, processor
from roquet.remoting.turn_scheduler import RequestClass
from roquet.store.config import BrokerRole
from roquet.store.results import PutMessageResult

__all__ = ["SendBackProcessor", "SentBackMessage"]

log = logging.getLogger(__name__)

DLQ_QUEUES = 1
FIRST_RETRY_LEVEL = 3
"""The delay level of a first retry if the consumer names none."""

_READ_WRITE = PERM_READ | PERM_WRITE
_TOPIC_UNIT_SUB = 2
_MAX_TIMES_SINCE = version_ordinal("V3_4_9")
"""Clients before this version send no meaningful maxReconsumeTimes."""


class SentBackMessage(NamedTuple):
    """A message that was sent back.

    Attributes:
        origin_topic: The topic from which the group first got it.
        named_topic: The topic in the request, which may be missing.
        stored_topic: Where it is now: the schedule topic for a retry.
        ext_fields: The fields of the request, such as those of accounts.
    """

    group: str
    origin_topic: str
    named_topic: str | None
    stored_topic: str
    stored_queue_id: int
    is_dead_letter: bool
    wrote_bytes: int
    ext_fields: dict[str, str]


class _Return(NamedTuple):
    """A message being sent back."""

    message: BrokerMessage
    origin_topic: str
    unique_key: str | None
    is_dead_letter: bool


class SendBackProcessor:
    """Stores messages that consumers send back.

    Args:
        components: The broker's components.

    Attributes:
        consume_hooks: Called after a message was stored or refused.
        listeners: Called for every message that was sent back.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self.consume_hooks = components.hooks.consume
        self.listeners: list[Callable[[SentBackMessage], None]] = []
        self._broker = components
        self._store_host = components.store_host
        self._lookup = LogLookup(components.store, components.flow)
        self._broker_ip = components.broker_ip
        self._delay_level_max = DelayLevels(components.store.config.message_delay_levels).max_level
        self._is_slave = components.store.config.broker_role is BrokerRole.SLAVE

    @processor(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        header=ConsumerSendMsgBackRequestHeader,
        permission=Permission(Action.SUB, Resource.GROUP),
        request_class=RequestClass.SEND,
    )
    def send_back(
        self, context: RequestContext, header: ConsumerSendMsgBackRequestHeader
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Store a message again, for a retry or as a dead letter."""
        remark = self._broker.flow.refusal_of_send()
        if remark is not None:
            return context.response(ResponseCode.SYSTEM_BUSY, remark=remark)
        group = self._group(header)
        if isinstance(group, Refusal):
            return context.response(group.code, remark=group.remark)
        if group.retry_queue_nums <= 0:
            return context.response(ResponseCode.SUCCESS)
        refusal = self._refusal_by_retry_topic(header, group)
        if refusal is not None:
            return context.response(refusal.code, remark=refusal.remark)
        if self._lookup.is_recent(header.physical_offset):
            message = self._lookup.now(header.physical_offset)
            return self._store_again(context, header, group, message)
        return self._send_back_cold(context, header, group)

    async def _send_back_cold(
        self,
        context: RequestContext,
        header: ConsumerSendMsgBackRequestHeader,
        group: SubscriptionGroupConfig,
    ) -> RemotingCommand | None:
        message = await self._lookup.later(header.physical_offset)
        answer = self._store_again(context, header, group, message)
        self._broker.store.finish_burst()
        return answer

    # ----------------------------------------------------------------------------- checks

    def _group(self, header: ConsumerSendMsgBackRequestHeader) -> SubscriptionGroupConfig | Refusal:
        if self._is_slave:
            return Refusal(
                ResponseCode.SYSTEM_ERROR, f"no master available along with {self._broker_ip}"
            )
        group = self._broker.groups.find(header.group)
        if group is None:
            return Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {header.group} {SUGGESTION}",
            )
        if not self._broker.config.broker_permission & PERM_WRITE:
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker_ip}] sending message is forbidden",
            )
        return group

    def _refusal_by_retry_topic(
        self, header: ConsumerSendMsgBackRequestHeader, group: SubscriptionGroupConfig
    ) -> Refusal | None:
        topic = retry_topic(header.group)
        config = self._broker.topics.create_in_send_back(
            topic,
            queue_nums=group.retry_queue_nums,
            perm=_READ_WRITE,
            sys_flag=_TOPIC_UNIT_SUB if header.unit_mode else 0,
        )
        if config is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")
        if not config.perm & PERM_WRITE:
            return Refusal(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden"
            )
        return None

    # ------------------------------------------------------------------------ storing again

    def _store_again(
        self,
        context: RequestContext,
        header: ConsumerSendMsgBackRequestHeader,
        group: SubscriptionGroupConfig,
        message: StoredMessage | None,
    ) -> RemotingCommand | None:
        """Store the message; the response follows at the end of the burst, or is a refusal."""
        if message is None:
            return context.response(
                ResponseCode.SYSTEM_ERROR,
                remark=f"look message by offset failed, {header.physical_offset}",
            )
        prepared = self._prepared(context.request, header, group, message)
        if isinstance(prepared, Refusal):
            return context.response(prepared.code, remark=prepared.remark)
        self._broker.store.submit(
            prepared.message, partial(self._stored, context, header, prepared)
        )
        return None

    def _prepared(
        self,
        request: RemotingCommand,
        header: ConsumerSendMsgBackRequestHeader,
        group: SubscriptionGroupConfig,
        message: StoredMessage,
    ) -> _Return | Refusal:
        max_times = group.retry_max_times
        if request.version >= _MAX_TIMES_SINCE and header.max_reconsume_times is not None:
            max_times = header.max_reconsume_times
        is_dead_letter = message.reconsume_times >= max_times or header.delay_level < 0
        properties = dict(message.properties)
        properties.pop(prop.CRC32, None)
        origin_topic = properties.setdefault(prop.RETRY_TOPIC, message.topic)
        properties[prop.WAIT_STORE_MSG_OK] = "false"
        if not properties.get(prop.ORIGIN_MESSAGE_ID, "").strip():
            properties[prop.ORIGIN_MESSAGE_ID] = message.offset_message_id
        if is_dead_letter:
            queue: TopicQueue = (dlq_topic(header.group), 0)
            made = self._broker.topics.create_in_send_back(
                queue[0], queue_nums=DLQ_QUEUES, perm=_READ_WRITE, sys_flag=0
            )
            if made is None:
                return Refusal(ResponseCode.SYSTEM_ERROR, f"topic[{queue[0]}] not exist")
            properties[prop.DELAY_TIME_LEVEL] = "0"
        else:
            level = header.delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
            queue_id = self._broker.random.randrange(group.retry_queue_nums)
            queue = self._delayed(
                (retry_topic(header.group), queue_id), level, properties, message.sys_flag
            )
        again = copied(
            message,
            queue,
            properties,
            store_host=self._store_host,
            reconsume_times=message.reconsume_times + 1,
        )
        return _Return(again, origin_topic, message.unique_key, is_dead_letter)

    def _delayed(
        self, queue: TopicQueue, level: int, properties: dict[str, str], sys_flag: int
    ) -> TopicQueue:
        """Where a retry waits for its delay, with that noted in its properties."""
        level = min(level, self._delay_level_max)
        properties[prop.DELAY_TIME_LEVEL] = str(level)
        if not flags.takes_queue_offset(sys_flag) or level <= 0:
            return queue
        for name in TIMER_REQUESTS:
            properties.pop(name, None)
        topic, queue_id, added = delayed_placement(*queue, level)
        properties.update(added)
        return topic, queue_id

    def _stored(
        self,
        context: RequestContext,
        header: ConsumerSendMsgBackRequestHeader,
        sent: _Return,
        result: PutMessageResult,
    ) -> None:
        if result.is_ok:
            answer = context.response(ResponseCode.SUCCESS)
            self._tell(context, header, sent, result)
        else:
            remark = result.status.value
            answer = context.response(ResponseCode.SYSTEM_ERROR, remark=remark)
        if not context.request.is_oneway:
            # A dead letter topic may have been created for this message.
            self._broker.topics.when_kept(sent.message.topic, partial(context.reply, answer))
        if self.consume_hooks and (header.origin_msg_id or "").strip():
            kind = StatsType.SEND_BACK_TO_DLQ if sent.is_dead_letter else StatsType.SEND_BACK
            hooked = ConsumeMessageContext(
                namespace=namespace_of(header.group),
                consumer_group=header.group,
                topic=header.origin_topic or "",
                client_host=context.connection.remote_address,
                store_host=str(self._store_host),
                ext_fields=context.request.ext_fields or {},
                message_count=1,
                is_success=result.is_ok,
                stats_type=kind,
            )
            run_after(self.consume_hooks, hooked)

    def _tell(
        self,
        context: RequestContext,
        header: ConsumerSendMsgBackRequestHeader,
        sent: _Return,
        result: PutMessageResult,
    ) -> None:
        if sent.is_dead_letter:
            log.info(
                "dead letter of group %s from topic %s: %s",
                header.group,
                header.origin_topic,
                sent.unique_key,
            )
        news = SentBackMessage(
            group=header.group,
            origin_topic=sent.origin_topic,
            named_topic=header.origin_topic,
            stored_topic=sent.message.topic,
            stored_queue_id=sent.message.queue_id,
            is_dead_letter=sent.is_dead_letter,
            wrote_bytes=result.append.wrote_bytes if result.append is not None else 0,
            ext_fields=context.request.ext_fields or {},
        )
        for listener in self.listeners:
            listener(news)
