"""Pulls of static topics: which physical queue is read, and how its response is translated.

The parts of upstream's PullMessageProcessor that rewrite pulls and their responses. A pull of a
logical queue becomes a pull of the item that holds its offset. The offsets in its response are
translated back, and at the end of an item that is not the last the consumer is redirected to the
next one, so that it sees one queue:

.. code-block:: text

    pull 5 ─► item 0, physical 5 of 5: nothing more ─► PULL_RETRY_IMMEDIATELY, continue at 10000

Records keep their physical offsets; clients add the ``offsetDelta`` of the response.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from roquet.broker.manager.topic_queue_mapping import MappedQueue
from roquet.broker.service.broker_rpc import BrokerRpc
from roquet.errors import ProtocolError
from roquet.model.topic_queue_mapping import LogicQueueMappingItem, find_item, next_item
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import decode_header, encode_header
from roquet.remoting.headers.pull import (
    PullFlag,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from roquet.remoting.processor import RequestContext
from roquet.store.results import GetMessageStatus

__all__ = ["StaticPull", "pull_there", "static_pull"]

_PULL_CODES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
_WAITS_OR_COMMITS = PullFlag.SUSPEND | PullFlag.COMMIT_OFFSET


class _Bounds(NamedTuple):
    """Where a consumer should continue, as physical offsets of an item."""

    code: int
    item: LogicQueueMappingItem
    next_offset: int
    min_offset: int
    max_offset: int


class StaticPull(NamedTuple):
    """A pull of a logical queue, rewritten for a physical queue.

    Attributes:
        queue: The logical queue.
        item: The physical queue that holds the requested offset.
        header: The rewritten header.
    """

    queue: MappedQueue
    item: LogicQueueMappingItem
    header: PullMessageRequestHeader

    @property
    def is_local(self) -> bool:
        """Whether this broker has the physical queue."""
        return self.queue.is_local(self.item)

    def rewrite(self, answer: RemotingCommand) -> None:
        """Translate the response of the physical queue."""
        said = decode_header(PullMessageResponseHeader, answer.ext_fields)
        bounds = _Bounds(
            answer.code, self.item, said.next_begin_offset, said.min_offset, said.max_offset
        )
        if answer.code != ResponseCode.SUCCESS:
            if answer.remark != GetMessageStatus.OFFSET_RESET.value:
                bounds = self._revised(bounds)
            answer.remark = None
        code, item, next_offset, min_offset, max_offset = bounds
        if item.is_end_decided:
            next_offset = min(next_offset, item.end_offset)
        said.next_begin_offset = item.logical(next_offset)
        said.min_offset = item.logical(min_offset)
        said.max_offset = max(item.logical(max_offset), self.queue.items[-1].max_logical)
        said.offset_delta = item.offset_delta
        answer.code = code
        answer.ext_fields = encode_header(said)

    def _revised(self, bounds: _Bounds) -> _Bounds:
        """The result for a consumer that got nothing; an item may be both the leader and the first.

        If the offset is too small or too large, the leader moves it to its own bounds; the first
        item reports that an offset is too small; at the end of an item the next one follows.
        """
        asked = self.header.queue_offset
        generation = self.item.generation
        first = find_item(self.queue.items, 0)
        is_first = first is not None and first.generation == generation
        is_leader = self.queue.items[-1].generation == generation
        if is_leader:
            if asked > bounds.max_offset:
                if bounds.code == ResponseCode.PULL_OFFSET_MOVED:
                    bounds = bounds._replace(next_offset=bounds.max_offset)
            elif asked < bounds.min_offset:
                bounds = bounds._replace(
                    next_offset=bounds.min_offset, code=ResponseCode.PULL_RETRY_IMMEDIATELY
                )
        if not is_first and is_leader:
            return bounds
        if asked < bounds.min_offset:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            if is_first:
                code = ResponseCode.PULL_OFFSET_MOVED
            return bounds._replace(next_offset=bounds.min_offset, code=code)
        if asked < bounds.max_offset:
            return bounds
        following = next_item(self.queue.items, self.item)
        if following is None:
            return bounds._replace(code=ResponseCode.PULL_NOT_FOUND)
        start = following.start_offset
        return _Bounds(ResponseCode.PULL_RETRY_IMMEDIATELY, following, start, start, start)


def static_pull(
    context: RequestContext, header: PullMessageRequestHeader, queue: MappedQueue
) -> StaticPull | RemotingCommand:
    """Rewrite a pull of a logical queue for a physical queue, or refuse it.

    The commit of the pull is kept if its offset is in the same item. Otherwise the client's next
    commit goes to the right item.
    """
    topic = header.topic
    if queue.leader is None:
        remark = (
            f"{topic}-{header.queue_id} cannot find mapping item in request process of current "
            f"broker {queue.detail.broker_name}"
        )
        return context.response(ResponseCode.NOT_LEADER_FOR_QUEUE, remark=remark)
    item = find_item(queue.items, header.queue_offset)
    if item is None:
        raise ProtocolError(f"{topic}-{header.queue_id} has no logic offset yet")
    sys_flag, commit_offset = header.sys_flag, header.commit_offset
    if find_item(queue.items, commit_offset) is item:
        commit_offset = item.physical(commit_offset)
    else:
        sys_flag &= ~PullFlag.COMMIT_OFFSET
    count = header.max_msg_nums
    if item.is_end_decided:
        count = min(item.end_offset - item.start_offset, count)
    physical = msgspec.structs.replace(
        header,
        queue_id=item.queue_id,
        queue_offset=item.physical(header.queue_offset),
        max_msg_nums=count,
        sys_flag=sys_flag,
        commit_offset=commit_offset,
        broker_name=item.broker_name,
        logical=False,
    )
    return StaticPull(queue, item, physical)


async def pull_there(rpc: BrokerRpc, context: RequestContext, pull: StaticPull) -> RemotingCommand:
    """Pull from the broker that has the physical queue; such a pull neither waits nor commits.

    Raises:
        RoquetError: The other broker is unreachable or refuses.
    """
    assert pull.item.broker_name is not None, "an item names its broker"
    header = msgspec.structs.replace(
        pull.header, sys_flag=pull.header.sys_flag & ~_WAITS_OR_COMMITS
    )
    answer = await rpc.invoke(
        pull.item.broker_name, RequestCode.PULL_MESSAGE, header, accepts=_PULL_CODES
    )
    said = decode_header(PullMessageResponseHeader, answer.ext_fields)
    response = context.response(answer.code, said, remark="", body=bytes(answer.body))
    pull.rewrite(response)
    return response
