"""Who is told when topics and groups are dropped."""

from __future__ import annotations

from roquet.broker.admin.group import GroupAdmin
from roquet.broker.admin.topic import TopicAdmin
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers import admin as headers
from roquet.remoting.processor import ProcessorRegistry
from tests.unit.broker.admin.kit import Desk


async def test_dropped_topics_and_groups_are_told(at: Desk) -> None:
    told: list[str] = []
    at.registry = ProcessorRegistry(
        TopicAdmin(
            at.config,
            store=at.store,
            topics=at.topics,
            offsets=at.offsets,
            flow=at.flow,
            dropped=told.append,
        ),
        GroupAdmin(groups=at.groups, offsets=at.offsets, flow=at.flow, dropped=told.append),
    )
    for topic in ("T", "%RETRY%G_T"):
        at.add_topic(topic, 1)
    at.offsets.commit("G", "T", 0, 0)
    await at.ask_ok(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopicRequestHeader(topic="T"))
    assert told == ["T", "%RETRY%G_T"]
    dropped = headers.DeleteSubscriptionGroupRequestHeader(group_name="G")
    await at.ask_ok(RequestCode.DELETE_SUBSCRIPTIONGROUP, dropped)
    assert told[2:] == ["G"]
