"""Admission of pulls: all checks before a queue is read.

Owns the checks of upstream's PullMessageProcessor in their order, with its codes, remarks and
forbidden types, and builds the filter of a subscription. :class:`AdmittedPull` describes a pull
that passes.
"""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import NamedTuple

from roquet.broker.components import BrokerComponents
from roquet.broker.expression_filter import bitmap_filter, expression_filter, retry_filter
from roquet.broker.manager.consumer_filter import compile_expression
from roquet.broker.manager.subscription_group import is_system_group
from roquet.errors import ProtocolError, RoquetError
from roquet.filter.tags import build_subscription, is_tag_type, tag_filter
from roquet.model.subscription import SubscriptionData, SubscriptionGroupConfig
from roquet.model.topic import is_retry_topic
from roquet.model.topic_config import PERM_READ, TopicConfig
from roquet.remoting.bodies.client import ConsumeType, MessageModel
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.pull import PullFlag, PullMessageRequestHeader
from roquet.remoting.processor import RequestContext
from roquet.store.reader import MessageFilter

__all__ = ["AdmittedPull", "ForbiddenType", "PullCheck"]

log = logging.getLogger(__name__)

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

READ_BIT = 2
"""The bit of a forbidden table that denies reading."""

SYSTEM_PULL_GROUPS = frozenset(
    {
        "DEFAULT_CONSUMER",
        "TOOLS_CONSUMER",
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
    }
)
"""Groups that may pull where pull consumers are rejected."""


class ForbiddenType(IntEnum):
    """Why a pull has no permission, as sent in the response."""

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCASTING_DISABLED = 4
    SUBSCRIPTION = 5


class AdmittedPull(NamedTuple):
    """A pull that passed all checks.

    Attributes:
        topic: The settings of its topic.
        group: The settings of its group.
        message_filter: Its filter; ``None`` for every message.
    """

    topic: TopicConfig
    group: SubscriptionGroupConfig
    message_filter: MessageFilter | None


class PullCheck:
    """Checks pulls.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._broker = components
        self._broker_ip = components.config.broker_ip1 or components.config.bind_address

    def admit(
        self, context: RequestContext, header: PullMessageRequestHeader
    ) -> AdmittedPull | RemotingCommand:
        """Admit a pull, or return the response that refuses it."""
        named = self.names(context, header)
        if isinstance(named, RemotingCommand):
            return named
        topic, group = named
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
                f"consumer:[/{context.connection.remote_address}]"
            )
            return context.response(ResponseCode.INVALID_PARAMETER, remark=remark)
        if header.sys_flag & PullFlag.SUBSCRIPTION:
            subscription = self._own_subscription(context, header)
        else:
            subscription = self._heartbeat_subscription(context, header, group)
        if isinstance(subscription, RemotingCommand):
            return subscription
        message_filter = self._filter(context, header, subscription)
        if isinstance(message_filter, RemotingCommand):
            return message_filter
        if self._broker.config.reject_pull_consumer:
            refused = self._reject_pull_consumer(context, header)
            if refused is not None:
                return refused
        return AdmittedPull(topic, group, message_filter)

    def names(
        self, context: RequestContext, header: PullMessageRequestHeader
    ) -> tuple[TopicConfig, SubscriptionGroupConfig] | RemotingCommand:
        """Return the topic and the group of a pull, if both may be read."""
        config = self._broker.config
        if not config.broker_permission & PERM_READ:
            remark = f"the broker[{self._broker_ip}] pulling message is forbidden"
            return _forbidden(context, ForbiddenType.BROKER, remark)
        if not config.lite_pull_message and context.request.code == RequestCode.LITE_PULL_MESSAGE:
            remark = f"the broker[{self._broker_ip}] for lite pull consumer is forbidden"
            return _forbidden(context, ForbiddenType.BROKER, remark)
        group = self._broker.groups.find(header.consumer_group)
        if group is None:
            remark = f"subscription group [{header.consumer_group}] does not exist, {FAQ}"
            return context.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {header.consumer_group}"
            return _forbidden(context, ForbiddenType.GROUP, remark)
        topic = self._broker.topics.select(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            return context.response(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        if not topic.perm & PERM_READ:
            remark = f"the topic[{header.topic}] pulling message is forbidden"
            return _forbidden(context, ForbiddenType.TOPIC, remark)
        return topic, group

    def _own_subscription(
        self, context: RequestContext, header: PullMessageRequestHeader
    ) -> SubscriptionData | RemotingCommand:
        """The subscription that the pull itself carries."""
        try:
            subscription = build_subscription(
                header.topic, header.subscription, header.expression_type
            )
        except ProtocolError as error:
            return _not_parsed(context, header, error)
        self._broker.consumers.compensate_subscription(
            header.consumer_group, header.topic, subscription
        )
        return subscription

    def _heartbeat_subscription(
        self,
        context: RequestContext,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig,
    ) -> SubscriptionData | RemotingCommand:
        """The subscription from the group's heartbeats."""
        consumers = self._broker.consumers.find(header.consumer_group)
        if consumers is None:
            remark = f"the consumer's group info not exist{FAQ}"
            return context.response(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark=remark)
        is_broadcasting = consumers.message_model is MessageModel.BROADCASTING
        if is_broadcasting and not group.consume_broadcast_enable:
            remark = f"the consumer group[{header.consumer_group}] can not consume by broadcast way"
            return _forbidden(context, ForbiddenType.BROADCASTING_DISABLED, remark)
        if self._broker.groups.is_forbidden(header.consumer_group, header.topic, READ_BIT):
            remark = (
                f"the consumer group[{header.consumer_group}] is forbidden "
                f"for topic[{header.topic}]"
            )
            return _forbidden(context, ForbiddenType.SUBSCRIPTION, remark)
        subscription = consumers.subscriptions.get(header.topic)
        if subscription is None:
            remark = f"the consumer's subscription not exist{FAQ}"
            return context.response(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark=remark)
        if subscription.sub_version < header.sub_version:
            return context.response(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                remark="the consumer's subscription not latest",
            )
        if is_tag_type(subscription.expression_type):
            return subscription
        found = self._broker.filters.find(header.topic, header.consumer_group)
        if found is None:
            return context.response(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                remark="The broker's consumer filter data is not exist!"
                "Your expression may be wrong!",
            )
        if found.data.client_version < header.sub_version:
            return context.response(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                remark="the consumer's consumer filter data not latest",
            )
        return subscription

    def _filter(
        self,
        context: RequestContext,
        header: PullMessageRequestHeader,
        subscription: SubscriptionData,
    ) -> MessageFilter | RemotingCommand | None:
        """Return the filter of a subscription; ``None`` for every message."""
        kind = subscription.expression_type
        if is_tag_type(kind):
            is_wanted = tag_filter(subscription)
            return None if is_wanted is None else MessageFilter(is_wanted)
        if not self._broker.config.property_filter:
            remark = f"The broker does not support consumer to filter message by {kind}"
            return context.response(ResponseCode.SYSTEM_ERROR, remark=remark)
        is_by_retried = self._broker.config.filter_support_retry and is_retry_topic(header.topic)
        if header.sys_flag & PullFlag.SUBSCRIPTION:
            try:
                expression = compile_expression(kind, subscription.sub_string or "")
            except RoquetError as error:
                return _not_parsed(context, header, error)
            by_queue = None
        else:
            found = self._broker.filters.find(header.topic, header.consumer_group)
            assert found is not None, "a heartbeat's expression without its filter"
            expression, by_queue = found.expression, bitmap_filter(found, self._broker.filters)
        if subscription.class_filter_mode:
            return None
        if is_by_retried:
            return retry_filter(header.topic, expression, self._broker.filters)
        return expression_filter(expression, by_queue)

    def _reject_pull_consumer(
        self, context: RequestContext, header: PullMessageRequestHeader
    ) -> RemotingCommand | None:
        """Refuse a pull consumer that sends no heartbeats, except the broker's own tools."""
        name = header.consumer_group
        consumers = self._broker.consumers.find(name)
        if consumers is not None and (
            consumers.consume_type is not ConsumeType.CONSUME_ACTIVELY
            or context.connection in consumers.channels
        ):
            return None
        if name in SYSTEM_PULL_GROUPS or is_system_group(name):
            return None
        remark = (
            f"the consumer's group info not exist, or the pull consumer is rejected by server.{FAQ}"
        )
        return context.response(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark=remark)


def _not_parsed(
    context: RequestContext, header: PullMessageRequestHeader, error: RoquetError
) -> RemotingCommand:
    log.debug("subscription of %s: %s", header.consumer_group, error)
    return context.response(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark="parse the consumer's subscription failed"
    )


def _forbidden(context: RequestContext, why: ForbiddenType, remark: str) -> RemotingCommand:
    answer = context.response(ResponseCode.NO_PERMISSION, remark=remark)
    answer.ext_fields = {"forbiddenType": str(int(why))}
    return answer
