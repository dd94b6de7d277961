"""Discarded half messages: RESUME_CHECK_HALF_MESSAGE.

The part of upstream's AdminBrokerProcessor that gives a half message another series of checks after
it was checked too often: it is stored in the half queue again with a check count of 0.

Only discarded messages and those of the half topic are accepted; upstream accepts any record, and
then checks a message that no producer knows.
"""

from __future__ import annotations

import logging

from roquet.broker.components import BrokerComponents
from roquet.broker.log_lookup import LogLookup
from roquet.broker.service.transaction_check import CHECK_TIMES
from roquet.broker.stored_copy import copied, real_queue
from roquet.errors import ProtocolError, StoreError
from roquet.model import properties as prop
from roquet.model.message import StoredMessage
from roquet.model.message_id import OffsetMessageId
from roquet.model.topic import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.admin import ResumeCheckHalfMessageRequestHeader
from roquet.remoting.processor import Action, Permission, RequestContext, Resource, processor
from roquet.store.results import PutMessageResult

__all__ = ["HalfMessageAdmin"]

log = logging.getLogger(__name__)

_FAILED = f"Put message back to {TRANS_HALF_TOPIC} failed."
_NOT_READ = f"Exception was thrown when putting message back to {TRANS_HALF_TOPIC}."
_TAKEN = {TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC}


class HalfMessageAdmin:
    """Resumes checks.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._store = components.store
        self._metrics = components.transaction_metrics
        self._lookup = LogLookup(components.store, components.flow)

    @processor(
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        header=ResumeCheckHalfMessageRequestHeader,
        permission=Permission(Action.UPDATE, Resource.CLUSTER),
    )
    async def resume(
        self, context: RequestContext, header: ResumeCheckHalfMessageRequestHeader
    ) -> RemotingCommand:
        """Store a half message again, with its check count reset."""
        try:
            place = OffsetMessageId.parse(header.msg_id or "")
            half = await self._lookup.later(place.physical_offset)
        except (ProtocolError, StoreError) as error:
            log.warning("a half message cannot be resumed: %s", error)
            half = None
        if half is None:
            return context.response(ResponseCode.SYSTEM_ERROR, remark=_NOT_READ)
        if half.topic not in _TAKEN or real_queue(half) is None or not self._put(half):
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
