"""Whether a message may be sent to a topic; upstream's msgCheck.

Owns the checks that depend on the topic, in upstream's order and words, and what they leave behind:
a :class:`TopicPlan`. A plan holds until any topic changes, so that the checks of a topic are made
once and not once a message.
"""

from __future__ import annotations

from typing import NamedTuple

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.model import sys_flag as flags
from roquet.model.topic import (
    NOT_ALLOWED_SEND_TOPICS,
    RETRY_GROUP_TOPIC_PREFIX,
    TOPIC_LENGTH_MAX,
    is_retry_topic,
    topic_fault,
)
from roquet.model.topic_config import PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig
from roquet.remoting.codes import ResponseCode
from roquet.remoting.headers.send import SendMessageRequestHeader

__all__ = ["SUGGESTION", "Refusal", "TopicCheck", "TopicPlan", "describe_topic"]

SUGGESTION = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""What upstream says below errors that have a page; it stands at the end of the remark."""

_TOPIC_UNIT = 1
_TOPIC_UNIT_SUB = 2
_READ_WRITE = PERM_READ | PERM_WRITE


class Refusal(NamedTuple):
    """Why a message is not taken.

    Attributes:
        is_of_store: All checks were passed, and hooks hear of it like of a stored message.
    """

    code: int
    remark: str
    is_of_store: bool = False


class TopicPlan(NamedTuple):
    """What is known of a topic to which messages may be sent.

    Attributes:
        queue_id_limit: A queue id must be less.
        sys_flag: Bits that every message of the topic gets.
        is_plain: No rule below applies, and nothing is added to the flag.
        needs_key: Compaction keeps the last message of a key, so there must be one.
        is_batch_queue: Its queues are of a kind that this store does not write.
        group: The group whose retries it holds.
    """

    config: TopicConfig
    queue_id_limit: int
    write_queue_nums: int
    sys_flag: int
    is_plain: bool
    needs_key: bool
    is_batch_queue: bool
    group: str | None


class TopicCheck:
    """Checks the topics of messages.

    Args:
        config: What the broker allows.
        topics: The topics.
        broker_ip: Who we say we are when we refuse.
    """

    def __init__(self, config: BrokerConfig, topics: TopicConfigManager, *, broker_ip: str) -> None:
        self._config = config
        self._topics = topics
        self._broker_ip = broker_ip

    def check(self, header: SendMessageRequestHeader) -> TopicPlan | Refusal:
        """The plan of a message's topic, which may be made now, or why there is none."""
        topic = header.topic
        if not self._config.broker_permission & PERM_WRITE and self._topics.is_order_topic(topic):
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker_ip}] sending message is forbidden",
            )
        fault = topic_fault(topic)
        if fault is not None:
            return Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if topic in NOT_ALLOWED_SEND_TOPICS:
            return Refusal(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
            )
        config = self._topics.select(topic) or self._make(header)
        if config is None:
            return Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please!{SUGGESTION}",
            )
        return _plan(topic, config)

    def _make(self, header: SendMessageRequestHeader) -> TopicConfig | None:
        is_retry = is_retry_topic(header.topic)
        sys_flag = 0
        if header.unit_mode:
            sys_flag = _TOPIC_UNIT_SUB if is_retry else _TOPIC_UNIT
        made = self._topics.create_in_send(
            header.topic,
            default_topic=header.default_topic,
            default_queue_nums=header.default_topic_queue_nums,
            sys_flag=sys_flag,
        )
        if made is None and is_retry:
            made = self._topics.create_in_send_back(
                header.topic, queue_nums=1, perm=_READ_WRITE, sys_flag=sys_flag
            )
        return made


def _plan(topic: str, config: TopicConfig) -> TopicPlan:
    is_retry = is_retry_topic(topic)
    attributes = config.attributes
    needs_key = attributes.get("cleanup.policy") == "COMPACTION"
    is_batch_queue = attributes.get("queue.type") == "BatchCQ"
    sys_flag = flags.MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0
    is_too_long = not is_retry and len(topic) > TOPIC_LENGTH_MAX
    return TopicPlan(
        config=config,
        queue_id_limit=max(config.write_queue_nums, config.read_queue_nums),
        write_queue_nums=config.write_queue_nums,
        sys_flag=sys_flag,
        is_plain=not (is_retry or needs_key or is_batch_queue or sys_flag or is_too_long),
        needs_key=needs_key,
        is_batch_queue=is_batch_queue,
        group=topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX) if is_retry else None,
    )


def describe_topic(config: TopicConfig) -> str:
    """The settings of a topic as Java prints them, which remarks quote.

    Example:
        >>> describe_topic(TopicConfig(topic_name="T"))[:56]
        'TopicConfig [topicName=T, readQueueNums=16, writeQueueNu'
    """
    perm = "".join(
        letter if config.perm & bit else "-"
        for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", PERM_INHERIT))
    )
    attributes = ", ".join(f"{name}={value}" for name, value in config.attributes.items())
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={'true' if config.order else 'false'}, attributes={{{attributes}}}]"
    )
