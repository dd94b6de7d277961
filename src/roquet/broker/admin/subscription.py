"""Who consumes what: groups of a topic, topics of a group, and a group's subscription.

The part of upstream's AdminBrokerProcessor that is about subscriptions. A group counts as one of a
topic while its clients subscribe to it here, and as long as it has committed offsets of it.
"""

from __future__ import annotations

from collections.abc import Callable

from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
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
        address: Where clients find the broker.
    """

    def __init__(
        self,
        *,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        address: Callable[[], str],
    ) -> None:
        self._consumers = consumers
        self._offsets = offsets
        self._address = address

    @processor(
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        header=headers.TopicRequestHeader,
        permission=Permission(Action.GET, Resource.TOPIC),
        ports=ALL_PORTS,
    )
    def groups_of_topic(
        self, context: RequestContext, header: headers.TopicRequestHeader
    ) -> RemotingCommand:
        """The groups of a topic; none of one that does not exist."""
        topic = header.topic
        groups = self._consumers.groups_of_topic(topic) | self._offsets.groups_of_topic(topic)
        body = GroupList(group_list=sorted(groups))
        return context.response(ResponseCode.SUCCESS, body=encode_body(body))

    @processor(
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        header=headers.QueryTopicsByConsumerRequestHeader,
        permission=_GROUP,
        ports=ALL_PORTS,
    )
    def topics_of_group(
        self, context: RequestContext, header: headers.QueryTopicsByConsumerRequestHeader
    ) -> RemotingCommand:
        """The topics of which a group committed offsets."""
        topics = sorted(self._offsets.topics_of_group(header.group))
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
