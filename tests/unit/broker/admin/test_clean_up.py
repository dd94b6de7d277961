"""Housekeeping, what groups may not read, and small tables."""

from __future__ import annotations

import asyncio

import pytest

from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.group import GroupForbidden
from roquet.remoting.bodies.offset import DelayOffsetSerializeWrapper
from roquet.remoting.bodies.topic import TopicList
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.admin import (
    DeleteExpiredLogRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from roquet.store.maintenance import TOPICS_A_STEP
from tests.unit.broker.admin.kit import Desk


async def test_queues_of_deleted_topics(at: Desk) -> None:
    at.add_topic("Kept", 1)
    at.put("Kept", 0, 1)
    at.put("Unused", 0, 1)
    await at.ask_ok(RequestCode.CLEAN_UNUSED_TOPIC)
    assert at.store.find_consume_queue("Unused", 0) is None
    assert at.store.max_offset_in_queue("Kept", 0) == 1


async def test_other_work_runs_while_topics_are_cleaned(at: Desk) -> None:
    for number in range(3 * TOPICS_A_STEP):
        at.put(f"Unused{number}", 0, 1)
    cleaning = asyncio.ensure_future(at.ask_ok(RequestCode.CLEAN_UNUSED_TOPIC))
    await asyncio.sleep(0)
    left = len(at.store.queues.topics())
    assert 0 < left < 3 * TOPICS_A_STEP
    await cleaning
    assert not at.store.queues.topics()


async def test_queues_with_messages_are_kept(at: Desk) -> None:
    at.put("T", 0, 1)
    await at.ask_ok(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    assert at.store.max_offset_in_queue("T", 0) == 1


async def test_old_segments(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[None] = []
    monkeypatch.setattr(at.store.retention, "request_manual", lambda: asked.append(None))
    await at.ask_ok(RequestCode.DELETE_EXPIRED_COMMITLOG)
    assert asked


async def test_archived_segments(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(at.store.retention, "request_archived", asked.append)
    header = DeleteExpiredLogRequestHeader(archived_offset=1 << 33)
    answer = await at.ask_ok(RequestCode.DELETE_EXPIRED_COMMITLOG, header)
    assert asked == [1 << 33]
    assert answer.ext_fields == {"archivedOffset": str(1 << 33)}


async def readable(at: Desk, *, set_to: bool | None) -> GroupForbidden:
    header = UpdateGroupForbiddenRequestHeader(group="G", topic="T", readable=set_to)
    return await at.body_of(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header, GroupForbidden)


async def test_what_a_group_may_not_read(at: Desk) -> None:
    allowed = GroupForbidden(group="G", readable=True, topic="T")
    denied = GroupForbidden(group="G", readable=False, topic="T")
    assert await readable(at, set_to=None) == allowed
    assert not at.groups.forbidden
    assert await readable(at, set_to=False) == denied
    assert at.groups.forbidden == {"G": {"T": 4}}
    assert await readable(at, set_to=None) == denied
    assert await readable(at, set_to=True) == allowed
    assert not at.groups.forbidden


async def test_an_invalid_name(at: Desk) -> None:
    for group, topic in (("a b", "T"), ("G", "x" * 300)):
        header = UpdateGroupForbiddenRequestHeader(group=group, topic=topic, readable=False)
        answer = await at.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
        assert answer.code == ResponseCode.INVALID_PARAMETER
    assert not at.groups.forbidden


async def test_system_topics(at: Desk) -> None:
    code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
    found = await at.body_of(code, None, TopicList)
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "DefaultCluster"} <= set(found.topic_list)
    at.add_topic("T")
    assert "T" not in (await at.body_of(code, None, TopicList)).topic_list


async def test_delay_offsets(at: Desk) -> None:
    table = at.parts.delay_offsets
    for level, queue_offset in ((3, 9), (1, 7)):
        table.update(level, queue_offset)
    found = await at.ask_ok(RequestCode.GET_ALL_DELAY_OFFSET)
    assert b'"offsetTable":{1:7,3:9}' in found.body
    body = decode_body(DelayOffsetSerializeWrapper, found.body)
    assert body.data_version == table.data_version
