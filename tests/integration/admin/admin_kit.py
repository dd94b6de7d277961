"""What tests of the admin need in a cluster: topics, messages, groups, clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from roquet.admin import Admin
from roquet.client import ClientInstance, ClientOptions
from roquet.model import properties as prop
from roquet.model.topic import TRANS_CHECK_MAX_TIME_TOPIC
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.send import SendMessageResponseHeader
from roquet.testing.broker import RunningBroker
from tests.patience import PATIENT, TIMEOUT_MS
from tests.request_kit import send_header
from tests.unit.client.client_kit import Consumer, Producer

TOPIC = "Orders"
GROUP = "billing"


class Sent(NamedTuple):
    """The two ids of a message, and its place."""

    message_id: str
    offset_message_id: str
    queue_offset: int


async def send(
    server: RunningBroker,
    body: bytes,
    *,
    topic: str = TOPIC,
    queue_id: int = 0,
    keys: str = "",
    message_id: str = "",
) -> Sent:
    properties = {prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX: message_id, prop.KEYS: keys}
    header = send_header(
        topic,
        queue_id=queue_id,
        properties="".join(f"{name}\1{value}\2" for name, value in properties.items() if value),
    )
    async with RemotingClient(config=PATIENT) as client:
        answer = await client.invoke(
            server.address, RequestCode.SEND_MESSAGE_V2, header, body=body, timeout_ms=TIMEOUT_MS
        )
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    found = decode_header(SendMessageResponseHeader, answer.ext_fields)
    return Sent(message_id, found.msg_id, found.queue_offset)


@asynccontextmanager
async def consuming(
    server: RunningBroker, consumer: Consumer, *, name: str = "blue"
) -> AsyncIterator[ClientInstance]:
    """A client with a consumer, which the brokers of its topics know."""
    options = ClientOptions(
        namesrv=server.namesrv,
        client_ip="10.0.0.7",
        instance_name=name,
        request_timeout_ms=TIMEOUT_MS,
    )
    async with await ClientInstance.open(options) as client:
        for topic in consumer.topics:
            await client.routes.route(topic)
        client.register_consumer(consumer.group, consumer)
        await client.heartbeat()
        yield client


@asynccontextmanager
async def producing(server: RunningBroker, group: str, *topics: str) -> AsyncIterator[None]:
    """A client with a producer, which the brokers of its topics know."""
    options = ClientOptions(
        namesrv=server.namesrv,
        client_ip="10.0.0.8",
        instance_name="red",
        request_timeout_ms=TIMEOUT_MS,
    )
    async with await ClientInstance.open(options) as client:
        for topic in topics:
            await client.routes.route(topic)
        client.register_producer(group, Producer(*topics))
        await client.heartbeat()
        yield


async def prepared(server: RunningBroker, admin: Admin) -> Sent:
    """A topic with a message, a group, and groups beside it."""
    for topic in (TOPIC, TRANS_CHECK_MAX_TIME_TOPIC):
        await server.create_topic(topic)
    for group in (GROUP, "auditing"):
        await admin.groups.create(group)
    return await send(server, b"paid", keys="17", message_id="7F00000100002A9F0000000000000001")
