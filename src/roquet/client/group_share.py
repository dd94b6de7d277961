"""What consumers look up before they read: their queues, and where to start.

Both are looked up again whenever a group or a topic changes. Names are those on the wire, with the
namespace.
"""

from __future__ import annotations

from collections.abc import Sequence

from roquet.client.allocate import AllocateStrategy
from roquet.client.instance import ClientInstance
from roquet.client.offset_store import OffsetStore
from roquet.client.pull_api import PullApi
from roquet.errors import NoRoute
from roquet.model.message_queue import MessageQueue
from roquet.model.topic import is_retry_topic
from roquet.remoting.bodies.client import ConsumeFromWhere, GetConsumerListByGroupResponseBody
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.client import GetConsumerListByGroupRequestHeader

__all__ = ["members_of_group", "readable_queues", "share_of_queues", "start_offset"]


async def members_of_group(client: ClientInstance, group: str, topic: str) -> list[str]:
    """Return the ids of the clients of a consumer group, sorted as in Java.

    Any broker of the topic knows them all, because clients send heartbeats to all brokers.

    Raises:
        NoRoute: No broker has the topic.
        ClientError: The broker did not respond, or refused.
    """
    addresses = _addresses(client, sorted((await client.routes.route(topic)).brokers))
    if not addresses:
        route = await client.routes.route(topic, refresh=True)
        addresses = _addresses(client, sorted(route.brokers))
    if not addresses:
        raise NoRoute(
            f"No broker of the topic {topic} is known", hint="They may be down, or not registered."
        )
    answer = await client.ask(
        addresses[client.randomness.randrange(len(addresses))],
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        GetConsumerListByGroupRequestHeader(consumer_group=group),
    )
    body = decode_body(GetConsumerListByGroupResponseBody, answer.body)
    return sorted(body.consumer_id_list or (), key=lambda each: each.encode("utf-16-be"))


def _addresses(client: ClientInstance, broker_names: Sequence[str]) -> list[str]:
    found = (client.routes.broker_address(name) for name in broker_names)
    return [each for each in found if each is not None]


async def readable_queues(client: ClientInstance, topic: str) -> list[MessageQueue]:
    """Return the readable queues of a topic.

    Raises:
        NoRoute: No broker has the topic, or none of its queues can be read.
    """
    queues = await client.routes.subscribe_queues(topic)
    if not queues:
        raise NoRoute(
            f"No queue of {topic} can be read",
            detail="the route has no queue with the permission to read",
            hint="Check the permissions of the topic and of its brokers.",
        )
    return queues


async def share_of_queues(
    client: ClientInstance, group: str, topic: str, strategy: AllocateStrategy
) -> list[MessageQueue] | None:
    """Return the queues of a topic that this client reads for its group.

    ``None`` if the broker knows no member of the group, as after a restart.

    Raises:
        NoRoute: No broker has the topic.
        ClientError: The members of the group cannot be queried.
    """
    queues = await readable_queues(client, topic)
    members = await members_of_group(client, group, topic)
    return strategy.allocate(client.client_id, queues, members) if members else None


async def start_offset(
    queue: MessageQueue,
    store: OffsetStore,
    api: PullApi,
    *,
    where: ConsumeFromWhere,
    timestamp_ms: int,
) -> int:
    """Return the first offset to read: the group's offset, or where a new group starts.

    Args:
        queue: The queue.
        store: The group's offsets.
        api: Queries the brokers.
        where: Where a new group starts: at the end, at the first message, or at a time. In the
            group's own retry topic it starts at the first message, or with a time at the end.
        timestamp_ms: The time.

    Raises:
        RoquetError: The store or the broker cannot be queried.
    """
    known = await store.read(queue)
    if known is not None and known >= 0:
        return known
    is_retry = is_retry_topic(queue.topic)
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0
    if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        if is_retry:
            return await api.max_offset(queue)
        return await api.search_offset(queue, timestamp_ms)
    if is_retry or (end := await api.max_offset(queue)) == 0:
        return 0
    # A message may have come between the two queries. If it is the first of its queue, a broker
    # that is asked again lets a new group begin with it.
    known = await store.read(queue)
    return end if known is None or known < 0 else known
