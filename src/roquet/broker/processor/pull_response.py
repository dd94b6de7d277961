"""Responses to pulls.

Owns the response code of every read status, the broker suggested for the next pull, and the
ext fields of the response; upstream's composeResponseHeader and the part of
DefaultPullMessageResultHandler that changes codes.
"""

from __future__ import annotations

import logging

from roquet.broker.config import BrokerConfig
from roquet.broker.processor.pull_check import AdmittedPull
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.remoting.bodies.route import MASTER_ID
from roquet.remoting.codes import ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.endpoint import LogLimiter
from roquet.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from roquet.remoting.processor import RequestContext
from roquet.runtime.clock import Clock
from roquet.store.config import BrokerRole, MessageStoreConfig
from roquet.store.results import GetMessageResult, GetMessageStatus

__all__ = ["PullResponse"]

log = logging.getLogger(__name__)

_CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


class PullResponse:
    """Builds the responses to pulls.

    Args:
        config: The broker's settings.
        store_config: The store's settings.
        clock: Time.

    Attributes:
        min_broker_id: The lowest live broker id under the broker's name.
    """

    def __init__(
        self, config: BrokerConfig, store_config: MessageStoreConfig, clock: Clock
    ) -> None:
        self.min_broker_id = MASTER_ID
        self._config = config
        self._is_slave_without_offsets = (
            store_config.broker_role is BrokerRole.SLAVE and not store_config.offset_check_in_slave
        )
        self._log_limiter = LogLimiter(clock)

    def make(
        self,
        context: RequestContext,
        header: PullMessageRequestHeader,
        admitted: AdmittedPull,
        result: GetMessageResult,
    ) -> RemotingCommand:
        """Return the response to a pull, without its body."""
        status = result.status
        if status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE:
            # Upstream creates a queue when it is first read, and then it is empty.
            status = GetMessageStatus.NO_MESSAGE_IN_QUEUE
        code = _CODES[status]
        if status is GetMessageStatus.NO_MESSAGE_IN_QUEUE and header.queue_offset == 0:
            code = ResponseCode.PULL_NOT_FOUND
        group = admitted.group
        suggested_id = self._suggested(group, result)
        if (
            self._config.broker_id != MASTER_ID
            and self.min_broker_id == MASTER_ID
            and not result.suggest_pulling_from_slave
        ):
            suggested_id = MASTER_ID
            if status is not GetMessageStatus.FOUND:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        if code is ResponseCode.PULL_OFFSET_MOVED:
            self._log_moved(context, header, result)
            if self._is_slave_without_offsets:
                suggested_id = group.broker_id
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        return context.response(
            code,
            PullMessageResponseHeader(
                suggest_which_broker_id=suggested_id,
                next_begin_offset=result.next_begin_offset,
                min_offset=result.min_offset,
                max_offset=result.max_offset,
                topic_sys_flag=admitted.topic.topic_sys_flag,
                group_sys_flag=group.group_sys_flag,
            ),
            remark=status.value,
        )

    def _suggested(self, group: SubscriptionGroupConfig, result: GetMessageResult) -> int:
        """The broker to read from next: a slave when a consumer is far behind."""
        if not self._config.slave_read:
            return MASTER_ID
        if result.suggest_pulling_from_slave:
            return group.which_broker_when_consume_slowly
        return group.broker_id

    def _log_moved(
        self, context: RequestContext, header: PullMessageRequestHeader, result: GetMessageResult
    ) -> None:
        more = self._log_limiter.allow("moved")
        if more is not None:
            log.warning(
                "PULL_OFFSET_MOVED: %s, topic=%s, queueId=%d, groupId=%s, requestOffset=%d, "
                "newOffset=%d, minOffset=%d, maxOffset=%d, consumer=%s%s",
                result.status.value,
                header.topic,
                header.queue_id,
                header.consumer_group,
                header.queue_offset,
                result.next_begin_offset,
                result.min_offset,
                result.max_offset,
                context.connection.remote_address,
                more,
            )
