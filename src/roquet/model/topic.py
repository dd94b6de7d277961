"""Topic names: what is allowed, what is reserved, what is derived.

Owns validation of topic and group names and the names of system topics. Topic names become
directory names, so everything that reaches a store passes :func:`check_topic` first.
"""

from __future__ import annotations

import re

TOPIC_LENGTH_MAX = 127
RETRY_OR_DLQ_LENGTH_MAX = 255
GROUP_LENGTH_MAX = 120

RETRY_GROUP_TOPIC_PREFIX = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX = "%DLQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
LMQ_PREFIX = "%LMQ%"

AUTO_CREATE_TOPIC_KEY_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
ROCKSDB_TRANS_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_TRANS_OP_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
ROCKSDB_OFFSET_TOPIC = "CHECKPOINT_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
WHEEL_TIMER_TOPIC = "rmq_sys_wheel_timer"

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC_KEY_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        ROCKSDB_OFFSET_TOPIC,
        ROCKSDB_TRANS_HALF_TOPIC,
        ROCKSDB_TRANS_OP_HALF_TOPIC,
    }
)
NOT_ALLOWED_SEND_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        ROCKSDB_TRANS_HALF_TOPIC,
        ROCKSDB_TRANS_OP_HALF_TOPIC,
    }
)

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


def is_system_topic(topic: str) -> bool:
    """Whether a topic belongs to the broker."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_retry_topic(topic: str) -> bool:
    """Whether a topic holds a group's retries."""
    return topic.startswith(RETRY_GROUP_TOPIC_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Whether a topic holds a group's dead letters."""
    return topic.startswith(DLQ_GROUP_TOPIC_PREFIX)


def retry_topic(group: str) -> str:
    """Topic of a group's retries."""
    return RETRY_GROUP_TOPIC_PREFIX + group


def dlq_topic(group: str) -> str:
    """Topic of a group's dead letters."""
    return DLQ_GROUP_TOPIC_PREFIX + group


def topic_fault(topic: str) -> str | None:
    """Why a topic name is refused, in upstream's words, or ``None``."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _NAME.fullmatch(topic):
        return (
            f"The specified topic: {topic}, contains illegal characters, "
            "allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if is_retry_topic(topic) or is_dlq_topic(topic):
        if len(topic) > RETRY_OR_DLQ_LENGTH_MAX:
            return (
                f"The specified topic is DLQ or Retry topic: {topic}, "
                f"and it's longer than topic max length: {RETRY_OR_DLQ_LENGTH_MAX}"
            )
    elif len(topic) > TOPIC_LENGTH_MAX:
        return f"The specified topic: {topic}, is longer than topic max length: {TOPIC_LENGTH_MAX}"
    return None


def group_fault(group: str) -> str | None:
    """Why a group name is refused, in upstream's words, or ``None``."""
    if not group.strip():
        return "The specified group is blank."
    if not _NAME.fullmatch(group):
        return (
            f"The specified group: {group}, contains illegal characters, "
            "allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if len(group) > GROUP_LENGTH_MAX:
        return f"The specified group: {group}, is longer than group max length: {GROUP_LENGTH_MAX}"
    return None
