from __future__ import annotations

import pytest

from roquet.client.names import check_group, check_publish_topic, check_topic, unwrap, wrap
from roquet.errors import BadName

# What NamespaceUtil of rocketmq-client 5.4.0 does.
WRAPPED = [
    ("shop", "Orders", "shop%Orders"),
    ("shop", "%RETRY%billing", "%RETRY%shop%billing"),
    ("shop", "%DLQ%billing", "%DLQ%shop%billing"),
    ("shop", "TBW102", "TBW102"),
    ("shop", "rmq_sys_x", "rmq_sys_x"),
    ("shop", "CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ("", "Orders", "Orders"),
    ("shop", "", ""),
]


@pytest.mark.parametrize(("namespace", "name", "wrapped"), WRAPPED)
def test_wrapping_and_back(namespace: str, name: str, wrapped: str) -> None:
    assert wrap(namespace, name) == wrapped
    assert wrap(namespace, wrapped) == wrapped
    assert unwrap(namespace, wrapped) == name


@pytest.mark.parametrize("name", ["other%Orders", "%RETRY%other%billing", "Orders", "shopOrders"])
def test_names_of_others_are_not_unwrapped(name: str) -> None:
    assert unwrap("shop", name) == name


@pytest.mark.parametrize("topic", ["", "  ", "Or ders", "a/b", "x" * 128, "%RETRY%" + "x" * 250])
def test_bad_topics_are_refused(topic: str) -> None:
    with pytest.raises(BadName) as caught:
        check_topic(topic)
    assert "The specified topic" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_topics_of_the_broker_cannot_be_sent_to(topic: str) -> None:
    check_topic(topic)
    with pytest.raises(BadName, match="forbidden"):
        check_publish_topic(topic)


def test_ordinary_topics_can_be_sent_to() -> None:
    check_publish_topic("Orders")
    check_publish_topic("%RETRY%billing")


@pytest.mark.parametrize("group", ["", "a b", "x" * 121, "DEFAULT_PRODUCER", "DEFAULT_CONSUMER"])
def test_bad_groups_are_refused(group: str) -> None:
    with pytest.raises(BadName):
        check_group(group)


def test_an_ordinary_group_is_not() -> None:
    check_group("billing")
