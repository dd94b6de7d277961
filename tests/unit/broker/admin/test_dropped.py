"""What is removed with deleted topics and groups."""

from __future__ import annotations

from roquet.remoting.codes import RequestCode
from roquet.remoting.headers import admin as headers
from tests.unit.broker.admin.kit import Desk


async def test_counters_of_deleted_topics_and_groups_are_removed(at: Desk) -> None:
    stats = at.stats
    for topic in ("T", "%RETRY%G_T"):
        stats.add_puts(topic, 1, 1)
        at.parts.transaction_metrics.add(topic, 1)
    stats.add_group_gets("G", "U", 1, 1)
    for topic in ("T", "%RETRY%G_T"):
        at.add_topic(topic, 1)
    at.offsets.commit("G", "T", 0, 0)
    await at.ask_ok(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopicRequestHeader(topic="T"))
    for topic in ("T", "%RETRY%G_T"):
        assert stats.total("TOPIC_PUT_NUMS", topic) == 0
        assert at.parts.transaction_metrics.count(topic) == 0
    dropped = headers.DeleteSubscriptionGroupRequestHeader(group_name="G")
    await at.ask_ok(RequestCode.DELETE_SUBSCRIPTIONGROUP, dropped)
    assert stats.total("GROUP_GET_NUMS", "U@G") == 0
