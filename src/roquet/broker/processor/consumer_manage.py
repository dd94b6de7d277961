"""Consumer groups: who is in one, and how far it is.

Upstream's ConsumerManageProcessor. Owns no state: members are the consumer manager's, committed
offsets the offset manager's.

A group that has committed nothing for a queue is answered with 0 while the queue still has its
first message, and that message is in memory; later with QUERY_NOT_FOUND, upon which the client
starts where its ``consumeFromWhere`` says. So a new group reads young topics from their beginning.
"""

from __future__ import annotations

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.remoting.bodies.client import GetConsumerListByGroupResponseBody
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import client, offset
from roquet.remoting.headers.base import Header
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)
from roquet.store.message_store import MessageStore

__all__ = ["ConsumerManageProcessor"]


class ConsumerManageProcessor:
    """Answers questions about groups and takes their offsets.

    Args:
        config: The broker's settings.
        store: The messages.
        topics: Which topics there are.
        groups: Which groups there are.
        consumers: Who is in them.
        offsets: How far they are.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets

    @processor(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        header=client.GetConsumerListByGroupRequestHeader,
        permission=Permission(Action.SUB, Resource.GROUP),
        ports=ALL_PORTS,
    )
    def consumer_list(
        self, context: RequestContext, header: client.GetConsumerListByGroupRequestHeader
    ) -> RemotingCommand:
        """The client ids of a group, by which its clients share the queues."""
        answer = client.GetConsumerListByGroupResponseHeader()
        group = self._consumers.find(header.consumer_group)
        client_ids = [] if group is None else list(group.client_ids())
        if not client_ids:
            remark = f"no consumer for this group, {header.consumer_group}"
            return context.response(ResponseCode.SYSTEM_ERROR, answer, remark=remark)
        body = encode_body(GetConsumerListByGroupResponseBody(consumer_id_list=client_ids))
        return context.response(ResponseCode.SUCCESS, answer, body=body)

    @processor(
        RequestCode.QUERY_CONSUMER_OFFSET,
        header=offset.QueryConsumerOffsetRequestHeader,
        permission=Permission(Action.GET, Resource.GROUP),
        ports=ALL_PORTS,
    )
    def query_offset(
        self, context: RequestContext, header: offset.QueryConsumerOffsetRequestHeader
    ) -> RemotingCommand:
        """The committed offset of a group."""
        topic, queue_id = header.topic, header.queue_id
        queue_offset = self._offsets.query(header.consumer_group, topic, queue_id)
        if queue_offset < 0 and self._starts_at_zero(header):
            queue_offset = 0
        if queue_offset >= 0:
            answer = offset.OffsetResponseHeader(queue_offset=queue_offset)
            return context.response(ResponseCode.SUCCESS, answer)
        remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        if header.set_zero_if_not_found is False:
            remark = "Not found, do not set to zero, maybe this group boot first"
        return context.response(ResponseCode.QUERY_NOT_FOUND, Header(), remark=remark)

    def _starts_at_zero(self, header: offset.QueryConsumerOffsetRequestHeader) -> bool:
        topic, queue_id = header.topic, header.queue_id
        return (
            header.set_zero_if_not_found is not False
            and self._store.min_offset_in_queue(topic, queue_id) <= 0
            and self._store.is_in_memory(topic, queue_id, 0)
        )

    @processor(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        header=offset.UpdateConsumerOffsetRequestHeader,
        permission=Permission(Action.SUB, Resource.GROUP),
        ports=ALL_PORTS,
    )
    def update_offset(
        self, context: RequestContext, header: offset.UpdateConsumerOffsetRequestHeader
    ) -> RemotingCommand:
        """Commit an offset; one that was reset from here stays until the client has taken it."""
        answer = offset.UpdateConsumerOffsetResponseHeader()
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if group not in self._groups.table:
            remark = f"Group {group} not exist!"
            return context.response(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, answer, remark=remark
            )
        if topic not in self._topics.table:
            remark = f"Topic {topic} not exist!"
            return context.response(ResponseCode.TOPIC_NOT_EXIST, answer, remark=remark)
        if self._config.use_server_side_reset_offset and self._offsets.has_offset_reset(
            topic, group, queue_id
        ):
            remark = "Offset has been previously reset"
            return context.response(ResponseCode.SUCCESS, answer, remark=remark)
        self._offsets.commit(group, topic, queue_id, header.commit_offset)
        return context.response(ResponseCode.SUCCESS, answer)
