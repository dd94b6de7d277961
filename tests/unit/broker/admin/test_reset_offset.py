"""Resets of groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.offset import ResetOffsetBody, ResetOffsetBodyForC
from roquet.remoting.codes import LanguageCode, RequestCode, ResponseCode
from roquet.remoting.command import create_request
from roquet.remoting.headers.offset import ResetOffsetRequestHeader
from roquet.runtime.files import Files
from tests.unit.broker.admin.clients_kit import FakeClient, subscribe
from tests.unit.broker.admin.kit import Desk, desk
from tests.unit.store.kit import NOW_MS

CODE = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET


def with_resets(at: Desk) -> Desk:
    at.add_topic("T", 2)
    at.put("T", 0, 5)
    at.groups.find("G")
    for queue_id, committed in ((0, 4), (1, 0)):
        at.offsets.commit("G", "T", queue_id, committed)
    return at


@pytest.fixture(name="at")
def _at(at: Desk) -> Desk:
    return with_resets(at)


@pytest.fixture(name="telling")
def _telling(tmp_path: Path) -> Iterator[Desk]:
    """A desk that notifies clients at once."""
    with desk(tmp_path, use_server_side_reset_offset=False) as made:
        yield with_resets(made)


def header(**settings: int | bool | str) -> ResetOffsetRequestHeader:
    values: dict[str, object] = {"topic": "T", "group": "G", **settings}
    return ResetOffsetRequestHeader(**values)  # type: ignore[arg-type]


async def reset(at: Desk, **settings: int | bool | str) -> dict[int, int]:
    body = await at.body_of(CODE, header(**settings), ResetOffsetBody)
    assert {each.broker_name for each in body.offset_table} == {"broker-a"}
    return {each.queue_id: offset for each, offset in body.offset_table.items()}


async def refusal(at: Desk, **settings: int | bool | str) -> tuple[int, str | None]:
    before = {key: dict(queues) for key, queues in at.offsets.table.items()}
    answer = await at.ask(CODE, header(**settings))
    assert at.offsets.table == before
    return answer.code, answer.remark


async def test_reset_to_a_time(at: Desk) -> None:
    assert await reset(at, timestamp_ms=NOW_MS + 3) == {0: 2, 1: 0}
    assert at.offsets.query("G", "T", 0) == 2
    assert at.offsets.query_then_erase_reset_offset("T", "G", 0) == 2
    assert at.offsets.query_then_erase_reset_offset("T", "G", 0) is None


async def test_reset_to_the_end(at: Desk) -> None:
    assert await reset(at, timestamp_ms=-1) == {0: 5, 1: 0}


async def test_reset_of_one_queue_to_an_offset(at: Desk) -> None:
    assert await reset(at, queue_id=0, queue_offset=1) == {0: 1}
    assert not at.offsets.has_offset_reset("T", "G", 1)


async def test_reset_of_one_queue_to_a_time(at: Desk) -> None:
    assert await reset(at, queue_id=0, queue_offset=-1, timestamp_ms=NOW_MS + 2) == {0: 1}
    assert await reset(at, queue_id=0, timestamp_ms=NOW_MS + 2) == {0: 1}


async def test_a_reset_is_in_the_file(at: Desk) -> None:
    await reset(at, timestamp_ms=0)
    again = ConsumerOffsetManager.at(at.config, Files(), at.clock)
    again.load()
    assert again.query("G", "T", 0) == 0


async def test_an_offset_outside_the_queue(at: Desk) -> None:
    remark = "Target offset 7 not in consume queue range [0-5]"
    wanted = (ResponseCode.SYSTEM_ERROR, remark)
    assert await refusal(at, queue_id=0, queue_offset=7) == wanted
    code, _ = await refusal(at, queue_id=0, queue_offset=-2)
    assert code == ResponseCode.SYSTEM_ERROR
    assert await reset(at, queue_id=0, queue_offset=6) == {0: 6}


async def test_no_topic_or_no_group(at: Desk) -> None:
    assert await refusal(at, topic="None") == (
        ResponseCode.TOPIC_NOT_EXIST,
        "Topic None does not exist",
    )
    assert await refusal(at, group="None") == (
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        "Group None does not exist",
    )
    at.add_topic("Empty", 0)
    assert await refusal(at, topic="Empty") == (ResponseCode.SYSTEM_ERROR, "No queues to reset.")


async def test_clients_are_notified(telling: Desk) -> None:
    told, gone = FakeClient(), FakeClient()
    gone.close()
    subscribe(telling, "G", "T", client=gone, client_id="c1")
    subscribe(telling, "G", "T", client=told, client_id="c2")
    assert await reset(telling, timestamp_ms=NOW_MS + 3) == {0: 2, 1: 0}
    (news,) = told.told
    assert news.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert news.is_oneway
    assert (news.ext_fields or {})["timestamp"] == str(NOW_MS + 3)
    queues = decode_body(ResetOffsetBody, news.body).offset_table
    assert queues == {MessageQueue("T", "broker-a", 0): 2, MessageQueue("T", "broker-a", 1): 0}
    assert telling.offsets.query("G", "T", 0) == 4


async def test_clients_skip_ahead_only_if_forced(telling: Desk) -> None:
    subscribe(telling, "G", "T")
    assert await reset(telling, timestamp_ms=-1) == {0: 4, 1: 0}
    assert await reset(telling, timestamp_ms=-1, force=True) == {0: 5, 1: 0}


async def test_cpp_administrators_get_the_cpp_notification(telling: Desk) -> None:
    client = subscribe(telling, "G", "T")
    request = create_request(CODE, header(timestamp_ms=0), opaque=1, language=LanguageCode.CPP)
    answer = await telling.handle(request, telling.connection)
    assert answer.code == ResponseCode.SUCCESS
    body = decode_body(ResetOffsetBodyForC, client.told[0].body)
    assert [each.queue_id for each in body.offset_table or []] == [0, 1]


async def test_clients_that_cannot_be_notified(telling: Desk) -> None:
    remark = f"Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: {NOW_MS}"
    wanted = (ResponseCode.CONSUMER_NOT_ONLINE, remark)
    assert await refusal(telling, timestamp_ms=NOW_MS) == wanted
    old = subscribe(telling, "G", "T", version="V3_0_6")
    assert await refusal(telling) == (
        ResponseCode.SYSTEM_ERROR,
        "the client does not support this feature. version=V3_0_6",
    )
    assert not old.told
    assert await refusal(telling, group="None") == (
        ResponseCode.SYSTEM_ERROR,
        "THe consumer group <None> not exist",
    )
    code, _ = await refusal(telling, topic="None")
    assert code == ResponseCode.TOPIC_NOT_EXIST
