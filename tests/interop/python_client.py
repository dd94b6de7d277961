"""The Python client against a cluster of either side: clients, topics, progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Unpack

from roquet.client import (
    ClientInstance,
    ClientOptions,
    ConsumeFromWhere,
    Expression,
    Handler,
    Message,
    MessageQueue,
    Producer,
    PullApi,
    PushConsumer,
)
from roquet.client.producer_options import ProducerSettings
from roquet.client.push_options import PushSettings
from roquet.errors import ClientError, NoRoute
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.admin import CreateTopicRequestHeader
from tests.interop.cluster import Cluster

PATTERN_TOPIC = "TBW102"
TIMEOUT_MS = 30_000
QUEUES = 3

_numbers = count(1)


def options_of(servers: Cluster, **changes: object) -> ClientOptions:
    settings: dict[str, object] = {"client_ip": "127.0.0.1", "request_timeout_ms": TIMEOUT_MS}
    return ClientOptions(namesrv=servers.namesrv, **settings | changes)  # type: ignore[arg-type]


@asynccontextmanager
async def opened(servers: Cluster, **changes: object) -> AsyncIterator[ClientInstance]:
    async with await ClientInstance.open(options_of(servers, **changes)) as client:
        yield client


async def eventually(
    work: Callable[[], Awaitable[bool]],
) -> None:
    """Retry until the condition holds; the test's time-out bounds it."""
    while not await work():  # noqa: ASYNC110 - other processes have no event to wait for
        await asyncio.sleep(0.05)


async def routed(client: ClientInstance, topic: str) -> bool:
    try:
        await client.routes.route(topic, refresh=True)
    except (NoRoute, ClientError):
        return False
    return True


async def create_topic(client: ClientInstance, address: str, *, queues: int = QUEUES) -> str:
    topic = f"Python_{next(_numbers)}"
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic=PATTERN_TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
    )
    await client.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    await eventually(lambda: routed(client, topic))
    return topic


async def new_queues(servers: Cluster, count: int = QUEUES) -> list[MessageQueue]:
    """The queues of a new topic."""
    async with opened(servers) as client:
        topic = await create_topic(client, servers.broker.address, queues=count)
    return [MessageQueue(topic, servers.broker_name, each) for each in range(count)]


def group_of(topic: str) -> str:
    return f"{topic}_group"


def producer_of(servers: Cluster, **settings: Unpack[ProducerSettings]) -> Producer:
    """A producer of a client of its own."""
    settings = {"send_timeout_ms": TIMEOUT_MS} | settings
    group = f"python_producer_{next(_numbers)}"
    return Producer(options_of(servers), group=group, **settings)


async def send(producer: Producer, queues: Sequence[MessageQueue], bodies: Iterable[bytes]) -> None:
    """Send messages, one after the other, to one queue after the other."""
    for number, body in enumerate(bodies):
        queue = queues[number % len(queues)]
        await producer.send(Message(queue.topic, body), queue=queue)


def numbered(count: int, prefix: str = "") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


def push_of(
    servers: Cluster,
    topic: str,
    handler: Handler,
    *,
    group: str | None = None,
    expression: Expression = "*",
    instance_name: str = "",
    **settings: Unpack[PushSettings],
) -> PushConsumer:
    """A consumer of a topic from its first message on, with a client of its own."""
    settings = {"consume_from": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET} | settings
    consumer = PushConsumer(
        options_of(servers, instance_name=instance_name, persist_offsets_ms=500),
        group=group or group_of(topic),
        handler=handler,
        **settings,
    )
    consumer.subscribe(topic, expression)
    return consumer


async def committed(
    servers: Cluster, queues: Sequence[MessageQueue], *, group: str | None = None
) -> list[int]:
    """How far a group is in each of these queues, according to the broker."""
    async with opened(servers) as client:
        await client.routes.route(queues[0].topic)
        return await committed_by(PullApi(client, group or group_of(queues[0].topic)), queues)


async def committed_by(api: PullApi, queues: Sequence[MessageQueue]) -> list[int]:
    """The same, queried by a client that knows the broker."""
    return [await api.query_offset(queue) or 0 for queue in queues]


async def wait_committed(
    servers: Cluster, queues: Sequence[MessageQueue], *offsets: int, group: str | None = None
) -> None:
    """Wait until the broker knows that a group is so far in each of these queues.

    A Java broker may take the commit of an older pull last. A consumer that runs repairs that with
    its next commit; one that is closed at once does not.
    """
    async with opened(servers) as client:
        await client.routes.route(queues[0].topic)
        api = PullApi(client, group or group_of(queues[0].topic))
        await wait_committed_by(api, queues, *offsets)


async def wait_committed_by(api: PullApi, queues: Sequence[MessageQueue], *offsets: int) -> None:
    """The same, queried by a client that knows the broker."""

    async def is_committed() -> bool:
        return await committed_by(api, queues) == list(offsets)

    await eventually(is_committed)


async def wait_stored(servers: Cluster, queue: MessageQueue, count: int) -> None:
    """Wait until a queue has so many messages: a Java broker acknowledges them before that."""

    async def is_stored() -> bool:
        return await PullApi(client, group_of(queue.topic)).max_offset(queue) == count

    async with opened(servers) as client:
        await client.routes.route(queue.topic)
        await eventually(is_stored)
