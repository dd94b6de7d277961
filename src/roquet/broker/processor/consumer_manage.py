"""Consumer groups: members and committed offsets.

Upstream's ConsumerManageProcessor. Owns no state: the consumer manager owns members, the offset
manager committed offsets.

For a queue without a committed offset the response is 0 while the queue's first message still
exists and is in memory; otherwise it is QUERY_NOT_FOUND, and the client starts where its
``consumeFromWhere`` says. So a new group reads young topics from the beginning.
"""

from __future__ import annotations

from roquet.broker.components import BrokerComponents
from roquet.broker.processor.static_offset import StaticOffsets
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
    ProcessorResult,
    RequestContext,
    Resource,
    processor,
)
from roquet.remoting.turn_scheduler import RequestClass

__all__ = ["ConsumerManageProcessor"]


class ConsumerManageProcessor:
    """Lists the members of groups, and queries and commits their offsets.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._broker = components
        self._static = StaticOffsets(components)

    @processor(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        header=client.GetConsumerListByGroupRequestHeader,
        permission=Permission(Action.SUB, Resource.GROUP),
        ports=ALL_PORTS,
        request_class=RequestClass.CLIENT,
    )
    def consumer_list(
        self, context: RequestContext, header: client.GetConsumerListByGroupRequestHeader
    ) -> RemotingCommand:
        """Return the client ids of a group, by which its clients share the queues."""
        answer = client.GetConsumerListByGroupResponseHeader()
        group = self._broker.consumers.find(header.consumer_group)
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
        request_class=RequestClass.CLIENT,
    )
    def query_offset(
        self, context: RequestContext, header: offset.QueryConsumerOffsetRequestHeader
    ) -> ProcessorResult:
        """Return the committed offset of a group."""
        queue = self._broker.mappings.queue_of(header)
        if queue is not None:
            return self._static.query_offset(context, header, queue, self.query_offset)
        topic, queue_id = header.topic, header.queue_id
        queue_offset = self._broker.offsets.query(header.consumer_group, topic, queue_id)
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
            and self._broker.store.min_offset_in_queue(topic, queue_id) <= 0
            and self._broker.store.is_in_memory(topic, queue_id, 0)
        )

    @processor(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        header=offset.UpdateConsumerOffsetRequestHeader,
        permission=Permission(Action.SUB, Resource.GROUP),
        ports=ALL_PORTS,
        request_class=RequestClass.CLIENT,
    )
    def update_offset(
        self, context: RequestContext, header: offset.UpdateConsumerOffsetRequestHeader
    ) -> ProcessorResult:
        """Commit an offset. One that was reset here stays until the client has fetched it."""
        queue = self._broker.mappings.queue_of(header)
        if queue is not None:
            return self._static.update_offset(context, header, queue, self.update_offset)
        answer = offset.UpdateConsumerOffsetResponseHeader()
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if group not in self._broker.groups.table:
            remark = f"Group {group} not exist!"
            return context.response(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, answer, remark=remark
            )
        if topic not in self._broker.topics.table:
            remark = f"Topic {topic} not exist!"
            return context.response(ResponseCode.TOPIC_NOT_EXIST, answer, remark=remark)
        if (
            self._broker.config.use_server_side_reset_offset
            and self._broker.offsets.has_offset_reset(topic, group, queue_id)
        ):
            remark = "Offset has been previously reset"
            return context.response(ResponseCode.SUCCESS, answer, remark=remark)
        self._broker.offsets.commit(group, topic, queue_id, header.commit_offset)
        return context.response(ResponseCode.SUCCESS, answer)
