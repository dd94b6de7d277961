"""Consumer groups: their names and settings; making, altering and dropping them.

Owns :class:`Groups`. How far they are is the business of :mod:`roquet.admin.offsets`, who is
connected that of :mod:`roquet.admin.clients`.
"""

from __future__ import annotations

from roquet.admin.calls import Calls
from roquet.admin.results import Gathered
from roquet.admin.topics import Topics
from roquet.client.names import check_group
from roquet.model.subscription import SubscriptionData, SubscriptionGroupConfig
from roquet.model.topic import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.group import (
    GroupForbidden,
    QuerySubscriptionResponseBody,
    SubscriptionGroupWrapper,
)
from roquet.remoting.bodies.topic import TopicList
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers import admin as headers

__all__ = ["Groups"]


class Groups:
    """Consumer groups; ``admin.groups``.

    Where ``cluster`` and ``broker`` can be given, the call goes to the masters of that cluster, or
    to that broker (by its name, or as ``host:port``), and without both to all masters.

    Example:
        names = await admin.groups.names()
    """

    def __init__(self, calls: Calls, topics: Topics) -> None:
        self._calls = calls
        self._topics = topics

    # -------------------------------------------------------------------------------- looking

    async def names(self, *, cluster: str | None = None, broker: str | None = None) -> list[str]:
        """The groups that brokers know, sorted.

        Raises:
            BrokersFailed: Some brokers do not answer, so that groups may be missing.

        Example:
            assert "billing" in await admin.groups.names()
        """
        found = (await self.configs(cluster=cluster, broker=broker)).complete("Listing groups")
        return sorted({name for table in found.values() for name in table})

    async def configs(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> Gathered[dict[str, SubscriptionGroupConfig]]:
        """The settings of all groups on each broker, by name.

        Example:
            found = await admin.groups.configs()
        """
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        return await self._calls.gather(targets, self._configs)

    async def _configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        found = await self._calls.ask_body(
            SubscriptionGroupWrapper, address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        )
        return dict(sorted(found.subscription_group_table.items()))

    async def config(
        self, group: str, *, cluster: str | None = None, broker: str | None = None
    ) -> Gathered[SubscriptionGroupConfig]:
        """The settings of a group on each broker; those that do not have it are failures.

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

    async def topics(self, group: str) -> Gathered[list[str]]:
        """The topics in which a group has committed offsets, on each broker.

        Example:
            found = await admin.groups.topics("billing")
        """
        header = headers.QueryTopicsByConsumerRequestHeader(group=group)

        async def ask(address: str) -> list[str]:
            code = RequestCode.QUERY_TOPICS_BY_CONSUMER
            return sorted((await self._calls.ask_body(TopicList, address, code, header)).topic_list)

        return await self._calls.gather(await self._calls.masters(), ask)

    async def subscription(self, group: str, topic: str) -> Gathered[SubscriptionData | None]:
        """What the clients of a group subscribe to in a topic, on each of its brokers.

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

    # ------------------------------------------------------------------------------- changing

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
        """Make a group, or set all of its settings anew; the brokers that did.

        Args:
            group: The group.
            orderly: Whether it consumes in order.
            broadcast: Whether it may broadcast.
            retry_max_times: How often a message is delivered again before it is put aside.
            retry_queues: How many queues its retry topic has.
            cluster: The cluster that gets it.
            broker: The one broker that gets it.

        Raises:
            BadName: No group can have this name.
            BrokersFailed: Some brokers did not.

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
        """Make a group with these settings, or alter it to them; the brokers that did.

        Raises:
            BadName: No group can have this name.
            BrokersFailed: Some brokers did not.

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
        return list(told.complete(f"Making the group {config.group_name}"))

    async def delete(
        self,
        group: str,
        *,
        clean_offsets: bool = True,
        with_topics: bool = False,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Drop a group; the brokers that did.

        Args:
            group: The group.
            clean_offsets: Whether its progress goes too.
            with_topics: Whether its retries and dead letters go too, in the whole cluster.
            cluster: The cluster where.
            broker: The one broker where.

        Raises:
            BadName: No group can have this name.
            BrokersFailed: Some brokers did not.

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
        names = list(told.complete(f"Dropping the group {group}"))
        if with_topics:
            for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
                await self._topics.delete(f"{prefix}{group}", cluster=cluster)
        return names

    async def readable(self, group: str, topic: str) -> Gathered[bool]:
        """Whether a group may read a topic, on each of its brokers.

        Raises:
            NoRoute: No broker has the topic.

        Example:
            found = await admin.groups.readable("billing", "Orders")
        """
        return await self._forbidden(group, topic, readable=None)

    async def set_readable(self, group: str, topic: str, *, readable: bool) -> list[str]:
        """Let a group read a topic, or forbid it; the brokers that do.

        Raises:
            NoRoute: No broker has the topic.
            BrokersFailed: Some brokers did not.

        Example:
            await admin.groups.set_readable("billing", "Orders", readable=True)
        """
        told = await self._forbidden(group, topic, readable=readable)
        return list(told.complete(f"Setting what {group} may read"))

    async def _forbidden(self, group: str, topic: str, *, readable: bool | None) -> Gathered[bool]:
        header = headers.UpdateGroupForbiddenRequestHeader(
            group=group, topic=topic, readable=readable
        )

        async def ask(address: str) -> bool:
            code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
            found = await self._calls.ask_body(GroupForbidden, address, code, header)
            return found.readable is not False

        return await self._calls.gather(await self._calls.brokers_of_topic(topic), ask)
