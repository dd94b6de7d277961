from __future__ import annotations

import pytest

from roquet.model import topic as names


@pytest.mark.parametrize(
    "topic", ["T", "a-b_c|9%", "x" * 127, "%RETRY%" + "g" * 248, "%DLQ%" + "g" * 250]
)
def test_good_names(topic: str) -> None:
    assert names.topic_fault(topic) is None


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("", "blank"),
        ("  ", "blank"),
        (
            "a b",
            "The specified topic: a b, contains illegal characters, "
            "allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ("../etc", "illegal characters"),
        ("a/b", "illegal characters"),
        ("a\0b", "illegal characters"),
        ("a\n", "illegal characters"),
        ("Thème", "illegal characters"),
        ("x" * 128, "x, is longer than topic max length: 127"),
        ("%RETRY%" + "g" * 249, "g, and it's longer than topic max length: 255"),
        ("%DLQ%" + "g" * 251, "longer"),
    ],
)
def test_bad_names(topic: str, words: str) -> None:
    fault = names.topic_fault(topic)
    assert fault is not None
    assert words in fault


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("", "The specified group is blank."),
        ("g" * 121, "g, is longer than group max length: 120"),
        (
            "a b",
            "The specified group: a b, contains illegal characters, "
            "allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ("a\n", "illegal characters"),
    ],
)
def test_bad_groups(group: str, words: str) -> None:
    fault = names.group_fault(group)
    assert fault is not None
    assert words in fault


def test_good_group() -> None:
    assert names.group_fault("g" * 120) is None


def test_derived_topics() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dlq_topic("g") == "%DLQ%g"
    assert names.is_retry_topic("%RETRY%g")
    assert not names.is_retry_topic("%DLQ%g")
    assert names.is_dlq_topic("%DLQ%g")


@pytest.mark.parametrize(
    "topic",
    [
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "rmq_sys_wheel_timer",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "CHECKPOINT_TOPIC",
    ],
)
def test_system_topics(topic: str) -> None:
    assert names.is_system_topic(topic)
    assert names.topic_fault(topic) is None


def test_users_topics_are_no_system_topics() -> None:
    assert not names.is_system_topic("rmq_system")
    assert names.NOT_ALLOWED_SEND_TOPICS <= names.SYSTEM_TOPICS
