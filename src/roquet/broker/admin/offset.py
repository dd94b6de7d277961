"""Queue offsets: minimum, maximum, by time; and all committed offsets.

The offset part of upstream's AdminBrokerProcessor. Whatever may have to read the log runs in a
thread, because the records may be on disk only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

from roquet.broker.components import BrokerComponents
from roquet.broker.processor.static_offset import StaticOffsets
from roquet.broker.service.flow_control import RequestClass
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
from roquet.store.results import BoundaryType

__all__ = ["OffsetAdmin"]

GROUPS_AT_ONCE = 200
"""Groups and topics whose offsets are encoded before other work on the loop may run."""

_GET = Permission(Action.GET, Resource.TOPIC)

_BOUNDARIES = {
    headers.BoundaryType.LOWER: BoundaryType.LOWER,
    headers.BoundaryType.UPPER: BoundaryType.UPPER,
}


class OffsetAdmin:
    """Serves requests about offsets.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._store = components.store
        self._offsets = components.offsets
        self._flow = components.flow
        self._mappings = components.mappings
        self._static = StaticOffsets(components)

    @processor(
        RequestCode.GET_MAX_OFFSET,
        header=headers.GetMaxOffsetRequestHeader,
        permission=_GET,
        ports=ALL_PORTS,
        request_class=RequestClass.CLIENT,
    )
    def max_offset(
        self, context: RequestContext, header: headers.GetMaxOffsetRequestHeader
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Return the offset that the next message of a queue will have.

        It is the end of what readers see, whatever ``committed`` says; as in upstream.
        """
        queue = self._mappings.queue_of(header)
        if queue is not None:
            return self._static.max_offset(context, header, queue)
        queue_offset = self._store.max_offset_in_queue(header.topic, header.queue_id)
        answer = headers.OffsetResponseHeader(queue_offset=queue_offset)
        return context.response(ResponseCode.SUCCESS, answer)

    @processor(
        RequestCode.GET_MIN_OFFSET,
        header=headers.GetMinOffsetRequestHeader,
        permission=_GET,
        ports=ALL_PORTS,
        request_class=RequestClass.CLIENT,
    )
    def min_offset(
        self, context: RequestContext, header: headers.GetMinOffsetRequestHeader
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Return the offset of a queue's oldest message; without one 0, or -1 for batches."""
        queue = self._mappings.queue_of(header)
        if queue is not None:
            return self._static.min_offset(context, header, queue)
        queue_offset = self._store.min_offset_in_queue(header.topic, header.queue_id)
        if queue_offset < 0 and not self._store.queues.has_batch_queues(header.topic):
            queue_offset = 0
        answer = headers.OffsetResponseHeader(queue_offset=queue_offset)
        # Upstream responds through its inner calls, which leaves an empty remark.
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
        """Return the offset of the message at a time."""
        boundary = header.boundary_type or headers.BoundaryType.LOWER
        queue = self._mappings.queue_of(header)
        if queue is not None:
            return await self._static.search_offset(context, header, queue, _BOUNDARIES[boundary])
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
        """Return when the oldest message of a queue was stored."""
        queue = self._mappings.queue_of(header)
        if queue is not None:
            return self._static.earliest_store_time(context, header, queue)
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
        request_class=RequestClass.HEAVY,
    )
    async def all_consumer_offsets(self, context: RequestContext) -> RemotingCommand:
        """Return all committed offsets, for a slave that keeps a copy.

        Encoded in steps, with the version from before the first: a copy with newer offsets than its
        version says is requested again.
        """
        version = encode_body(self._offsets.data_version).decode()
        # The general body encoder takes a microsecond per byte, and slaves ask every few seconds.
        entries: list[str] = []
        for key, queues in list(self._offsets.table.items()):
            if len(entries) % GROUPS_AT_ONCE == GROUPS_AT_ONCE - 1:
                await asyncio.sleep(0)
            offsets = ",".join(f"{queue}:{at}" for queue, at in queues.items())
            entries.append(f"{dumps(key)}:{{{offsets}}}")
        body = f'{{"dataVersion":{version},"offsetTable":{{{",".join(entries)}}}}}'
        return context.response(ResponseCode.SUCCESS, body=body.encode())


def _earliest(context: RequestContext, timestamp_ms: int) -> RemotingCommand:
    answer = headers.GetEarliestMsgStoretimeResponseHeader(timestamp_ms=timestamp_ms)
    return context.response(ResponseCode.SUCCESS, answer)
