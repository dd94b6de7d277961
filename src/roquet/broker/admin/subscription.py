"""Who consumes what: groups of a topic, topics of a group, and a group's subscription.

The part of upstream's AdminBrokerProcessor that is about subscriptions. A group counts as one of a
topic while its clients subscribe to it here, and as long as it has committed offsets of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from roquet.broker.admin.offset_keys import groups_of_topic, topics_of_group
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.service.flow_control import FlowControl, RequestClass
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
    """Answers who consumes what.

    Args:
        consumers: Who consumes.
        offsets: What groups have committed.
        flow: Threads in which many names are looked through.
        address: Where clients find the broker.
    """

    def __init__(
        self,
        *,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        flow: FlowControl,
        address: Callable[[], str],
    ) -> None:
        self._consumers = consumers
        self._offsets = offsets
        self._flow = flow
        self._address = address

    @processor(
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        header=headers.TopicRequestHeader,
        permission=Permission(Action.GET, Resource.TOPIC),
        ports=ALL_PORTS,
    )
    async def topic_groups(
        self, context: RequestContext, header: headers.TopicRequestHeader
    ) -> RemotingCommand:
        """The groups of a topic; none of one that does not exist."""
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
        """The topics of which a group committed offsets."""
        find = partial(topics_of_group, list(self._offsets.table), header.group)
        topics = await self._flow.run(RequestClass.ADMIN, find)
        body = TopicList(broker_addr=self._address(), topic_list=topics)
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
        """What a group subscribes to in a topic, if it does."""
        found = self._consumers.find_subscription(header.group, header.topic or "")
        body = QuerySubscriptionResponseBody(
            group=header.group, subscription_data=found, topic=header.topic
        )
        return context.response(ResponseCode.SUCCESS, body=encode_body(body))
