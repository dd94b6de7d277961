"""Questions about one queue to a broker whose address is known.

Owns :class:`Queues`, on which the areas of offsets and of messages stand.
"""

from __future__ import annotations

from roquet.admin.calls import Calls
from roquet.admin.results import QueueOffsets
from roquet.client import ReceivedMessage
from roquet.errors import ProtocolError, StoreError
from roquet.format.commit_log import decode_record
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import EXPRESSION_TYPE_TAG, SUBSCRIBE_ALL
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers import offset as headers
from roquet.remoting.headers.base import Header, decode_header
from roquet.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

__all__ = ["TOOLS_GROUP", "Queues", "received"]

TOOLS_GROUP = "TOOLS_CONSUMER"
"""The group of tools, which every broker knows; nothing is committed for it."""

_OWN_SUBSCRIPTION = 4
_PULL_CODES = frozenset(
    {
        int(ResponseCode.SUCCESS),
        int(ResponseCode.PULL_NOT_FOUND),
        int(ResponseCode.PULL_RETRY_IMMEDIATELY),
        int(ResponseCode.PULL_OFFSET_MOVED),
    }
)


class Queues:
    """Asks brokers about queues.

    Args:
        calls: Asks.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def bounds(self, address: str, queue: MessageQueue) -> QueueOffsets:
        """The first and the next offset."""
        topic, queue_id = queue.topic, queue.queue_id
        first = await self._offset(
            address,
            RequestCode.GET_MIN_OFFSET,
            headers.GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id),
        )
        end = await self._offset(
            address,
            RequestCode.GET_MAX_OFFSET,
            headers.GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id),
        )
        return QueueOffsets(min_offset=first, max_offset=end)

    async def search(
        self, address: str, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False
    ) -> int:
        """The offset at a time; of several messages of that time, the first or the last."""
        header = headers.SearchOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp_ms=timestamp_ms,
            boundary_type=headers.BoundaryType.UPPER if upper else headers.BoundaryType.LOWER,
        )
        return await self._offset(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def _offset(self, address: str, code: RequestCode, header: Header) -> int:
        answer = await self._calls.ask(address, code, header)
        return decode_header(headers.OffsetResponseHeader, answer.ext_fields).queue_offset

    async def pull(
        self, address: str, queue: MessageQueue, queue_offset: int, max_messages: int
    ) -> tuple[list[ReceivedMessage], int]:
        """Messages from an offset on, without waiting for more, and the offset after them."""
        header = PullMessageRequestHeader(
            consumer_group=TOOLS_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            max_msg_nums=max_messages,
            sys_flag=_OWN_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_ms=0,
            subscription=SUBSCRIBE_ALL,
            sub_version=0,
            expression_type=EXPRESSION_TYPE_TAG,
        )
        code = RequestCode.PULL_MESSAGE
        answer = await self._calls.ask(address, code, header, accept=_PULL_CODES)
        next_offset = decode_header(PullMessageResponseHeader, answer.ext_fields).next_begin_offset
        if answer.code != ResponseCode.SUCCESS:
            return [], next_offset
        return received(answer.body, queue.broker_name), next_offset


def received(data: bytes, broker_name: str) -> list[ReceivedMessage]:
    """The messages of an answer, one record after the other.

    Raises:
        ProtocolError: The bytes are no records.
    """
    found: list[ReceivedMessage] = []
    position = 0
    while position < len(data):
        try:
            stored = decode_record(data, position, len(data))
        except StoreError as error:
            raise ProtocolError(
                f"{broker_name} answered with bytes that are no message", detail=error.detail
            ) from error
        found.append(ReceivedMessage.of(stored, broker_name))
        position += stored.store_size
    return found
