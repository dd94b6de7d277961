"""Offsets of static topics: queue offsets and committed offsets.

The parts of upstream's AdminBrokerProcessor and ConsumerManageProcessor that rewrite requests for
static topics. A request names a logical queue and logical offsets. Each is served by the item that
holds the offset: a physical queue on this broker, or on another one, to which it is forwarded. Only
the leader of a logical queue responds.

Owns no state. Where upstream mixes up logical and physical queue ids, or stops at the last item,
this uses the right item; see ``docs/differences.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

import msgspec

from roquet.broker.components import BrokerComponents
from roquet.broker.manager.topic_queue_mapping import MappedQueue
from roquet.broker.service.flow_control import RequestClass
from roquet.errors import ProtocolError
from roquet.model.topic_queue_mapping import LogicQueueMappingItem, find_item
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import offset as headers
from roquet.remoting.headers.base import Header, decode_header
from roquet.remoting.processor import ProcessorResult, RequestContext
from roquet.store.results import BoundaryType

__all__ = ["StaticOffsets", "not_leader"]

LAST_OFFSET = (1 << 63) - 1

_FOUND_OR_NOT = frozenset({ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND})

_QueueHeader: TypeAlias = (
    headers.GetMaxOffsetRequestHeader
    | headers.GetMinOffsetRequestHeader
    | headers.SearchOffsetRequestHeader
    | headers.GetEarliestMsgStoretimeRequestHeader
    | headers.QueryConsumerOffsetRequestHeader
    | headers.UpdateConsumerOffsetRequestHeader
)
_H = TypeVar("_H", bound=_QueueHeader)


def not_leader(context: RequestContext, topic: str, queue_id: int, broker: str) -> RemotingCommand:
    """Refuse a request that only the leader of a logical queue may serve."""
    remark = f"{topic}-{queue_id} does not exit in request process of current broker {broker}"
    return context.response(ResponseCode.NOT_LEADER_FOR_QUEUE, remark=remark)


class StaticOffsets:
    """Serves offset requests for logical queues.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._store = components.store
        self._offsets = components.offsets
        self._flow = components.flow
        self._rpc = components.rpc

    # Queues

    async def max_offset(
        self, context: RequestContext, header: headers.GetMaxOffsetRequestHeader, queue: MappedQueue
    ) -> RemotingCommand:
        """Return the offset that the next message of a logical queue will have."""
        if queue.leader is None:
            return _refused(context, header, queue)
        item = _found(queue, LAST_OFFSET)
        return _offset(context, item.logical(await self._max_of(header.topic, queue, item)))

    async def min_offset(
        self, context: RequestContext, header: headers.GetMinOffsetRequestHeader, queue: MappedQueue
    ) -> RemotingCommand:
        """Return the offset of the oldest message of a logical queue."""
        if queue.leader is None:
            remark = (
                f"{header.topic}-{header.queue_id} is not leader in broker "
                f"{queue.detail.broker_name}, request code {context.request.code}"
            )
            return context.response(ResponseCode.NOT_LEADER_FOR_QUEUE, remark=remark)
        item = _found(queue, 0)
        if queue.is_local(item):
            first = max(self._store.min_offset_in_queue(header.topic, item.queue_id), 0)
        else:
            code = RequestCode.GET_MIN_OFFSET
            first = await self._asked_offset(item, code, _physical(header, item))
        answer = headers.OffsetResponseHeader(queue_offset=item.logical_loosely(first))
        return context.response(ResponseCode.SUCCESS, answer, remark="")

    async def search_offset(
        self,
        context: RequestContext,
        header: headers.SearchOffsetRequestHeader,
        queue: MappedQueue,
        boundary: BoundaryType,
    ) -> RemotingCommand:
        """Return the offset of the message at a time: from the first item that is not all older."""
        if queue.leader is None:
            return _refused(context, header, queue)
        items = [item for item in queue.items if item.logic_offset >= 0]
        found = -1
        for item in items:
            physical_offset = await self._searched(header, queue, item, boundary)
            if physical_offset < 0:
                continue
            found = item.logical(physical_offset)
            if item is items[-1]:
                break
            if physical_offset < await self._max_of(header.topic, queue, item):
                break
        return _offset(context, found)

    async def _searched(
        self,
        header: headers.SearchOffsetRequestHeader,
        queue: MappedQueue,
        item: LogicQueueMappingItem,
        boundary: BoundaryType,
    ) -> int:
        if not queue.is_local(item):
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            return await self._asked_offset(item, code, _physical(header, item))
        search = partial(
            self._store.offset_by_time, header.topic, item.queue_id, header.timestamp_ms, boundary
        )
        return await self._flow.run(RequestClass.ADMIN, search)

    async def earliest_store_time(
        self,
        context: RequestContext,
        header: headers.GetEarliestMsgStoretimeRequestHeader,
        queue: MappedQueue,
    ) -> RemotingCommand:
        """Return when the oldest message of a logical queue was stored."""
        if queue.leader is None:
            return _refused(context, header, queue)
        item = _found(queue, 0)
        if queue.is_local(item):
            look = partial(
                self._store.earliest_message_time_in_queue_ms, header.topic, item.queue_id
            )
            timestamp_ms = await self._flow.run(RequestClass.ADMIN, look)
        else:
            answer = await self._asked(
                item, RequestCode.GET_EARLIEST_MSG_STORETIME, _physical(header, item)
            )
            kind = headers.GetEarliestMsgStoretimeResponseHeader
            timestamp_ms = decode_header(kind, answer.ext_fields).timestamp_ms
        return context.response(
            ResponseCode.SUCCESS,
            headers.GetEarliestMsgStoretimeResponseHeader(timestamp_ms=timestamp_ms),
        )

    # Groups

    def update_offset(
        self,
        context: RequestContext,
        header: headers.UpdateConsumerOffsetRequestHeader,
        queue: MappedQueue,
        commit: Callable[
            [RequestContext, headers.UpdateConsumerOffsetRequestHeader], ProcessorResult
        ],
    ) -> ProcessorResult:
        """Commit an offset on the broker that holds it.

        Args:
            context: The request.
            header: Its header.
            queue: The logical queue.
            commit: Commits the offset of a physical queue of this broker.
        """
        if queue.leader is None:
            return _refused(context, header, queue)
        item = _found(queue, header.commit_offset)
        physical = msgspec.structs.replace(
            _physical(header, item), commit_offset=item.physical(header.commit_offset)
        )
        if queue.is_local(item):
            return commit(context, physical)
        return self._commit_there(context, item, physical)

    async def _commit_there(
        self,
        context: RequestContext,
        item: LogicQueueMappingItem,
        header: headers.UpdateConsumerOffsetRequestHeader,
    ) -> RemotingCommand:
        await self._asked(item, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        answer = headers.UpdateConsumerOffsetResponseHeader()
        return context.response(ResponseCode.SUCCESS, answer, remark="")

    def query_offset(
        self,
        context: RequestContext,
        header: headers.QueryConsumerOffsetRequestHeader,
        queue: MappedQueue,
        query: Callable[
            [RequestContext, headers.QueryConsumerOffsetRequestHeader], ProcessorResult
        ],
    ) -> ProcessorResult:
        """Return the committed offset of a group: the latest of all items.

        Args:
            context: The request.
            header: Its header.
            queue: The logical queue.
            query: Queries the committed offset of a physical queue of this broker.
        """
        leader = queue.leader
        if leader is None:
            return _refused(context, header, queue)
        if len(queue.items) == 1 and leader.offset_delta == 0:
            return query(context, _physical(header, leader))
        return self._query_all(context, header, queue)

    async def _query_all(
        self,
        context: RequestContext,
        header: headers.QueryConsumerOffsetRequestHeader,
        queue: MappedQueue,
    ) -> RemotingCommand:
        for item in reversed(queue.items):
            committed = await self._committed_at(header, queue, item)
            if committed >= 0:
                return _offset(context, item.logical(committed))
        remark = "Not found, maybe this group consumer boot first"
        return context.response(ResponseCode.QUERY_NOT_FOUND, Header(), remark=remark)

    async def _committed_at(
        self,
        header: headers.QueryConsumerOffsetRequestHeader,
        queue: MappedQueue,
        item: LogicQueueMappingItem,
    ) -> int:
        if queue.is_local(item):
            return self._offsets.query(header.consumer_group, header.topic, item.queue_id)
        physical = msgspec.structs.replace(_physical(header, item), set_zero_if_not_found=False)
        assert item.broker_name is not None, "an item names its broker"
        answer = await self._rpc.invoke(
            item.broker_name, RequestCode.QUERY_CONSUMER_OFFSET, physical, accepts=_FOUND_OR_NOT
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return -1
        return decode_header(headers.OffsetResponseHeader, answer.ext_fields).queue_offset

    # Other brokers

    async def _max_of(self, topic: str, queue: MappedQueue, item: LogicQueueMappingItem) -> int:
        if queue.is_local(item):
            return self._store.max_offset_in_queue(topic, item.queue_id)
        header = headers.GetMaxOffsetRequestHeader(topic=topic, queue_id=item.queue_id)
        return await self._asked_offset(item, RequestCode.GET_MAX_OFFSET, _physical(header, item))

    async def _asked_offset(
        self, item: LogicQueueMappingItem, code: RequestCode, header: Header
    ) -> int:
        answer = await self._asked(item, code, header)
        return decode_header(headers.OffsetResponseHeader, answer.ext_fields).queue_offset

    async def _asked(
        self, item: LogicQueueMappingItem, code: RequestCode, header: Header
    ) -> RemotingCommand:
        assert item.broker_name is not None, "an item names its broker"
        return await self._rpc.invoke(item.broker_name, code, header)


def _refused(context: RequestContext, header: _QueueHeader, queue: MappedQueue) -> RemotingCommand:
    return not_leader(context, header.topic, header.queue_id, queue.detail.broker_name or "")


def _found(queue: MappedQueue, logical_offset: int) -> LogicQueueMappingItem:
    item = find_item(queue.items, logical_offset)
    if item is None:
        raise ProtocolError(f"{queue.detail.topic}-{queue.queue_id} has no logic offset yet")
    return item


def _physical(header: _H, item: LogicQueueMappingItem) -> _H:
    """Rewrite a request for the physical queue of an item."""
    return msgspec.structs.replace(
        header, queue_id=item.queue_id, broker_name=item.broker_name, logical=False
    )


def _offset(context: RequestContext, queue_offset: int) -> RemotingCommand:
    answer = headers.OffsetResponseHeader(queue_offset=queue_offset)
    return context.response(ResponseCode.SUCCESS, answer)
