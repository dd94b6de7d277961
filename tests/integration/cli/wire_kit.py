"""A few requests to a broker, and to a name server, from outside their process."""

from __future__ import annotations

import asyncio

from roquet.format.commit_log import decode_record
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.namesrv import GetRouteInfoRequestHeader
from roquet.remoting.headers.pull import PullMessageRequestHeader
from tests.patience import PATIENT
from tests.request_kit import send_header

TOPIC = "Started"
HEADER = send_header(TOPIC, default_topic_queue_nums=1)


async def send(client: RemotingClient, broker: str, body: bytes) -> None:
    answer = await client.invoke(broker, RequestCode.SEND_MESSAGE_V2, HEADER, body=body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def pull(client: RemotingClient, broker: str) -> list[bytes]:
    header = PullMessageRequestHeader(
        consumer_group="c",
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_ms=0,
        subscription="*",
        sub_version=0,
    )
    answer = await client.invoke(broker, RequestCode.PULL_MESSAGE, header)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    bodies: list[bytes] = []
    position = 0
    while position < len(answer.body):
        record = decode_record(answer.body, position, len(answer.body))
        bodies.append(bytes(record.body))
        position += record.store_size
    return bodies


def send_all(broker: str, *bodies: bytes) -> None:
    async def whole() -> None:
        async with RemotingClient(config=PATIENT) as client:
            for body in bodies:
                await send(client, broker, body)

    asyncio.run(whole())


def pull_all(broker: str) -> list[bytes]:
    async def whole() -> list[bytes]:
        async with RemotingClient(config=PATIENT) as client:
            return await pull(client, broker)

    return asyncio.run(whole())


def route_code(namesrv: str, topic: str) -> int:
    async def whole() -> int:
        async with RemotingClient(config=PATIENT) as client:
            header = GetRouteInfoRequestHeader(topic=topic)
            answer = await client.invoke(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            return answer.code

    return asyncio.run(whole())


def send_code(broker: str, body: bytes) -> int:
    async def whole() -> int:
        async with RemotingClient(config=PATIENT) as client:
            answer = await client.invoke(broker, RequestCode.SEND_MESSAGE_V2, HEADER, body=body)
            return answer.code

    return asyncio.run(whole())
