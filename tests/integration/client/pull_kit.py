"""Messages in the queues of an in-process broker, and clients that read them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from roquet.client import ClientInstance, ClientOptions
from roquet.model.message_queue import MessageQueue
from roquet.model.properties import encode_properties
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.send import SendMessageRequestHeader
from roquet.testing.broker import RunningBroker
from tests.patience import TIMEOUT_MS

TOPIC = "Orders"
GROUP = "billing"
NEVER_MS = 3_600_000


def options_of(running: RunningBroker, **changes: object) -> ClientOptions:
    patient = {"client_ip": "127.0.0.1", "request_timeout_ms": TIMEOUT_MS}
    settings: dict[str, object] = patient | changes
    return ClientOptions(namesrv=running.namesrv, **settings)  # type: ignore[arg-type]


@asynccontextmanager
async def opened(running: RunningBroker, **changes: object) -> AsyncIterator[ClientInstance]:
    async with await ClientInstance.open(options_of(running, **changes)) as client:
        yield client


def queue_of(running: RunningBroker, queue_id: int = 0, topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic, running.name, queue_id)


async def store(
    client: ClientInstance,
    running: RunningBroker,
    *bodies: bytes,
    queue_id: int = 0,
    topic: str = TOPIC,
    properties: Mapping[str, str] | None = None,
    sys_flag: int = 0,
) -> None:
    """Send messages to one queue, one after the other."""
    for body in bodies:
        header = SendMessageRequestHeader(
            producer_group="senders",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp_ms=client.clock.now_ms(),
            flag=0,
            properties=encode_properties(properties or {}).decode(),
        )
        await client.ask(
            running.address, RequestCode.SEND_MESSAGE, header, body=body, timeout_ms=TIMEOUT_MS
        )
