"""Plain sends, by compiled code.

Owns :class:`PlainSends`. A producer without hooks sends a plain message (see ``_send.pyx``) over an
open connection without the objects in between: compiled code writes the frame and reads the
response. Everything else, such as a refusal, a failure or a connection that has to be opened, is
left to :class:`~roquet.client.sender.Sender`.

Invariant: both paths send the same and have the same results. A retry keeps the unique id.
"""

from __future__ import annotations

import asyncio

from roquet.client.deadline import Deadline
from roquet.client.instance import ClientInstance
from roquet.client.message import Message, SendResult, SendStatus
from roquet.client.outgoing_message import OutgoingMessages
from roquet.client.producer_options import ProducerOptions
from roquet.client.send_header import header_literals
from roquet.client.sender import DEFAULT_REGION, Sender, StartedAttempt
from roquet.errors import ClientError
from roquet.model.message_queue import MessageQueue
from roquet.remoting.codes import ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.connection import Connection
from roquet.remoting.frame import SerializeType
from roquet.runtime import compiled

if compiled.is_built("roquet.client._send"):
    from roquet.client import _send

__all__ = ["PlainSends", "make_plain_sends"]

BODY_BYTES_MAX = 1 << 20
TIMEOUT_MS_MAX = 2**31 - 1

Stored = tuple[str, int, int, str | None, str | None, bool]
"""A plain response: offset message id, queue, offset, transaction, region, traces on or off."""

Sending = tuple[
    "asyncio.Future[RemotingCommand | Stored]",
    Message,
    str,
    MessageQueue,
    str,
    Connection,
    int,
    int,
]
"""A send in flight: the future of its response, the message, its unique id, its queue, the broker's
address, the connection, the timeout and the start time.

Not a class, because one is created for every message."""

Outcome = RemotingCommand | Stored | BaseException
"""The outcome of an attempt."""

Target = tuple["_send.SendTemplate | None", str]
"""The header of sends to a queue, and its broker's address."""


class PlainSends:
    """Sends plain messages.

    Args:
        client: The connections and routes.
        group: The producer's group on the wire.
        options: The settings.
        sender: Sends what is not plain, or failed.
        outgoing: Prepares such messages.

    Attributes:
        client: The connections and routes.
        sender: Sends what is not plain, or failed.
        outgoing: Prepares such messages.
        begin: Sends a message, and returns what :meth:`end` needs; ``None`` if the message is not
            plain or cannot be sent at once.
    """

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        options: ProducerOptions,
        *,
        sender: Sender,
        outgoing: OutgoingMessages,
    ) -> None:
        self.client = client
        self.sender = sender
        self.outgoing = outgoing
        self._remoting = client.remoting
        self._group = group
        attempt_ms = options.attempt_timeout_ms if options.retry_times else None
        plain = _send.PlainSender(
            self,
            min(options.compress_over_bytes - 1, options.max_message_bytes, BODY_BYTES_MAX),
            options.send_timeout_ms,
            TIMEOUT_MS_MAX if attempt_ms is None else attempt_ms,
        )
        self.begin = plain.begin

    def end(self, sending: Sending, outcome: Outcome) -> SendResult | None:
        """Finish a send that has got its response, or none.

        Returns:
            The result; ``None`` if :meth:`go_on` has to find out.
        """
        _, message, unique_id, queue, address, connection, _, _ = sending
        if type(outcome) is not tuple:
            goes_away = (
                isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.GO_AWAY
            )
            self._remoting.give_back_connection(address, connection, goes_away=goes_away)
            return None
        self._remoting.give_back_connection(address, connection)
        self.sender.in_flight.leave(len(message.body))
        place, queue_id, queue_offset, transaction_id, region, trace_on = outcome
        if queue_id != queue.queue_id:
            queue = MessageQueue(message.topic, queue.broker_name, queue_id)
        return SendResult(
            status=SendStatus.SEND_OK,
            message_id=unique_id,
            offset_message_id=place,
            queue=queue,
            queue_offset=queue_offset,
            transaction_id=transaction_id,
            region_id=region or DEFAULT_REGION,
            trace_on=trace_on,
        )

    async def go_on(self, sending: Sending, outcome: Outcome) -> SendResult:
        """Continue after an attempt that did not simply succeed.

        Raises:
            ClientError: As :meth:`~roquet.client.producer.Producer.send`.
        """
        _, message, unique_id, queue, address, _, timeout_ms, began_ns = sending
        try:
            started = None
            if isinstance(outcome, ClientError):
                started = StartedAttempt(queue, address, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            elif isinstance(outcome, RemotingCommand) and outcome.code != ResponseCode.GO_AWAY:
                started = StartedAttempt(queue, address, outcome)
            outgoing = self.outgoing.of_message(message, unique_id)
            deadline = Deadline(self.client, timeout_ms, began_ns=began_ns)
            return await self.sender.send_to_any_broker(outgoing, deadline, started)
        finally:
            self.sender.in_flight.leave(len(message.body))

    def target(self, message: Message, queue: MessageQueue) -> Target | None:
        """Return what all plain sends to a queue share."""
        name, address = self.sender.known_broker_of(queue)
        if address is None:
            return None
        outgoing = self.outgoing.of_message(message)
        literals = header_literals(
            outgoing,
            queue,
            group=self._group,
            broker_name=name,
            default_topic_queues=self.client.options.default_topic_queues,
        )
        return None if literals is None else _send.SendTemplate(literals), address


def make_plain_sends(
    client: ClientInstance,
    group: str,
    options: ProducerOptions,
    *,
    sender: Sender,
    outgoing: OutgoingMessages,
) -> PlainSends | None:
    """Return the plain sends of a producer; ``None`` if it has none."""
    if not (
        compiled.is_used("roquet.client._send")
        and sender.is_plain
        and client.options.serialize is SerializeType.JSON
        and not client.options.namespace
        and not options.linger_ms
    ):
        return None
    return PlainSends(client, group, options, sender=sender, outgoing=outgoing)
