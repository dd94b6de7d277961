"""Sends messages back to the broker, to be redelivered later.

Owns :class:`SendBack`. The broker that has the message is asked to put a copy into the group's
retry topic, or after too many times into its dead letters. If that fails, the consumer itself sends
a copy to the retry topic on any broker, with the properties that the first broker would have set.
If both fail, the message stays with the consumer.
"""

from __future__ import annotations

import logging

from roquet.client.deadline import Deadline
from roquet.client.hooks import MessageKind
from roquet.client.instance import ClientInstance
from roquet.client.message import Message, ReceivedMessage
from roquet.client.outgoing_message import OutgoingMessage
from roquet.client.producer_options import ProducerOptions
from roquet.client.sender import Sender
from roquet.errors import NoRoute, RoquetError
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.topic import retry_topic
from roquet.model.topic_queue_mapping import MOCK_BROKER_PREFIX
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.send import ConsumerSendMsgBackRequestHeader

__all__ = ["SendBack"]

log = logging.getLogger(__name__)

SEND_BACK_TIMEOUT_MS = 5_000
FIRST_RETRY_LEVEL = 3
INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"


class SendBack:
    """Sends messages back.

    Args:
        client: The connections and routes.
        group: The consumer's group on the wire.
        max_reconsume_times: How often a message may be retried.
    """

    def __init__(self, client: ClientInstance, group: str, *, max_reconsume_times: int) -> None:
        self._client = client
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._sender = Sender(client, INNER_PRODUCER_GROUP, ProducerOptions())

    async def send_back(self, message: ReceivedMessage, *, delay_level: int) -> bool:
        """Ask the message's broker to redeliver it; returns whether it will be redelivered.

        Args:
            message: The message; its topic is the original one, without the namespace.
            delay_level: The delay; 0 leaves it to the broker, -1 makes it a dead letter.
        """
        if not message.broker_name.startswith(MOCK_BROKER_PREFIX):
            try:
                await self._ask_broker(message, delay_level)
            except RoquetError as error:
                log.warning(
                    "%s: the broker did not take %s back: %s (%s)",
                    self._group,
                    message.message_id,
                    error.message,
                    error.detail,
                )
            else:
                return True
        return await self.send_again(message)

    async def send_again(self, message: ReceivedMessage) -> bool:
        """Send a copy of a message to the group's retry topic; returns whether it is stored."""
        outgoing = self._copy(message)
        try:
            await self._sender.send(outgoing, Deadline(self._client, SEND_BACK_TIMEOUT_MS))
        except RoquetError as error:
            log.error(  # noqa: TRY400 - what matters is in the message
                "%s: %s could not be sent back: %s (%s)",
                self._group,
                message.message_id,
                error.message,
                error.detail,
            )
            return False
        return True

    async def close(self) -> None:
        """Wait for the sends in flight."""
        await self._sender.close()

    async def _ask_broker(self, message: ReceivedMessage, delay_level: int) -> None:
        address = self._client.routes.broker_address(message.broker_name, master_only=True)
        if address is None:
            raise NoRoute(f"No master of the broker {message.broker_name} is known")
        await self._client.ask(
            address,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            ConsumerSendMsgBackRequestHeader(
                physical_offset=message.physical_offset,
                group=self._group,
                delay_level=delay_level,
                origin_msg_id=message.message_id,
                origin_topic=self._client.wrap(message.topic),
                max_reconsume_times=self._max_reconsume_times,
                broker_name=message.broker_name,
            ),
            timeout_ms=SEND_BACK_TIMEOUT_MS,
        )

    def _copy(self, message: ReceivedMessage) -> OutgoingMessage:
        topic = retry_topic(self._group)
        properties = dict(message.properties)
        properties[prop.ORIGIN_MESSAGE_ID] = (
            properties.get(prop.ORIGIN_MESSAGE_ID) or message.message_id
        )
        properties[prop.RETRY_TOPIC] = self._client.wrap(message.topic)
        properties[prop.DELAY_TIME_LEVEL] = str(FIRST_RETRY_LEVEL + message.reconsume_times)
        # The producer takes these two from the properties into the header, for retry topics only.
        for name in (
            prop.RECONSUME_TIME,
            prop.MAX_RECONSUME_TIMES,
            prop.TRANSACTION_PREPARED,
        ):
            properties.pop(name, None)
        unique_id = properties.setdefault(
            prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX, self._client.unique_ids.make()
        )
        return OutgoingMessage(
            messages=(Message(topic, message.raw_body),),
            code=RequestCode.SEND_MESSAGE_V2,
            topic=topic,
            body=message.raw_body,
            flag=message.flag,
            sys_flag=message.sys_flag & (flags.COMPRESSED | flags.COMPRESSION_MASK),
            properties=properties,
            properties_text=prop.properties_text(properties),
            unique_ids=(unique_id,),
            kind=MessageKind.DELAYED,
            reconsume_times=message.reconsume_times + 1,
            max_reconsume_times=self._max_reconsume_times,
        )
