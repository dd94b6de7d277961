"""Requests of clients, as far as these tests need them."""

from __future__ import annotations

from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.route import TopicRouteData
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.namesrv import GetRouteInfoRequestHeader
from tests.patience import TIMEOUT_MS
from tests.request_kit import send_header

TOPIC = "Orders"


async def send(
    client: RemotingClient,
    address: str,
    body: bytes,
    *,
    queue_id: int = 0,
    tags: str = "",
    timeout_ms: int = TIMEOUT_MS,
) -> int:
    header = send_header(TOPIC, queue_id=queue_id, properties=f"TAGS\x01{tags}\x02" if tags else "")
    answer = await client.invoke(
        address, RequestCode.SEND_MESSAGE_V2, header, body=body, timeout_ms=timeout_ms
    )
    return answer.code


async def route(
    client: RemotingClient, namesrv: str, *, topic: str = TOPIC
) -> TopicRouteData | None:
    header = GetRouteInfoRequestHeader(topic=topic)
    answer = await client.invoke(
        namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout_ms=TIMEOUT_MS
    )
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    assert answer.code == ResponseCode.SUCCESS
    return decode_body(TopicRouteData, answer.body)
