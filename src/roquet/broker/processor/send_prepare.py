"""Prepares the message to store from a send.

Owns steps 3 to 7 of :mod:`roquet.broker.processor.send_message`: dead letters, unique keys,
priorities, compaction, transactions, batches, timers and delays. The result is a message with its
final topic, queue and properties, or the first reason to refuse it.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import NamedTuple

from roquet.broker.components import BrokerComponents
from roquet.broker.processor import inner_message as inner
from roquet.broker.processor.send_answer import TIMER_NOT_ENABLED, SendAnswers
from roquet.broker.processor.send_check import SUGGESTION, Refusal, TopicPlan
from roquet.errors import ProtocolError
from roquet.format.batch import BATCH_ENTRY_BYTES_MIN, decode_batch
from roquet.format.batch_consume_queue import BATCH_SIZE_MAX
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.delay_level import DelayLevels
from roquet.model.host import Host
from roquet.model.message import BatchMessage, BrokerMessage
from roquet.model.message_id import UniqueIdFactory
from roquet.model.topic import TOPIC_LENGTH_MAX, WHEEL_TIMER_TOPIC, dlq_topic, is_retry_topic
from roquet.model.topic_config import PERM_READ, PERM_WRITE
from roquet.remoting.codes import ResponseCode, version_ordinal
from roquet.remoting.command import RemotingCommand
from roquet.remoting.endpoint import LogLimiter
from roquet.remoting.headers.send import SendMessageRequestHeader
from roquet.store.results import PutMessageStatus

__all__ = ["PreparedMessage", "SendPreparation", "is_waiting"]

log = logging.getLogger(__name__)

DLQ_QUEUES = 1
BATCH_MESSAGES_MAX = 16_384
"""The response lists the id of every message, and must fit into a frame header."""
_LOG_INTERVAL_MS = 60_000
_MAX_TIMES_SINCE = version_ordinal("V3_4_9")
"""Clients before this version send no meaningful maxReconsumeTimes."""


class PreparedMessage(NamedTuple):
    """A message for the store.

    Attributes:
        queue_id: The queue id for the response.
        unique_key: The producer's id, called transactionId in the response.
        is_inner_batch: Whether the batch is stored as one message, which the response says.
    """

    message: BrokerMessage | BatchMessage
    queue_id: int
    unique_key: str | None
    is_inner_batch: bool = False


class _Target(NamedTuple):
    topic: str
    queue_id: int
    is_dead_letter: bool = False


def is_waiting(properties: dict[str, str]) -> bool:
    """Whether a producer waits until its message is safely stored."""
    wait = properties.get(prop.WAIT_STORE_MSG_OK)
    return wait is None or inner.is_true(wait)


def _has_too_many_messages(body: bytes) -> bool:
    if len(body) <= BATCH_MESSAGES_MAX * BATCH_ENTRY_BYTES_MIN:
        return False
    try:
        return next(islice(decode_batch(body), BATCH_MESSAGES_MAX, None), None) is not None
    except ProtocolError:
        return False  # the store reports what is wrong with it


def _inner_count(body: bytes) -> int | None:
    """Count the messages of a batch; ``None`` if it is malformed or cannot be counted."""
    try:
        count = sum(1 for _ in islice(decode_batch(body), BATCH_SIZE_MAX + 1))
    except ProtocolError:
        return None
    return count if count <= BATCH_SIZE_MAX else None


class SendPreparation:
    """Prepares messages.

    Args:
        components: The broker's components.
        answers: Builds the refusals.
    """

    def __init__(self, components: BrokerComponents, answers: SendAnswers) -> None:
        self._rejects_transactions = components.config.reject_transaction_message
        self._suffix = inner.added_properties(components.config)
        self._region = inner.region_properties(components.config)
        self._answers = answers
        self._store = components.store
        self._topics = components.topics
        self._groups = components.groups
        self._locks = components.locks
        self._clock = components.clock
        self._store_host = components.store_host
        self._broker_ip = components.broker_ip
        self._log_limiter = LogLimiter(components.clock, interval_ms=_LOG_INTERVAL_MS)
        self._delay_level_max = DelayLevels(components.store.config.message_delay_levels).max_level
        self._unique_ids = UniqueIdFactory(
            components.store_host.ip,
            components.random.getrandbits(16),
            components.random.getrandbits(31),
        )

    def single(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        plan: TopicPlan,
        queue_id: int,
        born_host: Host,
    ) -> PreparedMessage | Refusal:
        """Prepare one message; ``queue_id`` is a valid queue of its topic."""
        text = header.properties or ""
        if len(text) > prop.PROPERTIES_BYTES_MAX:
            return self._answers.refusal(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        properties = inner.read_properties(text)
        for name in inner.REPLACED:
            properties.pop(name, None)
        target = self._target(request, header, plan, queue_id)
        if isinstance(target, Refusal):
            return target
        if target.is_dead_letter:
            properties[prop.DELAY_TIME_LEVEL] = "-1"
        unique_key = properties.get(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        if unique_key is None:
            unique_key = properties[prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = self._unique_key()
        if inner.PRIORITY in properties:
            preferred = _queue_of_priority(properties, plan)
            if preferred is not None:
                queue_id = preferred
                target = _Target(target.topic, queue_id)
        if plan.needs_key and not properties.get(prop.KEYS, "").strip():
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        is_half = inner.is_true(properties.get(prop.TRANSACTION_PREPARED)) and not (
            (header.reconsume_times or 0) > 0 and inner.delay_level(properties) > 0
        )
        if is_half and self._rejects_transactions:
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker_ip}] sending transaction message is forbidden",
            )
        sys_flag = header.sys_flag | (0 if target.is_dead_letter else plan.sys_flag)
        if is_half:
            sys_flag = flags.with_transaction_type(sys_flag, flags.TRANSACTION_NOT)
        refusal = self._refusal_by_store(target.topic, plan, sys_flag, properties)
        if refusal is not None:
            return refusal
        topic, placed_queue_id, added = self._final(
            target, properties, sys_flag, unique_key, is_half=is_half
        )
        message = self._message(request, header, born_host, sys_flag, properties)._replace(
            topic=topic,
            queue_id=placed_queue_id,
            properties=self._stored_properties(properties, added),
        )
        return PreparedMessage(message, queue_id, unique_key)

    def batch(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        plan: TopicPlan,
        queue_id: int,
        born_host: Host,
    ) -> PreparedMessage | Refusal:
        """Prepare a batch; its messages keep their properties.

        In a batch queue it becomes one message, unless its producer gave it no id.
        """
        topic = header.topic
        if len(topic) > TOPIC_LENGTH_MAX:
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(topic)}"
            )
        if plan.group is not None:
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {topic}"
            )
        text = header.properties or ""
        if len(text) > prop.PROPERTIES_BYTES_MAX:
            return self._answers.refusal(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        properties = inner.read_properties(text)
        unique_key = properties.get(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        if plan.is_batch_queue and unique_key is not None:
            made = self._inner_batch(request, header, plan, properties, born_host)
            if isinstance(made, Refusal):
                return made._replace(batch_unique_id=unique_key)
            message = made._replace(queue_id=queue_id)
            return PreparedMessage(message, queue_id, unique_key, is_inner_batch=True)
        if _has_too_many_messages(request.body):
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch may have at most {BATCH_MESSAGES_MAX} messages",
            )
        sys_flag = header.sys_flag | plan.sys_flag
        refusal = self._refusal_by_store(topic, plan, sys_flag, properties)
        if refusal is not None:
            return refusal
        is_transaction = flags.transaction_type(sys_flag) != flags.TRANSACTION_NOT
        if is_transaction or inner.delay_level(properties) > 0:
            return self._answers.refusal(PutMessageStatus.MESSAGE_ILLEGAL)
        batch = BatchMessage.of(self._message(request, header, born_host, sys_flag, properties))
        return PreparedMessage(batch._replace(queue_id=queue_id), queue_id, unique_key)

    def _inner_batch(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        plan: TopicPlan,
        properties: dict[str, str],
        born_host: Host,
    ) -> BrokerMessage | Refusal:
        """The single message that a batch becomes in a batch queue."""
        count = _inner_count(request.body)
        is_transaction = flags.transaction_type(header.sys_flag) != flags.TRANSACTION_NOT
        if count is None or is_transaction or inner.delay_level(properties) > 0:
            return self._answers.refusal(PutMessageStatus.MESSAGE_ILLEGAL)
        sys_flag = header.sys_flag | plan.sys_flag | flags.INNER_BATCH | flags.NEED_UNWRAP
        for name in inner.REPLACED:
            properties.pop(name, None)
        properties[prop.INNER_NUM] = str(count)
        refusal = self._refusal_by_store(header.topic, plan, sys_flag, properties)
        if refusal is not None:
            return refusal
        return self._message(request, header, born_host, sys_flag, properties)._replace(
            properties=self._stored_properties(properties, {})
        )

    def reply(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        plan: TopicPlan,
        queue_id: int,
        born_host: Host,
    ) -> PreparedMessage | Refusal:
        """Prepare the reply to a request message, which gets no unique key and no cluster.

        Only the compression bit of its flag is kept, without which the body would be unreadable.
        """
        text = header.properties or ""
        if len(text) > prop.PROPERTIES_BYTES_MAX:
            return self._answers.refusal(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        properties = inner.read_properties(text)
        properties |= self._region
        sys_flag = header.sys_flag & (flags.COMPRESSED | flags.COMPRESSION_MASK)
        refusal = self._refusal_by_store(header.topic, plan, sys_flag, properties)
        if refusal is not None:
            return refusal
        unique_key = properties.get(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        target = _Target(header.topic, queue_id)
        topic, placed_queue_id, added = self._final(
            target, properties, sys_flag, unique_key or "", is_half=False
        )
        message = self._message(request, header, born_host, sys_flag, properties)._replace(
            topic=topic,
            queue_id=placed_queue_id,
            properties=inner.encoded(prop.properties_text(properties | added)),
        )
        return PreparedMessage(message, queue_id, unique_key)

    # --------------------------------------------------------------------------- the steps

    def _message(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        born_host: Host,
        sys_flag: int,
        properties: dict[str, str],
    ) -> BrokerMessage:
        """The message of a request, before it is placed and gets the properties to store."""
        return BrokerMessage(
            topic=header.topic,
            queue_id=0,
            body=request.body,
            flag=header.flag,
            sys_flag=sys_flag,
            born_timestamp_ms=header.born_timestamp_ms,
            born_host=born_host,
            store_host=self._store_host,
            reconsume_times=header.reconsume_times or 0,
            wait_store_ok=is_waiting(properties),
        )

    def _target(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        plan: TopicPlan,
        queue_id: int,
    ) -> _Target | Refusal:
        """Return the target topic and queue; too many retries lead to the dead letter queue."""
        group = plan.group
        if group is None:
            return _Target(header.topic, queue_id)
        config = self._groups.find(group)
        if config is None:
            return Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group} {SUGGESTION}",
            )
        max_times = config.retry_max_times
        if request.version >= _MAX_TIMES_SINCE and header.max_reconsume_times is not None:
            max_times = header.max_reconsume_times
        is_ordered = self._locks.has_locks(group)
        if (header.reconsume_times or 0) <= max_times and not is_ordered:
            return _Target(header.topic, queue_id)
        topic = dlq_topic(group)
        made = self._topics.create_in_send_back(
            topic, queue_nums=DLQ_QUEUES, perm=PERM_READ | PERM_WRITE, sys_flag=0
        )
        if made is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")
        return _Target(topic, 0, is_dead_letter=True)

    def _refusal_by_store(
        self, topic: str, plan: TopicPlan, sys_flag: int, properties: dict[str, str]
    ) -> Refusal | None:
        """Refuse what upstream's hooks before a put refuse, in their order."""
        if not self._store.flags.is_writeable:
            return self._answers.refusal(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        is_inner_batch = bool(sys_flag & flags.INNER_BATCH)
        if (
            (len(topic) > TOPIC_LENGTH_MAX and not is_retry_topic(topic))
            or (prop.INNER_NUM in properties and not is_inner_batch)
            or (is_inner_batch and not plan.is_batch_queue)
        ):
            return self._answers.refusal(PutMessageStatus.MESSAGE_ILLEGAL)
        if not flags.takes_queue_offset(sys_flag):
            return None
        if inner.delay_level(properties) > 0:
            for name in inner.TIMER_REQUESTS:
                properties.pop(name, None)
            return None
        is_timed = any(name in properties for name in inner.TIMER_REQUESTS)
        is_due = topic == WHEEL_TIMER_TOPIC or inner.TIMER_OUT_MS in properties
        if not is_timed or is_due:
            return None
        more = self._log_limiter.allow("timed")
        if more is not None:
            log.warning("Refused a message for %s: there are no timed messages%s", topic, more)
        return TIMER_NOT_ENABLED

    def _final(
        self,
        target: _Target,
        properties: dict[str, str],
        sys_flag: int,
        unique_key: str,
        *,
        is_half: bool,
    ) -> inner.Placement:
        """Return where the message is stored.

        A half message keeps its delay until it is committed. Upstream delays the half message
        itself, and loses its real topic.
        """
        if is_half:
            return inner.half_placement(target.topic, target.queue_id, unique_key)
        if flags.takes_queue_offset(sys_flag):
            level = inner.delay_level(properties)
            if level > self._delay_level_max:
                level = self._delay_level_max
                properties[prop.DELAY_TIME_LEVEL] = str(level)
            if level > 0:
                return inner.delayed_placement(target.topic, target.queue_id, level)
        return inner.Placement(target.topic, target.queue_id, {})

    def _stored_properties(self, properties: dict[str, str], added: dict[str, str]) -> bytes:
        kept = {name: value for name, value in properties.items() if name not in added}
        stored = inner.encoded(prop.properties_text(kept)) + self._suffix
        return stored + prop.encode_properties(added) if added else stored

    def _unique_key(self) -> str:
        stamp = self._clock.local_stamp()
        day, hour, minute, second = (int(stamp[at : at + 2]) for at in (6, 8, 10, 12))
        seconds = (((day - 1) * 24 + hour) * 60 + minute) * 60 + second
        return self._unique_ids.make(seconds * 1000 + int(stamp[14:]))


def _queue_of_priority(properties: dict[str, str], plan: TopicPlan) -> int | None:
    """Return the queue of a message's priority; other messages lose their priority."""
    value = inner.priority(properties)
    if value < 0:
        return None
    is_other_kind = (
        inner.is_true(properties.get(prop.TRANSACTION_PREPARED))
        or prop.DELAY_TIME_LEVEL in properties
        or any(name in properties for name in inner.TIMER_REQUESTS)
        or prop.SHARDING_KEY in properties
    )
    if is_other_kind:
        del properties[inner.PRIORITY]
        return None
    return min(value, plan.write_queue_nums - 1)
