"""Subscriptions: groups of a topic, topics of a group, and a group's subscription.

The subscription part of upstream's AdminBrokerProcessor. A group belongs to a topic while its
clients subscribe to it here, or while it has committed offsets for it.
"""

from __future__ import annotations

from functools import partial

from roquet.broker.admin.offset_keys import groups_of_topic, topics_of_group
from roquet.broker.components import BrokerComponents
from roquet.broker.service.flow_control import RequestClass
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.group import GroupList, QuerySubscriptionResponseBody
from roquet.remoting.bodies.topic import TopicList
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import admin as headers
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)

__all__ = ["SubscriptionAdmin"]

_GROUP = Permission(Action.GET, Resource.GROUP)


class SubscriptionAdmin:
    """Serves requests about subscriptions.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._consumers = components.consumers
        self._offsets = components.offsets
        self._flow = components.flow
        self._advertised = components.advertised

    @processor(
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        header=headers.TopicRequestHeader,
        permission=Permission(Action.GET, Resource.TOPIC),
        ports=ALL_PORTS,
    )
    async def topic_groups(
        self, context: RequestContext, header: headers.TopicRequestHeader
    ) -> RemotingCommand:
        """Return the groups of a topic; none if it does not exist."""
        find = partial(groups_of_topic, list(self._offsets.table), header.topic)
        committed = await self._flow.run(RequestClass.ADMIN, find)
        groups = self._consumers.groups_of_topic(header.topic) | committed
        body = GroupList(group_list=sorted(groups))
        return context.response(ResponseCode.SUCCESS, body=encode_body(body))

    @processor(
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        header=headers.QueryTopicsByConsumerRequestHeader,
        permission=_GROUP,
        ports=ALL_PORTS,
    )
    async def group_topics(
        self, context: RequestContext, header: headers.QueryTopicsByConsumerRequestHeader
    ) -> RemotingCommand:
        """Return the topics for which a group has committed offsets."""
        find = partial(topics_of_group, list(self._offsets.table), header.group)
        topics = await self._flow.run(RequestClass.ADMIN, find)
        body = TopicList(broker_addr=self._advertised.address, topic_list=topics)
        return context.response(ResponseCode.SUCCESS, body=encode_body(body))

    @processor(
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        header=headers.QuerySubscriptionByConsumerRequestHeader,
        permission=_GROUP,
        ports=ALL_PORTS,
    )
    def subscription(
        self, context: RequestContext, header: headers.QuerySubscriptionByConsumerRequestHeader
    ) -> RemotingCommand:
        """Return a group's subscription to a topic, if there is one."""
        found = self._consumers.find_subscription(header.group, header.topic or "")
        body = QuerySubscriptionResponseBody(
            group=header.group, subscription_data=found, topic=header.topic
        )
        return context.response(ResponseCode.SUCCESS, body=encode_body(body))
