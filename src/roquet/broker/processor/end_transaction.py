"""The end of a transaction: END_TRANSACTION.

Upstream's EndTransactionProcessor. Owns the checks of such a request in upstream's order and words,
and the outcome: a commit stores the message in its real topic, a rollback stores nothing; both
write an op message for the half message. If the producer does not know the state, or sends an
unknown one, there is no response, and the transaction check asks it later.

The committed message has the properties of the half message without REAL_TOPIC and REAL_QID.
TRAN_MSG stays, because upstream clears it after the string is made; the records of 5.4.0 show that.
A message with a delay level starts waiting at this point.

Invariants:

* A half message counts as ended only when its commit is in the log.
* Only messages of the half topic are committed, only for the group that sent them, and only at the
  physical and queue offsets that the request names. Upstream does not check the topic, so that it
  may also commit a discarded half message, or a message of another topic.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from roquet.broker.components import BrokerComponents
from roquet.broker.log_lookup import LogLookup
from roquet.broker.processor.inner_message import TIMER_REQUESTS, delay_level, delayed_placement
from roquet.broker.processor.send_check import Refusal
from roquet.broker.service.transaction_op import TransactionOps
from roquet.broker.stored_copy import TopicQueue, copied, real_queue
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.delay_level import DelayLevels
from roquet.model.message import BrokerMessage, StoredMessage
from roquet.model.topic import TRANS_HALF_TOPIC
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.endpoint import LogLimiter
from roquet.remoting.headers.send import EndTransactionRequestHeader
from roquet.remoting.processor import Action, Permission, RequestContext, Resource, processor
from roquet.remoting.turn_scheduler import RequestClass
from roquet.store.config import BrokerRole
from roquet.store.results import PutMessageResult, PutMessageStatus

__all__ = ["CHECK_IMMUNITY_SECONDS", "EndTransactionProcessor"]

log = logging.getLogger(__name__)

CHECK_IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""The property by which a producer delays the first check of a transaction."""

_NOT_FOUND = Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
_LONG_DIGITS_MAX = 18


def immunity_ms(text: str, timeout_ms: int) -> int:
    """How long an end is accepted without a check: as the producer asks, at least the timeout.

    Example:
        >>> immunity_ms("60", 6_000), immunity_ms("1", 6_000), immunity_ms("soon", 6_000)
        (60000, 6000, 6000)
    """
    digits = text.removeprefix("+")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= _LONG_DIGITS_MAX
    return max(int(digits) * 1000 if is_number else 0, timeout_ms)


class EndTransactionProcessor:
    """Ends transactions.

    Args:
        components: The broker's components.
        ops: Records ended transactions.

    Attributes:
        committed: Called for every committed message with its size in the log and the topic where
            it is now, which is the schedule topic for a delayed message.
    """

    def __init__(self, components: BrokerComponents, ops: TransactionOps) -> None:
        self.committed: list[Callable[[str, int], None]] = []
        self._config = components.config
        self._store = components.store
        self._ops = ops
        self._metrics = components.transaction_metrics
        self._clock = components.clock
        self._lookup = LogLookup(components.store, components.flow)
        self._is_slave = components.store.config.broker_role is BrokerRole.SLAVE
        self._delay_level_max = DelayLevels(components.store.config.message_delay_levels).max_level
        self._log_limiter = LogLimiter(components.clock)

    @processor(
        RequestCode.END_TRANSACTION,
        header=EndTransactionRequestHeader,
        permission=Permission(Action.PUB, Resource.TOPIC),
        request_class=RequestClass.SEND,
    )
    def end(
        self, context: RequestContext, header: EndTransactionRequestHeader
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Commit or roll back a half message."""
        if self._is_slave:
            return context.response(ResponseCode.SLAVE_NOT_AVAILABLE)
        if header.commit_or_rollback not in {flags.TRANSACTION_COMMIT, flags.TRANSACTION_ROLLBACK}:
            return None
        if self._lookup.is_recent(header.physical_offset):
            return self._end(context, header, self._lookup.now(header.physical_offset))
        return self._end_cold(context, header)

    async def _end_cold(
        self, context: RequestContext, header: EndTransactionRequestHeader
    ) -> RemotingCommand | None:
        half = await self._lookup.later(header.physical_offset)
        answer = self._end(context, header, half)
        self._store.finish_burst()
        return answer

    def _end(
        self,
        context: RequestContext,
        header: EndTransactionRequestHeader,
        half: StoredMessage | None,
    ) -> RemotingCommand | None:
        """End the transaction; a commit is acknowledged at the end of the burst."""
        refusal = self._refusal(header, half)
        if refusal is not None or half is None:
            code, remark, *_ = refusal or _NOT_FOUND
            more = self._log_limiter.allow("refused")
            if more is not None:
                log.warning("END_TRANSACTION refused: %s %s%s", code, remark, more)
            return context.response(code, remark=remark or None)
        if header.commit_or_rollback == flags.TRANSACTION_ROLLBACK:
            self._ops.ended(half.queue_offset)
            self._metrics.add(half.properties.get(prop.REAL_TOPIC, ""), -1)
            return context.response(ResponseCode.SUCCESS)
        queue = real_queue(half)
        if queue is None:
            remark = "The prepared message names no target queue"
            return context.response(ResponseCode.SYSTEM_ERROR, remark=remark)
        message = self._committed(half, queue)
        self._store.submit(message, partial(self._stored, context, half, queue[0], message.topic))
        return None

    def _refusal(
        self, header: EndTransactionRequestHeader, half: StoredMessage | None
    ) -> Refusal | None:
        if half is None or half.topic != TRANS_HALF_TOPIC:
            return _NOT_FOUND
        immunity = half.properties.get(CHECK_IMMUNITY_SECONDS)
        if immunity and not header.from_transaction_check:
            age_ms = self._clock.now_ms() - half.born_timestamp_ms
            if age_ms > immunity_ms(immunity, self._config.transaction_timeout_ms):
                return Refusal(ResponseCode.ILLEGAL_OPERATION, "")
        if half.properties.get(prop.PRODUCER_GROUP) != header.producer_group:
            return Refusal(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.half_queue_offset:
            return Refusal(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if half.physical_offset != header.physical_offset:
            return Refusal(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
        return None

    # ------------------------------------------------------------------------------ commit

    def _committed(self, half: StoredMessage, queue: TopicQueue) -> BrokerMessage:
        properties = dict(half.properties)
        for name in (prop.REAL_TOPIC, prop.REAL_QUEUE_ID, prop.CRC32):
            properties.pop(name, None)
        level = min(delay_level(properties), self._delay_level_max)
        if level > 0:
            for name in TIMER_REQUESTS:
                properties.pop(name, None)
            properties[prop.DELAY_TIME_LEVEL] = str(level)
            topic, queue_id, added = delayed_placement(*queue, level)
            queue = (topic, queue_id)
            properties.update(added)
        return copied(
            half,
            queue,
            properties,
            sys_flag=flags.with_transaction_type(half.sys_flag, flags.TRANSACTION_COMMIT),
            prepared_transaction_offset=half.physical_offset,
        )

    def _stored(
        self,
        context: RequestContext,
        half: StoredMessage,
        topic: str,
        stored_topic: str,
        result: PutMessageResult,
    ) -> None:
        if result.append is not None:
            self._ops.ended(half.queue_offset)
            self._metrics.add(topic, -1)
            if result.is_ok:
                for listener in self.committed:
                    listener(stored_topic, result.append.wrote_bytes)
            answer = context.response(ResponseCode.SUCCESS)
        else:
            code, remark = self._refused(result.status)
            answer = context.response(code, remark=remark)
        if not context.request.is_oneway:
            context.reply(answer)

    def _refused(self, status: PutMessageStatus) -> tuple[ResponseCode, str]:
        match status:
            case PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
                return ResponseCode.SYSTEM_ERROR, "Create mapped file failed."
            case PutMessageStatus.MESSAGE_ILLEGAL | PutMessageStatus.PROPERTIES_SIZE_EXCEEDED:
                return ResponseCode.MESSAGE_ILLEGAL, (
                    "The message is illegal, maybe msg body or properties length not matched. "
                    f"msg body length limit {self._store.config.max_message_bytes}B, "
                    "msg properties length limit 32KB."
                )
            case PutMessageStatus.SERVICE_NOT_AVAILABLE:
                return ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now."
            case PutMessageStatus.OS_PAGE_CACHE_BUSY:
                return (
                    ResponseCode.SYSTEM_ERROR,
                    "OS page cache busy, please try another machine",
                )
        return ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"
