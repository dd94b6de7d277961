"""Offsets of queues: first, next, at a time; and all committed ones.

The part of upstream's AdminBrokerProcessor that is about offsets. What may have to read the log is
done in a thread, because the records that it looks at may be on disk only.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.service.flow_control import FlowControl, RequestClass
from roquet.model.fastjson import dumps
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import offset as headers
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)
from roquet.store.message_store import MessageStore
from roquet.store.results import BoundaryType

__all__ = ["OffsetAdmin"]

_GET = Permission(Action.GET, Resource.TOPIC)

_BOUNDARIES = {
    headers.BoundaryType.LOWER: BoundaryType.LOWER,
    headers.BoundaryType.UPPER: BoundaryType.UPPER,
}


class OffsetAdmin:
    """Answers questions about offsets.

    Args:
        store: The messages.
        offsets: What groups have committed.
        flow: Threads for what may be on disk only.
    """

    def __init__(
        self, *, store: MessageStore, offsets: ConsumerOffsetManager, flow: FlowControl
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._flow = flow

    @processor(
        RequestCode.GET_MAX_OFFSET,
        header=headers.GetMaxOffsetRequestHeader,
        permission=_GET,
        ports=ALL_PORTS,
    )
    def max_offset(
        self, context: RequestContext, header: headers.GetMaxOffsetRequestHeader
    ) -> RemotingCommand:
        """The offset that the next message of a queue will have.

        It is that of what readers see, whatever ``committed`` says; so is upstream's.
        """
        queue_offset = self._store.max_offset_in_queue(header.topic, header.queue_id)
        answer = headers.OffsetResponseHeader(queue_offset=queue_offset)
        return context.response(ResponseCode.SUCCESS, answer)

    @processor(
        RequestCode.GET_MIN_OFFSET,
        header=headers.GetMinOffsetRequestHeader,
        permission=_GET,
        ports=ALL_PORTS,
    )
    def min_offset(
        self, context: RequestContext, header: headers.GetMinOffsetRequestHeader
    ) -> RemotingCommand:
        """The offset of the oldest message of a queue; 0 of one that has none yet."""
        queue_offset = max(self._store.min_offset_in_queue(header.topic, header.queue_id), 0)
        answer = headers.OffsetResponseHeader(queue_offset=queue_offset)
        # Upstream answers by way of its inner calls, which leaves a remark without words.
        return context.response(ResponseCode.SUCCESS, answer, remark="")

    @processor(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        header=headers.SearchOffsetRequestHeader,
        permission=_GET,
        ports=ALL_PORTS,
    )
    async def search_offset(
        self, context: RequestContext, header: headers.SearchOffsetRequestHeader
    ) -> RemotingCommand:
        """The offset of the message at a time."""
        boundary = header.boundary_type or headers.BoundaryType.LOWER
        search = partial(
            self._store.offset_by_time,
            header.topic,
            header.queue_id,
            header.timestamp_ms,
            _BOUNDARIES[boundary],
        )
        queue_offset = await self._flow.run(RequestClass.ADMIN, search)
        answer = headers.OffsetResponseHeader(queue_offset=queue_offset)
        return context.response(ResponseCode.SUCCESS, answer)

    @processor(
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        header=headers.GetEarliestMsgStoretimeRequestHeader,
        permission=_GET,
        ports=ALL_PORTS,
    )
    def earliest_store_time(
        self, context: RequestContext, header: headers.GetEarliestMsgStoretimeRequestHeader
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """When the oldest message of a queue was stored."""
        topic, queue_id = header.topic, header.queue_id
        first = self._store.min_offset_in_queue(topic, queue_id)
        if self._store.will_block(topic, queue_id, first):
            return self._earliest_from_disk(context, topic, queue_id)
        timestamp_ms = self._store.earliest_message_time_in_queue_ms(topic, queue_id)
        return _earliest(context, timestamp_ms)

    async def _earliest_from_disk(
        self, context: RequestContext, topic: str, queue_id: int
    ) -> RemotingCommand:
        look = partial(self._store.earliest_message_time_in_queue_ms, topic, queue_id)
        return _earliest(context, await self._flow.run(RequestClass.ADMIN, look))

    @processor(
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        permission=Permission(Action.LIST, Resource.GROUP),
        ports=ALL_PORTS,
    )
    def all_consumer_offsets(self, context: RequestContext) -> RemotingCommand:
        """All committed offsets, for a slave that keeps a copy."""
        version = encode_body(self._offsets.data_version).decode()
        # The general writer of bodies takes a microsecond a byte, and slaves ask every few seconds.
        entries = ",".join(
            f"{dumps(key)}:{{{','.join(f'{queue}:{at}' for queue, at in queues.items())}}}"
            for key, queues in self._offsets.table.items()
        )
        body = f'{{"dataVersion":{version},"offsetTable":{{{entries}}}}}'
        return context.response(ResponseCode.SUCCESS, body=body.encode())


def _earliest(context: RequestContext, timestamp_ms: int) -> RemotingCommand:
    answer = headers.GetEarliestMsgStoretimeResponseHeader(timestamp_ms=timestamp_ms)
    return context.response(ResponseCode.SUCCESS, answer)
