"""Locks of queues across a restart of a broker."""

from __future__ import annotations

from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.client import LockBatchRequestBody, LockBatchResponseBody
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.client import LockBatchMqRequestHeader
from roquet.testing.broker import RunningBroker, broker
from tests.patience import PATIENT

Q = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(4)]


async def lock(running: RunningBroker, client_id: str) -> list[MessageQueue]:
    body = LockBatchRequestBody(client_id=client_id, consumer_group="g", queues=Q[:2])
    async with RemotingClient(config=PATIENT) as client:
        answer = await client.invoke(
            running.address,
            RequestCode.LOCK_BATCH_MQ,
            LockBatchMqRequestHeader(),
            body=encode_body(body),
        )
    return decode_body(LockBatchResponseBody, answer.body).locked_queues


async def test_a_restarted_broker_gives_no_queue_to_two_clients() -> None:
    async with broker() as running:
        assert await lock(running, "a") == Q[:2]
        await running.restart()
        assert await lock(running, "b") == []
        assert await lock(running, "a") == Q[:2]
