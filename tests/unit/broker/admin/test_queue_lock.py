"""Locks of queues."""

from __future__ import annotations

from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.client import LockBatchResponseBody
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.client import LockBatchMqRequestHeader, UnlockBatchMqRequestHeader
from tests.unit.broker.admin.kit import Desk

LOCK, UNLOCK = LockBatchMqRequestHeader(), UnlockBatchMqRequestHeader()
QUEUES = [MessageQueue("T", "broker-a", number) for number in range(3)]


def body(client_id: str | None, *queues: MessageQueue, group: str | None = "G") -> bytes:
    members = {"clientId": client_id, "consumerGroup": group, "mqSet": list(queues)}
    return encode_body({name: value for name, value in members.items() if value is not None})


async def lock(at: Desk, client_id: str, *queues: MessageQueue) -> set[MessageQueue]:
    answer = await at.ask_ok(RequestCode.LOCK_BATCH_MQ, LOCK, body=body(client_id, *queues))
    return set(decode_body(LockBatchResponseBody, answer.body).locked_queues)


async def test_a_queue_has_one_client(at: Desk) -> None:
    assert await lock(at, "a", *QUEUES[:2]) == set(QUEUES[:2])
    assert await lock(at, "b", *QUEUES) == {QUEUES[2]}
    answer = await at.ask_ok(RequestCode.UNLOCK_BATCH_MQ, UNLOCK, body=body("a", QUEUES[0]))
    assert answer.body == b""
    assert await lock(at, "b", *QUEUES) == {QUEUES[0], QUEUES[2]}


async def test_only_the_holder_unlocks(at: Desk) -> None:
    await lock(at, "a", QUEUES[0])
    await at.ask_ok(RequestCode.UNLOCK_BATCH_MQ, UNLOCK, body=body("b", QUEUES[0]))
    assert await lock(at, "b", QUEUES[0]) == set()


async def test_a_lock_expires(at: Desk) -> None:
    await lock(at, "a", QUEUES[0])
    at.clock.advance(60_001)
    assert await lock(at, "b", QUEUES[0]) == {QUEUES[0]}


async def test_a_lock_needs_a_group_and_a_client(at: Desk) -> None:
    for bad in (body(None, QUEUES[0]), body("a", QUEUES[0], group=None)):
        for code, header in (
            (RequestCode.LOCK_BATCH_MQ, LOCK),
            (RequestCode.UNLOCK_BATCH_MQ, UNLOCK),
        ):
            answer = await at.ask(code, header, body=bad)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == "a lock needs a consumer group and a client id"


async def test_names_that_are_too_long_are_not_kept(at: Desk) -> None:
    long = "x" * 1025
    for bad in (
        body(long, QUEUES[0]),
        body("a", QUEUES[0], group=long),
        body("a", QUEUES[0], MessageQueue(long, "b", 0)),
        body("a", MessageQueue("T", long, 0)),
    ):
        answer = await at.ask(RequestCode.LOCK_BATCH_MQ, LOCK, body=bad)
        assert (answer.code, answer.remark) == (1, "a lock has a name that is longer than 1024")
    assert await lock(at, "b", QUEUES[0]) == {QUEUES[0]}


async def test_a_malformed_body(at: Desk) -> None:
    for bad in (b"", b"[", b"{" * 5000):
        answer = await at.ask(RequestCode.LOCK_BATCH_MQ, LOCK, body=bad)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "Body that is no LockBatchRequestBody"


async def test_a_body_that_is_too_long_is_not_read(at: Desk) -> None:
    answer = await at.ask(RequestCode.LOCK_BATCH_MQ, LOCK, body=b" " * ((1 << 20) + 1))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark == ("the body of LOCK_BATCH_MQ has 1048577 bytes, the limit is 1048576")
