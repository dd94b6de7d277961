"""What consumers need to know before they read: which queues are theirs, and from where on.

Owns the two questions, each asked anew whenever a group or a topic changes. Names are those of the
wire, with the namespace.
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
    """The ids of the clients that consume for a group, sorted as Java sorts them.

    Any broker of the topic knows them all, because clients tell all of them.

    Raises:
        NoRoute: No broker has the topic.
        ClientError: The broker did not answer, or refused.
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
    """The queues of a topic that can be read.

    Raises:
        NoRoute: No broker has the topic, or none of its queues can be read.
    """
    queues = await client.routes.subscribe_queues(topic)
    if not queues:
        raise NoRoute(
            f"No queue of {topic} can be read",
            detail="the route has no queue with the permission to read",
            hint="Look at the permission of the topic and of its brokers.",
        )
    return queues


async def share_of_queues(
    client: ClientInstance, group: str, topic: str, strategy: AllocateStrategy
) -> list[MessageQueue] | None:
    """The queues of a topic that this client has to read for its group.

    ``None`` if the broker knows no member of the group, which it forgets when it restarts.

    Raises:
        NoRoute: No broker has the topic.
        ClientError: No broker says who is in the group.
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
    """From where on to read a queue: as far as the group is, or where a new group begins.

    Args:
        queue: The queue.
        store: Where the group's offsets are kept.
        api: Asks the brokers.
        where: Where a new group begins: at the end, at the first message, or at a time. In the
            group's own retry topic it begins at the first message, and with a time at the end.
        timestamp_ms: That time.

    Raises:
        RoquetError: The store or the broker cannot be asked.
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
    return 0 if is_retry else await api.max_offset(queue)
