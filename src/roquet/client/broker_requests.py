"""Requests from brokers to a client, and which producer or consumer handles each.

Owns one processor for each request that a broker sends:

==== ============================ ==========================================================
code name                         goes to
==== ============================ ==========================================================
39   CHECK_TRANSACTION_STATE      the producer whose group the half message names
40   NOTIFY_CONSUMER_IDS_CHANGED  the consumer of the group
220  RESET_CONSUMER_CLIENT_OFFSET the consumer of the group
221  GET_CONSUMER_STATUS_…        the consumer of the group
307  GET_CONSUMER_RUNNING_INFO    the consumer of the group
309  CONSUME_MESSAGE_DIRECTLY     the consumer of the group
326  PUSH_REPLY_MESSAGE_TO_CLIENT the producer that waits for this reply
==== ============================ ==========================================================

A request for an unknown producer or consumer gets upstream's error response; where upstream sends
none, it is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from roquet.client.callbacks import ConsumerCallbacks, ProducerCallbacks
from roquet.client.message import ReceivedMessage
from roquet.client.names import unwrap
from roquet.client.record_reader import read_message
from roquet.client.task_stacks import task_stacks
from roquet.errors import CorruptRecord
from roquet.model import properties as prop
from roquet.model.host import LOOPBACK, Host
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.offset import GetConsumerStatusBody, ResetOffsetBody
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from roquet.remoting.headers.offset import (
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from roquet.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    ReplyMessageRequestHeader,
)
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import PUBLIC, RequestContext, Response, processor
from roquet.runtime.clock import Clock

__all__ = ["BrokerRequests"]

log = logging.getLogger(__name__)

ARRIVE_TIME = "ARRIVE_TIME"


class BrokerRequests:
    """Handles the requests of brokers.

    Args:
        producers: The producers by group on the wire.
        consumers: The consumers by group on the wire.
        namespace: The namespace of topics.
        clock: The clock.
    """

    def __init__(
        self,
        producers: Mapping[str, ProducerCallbacks],
        consumers: Mapping[str, ConsumerCallbacks],
        namespace: str,
        clock: Clock,
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._namespace = namespace
        self._clock = clock

    @processor(
        RequestCode.CHECK_TRANSACTION_STATE,
        header=CheckTransactionStateRequestHeader,
        permission=PUBLIC,
    )
    def check_transaction_state(
        self, context: RequestContext, header: CheckTransactionStateRequestHeader
    ) -> None:
        """Have the producer report the state of its half message, in a request of its own."""
        address = context.connection.remote_address
        message = self._message(context.request.body, header.broker_name)
        group = message.properties.get(prop.PRODUCER_GROUP)
        producer = None if group is None else self._producers.get(group)
        if producer is None:
            log.warning(
                "%s asks about a transaction of %s, which is not a producer of this client",
                address,
                group,
            )
            return
        producer.check_transaction(message, header, address)

    @processor(
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        header=NotifyConsumerIdsChangedRequestHeader,
        permission=PUBLIC,
    )
    def notify_consumer_ids_changed(
        self, context: RequestContext, header: NotifyConsumerIdsChangedRequestHeader
    ) -> None:
        """Have a group rebalance its queues."""
        consumer = self._consumers.get(header.consumer_group)
        if consumer is not None:
            log.debug("%s: %s changed", context.connection.remote_address, header.consumer_group)
            consumer.rebalance_now()

    @processor(
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        header=ResetOffsetRequestHeader,
        permission=PUBLIC,
    )
    def reset_offset(self, context: RequestContext, header: ResetOffsetRequestHeader) -> None:
        """Reset the offsets of a consumer."""
        consumer = self._consumers.get(header.group)
        if consumer is None:
            log.warning("Offset reset for %s, which is not a consumer of this client", header.group)
            return
        body = context.request.body
        offsets = decode_body(ResetOffsetBody, body).offset_table if body else {}
        consumer.reset_offsets(header.topic, offsets)

    @processor(
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        header=GetConsumerStatusRequestHeader,
        permission=PUBLIC,
    )
    def consumer_status(
        self, context: RequestContext, header: GetConsumerStatusRequestHeader
    ) -> Response:
        """Return a consumer's offsets; empty for an unknown one, as upstream."""
        consumer = self._consumers.get(header.group)
        offsets = {} if consumer is None else dict(consumer.status(header.topic))
        body = encode_body(GetConsumerStatusBody(message_queue_table=offsets))
        return context.response(ResponseCode.SUCCESS, body=body)

    @processor(
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        header=GetConsumerRunningInfoRequestHeader,
        permission=PUBLIC,
    )
    def consumer_running_info(
        self, context: RequestContext, header: GetConsumerRunningInfoRequestHeader
    ) -> Response:
        """Return a consumer's running info."""
        info = self._consumer(header.consumer_group).running_info()
        if header.jstack_enable:
            info.jstack = task_stacks()
        return context.response(ResponseCode.SUCCESS, body=encode_body(info))

    @processor(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        header=ConsumeMessageDirectlyRequestHeader,
        permission=PUBLIC,
    )
    async def consume_message_directly(
        self, context: RequestContext, header: ConsumeMessageDirectlyRequestHeader
    ) -> Response:
        """Have a consumer consume one message now."""
        consumer = self._consumer(header.consumer_group)
        broker_name = header.stored_broker_name or header.broker_name or ""
        message = self._message(context.request.body, broker_name)
        result = await consumer.consume_directly(message, broker_name)
        return context.response(ResponseCode.SUCCESS, body=encode_body(result))

    @processor(
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        header=ReplyMessageRequestHeader,
        permission=PUBLIC,
    )
    def reply_message(self, context: RequestContext, header: ReplyMessageRequestHeader) -> Response:
        """Hand a reply to the producer that waits for it."""
        message = ReceivedMessage(
            topic=unwrap(self._namespace, header.topic),
            raw_body=context.request.body,
            broker_name=header.broker_name or "",
            queue_id=header.queue_id,
            flag=header.flag,
            sys_flag=header.sys_flag,
            properties_data=(header.properties or "").encode(),
            born_timestamp_ms=header.born_timestamp_ms,
            born_host=_host(header.born_host),
            store_timestamp_ms=header.store_timestamp_ms,
            store_host=_host(header.store_host),
            reconsume_times=header.reconsume_times or 0,
        )
        message.properties[ARRIVE_TIME] = str(self._clock.now_ms())
        if not any(producer.reply_arrived(message) for producer in list(self._producers.values())):
            log.warning("A reply from %s matches no request", header.born_host)
        return context.response(ResponseCode.SUCCESS)

    def _consumer(self, group: str) -> ConsumerCallbacks:
        consumer = self._consumers.get(group)
        if consumer is None:
            raise RequestRefused(f"The Consumer Group <{group}> not exist in this consumer")
        return consumer

    def _message(self, record: bytes, broker_name: str | None) -> ReceivedMessage:
        try:
            message = read_message(record, 0, broker_name or "")
        except CorruptRecord as error:
            raise RequestRefused(f"The body is no message: {error.detail}") from error
        message.topic = unwrap(self._namespace, message.topic)
        return message


def _host(text: str) -> Host:
    """Parse the address in a header; upstream sometimes writes a slash before it."""
    try:
        return Host.parse(text.rpartition("/")[2])
    except ValueError:
        return LOOPBACK
