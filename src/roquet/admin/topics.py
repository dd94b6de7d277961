"""Topics: their names, queues and settings; creating, changing and deleting them.

Owns :class:`Topics`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from roquet.admin.calls import Calls, Target
from roquet.admin.kv import ORDER_NAMESPACE, KvValues
from roquet.admin.results import ServerResults, TopicStats
from roquet.admin.table_pages import PAGE_ENTRIES, read_pages
from roquet.client.names import check_topic
from roquet.errors import ConfigError, NoRoute
from roquet.model.data_version import DataVersion
from roquet.model.topic import AUTO_CREATE_TOPIC_KEY_TOPIC
from roquet.model.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.group import GroupList
from roquet.remoting.bodies.route import TopicRouteData
from roquet.remoting.bodies.topic import (
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
    TopicList,
    TopicStatsTable,
)
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import admin as headers
from roquet.remoting.headers.namesrv import (
    DeleteTopicFromNamesrvRequestHeader,
    GetTopicsByClusterRequestHeader,
)

__all__ = ["Topics"]

DEFAULT_QUEUES = 8
ROUTE_POLL_MS = 50


def creation_header(
    config: TopicConfig, *, attributes: str | None = None, force: bool = False
) -> headers.CreateTopicRequestHeader:
    """The header that creates a topic like ``config``, or changes it to that.

    Args:
        config: The topic.
        attributes: Changes of its attributes, as they are on the wire.
        force: Whether a static topic may lose messages.
    """
    return headers.CreateTopicRequestHeader(
        topic=config.topic_name or "",
        default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=attributes,
        force=force,
    )


class Topics:
    """Topics; ``admin.topics``.

    Calls with ``cluster`` or ``broker`` go to the masters of that cluster, or to that broker (by
    its name, or as ``host:port``); without both, to all masters.

    Example:
        names = await admin.topics.names()
    """

    def __init__(self, calls: Calls, kv: KvValues) -> None:
        self._calls = calls
        self._kv = kv

    # -------------------------------------------------------------------------------- queries

    async def names(self, *, cluster: str | None = None) -> list[str]:
        """Return the topics that have a route, sorted, including retry and dead-letter topics.

        Example:
            assert "Orders" in await admin.topics.names(cluster="DefaultCluster")
        """
        if cluster is None:
            answer = await self._calls.name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            header = GetTopicsByClusterRequestHeader(cluster=cluster)
            answer = await self._calls.name_server(RequestCode.GET_TOPICS_BY_CLUSTER, header)
        return sorted(decode_body(TopicList, answer.body).topic_list)

    async def system_names(self) -> list[str]:
        """Return the system topics of name servers and brokers, sorted.

        Example:
            own = set(await admin.topics.names()) - set(await admin.topics.system_names())
        """
        answer = await self._calls.name_server(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        names = set(decode_body(TopicList, answer.body).topic_list)
        code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
        found = await self._calls.gather(
            await self._calls.masters(),
            lambda address: self._calls.ask_body(TopicList, address, code),
        )
        for each in found.answers.values():
            names.update(each.topic_list)
        return sorted(names)

    async def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic: its brokers, and the number of queues on each.

        Raises:
            NoRoute: No broker has it.

        Example:
            route = await admin.topics.route("Orders")
        """
        return await self._calls.route(topic)

    async def config(
        self, topic: str, *, cluster: str | None = None, broker: str | None = None
    ) -> ServerResults[TopicConfig]:
        """Return the settings of a topic on each broker; brokers without it are failures.

        Example:
            found = await admin.topics.config("Orders")
            queues = found.answers["dev"].write_queue_nums
        """
        code = RequestCode.GET_TOPIC_CONFIG
        header = headers.TopicRequestHeader(topic=topic)

        async def ask(address: str) -> TopicConfig:
            return await self._calls.ask_body(TopicConfigAndQueueMapping, address, code, header)

        targets = await self._calls.masters(cluster=cluster, broker=broker)
        return await self._calls.gather(targets, ask)

    async def configs(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> ServerResults[dict[str, TopicConfig]]:
        """Return the settings of all topics on each broker, by name.

        Example:
            found = await admin.topics.configs()
            ordered = [name for name, each in found.answers["dev"].items() if each.order]
        """
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        return await self._calls.gather(targets, self._configs)

    async def _configs(self, address: str) -> dict[str, TopicConfig]:
        async def ask(first: int, version: str) -> RemotingCommand:
            header = headers.GetAllTopicConfigRequestHeader(
                topic_seq=first, data_version=version, max_topic_num=PAGE_ENTRIES
            )
            return await self._calls.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG, header)

        def decode(body: bytes) -> tuple[DataVersion, dict[str, TopicConfig]]:
            found = decode_body(TopicConfigAndMappingSerializeWrapper, body)
            return found.data_version, found.topic_config_table

        return dict(sorted((await read_pages(ask, decode, "totalTopicNum")).items()))

    async def stats(self, topic: str) -> TopicStats:
        """Return the first and next offset of each queue, and when its last message was stored.

        Raises:
            NoRoute: No broker has the topic.
            BrokersFailed: None of its brokers responds.

        Example:
            stats = await admin.topics.stats("Orders")
            print(stats.messages, stats.failures)
        """
        code = RequestCode.GET_TOPIC_STATS_INFO
        header = headers.TopicRequestHeader(topic=topic)
        found = await self._calls.gather(
            await self._calls.brokers_of_topic(topic),
            lambda address: self._calls.ask_body(TopicStatsTable, address, code, header),
        )
        tables = found.partial(f"Querying {topic}").values()
        queues = {queue: each for table in tables for queue, each in table.offset_table.items()}
        return TopicStats(
            topic=topic,
            queues={queue: queues[queue] for queue in sorted(queues)},
            put_tps=sum(table.topic_put_tps for table in tables),
            failures=found.failures,
        )

    async def groups(self, topic: str) -> ServerResults[list[str]]:
        """Return the groups that consume a topic, on each of its brokers.

        Raises:
            NoRoute: No broker has the topic.

        Example:
            found = await admin.topics.groups("Orders")
            groups = sorted({group for each in found.answers.values() for group in each})
        """
        header = headers.TopicRequestHeader(topic=topic)

        async def ask(address: str) -> list[str]:
            code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
            found = await self._calls.ask_body(GroupList, address, code, header)
            return sorted(found.group_list)

        return await self._calls.gather(await self._calls.brokers_of_topic(topic), ask)

    # -------------------------------------------------------------------------------- changes

    async def create(
        self,
        topic: str,
        *,
        queues: int = DEFAULT_QUEUES,
        perm: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Create a topic, or replace all its settings; returns the brokers that did.

        Args:
            topic: The topic.
            queues: How many queues it gets on each broker.
            perm: 4 read, 2 write, or their sum.
            order: Whether producers keep using its queues even while a broker is unreachable; the
                name servers get a list of the queues.
            attributes: Attributes of version 5, such as ``{"message.type": "FIFO"}``.
            cluster: Create it only on this cluster's masters.
            broker: Create it only on this broker.

        Raises:
            BadName: No topic can have this name.
            ConfigError: The number of queues or the permission cannot be used.
            BrokersFailed: It failed on some brokers.

        Example:
            await admin.topics.create("Invoices", queues=2)
        """
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            order=order,
            attributes=dict(attributes or {}),
        )
        return await self.put(config, cluster=cluster, broker=broker)

    async def put(
        self,
        config: TopicConfig,
        *,
        removed_attributes: Iterable[str] = (),
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Create or update a topic with these settings; returns the brokers that did.

        The name servers know it when this returns, unless they take longer than the admin's
        timeout. Existing attributes of the topic are kept unless they are named.

        Args:
            config: The settings.
            removed_attributes: Attributes to remove; brokers refuse names that the topic does not
            have.
            cluster: Only its masters.
            broker: Only this broker.

        Raises:
            BadName: No topic can have this name.
            ConfigError: The number of queues or the permission cannot be used.
            BrokersFailed: It failed on some brokers.

        Example:
            found = (await admin.topics.config("Orders", broker="dev")).answers["dev"]
            found.read_queue_nums = found.write_queue_nums = 8
            await admin.topics.put(found, broker="dev")
        """
        topic = config.topic_name or ""
        check_topic(topic)
        _check_numbers(config)
        attributes = [
            *(f"+{key}={value}" for key, value in config.attributes.items()),
            *(f"-{key}" for key in removed_attributes),
        ]
        header = creation_header(config, attributes=",".join(attributes) or None)
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        told = await self._calls.gather(
            targets, lambda address: self._calls.ask(address, code, header)
        )
        names = list(told.complete(f"Creating {topic}"))
        if config.order:
            # A broker that was given by its address is listed by its name, as in routes.
            known = {each.address: each.name for each in await self._calls.brokers()}
            queues = {known.get(name, name): config.write_queue_nums for name in names}
            await self._kv.set_order(topic, queues)
        await self._wait_routed(topic, targets)
        return names

    async def _wait_routed(self, topic: str, targets: Iterable[Target]) -> None:
        """Wait for the route: Apache RocketMQ's brokers respond before the name servers know."""
        wanted = {target.address for target in targets}
        clock = self._calls.client.clock
        deadline_ns = clock.monotonic_ns() + self._calls.timeout_ms * 1_000_000
        while True:
            try:
                route = await self._calls.route(topic)
            except NoRoute:
                known: set[str] = set()
            else:
                known = {
                    address for each in route.broker_datas for address in each.broker_addrs.values()
                }
            if wanted <= known or clock.monotonic_ns() > deadline_ns:
                return
            await asyncio.sleep(ROUTE_POLL_MS / 1000)

    async def delete(self, topic: str, *, cluster: str | None = None) -> list[str]:
        """Delete a topic with its messages and offsets; returns the brokers that did.

        The name servers follow last, once all brokers have deleted it.

        Args:
            topic: The topic.
            cluster: Only this cluster; by default all clusters.

        Raises:
            BadName: No topic can have this name.
            BrokersFailed: It failed on some; these keep the topic, and it keeps its route.

        Example:
            await admin.topics.create("Short-lived", queues=1)
            brokers = await admin.topics.delete("Short-lived")
        """
        check_topic(topic)
        header = headers.DeleteTopicRequestHeader(topic=topic)
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        told = await self._calls.gather(
            await self._calls.masters(cluster=cluster),
            lambda address: self._calls.ask(address, code, header),
        )
        names = list(told.complete(f"Deleting {topic}"))
        forgotten = await self._calls.name_servers(
            RequestCode.DELETE_TOPIC_IN_NAMESRV,
            DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster),
        )
        forgotten.complete(f"Deleting the route of {topic}")
        if cluster is None:
            await self._kv.delete(ORDER_NAMESPACE, topic)
        return names


def _check_numbers(config: TopicConfig) -> None:
    if config.read_queue_nums < 1 or config.write_queue_nums < 1:
        raise ConfigError(
            "A topic needs at least one queue",
            detail=f"{config.read_queue_nums} to read, {config.write_queue_nums} to write",
        )
    if not 0 <= config.perm <= 7:
        raise ConfigError(
            f"The permission is {config.perm}", hint="4 is read, 2 is write, 6 is both."
        )
