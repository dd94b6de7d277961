"""Queries a live cluster for the progress of its groups, for ``lag``.

Owns the requests to its brokers: the committed offsets of each master, as in its
``consumerOffset.json``, the ends of queues, and the store times of the groups' next messages.
Nothing is committed, and no group gets a member.

Names are the user's, without the namespace; groups of other namespaces are skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from roquet.client.expression import subscription_of
from roquet.client.instance import ClientInstance
from roquet.client.names import TOOLS_GROUP
from roquet.client.options import ClientOptions
from roquet.client.pull_api import PullApi
from roquet.errors import ClientError, NoRoute, NotFound
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SUBSCRIBE_ALL
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from roquet.remoting.bodies.route import MASTER_ID, ClusterInfo
from roquet.remoting.codes import RequestCode
from roquet.spark.jobs.group_position import GroupPosition, OffsetQuery
from roquet.spark.jobs.store_config import GroupOffsets, group_offsets

__all__ = ["ClusterLagWorker", "ClusterOffsets", "read_cluster_offsets"]

REQUESTS_AT_ONCE = 16
OFFSETS_TIMEOUT_MS = 15_000
"""The offsets of all groups come in one response."""


@dataclass
class ClusterOffsets:
    """Committed offsets.

    Attributes:
        offsets: By broker.
        failures: The reasons, by broker that returned none.
    """

    offsets: dict[str, GroupOffsets] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def read_cluster_offsets(cluster: ClientOptions) -> ClusterOffsets:
    """Query all masters for their committed offsets.

    Raises:
        NotFound: No broker is registered.
        ClientError: No name server, or none of the brokers, is reachable.
    """
    return asyncio.run(_read(cluster))


async def _read(cluster: ClientOptions) -> ClusterOffsets:
    client = await ClientInstance.open(cluster)
    try:
        answer = await client.name_servers.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        brokers = decode_body(ClusterInfo, answer.body).broker_addr_table or {}
        if not brokers:
            raise NotFound(
                "No broker is registered.",
                detail=f"name servers: {', '.join(client.name_servers.addresses)}",
                hint="Start a broker with these name servers.",
            )
        found = ClusterOffsets()
        last: ClientError | None = None
        for name, data in sorted(brokers.items()):
            address = data.broker_addrs.get(MASTER_ID)
            if address is None:
                found.failures[name] = "its master is down"
                continue
            try:
                found.offsets[name] = await _offsets_of(client, address)
            except ClientError as error:
                last = error
                found.failures[name] = error.message
        if last is not None and not found.offsets:
            raise last
        return found
    finally:
        await client.close()


async def _offsets_of(client: ClientInstance, address: str) -> GroupOffsets:
    code = RequestCode.GET_ALL_CONSUMER_OFFSET
    answer = await client.ask(address, code, timeout_ms=OFFSETS_TIMEOUT_MS)
    table = decode_body(ConsumerOffsetSerializeWrapper, answer.body).offset_table
    return {
        (client.unwrap(group), client.unwrap(topic)): queues
        for (group, topic), queues in group_offsets(table).items()
        if client.wrap(client.unwrap(group)) == group
    }


@dataclass(frozen=True)
class ClusterLagWorker:
    """Sent to executors: queries the brokers of some queues."""

    cluster: ClientOptions

    def __call__(self, queries: Sequence[OffsetQuery]) -> list[GroupPosition]:
        """Return the positions of the groups."""
        return asyncio.run(self._look(queries))

    async def _look(self, queries: Sequence[OffsetQuery]) -> list[GroupPosition]:
        client = await ClientInstance.open(self.cluster)
        try:
            api = PullApi(client, TOOLS_GROUP)
            room = asyncio.Semaphore(REQUESTS_AT_ONCE)
            queues = {
                each: MessageQueue(client.wrap(each.topic), each.broker or "", each.queue_id)
                for each in queries
            }

            async def ends(queue: MessageQueue) -> tuple[int, int]:
                async with room:
                    return await _ends(api, queue)

            distinct = sorted(set(queues.values()))
            found = dict(zip(distinct, await asyncio.gather(*map(ends, distinct)), strict=True))

            async def position_of(each: OffsetQuery) -> GroupPosition:
                async with room:
                    return await _position(api, each, queues[each], found)

            return list(await asyncio.gather(*map(position_of, queries)))
        finally:
            await client.close()


async def _ends(api: PullApi, queue: MessageQueue) -> tuple[int, int]:
    try:
        return await api.min_offset(queue), await api.max_offset(queue)
    except NoRoute:
        return 0, 0  # the topic was deleted, as a queue of a store may be


async def _position(
    api: PullApi,
    query: OffsetQuery,
    queue: MessageQueue,
    ends: Mapping[MessageQueue, tuple[int, int]],
) -> GroupPosition:
    low, high = ends[queue]
    next_ms = None
    if high > max(query.offset, low):
        wanted = subscription_of(queue.topic, SUBSCRIBE_ALL, version_ms=0)
        pulled = await api.pull(queue, max(query.offset, low), subscription=wanted, max_messages=1)
        next_ms = pulled.messages[0].store_timestamp_ms if pulled.messages else None
    return GroupPosition(*query, low, high, next_ms, None)
