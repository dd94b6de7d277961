"""Half messages that were put aside: RESUME_CHECK_HALF_MESSAGE.

The part of upstream's AdminBrokerProcessor that gives a half message, about which producers were
asked too often, another series of checks: it is stored in the half queue again with its number of
checks at 0.

Only messages of the topic of those put aside, and of the half topic, are taken; upstream takes any
record, and then checks a message that no producer knows.
"""

from __future__ import annotations

import logging

from roquet.broker.log_lookup import LogLookup
from roquet.broker.manager.transaction_metrics import TransactionMetrics
from roquet.broker.service.flow_control import FlowControl
from roquet.broker.service.transaction_check import CHECK_TIMES
from roquet.broker.stored_copy import copied, real_place
from roquet.errors import ProtocolError, StoreError
from roquet.model import properties as prop
from roquet.model.message import StoredMessage
from roquet.model.message_id import OffsetMessageId
from roquet.model.topic import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.admin import ResumeCheckHalfMessageRequestHeader
from roquet.remoting.processor import Action, Permission, RequestContext, Resource, processor
from roquet.store.message_store import MessageStore
from roquet.store.results import PutMessageResult

__all__ = ["HalfMessageAdmin"]

log = logging.getLogger(__name__)

_FAILED = f"Put message back to {TRANS_HALF_TOPIC} failed."
_NOT_READ = f"Exception was thrown when putting message back to {TRANS_HALF_TOPIC}."
_TAKEN = {TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC}


class HalfMessageAdmin:
    """Resumes checks.

    Args:
        store: Where half messages are.
        metrics: Counts them.
        flow: The threads.
    """

    def __init__(
        self, *, store: MessageStore, metrics: TransactionMetrics, flow: FlowControl
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._lookup = LogLookup(store, flow)

    @processor(
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        header=ResumeCheckHalfMessageRequestHeader,
        permission=Permission(Action.UPDATE, Resource.CLUSTER),
    )
    async def resume(
        self, context: RequestContext, header: ResumeCheckHalfMessageRequestHeader
    ) -> RemotingCommand:
        """Store a half message again, as if it had never been asked about."""
        try:
            place = OffsetMessageId.parse(header.msg_id or "")
            half = await self._lookup.later(place.physical_offset)
        except (ProtocolError, StoreError) as error:
            log.warning("a half message cannot be resumed: %s", error)
            half = None
        if half is None:
            return context.response(ResponseCode.SYSTEM_ERROR, remark=_NOT_READ)
        if half.topic not in _TAKEN or real_place(half) is None or not self._put(half):
            return context.response(ResponseCode.SYSTEM_ERROR, remark=_FAILED)
        if half.topic == TRANS_CHECK_MAX_TIME_TOPIC:
            self._metrics.add(half.properties.get(prop.REAL_TOPIC, ""), 1)
        return context.response(ResponseCode.SUCCESS)

    def _put(self, half: StoredMessage) -> bool:
        properties = {**half.properties, CHECK_TIMES: "0"}
        properties.pop(prop.CRC32, None)
        results: list[PutMessageResult] = []
        self._store.submit(copied(half, (TRANS_HALF_TOPIC, 0), properties), results.append)
        self._store.finish_burst()
        return bool(results) and results[0].is_ok
