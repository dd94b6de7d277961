"""How far groups are."""

from __future__ import annotations

import re

import pytest

from roquet.broker.admin.consume_stats import time_text
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.offset import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
)
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers import admin as headers
from tests.unit.broker.admin.clients_kit import ADDRESS, subscribe
from tests.unit.broker.admin.kit import Desk
from tests.unit.store.kit import NOW_MS


@pytest.fixture(name="at")
def _at(at: Desk) -> Desk:
    at.stats.group_get_tps = (  # type: ignore[method-assign]
        lambda group, topic: 1.5 if (group, topic) == ("G", "T") else 0.25
    )
    return at


def queue(topic: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


async def stats(
    at: Desk, group: str, topic: str | None = None, topic_list: str | None = None
) -> ConsumeStats:
    header = headers.GetConsumeStatsRequestHeader(
        consumer_group=group, topic=topic, topic_list=topic_list
    )
    return await at.body_of(RequestCode.GET_CONSUME_STATS, header, ConsumeStats)


async def test_progress_of_a_group(at: Desk) -> None:
    at.add_topic("T", 2)
    at.put("T", 0, 3)
    at.offsets.commit("G", "T", 0, 2)
    at.offsets.commit_pull("G", "T", 0, 3)
    found = await stats(at, "G")
    assert found == ConsumeStats(
        consume_tps=1.5,
        offset_table={
            queue("T", 0): OffsetWrapper(
                broker_offset=3, consumer_offset=2, last_timestamp_ms=NOW_MS + 2, pull_offset=3
            ),
            queue("T", 1): OffsetWrapper(),
        },
    )


async def test_the_text_equals_the_general_writers(at: Desk) -> None:
    at.add_topic("T|x", 3)
    at.put("T|x", 1, 3)
    at.offsets.commit("G", "T|x", 1, 2)
    header = headers.GetConsumeStatsRequestHeader(consumer_group="G")
    one = (await at.ask_ok(RequestCode.GET_CONSUME_STATS, header)).body
    assert one == encode_body(decode_body(ConsumeStats, one))
    at.groups.find("G")
    for_all = headers.GetConsumeStatsInBrokerRequestHeader()
    every = (await at.ask_ok(RequestCode.GET_BROKER_CONSUME_STATS, for_all)).body
    assert every == encode_body(decode_body(ConsumeStatsList, every))


async def test_an_expired_message_has_no_time(at: Desk) -> None:
    at.add_topic("T", 1)
    at.offsets.commit("G", "T", 0, 9)
    found = await stats(at, "G", topic="T")
    assert found.offset_table == {
        queue("T", 0): OffsetWrapper(consumer_offset=9, pull_offset=9),
    }


async def test_topics_without_a_subscription_are_skipped(at: Desk) -> None:
    for topic in ("T", "U"):
        at.add_topic(topic, 1)
        at.offsets.commit("G", topic, 0, 0)
    assert {each.topic for each in (await stats(at, "G")).offset_table} == {"T", "U"}
    subscribe(at, "G", "T")
    assert {each.topic for each in (await stats(at, "G")).offset_table} == {"T"}
    assert not (await stats(at, "G", topic="U")).offset_table
    listed = await stats(at, "G", topic="T", topic_list="U;;")
    assert {each.topic for each in listed.offset_table} == {"U"}
    assert listed.consume_tps == 0.25


async def test_an_unknown_group_or_topic_has_no_progress(at: Desk) -> None:
    assert await stats(at, "G") == ConsumeStats()
    assert await stats(at, "G", topic="None") == ConsumeStats()


async def test_progress_of_all_groups(at: Desk) -> None:
    at.add_topic("T", 2)
    at.put("T", 0, 3)
    at.groups.find("G")
    at.offsets.commit("G", "T", 0, 2)
    at.offsets.commit("Unknown", "T", 0, 1)
    header = headers.GetConsumeStatsInBrokerRequestHeader()
    found = await at.body_of(RequestCode.GET_BROKER_CONSUME_STATS, header, ConsumeStatsList)
    by_group = {group: list(each[group]) for each in found.consume_stats_list for group in each}
    assert found.broker_addr == ADDRESS
    assert by_group.keys() == at.groups.table.keys()
    (progress,) = by_group.pop("G")
    assert progress.offset_table[queue("T", 0)].broker_offset == 3
    assert not any(by_group.values())
    assert (found.total_diff, found.total_inflight_diff) == (1, -2)


async def test_progress_in_ordered_topics_only(at: Desk) -> None:
    at.add_topic("T", 2)
    at.groups.find("G")
    at.offsets.commit("G", "T", 0, 0)
    header = headers.GetConsumeStatsInBrokerRequestHeader(is_order=True)
    found = await at.body_of(RequestCode.GET_BROKER_CONSUME_STATS, header, ConsumeStatsList)
    assert not any(stats for each in found.consume_stats_list for stats in each.values())


async def test_times_of_queues(at: Desk) -> None:
    at.add_topic("T", 2)
    at.put("T", 0, 3)
    at.clock.advance(10)
    at.offsets.commit("G", "T", 0, 2)
    header = headers.QueryConsumeTimeSpanRequestHeader(topic="T", group="G")
    body = await at.body_of(RequestCode.QUERY_CONSUME_TIME_SPAN, header, QueryConsumeTimeSpanBody)
    used, empty = body.consume_time_span_set
    assert used.message_queue == queue("T", 0)
    assert (used.min_timestamp_ms, used.consume_timestamp_ms, used.max_timestamp_ms) == (
        NOW_MS + 1,
        NOW_MS + 2,
        NOW_MS + 3,
    )
    assert used.delay_ms == 10
    assert used.max_timestamp_text == time_text(NOW_MS + 3)
    assert (empty.min_timestamp_ms, empty.consume_timestamp_ms) == (-1, -1)


async def test_a_group_without_lag_is_not_late(at: Desk) -> None:
    at.add_topic("T", 1)
    at.put("T", 0, 3)
    at.offsets.commit("G", "T", 0, 3)
    header = headers.QueryConsumeTimeSpanRequestHeader(topic="T", group="G")
    body = await at.body_of(RequestCode.QUERY_CONSUME_TIME_SPAN, header, QueryConsumeTimeSpanBody)
    assert [each.delay_ms for each in body.consume_time_span_set] == [0]


async def test_times_of_an_unknown_topic(at: Desk) -> None:
    header = headers.QueryConsumeTimeSpanRequestHeader(topic="None", group="G")
    answer = await at.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, header)
    assert (answer.code, answer.remark) == (
        ResponseCode.TOPIC_NOT_EXIST,
        "topic[None] not exist",
    )


def test_time_text() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d#\d\d:\d\d:\d\d:205", time_text(1_794_728_026_205))
