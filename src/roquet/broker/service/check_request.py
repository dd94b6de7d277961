"""Asks producers for the state of a transaction: CHECK_TRANSACTION_STATE.

Upstream's AbstractTransactionalMessageCheckListener. Owns the request: one-way, with the half
message as a record of its real topic, at the offset of its last copy. The producers of a group are
asked in turn, skipping unreachable ones; if none is reachable, the next round tries again.
"""

from __future__ import annotations

import logging

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.producer import ProducerManager
from roquet.broker.stored_copy import real_queue
from roquet.errors import SendFailed
from roquet.format.commit_log import encode_record, uses_v2
from roquet.model import properties as prop
from roquet.model.message import StoredMessage
from roquet.model.topic import TRANS_HALF_TOPIC
from roquet.remoting.codes import RequestCode
from roquet.remoting.endpoint import LogLimiter
from roquet.remoting.headers.send import CheckTransactionStateRequestHeader
from roquet.runtime.clock import Clock
from roquet.store.results import AppendResult

__all__ = ["TransactionChecker"]

log = logging.getLogger(__name__)

TRIES_MAX = 3


class TransactionChecker:
    """Sends transaction checks to producers.

    Args:
        config: The broker's settings.
        producers: The producers.
        clock: The time.
    """

    def __init__(self, config: BrokerConfig, *, producers: ProducerManager, clock: Clock) -> None:
        self._broker_name = config.broker_name
        self._producers = producers
        self._log_limiter = LogLimiter(clock)

    def ask(
        self, message: StoredMessage, properties: dict[str, str], appended: AppendResult
    ) -> bool:
        """Send a check of a half message; return whether a producer got it.

        Args:
            message: The half message as it was read.
            properties: The properties of its copy.
            appended: Where its copy is stored.
        """
        group = properties.get(prop.PRODUCER_GROUP, "")
        unique_key = properties.get(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        channel = self._producers.available_channel(group)
        if channel is not None:
            header = CheckTransactionStateRequestHeader(
                topic=TRANS_HALF_TOPIC,
                half_queue_offset=appended.queue_offset,
                physical_offset=appended.wrote_offset,
                msg_id=unique_key,
                transaction_id=unique_key,
                offset_msg_id=appended.message_id(message.store_host),
                broker_name=self._broker_name,
            )
            body = _record(message, properties, appended)
            if body is None:
                return False
            for _ in range(TRIES_MAX):
                try:
                    channel.connection.send_oneway(
                        RequestCode.CHECK_TRANSACTION_STATE, header, body=body
                    )
                except SendFailed:
                    channel = self._producers.available_channel(group)
                    if channel is None:
                        break
                else:
                    return True
        more = self._log_limiter.allow("nobody")
        if more is not None:
            log.warning("no reachable producer of group %s to check %s%s", group, unique_key, more)
        return False


def _record(
    message: StoredMessage, properties: dict[str, str], appended: AppendResult
) -> bytes | None:
    """The half message as a record of its real topic."""
    queue = real_queue(message)
    if queue is None:
        return None
    topic, queue_id = queue
    return encode_record(
        topic=topic.encode(),
        body=message.body,
        properties=prop.encode_properties({**properties, prop.WAIT_STORE_MSG_OK: "false"}),
        queue_id=queue_id,
        flag=message.flag,
        queue_offset=appended.queue_offset,
        physical_offset=appended.wrote_offset,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host.pack(),
        store_timestamp_ms=message.store_timestamp_ms,
        store_host=message.store_host.pack(),
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        v2=uses_v2(topic),
    )
