"""Topic checks of sends; upstream's msgCheck.

Owns the checks that depend on the topic, in upstream's order and words, and their result, a
:class:`TopicPlan`. A plan holds until any topic changes, so that a topic is checked once and not
once per message.
"""

from __future__ import annotations

from typing import NamedTuple

from roquet.broker.components import BrokerComponents
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

__all__ = ["SUGGESTION", "NewTopic", "Refusal", "TopicCheck", "TopicPlan", "describe_topic"]

SUGGESTION = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""Upstream appends this to the remark of errors that have a FAQ entry."""

_TOPIC_UNIT = 1
_TOPIC_UNIT_SUB = 2
_READ_WRITE = PERM_READ | PERM_WRITE


class Refusal(NamedTuple):
    """Why a message is refused.

    Attributes:
        is_of_store: All checks passed, so hooks are called as for a stored message.
        batch_unique_id: The producer's id of the refused inner batch.
    """

    code: int
    remark: str
    is_of_store: bool = False
    batch_unique_id: str | None = None


class NewTopic(NamedTuple):
    """A topic that is being created.

    Attributes:
        topics: Calls back once it is committed; the message is checked again then.
    """

    topics: TopicConfigManager


class TopicPlan(NamedTuple):
    """Cached facts about a topic to which messages may be sent.

    Attributes:
        queue_id_limit: Queue ids must be below this.
        sys_flag: Bits that every message of the topic gets.
        is_plain: No rule below applies, and no bit is added to the flag.
        needs_key: Compaction keeps the last message of a key, so a key is required.
        is_batch_queue: It has batch consume queues, where a batch stays one message.
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
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._config = components.config
        self._topics = components.topics
        self._broker_ip = components.broker_ip
        self._static_topics = components.mappings.table

    def check(self, header: SendMessageRequestHeader) -> TopicPlan | Refusal | NewTopic:
        """Return the plan of a message's topic, which may have to be created, or a refusal."""
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
        if isinstance(config, NewTopic):
            return config
        if config is None:
            return Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please!{SUGGESTION}",
            )
        return _plan(topic, config, is_static=topic in self._static_topics)

    def _make(self, header: SendMessageRequestHeader) -> TopicConfig | NewTopic | None:
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
        if made is not None:
            return NewTopic(self._topics)
        if not is_retry:
            return None
        return self._topics.create_in_send_back(
            header.topic, queue_nums=1, perm=_READ_WRITE, sys_flag=sys_flag
        )


def _plan(topic: str, config: TopicConfig, *, is_static: bool) -> TopicPlan:
    is_retry = is_retry_topic(topic)
    attributes = config.attributes
    needs_key = attributes.get("cleanup.policy") == "COMPACTION"
    is_batch_queue = config.has_batch_queues
    sys_flag = flags.MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0
    is_too_long = not is_retry and len(topic) > TOPIC_LENGTH_MAX
    return TopicPlan(
        config=config,
        queue_id_limit=max(config.write_queue_nums, config.read_queue_nums),
        write_queue_nums=config.write_queue_nums,
        sys_flag=sys_flag,
        is_plain=not (
            is_retry or needs_key or is_batch_queue or sys_flag or is_too_long or is_static
        ),
        needs_key=needs_key,
        is_batch_queue=is_batch_queue,
        group=topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX) if is_retry else None,
    )


def describe_topic(config: TopicConfig) -> str:
    """Format a topic's settings as Java prints them, for remarks.

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
