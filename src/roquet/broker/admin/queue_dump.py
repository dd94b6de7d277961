"""The entries of a consume queue, for ``mqadmin queryCq``.

The part of upstream's AdminBrokerProcessor that shows queue entries. They are read in a thread. As
in upstream, the result of a group's filter is shown only for entries that have more than 20 bytes,
in the queue's ext file; others show their tags code.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial

from roquet.broker.components import BrokerComponents
from roquet.broker.expression_filter import bitmap_filter
from roquet.broker.manager.consumer_filter import filter_members
from roquet.broker.service.flow_control import RequestClass
from roquet.filter.tags import is_tag_type, tag_filter
from roquet.format.consume_queue import UNIT_BYTES, CqUnit, unpack_unit
from roquet.format.consume_queue_ext import CqExtUnit, is_ext_address
from roquet.model.fastjson import WritableJson, dumps
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.offset import ConsumeQueueData, QueryConsumeQueueResponseBody
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import UNSET_REMARK, RemotingCommand
from roquet.remoting.headers.admin import QueryConsumeQueueRequestHeader
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)
from roquet.store.batch_consume_queue import BatchConsumeQueue
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.reader import QueueFilter

__all__ = ["ENTRIES_MAX", "QueueDumpAdmin"]

ENTRIES_MAX = 10_000
"""The most entries of one response; for more, the client has to send further requests."""


class QueueDumpAdmin:
    """Shows the entries of queues.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._store = components.store
        self._consumers = components.consumers
        self._filters = components.filters
        self._flow = components.flow

    @processor(
        RequestCode.QUERY_CONSUME_QUEUE,
        header=QueryConsumeQueueRequestHeader,
        permission=Permission(Action.GET, Resource.TOPIC),
        ports=ALL_PORTS,
    )
    async def query_consume_queue(
        self, context: RequestContext, header: QueryConsumeQueueRequestHeader
    ) -> RemotingCommand:
        """Return entries of a queue from an offset on."""
        topic, group = header.topic or "", header.consumer_group
        queue = self._store.find_consume_queue(topic, header.queue_id)
        if queue is None:
            raise RequestRefused(f"{header.queue_id}@{topic} is not exist!")
        if not queue.min_queue_offset <= header.index < queue.max_queue_offset:
            remark = f"Index {header.index} of {header.queue_id}@{topic} is not exist!"
            return context.response(ResponseCode.SUCCESS, remark=remark)
        body = QueryConsumeQueueResponseBody(
            max_queue_index=queue.max_queue_offset, min_queue_index=queue.min_queue_offset
        )
        verdict = None if group is None else self._show_filter(group, topic, body)
        show = partial(_dump, queue, header.index, header.count, body, verdict)
        data = await self._flow.run(RequestClass.ADMIN, show)
        return context.response(ResponseCode.SUCCESS, remark=UNSET_REMARK, body=data)

    def _show_filter(
        self, group: str, topic: str, body: QueryConsumeQueueResponseBody
    ) -> QueueFilter | None:
        """Add a group's filter to the body; return the function that matches entries against it."""
        subscription = self._consumers.find_subscription(group, topic)
        body.subscription_data = subscription
        if subscription is None:
            body.filter_data = f"{group}@{topic} is not online!"
            return None
        found = self._filters.find(topic, group)
        members = None if found is None else filter_members(found.data)
        body.filter_data = dumps(members, pretty=True)
        wanted: QueueFilter | None = None
        if is_tag_type(subscription.expression_type):
            wanted = tag_filter(subscription)
        elif found is not None and not subscription.class_filter_mode:
            wanted = bitmap_filter(found, self._filters)
        return wanted or (lambda _code, _ext: True)


def _dump(
    queue: ConsumeQueue,
    index: int,
    count: int,
    body: QueryConsumeQueueResponseBody,
    verdict: QueueFilter | None,
) -> bytes:
    units = _units(queue, index, min(count, ENTRIES_MAX))
    body.queue_data = [_entry(queue, unit, verdict) for unit in units]
    return encode_body(body)


def _units(queue: ConsumeQueue, index: int, count: int) -> Iterator[CqUnit]:
    end = index + count
    if isinstance(queue, BatchConsumeQueue):
        for unit in queue.batch_units(index, end):
            yield unit.plain
        return
    while index < end:
        data = queue.read_units(index, end - index)
        if not data:
            return
        for position in range(0, len(data) - UNIT_BYTES + 1, UNIT_BYTES):
            yield unpack_unit(data, position)
        index += len(data) // UNIT_BYTES


def _entry(queue: ConsumeQueue, unit: CqUnit, verdict: QueueFilter | None) -> ConsumeQueueData:
    entry = ConsumeQueueData(
        physical_offset=unit.physical_offset,
        physical_bytes=unit.size_bytes,
        tags_code=unit.tags_code,
    )
    if queue.ext is None or not is_ext_address(unit.tags_code):
        return entry
    ext = queue.ext.get(unit.tags_code)
    if ext is None:
        entry.msg = f"Cq extend not exist!addr: {unit.tags_code}"
        return entry
    entry.tags_code = ext.tags_code
    entry.extend_data_json = _ext_text(ext)
    entry.eval = verdict is not None and verdict(ext.tags_code, ext)
    if ext.filter_bitmap:
        entry.bit_map = _bits_text(ext.filter_bitmap)
    return entry


def _ext_text(ext: CqExtUnit) -> str:
    members: dict[str, WritableJson] = {
        "msgStoreTime": ext.store_timestamp_ms,
        "size": ext.size_bytes,
        "tagsCode": ext.tags_code,
    }
    if ext.filter_bitmap:
        signed = struct.unpack(f"{len(ext.filter_bitmap)}b", ext.filter_bitmap)
        members = {"filterBitMap": signed} | members
    return dumps(members)


def _bits_text(bitmap: bytes) -> str:
    """Format bits from the last to the first, eight bytes per line, as upstream prints them."""
    return "".join(
        f"{bitmap[index]:08b}" + ("" if index % 8 else "\n")
        for index in reversed(range(len(bitmap)))
    )
