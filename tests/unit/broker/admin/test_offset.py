"""Offsets of queues, and all committed ones."""

from __future__ import annotations

import asyncio

import pytest

from roquet.broker.admin.offset import GROUPS_AT_ONCE
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import create_request
from roquet.remoting.headers import offset as headers
from roquet.remoting.headers.base import Header
from tests.unit.broker.admin.kit import Desk
from tests.unit.store.kit import NOW_MS


async def offset_of(at: Desk, code: int, header: Header) -> int:
    answer = await at.ask_ok(code, header)
    assert answer.ext_fields is not None
    assert list(answer.ext_fields) == ["offset"]
    return int(answer.ext_fields["offset"])


async def test_first_and_next_offset(at: Desk) -> None:
    at.put("T", 1, 3)
    most = headers.GetMaxOffsetRequestHeader(topic="T", queue_id=1, committed=False)
    least = headers.GetMinOffsetRequestHeader(topic="T", queue_id=1)
    assert await offset_of(at, RequestCode.GET_MAX_OFFSET, most) == 3
    assert await offset_of(at, RequestCode.GET_MIN_OFFSET, least) == 0


async def test_an_unknown_queue(at: Desk) -> None:
    most = headers.GetMaxOffsetRequestHeader(topic="None", queue_id=7)
    least = headers.GetMinOffsetRequestHeader(topic="None", queue_id=7)
    when = headers.GetEarliestMsgStoretimeRequestHeader(topic="None", queue_id=7)
    assert await offset_of(at, RequestCode.GET_MAX_OFFSET, most) == 0
    assert await offset_of(at, RequestCode.GET_MIN_OFFSET, least) == 0
    answer = await at.ask_ok(RequestCode.GET_EARLIEST_MSG_STORETIME, when)
    assert answer.ext_fields == {"timestamp": "-1"}


async def test_only_the_first_offset_has_an_empty_remark(at: Desk) -> None:
    least = headers.GetMinOffsetRequestHeader(topic="T", queue_id=0)
    most = headers.GetMaxOffsetRequestHeader(topic="T", queue_id=0)
    assert (await at.ask_ok(RequestCode.GET_MIN_OFFSET, least)).remark == ""
    assert (await at.ask_ok(RequestCode.GET_MAX_OFFSET, most)).remark is None


@pytest.mark.parametrize(
    ("after_ms", "boundary", "expected"),
    [
        (0, None, 0),
        (2, None, 1),
        (2, headers.BoundaryType.LOWER, 1),
        (2, headers.BoundaryType.UPPER, 1),
        (9, headers.BoundaryType.LOWER, 3),
        (9, headers.BoundaryType.UPPER, 2),
    ],
)
async def test_offset_at_a_time(
    at: Desk, after_ms: int, boundary: headers.BoundaryType | None, expected: int
) -> None:
    at.put("T", 0, 3)
    header = headers.SearchOffsetRequestHeader(
        topic="T", queue_id=0, timestamp_ms=NOW_MS + after_ms, boundary_type=boundary
    )
    assert await offset_of(at, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header) == expected


@pytest.mark.parametrize("is_cold", [False, True])
async def test_store_time_of_the_first_message(
    at: Desk, monkeypatch: pytest.MonkeyPatch, *, is_cold: bool
) -> None:
    at.put("T", 0, 2)
    monkeypatch.setattr(at.store.reader, "will_block", lambda *_: is_cold)
    header = headers.GetEarliestMsgStoretimeRequestHeader(topic="T", queue_id=0)
    answer = await at.ask_ok(RequestCode.GET_EARLIEST_MSG_STORETIME, header)
    assert answer.ext_fields == {"timestamp": str(NOW_MS + 1)}


async def test_all_committed_offsets(at: Desk) -> None:
    at.offsets.commit("G", "T", 0, 5)
    at.offsets.commit("G", "T", 3, 7)
    at.offsets.commit('odd"', "%RETRY%G", 0, 1)
    answer = await at.ask_ok(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert answer.ext_fields is None
    assert b'"T@G":{0:5,3:7}' in answer.body
    body = decode_body(ConsumerOffsetSerializeWrapper, answer.body)
    assert body.offset_table == {"T@G": {0: 5, 3: 7}, '%RETRY%G@odd"': {0: 1}}
    assert body.data_version == at.offsets.data_version


async def test_many_offsets_are_written_in_steps(at: Desk) -> None:
    groups = 5 * GROUPS_AT_ONCE
    for number in range(groups):
        at.offsets.commit(f"G{number}", "T", 0, number)
    asked = asyncio.ensure_future(at.ask_ok(RequestCode.GET_ALL_CONSUMER_OFFSET))
    steps = 0
    while not asked.done():
        await asyncio.sleep(0)
        steps += 1
    assert steps >= 5
    body = decode_body(ConsumerOffsetSerializeWrapper, (await asked).body)
    assert body.offset_table == {f"T@G{n}": {0: n} for n in range(groups)}


async def test_no_committed_offsets(at: Desk) -> None:
    body = (await at.ask_ok(RequestCode.GET_ALL_CONSUMER_OFFSET)).body
    assert decode_body(ConsumerOffsetSerializeWrapper, body).offset_table == {}


async def test_a_bad_number_is_named(at: Desk) -> None:
    request = create_request(RequestCode.GET_MAX_OFFSET, opaque=1)
    request.ext_fields = {"topic": "T", "queueId": "one"}
    answer = await at.handle(request, at.connection)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == 'the custom field <queueId> is no number. For input string: "one"'
