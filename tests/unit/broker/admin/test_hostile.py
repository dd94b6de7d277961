"""Every request of administrators with oversized bodies, unknown names and impossible numbers.

Each gets a response with a remark, and nothing changes. Upstream's responses to such requests are
compared in ``tests/interop/test_mqadmin_refusals.py``.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from roquet.broker.request_body import ADMIN_BODY_BYTES_MAX, CLIENT_BODY_BYTES_MAX
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import create_request
from tests.unit.broker.admin.codes_kit import CODES
from tests.unit.broker.admin.kit import Desk

TOPIC, GROUP = "T", "G"

LISTS = {
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: ADMIN_BODY_BYTES_MAX,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ADMIN_BODY_BYTES_MAX,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: ADMIN_BODY_BYTES_MAX,
    RequestCode.LOCK_BATCH_MQ: CLIENT_BODY_BYTES_MAX,
    RequestCode.UNLOCK_BATCH_MQ: CLIENT_BODY_BYTES_MAX,
}
"""Requests whose body is read as a whole, and how much of it."""

ALL_CODES = sorted({*CODES, *LISTS, RequestCode.UPDATE_AND_CREATE_TOPIC})

# The clean-ups have no parameters, and run in any case; a queried group is created, as upstream
# does.
CHANGING = {
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
}

NUMBERS = ("-1", "-9223372036854775808", "9223372036854775807", "9223372036854775808", "x", "")
NAMES = ("", " ", "nobody", "../../etc", "a\x00b", "x" * 40_000, "%RETRY%nobody")

FIELDS = {
    "names": ("topic", "group", "consumerGroup", "groupName", "srcGroup", "destGroup", "clientId",
              "originClientId", "compareGroup", "producerGroup", "statsName", "statsKey", "msgId",
              "clientAddr", "defaultTopic", "filterGroups", "attributes", "brokerName"),
    "numbers": ("queueId", "offset", "timestamp", "index", "count", "readQueueNums",
                "writeQueueNums", "perm", "topicSysFlag", "maxNum", "commitOffset"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _everything(at: Desk) -> None:
    at.add_topic(TOPIC)
    at.put(TOPIC, 0, 3)
    at.groups.find(GROUP)
    at.offsets.commit(GROUP, TOPIC, 0, 1)


def state(at: Desk) -> tuple[object, ...]:
    """All that an administrator can change."""
    return (
        msgspec.to_builtins(at.topics.table),
        msgspec.to_builtins(at.groups.table),
        json.dumps(at.groups.forbidden, sort_keys=True),
        {key: dict(offsets) for key, offsets in at.offsets.table.items()},
        msgspec.to_builtins(at.config),
        msgspec.to_builtins(at.store.config),
        at.store.max_physical_offset,
    )


@pytest.mark.parametrize("code", LISTS, ids=lambda code: code.name)
async def test_a_body_that_is_too_long_is_not_read(at: Desk, code: RequestCode) -> None:
    before = state(at)
    max_bytes = LISTS[code]
    body = b'{"topicConfigList":[],"x":"' + b" " * max_bytes + b'"}'
    answer = await at.ask(code, body=body)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark == (
        f"the body of {code.name} has {len(body)} bytes, the limit is {max_bytes}"
    )
    assert state(at) == before


@pytest.mark.parametrize("code", ALL_CODES, ids=lambda code: code.name)
async def test_unexpected_bodies(at: Desk, code: RequestCode) -> None:
    before = state(at)
    for body in (b"\xff" * (ADMIN_BODY_BYTES_MAX + 1), b"[" * 100_000, b"null", b"{}", b"1"):
        answer = await at.ask(code, body=body)
        assert answer.code == ResponseCode.SUCCESS or answer.remark
        assert len(answer.remark or "") < 1_000
    assert state(at) == before


@pytest.mark.parametrize("code", [c for c in ALL_CODES if c not in CHANGING], ids=lambda c: c.name)
async def test_impossible_names_and_numbers(at: Desk, code: RequestCode) -> None:
    before = state(at)
    for name in NAMES:
        for number in NUMBERS:
            request = create_request(code, opaque=1)
            request.ext_fields = {
                **dict.fromkeys(FIELDS["names"], name),
                **dict.fromkeys(FIELDS["numbers"], number),
            }
            answer = await at.handle(request, at.connection)
            assert answer.code == ResponseCode.SUCCESS or answer.remark, (name, number)
    assert state(at) == before


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    ("code", "field"),
    [
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, "offset"),
        (RequestCode.QUERY_CONSUME_QUEUE, "index"),
        (RequestCode.QUERY_CONSUME_QUEUE, "count"),
        (RequestCode.QUERY_CONSUME_QUEUE, "queueId"),
        (RequestCode.GET_MAX_OFFSET, "queueId"),
        (RequestCode.GET_MIN_OFFSET, "queueId"),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, "timestamp"),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, "queueId"),
    ],
    ids=lambda each: each.name if isinstance(each, RequestCode) else each,
)
async def test_one_impossible_number(at: Desk, code: RequestCode, field: str, number: str) -> None:
    before = state(at)
    request = create_request(code, opaque=1)
    request.ext_fields = {
        "topic": TOPIC,
        "group": GROUP,
        "queueId": "0",
        "timestamp": "0",
        "isForce": "true",
        "index": "0",
        "count": "1",
        field: number,
    }
    answer = await at.handle(request, at.connection)
    assert answer.code == ResponseCode.SUCCESS or answer.remark
    if (code, number) == (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, "-1"):
        return  # No offset: the time decides.
    assert state(at) == before
