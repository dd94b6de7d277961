"""What all commands share: requests to servers, chosen as upstream does, and its failures.

Owns :class:`Tool`. Upstream's hash tables keep their order here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container
from enum import Enum
from typing import TypeVar

from roquet.admin import Admin
from roquet.admin.static_plan import logical_progress
from roquet.admin.static_topics import StaticTopics
from roquet.cli.mqadmin.failures import JavaFailure, client_failure, failure_of, refusal_of
from roquet.cli.mqadmin.java import hash_order
from roquet.cli.mqadmin.output import Output
from roquet.client import ClientInstance
from roquet.client.response_errors import SUCCESS_ONLY
from roquet.errors import ClientError
from roquet.model.message_queue import MessageQueue
from roquet.model.topic import RETRY_GROUP_TOPIC_PREFIX
from roquet.remoting.bodies.client import ConsumerConnection, ConsumerRunningInfo
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.group import GroupList
from roquet.remoting.bodies.offset import ConsumeStats
from roquet.remoting.bodies.route import MASTER_ID, BrokerData, ClusterInfo, TopicRouteData
from roquet.remoting.bodies.topic import TopicList
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.admin import GetConsumeStatsRequestHeader, TopicRequestHeader
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.client import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from roquet.remoting.headers.namesrv import GetRouteInfoRequestHeader

__all__ = ["NO_MASTER", "UNCLEAR", "NoTargetGiven", "Tool", "broker_address", "front"]

T = TypeVar("T")


class NoTargetGiven(Enum):
    """The result of a command without a target: its help is printed."""

    UNCLEAR = "unclear"


UNCLEAR = NoTargetGiven.UNCLEAR

NO_MASTER = "NO_MASTER"
NO_CLUSTER = (
    "Make sure the specified clusterName exists or the name server connected to is correct."
)
SLOW_FACTOR = 3


class Tool:
    """The admin tool while it runs a command.

    Args:
        admin: The admin client.
        output: The output.

    Attributes:
        admin: As given.
        output: As given.
        say: Prints an item; see :meth:`Output.say`.
    """

    def __init__(self, admin: Admin, output: Output) -> None:
        self.admin = admin
        self.output = output
        self.say = output.say

    @property
    def client(self) -> ClientInstance:
        """The client behind the admin."""
        return self.admin.calls.client

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.client.clock.now_ms()

    async def pause(self, seconds: float) -> None:
        """Wait before the next check."""
        await asyncio.sleep(seconds)

    # ------------------------------------------------------------------------------------ asking

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes = b"",
        accept: Container[int] = SUCCESS_ONLY,
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        """Send a request to a server.

        Raises:
            JavaFailure: It refuses, or does not respond.
        """
        try:
            answer = await self.client.remoting.invoke(
                address, code, header, body=body, timeout_ms=timeout_ms or self.timeout_ms
            )
        except ClientError as error:
            raise failure_of(error, address) from error
        if answer.code not in accept:
            raise refusal_of(code, answer.code, answer.remark, address)
        return answer

    async def ask_body(
        self,
        kind: type[T],
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> T:
        """Request a body from a server."""
        answer = await self.ask(address, code, header, timeout_ms=timeout_ms)
        return decode_body(kind, answer.body)

    @property
    def timeout_ms(self) -> int:
        """How long a server may take."""
        return self.admin.calls.timeout_ms

    # ------------------------------------------------------------------------------ name servers

    @property
    def name_servers(self) -> list[str]:
        """The addresses of the name servers."""
        return list(self.client.name_servers.addresses)

    async def name_server(self, code: RequestCode, header: Header | None = None) -> RemotingCommand:
        """Send a request to any name server that responds."""
        try:
            answer = await self.client.name_servers.invoke(code, header)
        except ClientError as error:
            raise failure_of(error, ",".join(self.name_servers)) from error
        if answer.code != ResponseCode.SUCCESS:
            raise refusal_of(code, answer.code, answer.remark, "")
        return answer

    async def cluster_info(self) -> ClusterInfo:
        """The clusters and their brokers."""
        answer = await self.name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        found = decode_body(ClusterInfo, answer.body)
        clusters, brokers = found.cluster_addr_table or {}, found.broker_addr_table or {}
        return ClusterInfo(
            broker_addr_table={name: brokers[name] for name in hash_order(brokers)},
            cluster_addr_table={name: hash_order(clusters[name]) for name in hash_order(clusters)},
        )

    async def route(self, topic: str) -> TopicRouteData:
        """The route of a topic."""
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        answer = await self.name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return decode_body(TopicRouteData, answer.body)

    async def know_queue(self, queue: MessageQueue) -> None:
        """Make the route of a queue known to the client.

        Raises:
            JavaFailure: Its broker does not have the topic.
        """
        try:
            brokers = (await self.route(queue.topic)).broker_datas
        except JavaFailure:
            brokers = []
        if queue.broker_name not in [data.broker_name for data in brokers]:
            raise client_failure(f"The broker[{queue.broker_name}] not exist")
        await self.client.routes.route(queue.topic, refresh=True)

    async def topics(self) -> list[str]:
        """All topics."""
        answer = await self.name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return hash_order(decode_body(TopicList, answer.body).topic_list)

    # ------------------------------------------------------------------------------- of clusters

    async def _brokers_of(self, cluster: str) -> list[BrokerData]:
        info = await self.cluster_info()
        names = (info.cluster_addr_table or {}).get(cluster)
        if names is None:
            self.say(f"[error] {NO_CLUSTER}", error=NO_CLUSTER)
            return []
        table = info.broker_addr_table or {}
        return [table[name] for name in names if name in table]

    async def masters(self, cluster: str) -> list[str]:
        """The addresses of the masters of a cluster."""
        found = [data.broker_addrs.get(MASTER_ID) for data in await self._brokers_of(cluster)]
        return hash_order(address for address in found if address is not None)

    async def members(self, cluster: str) -> list[str]:
        """The addresses of the masters and slaves of a cluster."""
        found = await self._brokers_of(cluster)
        return hash_order(address for data in found for address in data.broker_addrs.values())

    async def masters_and_slaves(self, cluster: str) -> dict[str, list[str]]:
        """By master: the addresses of its slaves."""
        found: dict[str, list[str]] = {}
        for data in await self._brokers_of(cluster):
            slaves = [each for key, each in data.broker_addrs.items() if key != MASTER_ID]
            found.setdefault(data.broker_addrs.get(MASTER_ID, NO_MASTER), []).extend(slaves)
        return {master: found[master] for master in hash_order(found)}

    async def broker_names(self, cluster: str) -> list[str]:
        """The names of the brokers of a cluster.

        Raises:
            JavaFailure: There is no such cluster.
        """
        names = ((await self.cluster_info()).cluster_addr_table or {}).get(cluster)
        if not names:
            raise JavaFailure("java.lang.Exception", NO_CLUSTER)
        return names

    async def broker_name_of(self, address: str) -> str:
        """The name of the broker that has an address.

        Raises:
            JavaFailure: There is none.
        """
        for name, data in ((await self.cluster_info()).broker_addr_table or {}).items():
            if address in data.broker_addrs.values():
                return name
        raise JavaFailure("java.lang.Exception", NO_CLUSTER)

    # -------------------------------------------------------------------------------- of groups

    async def connections(self, group: str, address: str | None = None) -> ConsumerConnection:
        """The clients of a consumer group.

        Raises:
            JavaFailure: There is none.
        """
        if address is None:
            route = await self.route(f"{RETRY_GROUP_TOPIC_PREFIX}{group}")
            address = broker_address(route.broker_datas[0])
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        found = await self.ask_body(ConsumerConnection, address, code, header)
        if not found.connection_set:
            offline = ResponseCode.CONSUMER_NOT_ONLINE
            raise client_failure("Not found the consumer group connection", offline)
        return found

    async def running_info(
        self, group: str, client_id: str, *, with_stacks: bool = False
    ) -> ConsumerRunningInfo:
        """The running info of a consumer."""
        route = await self.route(f"{RETRY_GROUP_TOPIC_PREFIX}{group}")
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=with_stacks
        )
        return await self.ask_body(
            ConsumerRunningInfo,
            broker_address(route.broker_datas[0]),
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            header,
        )

    async def groups_of(self, topic: str) -> list[str]:
        """The groups that consume a topic."""
        header = TopicRequestHeader(topic=topic)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        address = broker_address((await self.route(topic)).broker_datas[0])
        return hash_order((await self.ask_body(GroupList, address, code, header)).group_list)

    async def progress(self, group: str, topic: str | None = None) -> ConsumeStats:
        """The progress of a group, in one topic or in all.

        Raises:
            JavaFailure: It has committed nothing, or is unknown.
        """
        route = await self._group_route(group, topic)
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        result = ConsumeStats()
        for data in route.broker_datas:
            part = await self.ask_body(
                ConsumeStats,
                broker_address(data),
                RequestCode.GET_CONSUME_STATS,
                header,
                timeout_ms=self.timeout_ms * SLOW_FACTOR,
            )
            result.offset_table.update(part.offset_table)
            result.consume_tps += part.consume_tps
        for name in {queue.topic for queue in result.offset_table}:
            if (await self.route(name)).topic_queue_mapping_by_broker:
                await self._show_logical(name, result)
        if not result.offset_table:
            await self._explain_nothing(group)
        return result

    async def _show_logical(self, topic: str, result: ConsumeStats) -> None:
        """Replace the physical queues of a static topic with its logical ones."""
        known = await StaticTopics(self, await self.cluster_info()).known(topic)
        logical = logical_progress(known, result)
        for queue in [queue for queue in result.offset_table if queue.topic == topic]:
            del result.offset_table[queue]
        result.offset_table.update(logical)

    async def _group_route(self, group: str, topic: str | None) -> TopicRouteData:
        try:
            return await self.route(f"{RETRY_GROUP_TOPIC_PREFIX}{group}")
        except JavaFailure:
            if topic is None:
                raise
        try:
            return await self.route(topic)
        except JavaFailure:
            return await self.route(f"{RETRY_GROUP_TOPIC_PREFIX}{group}_{topic}")

    async def _explain_nothing(self, group: str) -> None:
        why = "Not found the consumer group consume stats, because return offset table is empty, "
        try:
            found = await self.connections(group)
        except JavaFailure:
            offline = ResponseCode.CONSUMER_NOT_ONLINE
            raise client_failure(f"{why}maybe the consumer not online", offline) from None
        if found.message_model is not None and found.message_model.name == "BROADCASTING":
            broadcast = ResponseCode.BROADCAST_CONSUMPTION
            raise client_failure(f"{why}the consumer is under the broadcast mode", broadcast)


def broker_address(data: BrokerData) -> str:
    """The address of a broker: the master's, or a slave's while there is none."""
    addresses = data.broker_addrs
    return addresses.get(MASTER_ID) or next(iter(addresses.values()), "")


def front(text: str, width: int) -> str:
    """The first characters of a text."""
    return text[:width]
