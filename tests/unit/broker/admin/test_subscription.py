"""Who consumes what."""

from __future__ import annotations

from roquet.model.subscription import SubscriptionData
from roquet.remoting.bodies.group import GroupList, QuerySubscriptionResponseBody
from roquet.remoting.bodies.topic import TopicList
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers import admin as headers
from tests.unit.broker.admin.clients_kit import ADDRESS, subscribe
from tests.unit.broker.admin.kit import Desk


async def test_groups_of_a_topic(at: Desk) -> None:
    subscribe(at, "Online", "T", "U")
    at.offsets.commit("Committed", "T", 0, 1)
    at.offsets.commit("Other", "U", 0, 1)
    header = headers.TopicRequestHeader(topic="T")
    found = await at.body_of(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header, GroupList)
    assert found.group_list == ["Committed", "Online"]


async def test_groups_of_an_unknown_topic(at: Desk) -> None:
    header = headers.TopicRequestHeader(topic="None")
    answer = await at.ask_ok(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
    assert answer.body == b'{"groupList":[]}'


async def test_topics_of_a_group(at: Desk) -> None:
    subscribe(at, "G", "OnlyOnline")
    for topic in ("U", "T"):
        at.offsets.commit("G", topic, 0, 1)
    header = headers.QueryTopicsByConsumerRequestHeader(group="G")
    found = await at.body_of(RequestCode.QUERY_TOPICS_BY_CONSUMER, header, TopicList)
    assert found == TopicList(broker_addr=ADDRESS, topic_list=["T", "U"])


async def test_subscription(at: Desk) -> None:
    subscribe(at, "G", "T")
    header = headers.QuerySubscriptionByConsumerRequestHeader(group="G", topic="T")
    code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    found = await at.body_of(code, header, QuerySubscriptionResponseBody)
    wanted = SubscriptionData(topic="T", sub_string="*")
    assert (found.group, found.topic) == ("G", "T")
    assert found.subscription_data is not None
    assert found.subscription_data.sub_string == wanted.sub_string


async def test_no_subscription(at: Desk) -> None:
    header = headers.QuerySubscriptionByConsumerRequestHeader(group="G", topic="T")
    answer = await at.ask_ok(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header)
    assert answer.body == b'{"group":"G","topic":"T"}'
    nowhere = headers.QuerySubscriptionByConsumerRequestHeader(group="G")
    answer = await at.ask_ok(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, nowhere)
    assert answer.body == b'{"group":"G"}'
