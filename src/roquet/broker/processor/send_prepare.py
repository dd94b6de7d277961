"""From a send to what is stored, for messages that are not plain.

Owns the steps 3 to 7 of :mod:`roquet.broker.processor.send_message`: dead letters, unique keys,
priorities, compaction, transactions, batches, timers and delays. The result is a message with its
final topic, queue and properties, or the first reason for which there is none.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.rebalance_lock import RebalanceLockManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.processor import inner_message as inner
from roquet.broker.processor.send_answer import TIMER_NOT_ENABLED, SendAnswers
from roquet.broker.processor.send_check import SUGGESTION, Refusal, TopicPlan
from roquet.errors import ProtocolError
from roquet.format.batch import ENTRY_BYTES_MIN, decode_batch
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
from roquet.remoting.headers.send import SendMessageRequestHeader
from roquet.runtime.clock import Clock
from roquet.runtime.randomness import Randomness
from roquet.store.message_store import MessageStore
from roquet.store.results import PutMessageStatus

__all__ = ["Prepared", "SendPreparation", "is_waiting"]

DLQ_QUEUES = 1
BATCH_MESSAGES_MAX = 16_384
"""The answer names every message, and must fit the header of a frame."""
_MAX_TIMES_SINCE = version_ordinal("V3_4_9")
"""Clients before this version send no meaningful maxReconsumeTimes."""


class Prepared(NamedTuple):
    """A message for the store.

    Attributes:
        queue_id: The queue that the answer names.
        unique_key: The producer's id, which the answer calls transactionId.
    """

    message: BrokerMessage | BatchMessage
    queue_id: int
    unique_key: str | None


class _Place(NamedTuple):
    topic: str
    queue_id: int
    is_dead_letter: bool = False


def is_waiting(properties: dict[str, str]) -> bool:
    """Whether a producer wants to hear only when its message is safe."""
    wait = properties.get(prop.WAIT_STORE_MSG_OK)
    return wait is None or inner.is_true(wait)


def _has_too_many_messages(body: bytes) -> bool:
    if len(body) <= BATCH_MESSAGES_MAX * ENTRY_BYTES_MIN:
        return False
    try:
        return next(islice(decode_batch(body), BATCH_MESSAGES_MAX, None), None) is not None
    except ProtocolError:
        return False  # the store says what is wrong with it


class SendPreparation:
    """Prepares messages.

    Args:
        config: What the broker adds and allows.
        answers: The words for refusals.
        store: What takes the messages.
        topics: Where dead letters get their topic.
        groups: How often a group's messages are tried.
        locks: Which groups consume in order; a retry of theirs is a dead letter at once.
        clock: The time.
        store_host: The broker's address in records.
        broker_ip: Who we say we are when we refuse.
        random: What tells our unique keys from those of other brokers.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        answers: SendAnswers,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        locks: RebalanceLockManager | None,
        clock: Clock,
        store_host: Host,
        broker_ip: str,
        random: Randomness,
    ) -> None:
        self._rejects_transactions = config.reject_transaction_message
        self._suffix = inner.added_properties(config)
        self._region = inner.region_properties(config)
        self._answers = answers
        self._store = store
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self._clock = clock
        self._store_host = store_host
        self._broker_ip = broker_ip
        self._delay_level_max = DelayLevels(store.config.message_delay_levels).max_level
        self._unique_ids = UniqueIdFactory(
            store_host.ip, random.getrandbits(16), random.getrandbits(31)
        )

    def single(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        plan: TopicPlan,
        queue_id: int,
        born_host: Host,
    ) -> Prepared | Refusal:
        """Prepare one message; ``queue_id`` is a queue of its topic."""
        text = header.properties or ""
        if len(text) > prop.PROPERTIES_BYTES_MAX:
            return self._answers.refusal(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        properties, _ = inner.read_properties(text)
        for name in inner.REPLACED:
            properties.pop(name, None)
        place = self._place(request, header, plan, queue_id)
        if isinstance(place, Refusal):
            return place
        if place.is_dead_letter:
            properties[prop.DELAY_TIME_LEVEL] = "-1"
        unique_key = properties.get(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        if unique_key is None:
            unique_key = properties[prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = self._unique_key()
        if inner.PRIORITY in properties:
            preferred = _queue_of_priority(properties, plan)
            if preferred is not None:
                queue_id = preferred
                place = _Place(place.topic, queue_id)
        if plan.needs_key and not properties.get(prop.KEYS, "").strip():
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        reconsume_times = header.reconsume_times or 0
        is_half = inner.is_true(properties.get(prop.TRANSACTION_PREPARED)) and not (
            reconsume_times > 0 and inner.delay_level(properties) > 0
        )
        if is_half and self._rejects_transactions:
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker_ip}] sending transaction message is forbidden",
            )
        sys_flag = header.sys_flag | (0 if place.is_dead_letter else plan.sys_flag)
        if is_half:
            sys_flag = flags.with_transaction_type(sys_flag, flags.TRANSACTION_NOT)
        refusal = self._refusal_by_store(place.topic, plan, sys_flag, properties)
        if refusal is not None:
            return refusal
        topic, placed_queue_id, added = self._final(
            place, properties, sys_flag, unique_key, is_half=is_half
        )
        return Prepared(
            BrokerMessage(
                topic=topic,
                queue_id=placed_queue_id,
                body=request.body,
                properties=self._stored_properties(properties, added),
                flag=header.flag,
                sys_flag=sys_flag,
                born_timestamp_ms=header.born_timestamp_ms,
                born_host=born_host,
                store_host=self._store_host,
                reconsume_times=reconsume_times,
                wait_store_ok=is_waiting(properties),
            ),
            queue_id,
            unique_key,
        )

    def batch(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        plan: TopicPlan,
        queue_id: int,
        born_host: Host,
    ) -> Prepared | Refusal:
        """Prepare a batch; its messages keep their properties as they are."""
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
        if _has_too_many_messages(request.body):
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch may have at most {BATCH_MESSAGES_MAX} messages",
            )
        properties, _ = inner.read_properties(text)
        sys_flag = header.sys_flag | plan.sys_flag
        refusal = self._refusal_by_store(topic, plan, sys_flag, properties)
        if refusal is not None:
            return refusal
        is_transaction = flags.transaction_type(sys_flag) != flags.TRANSACTION_NOT
        if is_transaction or inner.delay_level(properties) > 0:
            return self._answers.refusal(PutMessageStatus.MESSAGE_ILLEGAL)
        return Prepared(
            BatchMessage(
                topic=topic,
                queue_id=queue_id,
                body=request.body,
                sys_flag=sys_flag,
                born_timestamp_ms=header.born_timestamp_ms,
                born_host=born_host,
                store_host=self._store_host,
                reconsume_times=header.reconsume_times or 0,
                wait_store_ok=is_waiting(properties),
            ),
            queue_id,
            properties.get(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
        )

    def reply(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        plan: TopicPlan,
        queue_id: int,
        born_host: Host,
    ) -> Prepared | Refusal:
        """Prepare the answer to a request message, which gets no unique key and no cluster.

        Of its flag only the compression counts, without which nobody could read the body.
        """
        text = header.properties or ""
        if len(text) > prop.PROPERTIES_BYTES_MAX:
            return self._answers.refusal(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        properties, _ = inner.read_properties(text)
        properties |= self._region
        sys_flag = header.sys_flag & (flags.COMPRESSED | flags.COMPRESSION_MASK)
        refusal = self._refusal_by_store(header.topic, plan, sys_flag, properties)
        if refusal is not None:
            return refusal
        unique_key = properties.get(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        place = _Place(header.topic, queue_id)
        topic, placed_queue_id, added = self._final(
            place, properties, sys_flag, unique_key or "", is_half=False
        )
        return Prepared(
            BrokerMessage(
                topic=topic,
                queue_id=placed_queue_id,
                body=request.body,
                properties=inner.encoded(prop.properties_text(properties | added)),
                flag=header.flag,
                sys_flag=sys_flag,
                born_timestamp_ms=header.born_timestamp_ms,
                born_host=born_host,
                store_host=self._store_host,
                reconsume_times=header.reconsume_times or 0,
                wait_store_ok=is_waiting(properties),
            ),
            queue_id,
            unique_key,
        )

    # --------------------------------------------------------------------------- the steps

    def _place(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        plan: TopicPlan,
        queue_id: int,
    ) -> _Place | Refusal:
        """The topic and queue that are meant: a retry may have been tried too often."""
        group = plan.group
        if group is None:
            return _Place(header.topic, queue_id)
        config = self._groups.find(group)
        if config is None:
            return Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group} {SUGGESTION}",
            )
        max_times = config.retry_max_times
        if request.version >= _MAX_TIMES_SINCE and header.max_reconsume_times is not None:
            max_times = header.max_reconsume_times
        is_ordered = self._locks is not None and self._locks.has_locks(group)
        if (header.reconsume_times or 0) <= max_times and not is_ordered:
            return _Place(header.topic, queue_id)
        topic = dlq_topic(group)
        made = self._topics.create_in_send_back(
            topic, queue_nums=DLQ_QUEUES, perm=PERM_READ | PERM_WRITE, sys_flag=0
        )
        if made is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")
        return _Place(topic, 0, is_dead_letter=True)

    def _refusal_by_store(
        self, topic: str, plan: TopicPlan, sys_flag: int, properties: dict[str, str]
    ) -> Refusal | None:
        """What upstream's hooks before a put refuse, in their order."""
        if not self._store.flags.is_writeable:
            return self._answers.refusal(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        is_inner_batch = bool(sys_flag & flags.INNER_BATCH)
        if (
            (len(topic) > TOPIC_LENGTH_MAX and not is_retry_topic(topic))
            or (prop.INNER_NUM in properties and not is_inner_batch)
            or (is_inner_batch and not plan.is_batch_queue)
        ):
            return self._answers.refusal(PutMessageStatus.MESSAGE_ILLEGAL)
        if plan.is_batch_queue:
            return Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the topic[{topic}] has queues of type BatchCQ, which this broker does not keep",
                is_of_store=True,
            )
        if not flags.takes_queue_offset(sys_flag):
            return None
        if inner.delay_level(properties) > 0:
            for name in inner.TIMER_REQUESTS:
                properties.pop(name, None)
            return None
        is_timed = any(name in properties for name in inner.TIMER_REQUESTS)
        is_due = topic == WHEEL_TIMER_TOPIC or inner.TIMER_OUT_MS in properties
        return TIMER_NOT_ENABLED if is_timed and not is_due else None

    def _final(
        self,
        place: _Place,
        properties: dict[str, str],
        sys_flag: int,
        unique_key: str,
        *,
        is_half: bool,
    ) -> inner.Placement:
        """Where the message is stored.

        A half message keeps its delay for the time when it is committed. Upstream delays the half
        message itself, and with that forgets the topic that it was for.
        """
        if is_half:
            return inner.half_placement(place.topic, place.queue_id, unique_key)
        if flags.takes_queue_offset(sys_flag):
            level = inner.delay_level(properties)
            if level > self._delay_level_max:
                level = self._delay_level_max
                properties[prop.DELAY_TIME_LEVEL] = str(level)
            if level > 0:
                return inner.delayed_placement(place.topic, place.queue_id, level)
        return inner.Placement(place.topic, place.queue_id, {})

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
    """The queue that stands for a priority; other kinds of messages lose theirs."""
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
