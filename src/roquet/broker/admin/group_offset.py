"""Offsets across groups: copying them, and the minimum for a topic.

The part of upstream's AdminBrokerProcessor that copies a group's offsets to another one, and that
finds the lowest offsets of other groups. Upstream copies nothing if all topics are requested, and
deletes the offsets of groups to be excluded from the minimum; this broker does neither.
"""

from __future__ import annotations

import logging

from roquet.broker.components import BrokerComponents
from roquet.model.topic import group_fault
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.offset import QueryCorrectionOffsetBody
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import offset as headers
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)
from roquet.remoting.turn_scheduler import RequestClass

__all__ = ["GroupOffsetAdmin"]

log = logging.getLogger(__name__)

LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF
"""Means that a group needs no correction."""


class GroupOffsetAdmin:
    """Copies and compares offsets.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._store = components.store
        self._topics = components.topics
        self._consumers = components.consumers
        self._offsets = components.offsets
        self._flow = components.flow

    @processor(
        RequestCode.CLONE_GROUP_OFFSET,
        header=headers.CloneGroupOffsetRequestHeader,
        permission=Permission(Action.UPDATE, Resource.GROUP),
        ports=ALL_PORTS,
        request_class=RequestClass.HEAVY,
    )
    async def clone_offsets(
        self, context: RequestContext, header: headers.CloneGroupOffsetRequestHeader
    ) -> RemotingCommand:
        """Copy a group's offsets to another one, for one topic or for all topics of the group.

        A topic that does not exist is skipped, as is one that the source group's clients do not
        subscribe to, unless the group counts as offline.
        """
        source, target = header.source_group, header.destination_group
        fault = group_fault(target)
        if fault is not None:
            raise RequestRefused(fault, response_code=ResponseCode.INVALID_PARAMETER)
        named = (header.topic or "").strip()
        topics = [named] if named else sorted(self._offsets.topics_of_group(source))
        cloned = [
            topic
            for topic in topics
            if self._topics.select(topic) is not None
            and (header.offline or self._is_subscribed(source, topic))
        ]
        for topic in cloned:
            self._offsets.clone(source, target, topic)
        await self._offsets.written()
        log.info(
            "%s gave group %s the offsets of %s, in %d topics",
            context.connection.remote_address, target, source, len(cloned),
        )  # fmt: skip
        return context.response(ResponseCode.SUCCESS)

    def _is_subscribed(self, group: str, topic: str) -> bool:
        info = self._consumers.find(group)
        if info is None or not info.subscriptions:
            return True
        return self._consumers.find_subscription(group, topic) is not None

    @processor(
        RequestCode.QUERY_CORRECTION_OFFSET,
        header=headers.QueryCorrectionOffsetRequestHeader,
        permission=Permission(Action.GET, Resource.TOPIC),
        ports=ALL_PORTS,
    )
    def correction_offsets(
        self, context: RequestContext, header: headers.QueryCorrectionOffsetRequestHeader
    ) -> RemotingCommand:
        """Return the lowest offset that any group has in each queue of a topic.

        If the group to compare with is behind it already, the offset is the largest number.
        """
        left_out = set((header.filter_groups or "").split(","))
        least = self._least_offsets(header.topic, left_out)
        compared = self._offsets.offsets_of(header.compare_group, header.topic) or {}
        for queue_id, queue_offset in compared.items():
            if least.get(queue_id, queue_offset) > queue_offset:
                least[queue_id] = LONG_MAX
        body = QueryCorrectionOffsetBody(correction_offsets=dict(sorted(least.items())))
        return context.response(ResponseCode.SUCCESS, body=encode_body(body))

    def _least_offsets(self, topic: str, left_out: set[str]) -> dict[int, int]:
        least: dict[int, int] = {}
        for group in self._offsets.groups_of_topic(topic) - left_out:
            for queue_id, queue_offset in (self._offsets.offsets_of(group, topic) or {}).items():
                if queue_offset >= self._store.min_offset_in_queue(topic, queue_id):
                    least[queue_id] = min(least.get(queue_id, queue_offset), queue_offset)
        return least
