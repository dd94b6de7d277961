"""Consumer groups: their names and settings; creating, changing and deleting them.

Owns :class:`Groups`. Their progress is in :mod:`roquet.admin.offsets`, their connected clients in
:mod:`roquet.admin.clients`.
"""

from __future__ import annotations

from roquet.admin.calls import Calls
from roquet.admin.results import ServerResults
from roquet.admin.table_pages import PAGE_ENTRIES, read_pages
from roquet.admin.topics import Topics
from roquet.client.names import check_group
from roquet.model.data_version import DataVersion
from roquet.model.subscription import SubscriptionData, SubscriptionGroupConfig
from roquet.model.topic import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.group import (
    GroupForbidden,
    QuerySubscriptionResponseBody,
    SubscriptionGroupWrapper,
)
from roquet.remoting.bodies.topic import TopicList
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import admin as headers

__all__ = ["Groups"]


class Groups:
    """Consumer groups; ``admin.groups``.

    Calls with ``cluster`` or ``broker`` go to the masters of that cluster, or to that broker (by
    its name, or as ``host:port``); without both, to all masters.

    Example:
        names = await admin.groups.names()
    """

    def __init__(self, calls: Calls, topics: Topics) -> None:
        self._calls = calls
        self._topics = topics

    # -------------------------------------------------------------------------------- queries

    async def names(self, *, cluster: str | None = None, broker: str | None = None) -> list[str]:
        """Return the groups that brokers know, sorted.

        Raises:
            BrokersFailed: Some brokers do not respond, so groups may be missing.

        Example:
            assert "billing" in await admin.groups.names()
        """
        found = (await self.configs(cluster=cluster, broker=broker)).complete("Listing groups")
        return sorted({name for table in found.values() for name in table})

    async def configs(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> ServerResults[dict[str, SubscriptionGroupConfig]]:
        """Return the settings of all groups on each broker, by name.

        Example:
            found = await admin.groups.configs()
        """
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        return await self._calls.gather(targets, self._configs)

    async def _configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        async def ask(first: int, version: str) -> RemotingCommand:
            header = headers.GetAllSubscriptionGroupRequestHeader(
                group_seq=first, data_version=version, max_group_num=PAGE_ENTRIES
            )
            code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
            return await self._calls.ask(address, code, header)

        def decode(body: bytes) -> tuple[DataVersion, dict[str, SubscriptionGroupConfig]]:
            found = decode_body(SubscriptionGroupWrapper, body)
            return found.data_version, found.subscription_group_table

        return dict(sorted((await read_pages(ask, decode, "totalGroupNum")).items()))

    async def config(
        self, group: str, *, cluster: str | None = None, broker: str | None = None
    ) -> ServerResults[SubscriptionGroupConfig]:
        """Return the settings of a group on each broker; brokers without it are failures.

        Example:
            found = await admin.groups.config("billing")
            retries = found.answers["dev"].retry_max_times
        """
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        header = headers.GetSubscriptionGroupConfigRequestHeader(group=group)
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        return await self._calls.gather(
            targets,
            lambda address: self._calls.ask_body(SubscriptionGroupConfig, address, code, header),
        )

    async def topics(self, group: str) -> ServerResults[list[str]]:
        """Return the topics in which a group has committed offsets, on each broker.

        Example:
            found = await admin.groups.topics("billing")
        """
        header = headers.QueryTopicsByConsumerRequestHeader(group=group)

        async def ask(address: str) -> list[str]:
            code = RequestCode.QUERY_TOPICS_BY_CONSUMER
            return sorted((await self._calls.ask_body(TopicList, address, code, header)).topic_list)

        return await self._calls.gather(await self._calls.masters(), ask)

    async def subscription(self, group: str, topic: str) -> ServerResults[SubscriptionData | None]:
        """Return a group's subscription to a topic, on each broker of the topic.

        Raises:
            NoRoute: No broker has the topic.

        Example:
            found = await admin.groups.subscription("billing", "Orders")
        """
        header = headers.QuerySubscriptionByConsumerRequestHeader(group=group, topic=topic)

        async def ask(address: str) -> SubscriptionData | None:
            code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
            found = await self._calls.ask_body(QuerySubscriptionResponseBody, address, code, header)
            return found.subscription_data

        return await self._calls.gather(await self._calls.brokers_of_topic(topic), ask)

    # -------------------------------------------------------------------------------- changes

    async def create(
        self,
        group: str,
        *,
        orderly: bool = False,
        broadcast: bool = True,
        retry_max_times: int = 16,
        retry_queues: int = 1,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Create a group, or replace all its settings; returns the brokers that did.

        Args:
            group: The group.
            orderly: Whether it consumes in order.
            broadcast: Whether it may broadcast.
            retry_max_times: How often a message is redelivered before it becomes a dead letter.
            retry_queues: How many queues its retry topic has.
            cluster: Create it only on this cluster's masters.
            broker: Create it only on this broker.

        Raises:
            BadName: No group can have this name.
            BrokersFailed: It failed on some brokers.

        Example:
            await admin.groups.create("shipping", retry_max_times=3)
        """
        config = SubscriptionGroupConfig(
            group_name=group,
            consume_message_orderly=orderly,
            consume_broadcast_enable=broadcast,
            retry_max_times=retry_max_times,
            retry_queue_nums=retry_queues,
        )
        return await self.put(config, cluster=cluster, broker=broker)

    async def put(
        self,
        config: SubscriptionGroupConfig,
        *,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Create or update a group with these settings; returns the brokers that did.

        Raises:
            BadName: No group can have this name.
            BrokersFailed: It failed on some brokers.

        Example:
            found = (await admin.groups.config("billing", broker="dev")).answers["dev"]
            found.consume_enable = False
            await admin.groups.put(found, broker="dev")
        """
        check_group(config.group_name or "")
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        body = encode_body(config)
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        told = await self._calls.gather(
            targets, lambda address: self._calls.ask(address, code, body=body)
        )
        return list(told.complete(f"Creating the group {config.group_name}"))

    async def delete(
        self,
        group: str,
        *,
        clean_offsets: bool = True,
        with_topics: bool = False,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Delete a group; returns the brokers that did.

        Args:
            group: The group.
            clean_offsets: Whether to delete its offsets too.
            with_topics: Whether to delete its retry and dead-letter topics too, in the whole
            cluster.
            cluster: Delete it only on this cluster's masters.
            broker: Delete it only on this broker.

        Raises:
            BadName: No group can have this name.
            BrokersFailed: It failed on some brokers.

        Example:
            await admin.groups.create("short-lived")
            await admin.groups.delete("short-lived", with_topics=True)
        """
        check_group(group)
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        header = headers.DeleteSubscriptionGroupRequestHeader(
            group_name=group, clean_offset=clean_offsets
        )
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        told = await self._calls.gather(
            targets, lambda address: self._calls.ask(address, code, header)
        )
        names = list(told.complete(f"Deleting the group {group}"))
        if with_topics:
            for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
                await self._topics.delete(f"{prefix}{group}", cluster=cluster)
        return names

    async def readable(self, group: str, topic: str) -> ServerResults[bool]:
        """Return whether a group may read a topic, on each broker of the topic.

        Raises:
            NoRoute: No broker has the topic.

        Example:
            found = await admin.groups.readable("billing", "Orders")
        """
        return await self._forbidden(group, topic, readable=None)

    async def set_readable(self, group: str, topic: str, *, readable: bool) -> list[str]:
        """Let a group read a topic, or forbid it; returns the brokers that did.

        Raises:
            NoRoute: No broker has the topic.
            BrokersFailed: It failed on some brokers.

        Example:
            await admin.groups.set_readable("billing", "Orders", readable=True)
        """
        told = await self._forbidden(group, topic, readable=readable)
        return list(told.complete(f"Setting the permission of {group}"))

    async def _forbidden(
        self, group: str, topic: str, *, readable: bool | None
    ) -> ServerResults[bool]:
        header = headers.UpdateGroupForbiddenRequestHeader(
            group=group, topic=topic, readable=readable
        )

        async def ask(address: str) -> bool:
            code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
            found = await self._calls.ask_body(GroupForbidden, address, code, header)
            return found.readable is not False

        return await self._calls.gather(await self._calls.brokers_of_topic(topic), ask)
