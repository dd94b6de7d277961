"""Plain sends, by the compiled lane.

Owns :class:`QuickSends`. A producer without hooks sends a plain message
(see ``_sends.pyx``) to a broker that it is connected to with a frame that the lane writes, and gets
the answer from the lane, without the objects in between. Whatever else comes, a refusal, a failure
or a connection that has to be made, is left to :class:`~roquet.client.sender.Sender`.

Invariant: nobody can tell the difference by what is sent or what comes of it. A message that has to
be sent again has the same unique id.
"""

from __future__ import annotations

import asyncio

from roquet.client.answer_lane import IS_BUILT
from roquet.client.instance import ClientInstance
from roquet.client.message import Message, SendResult, SendStatus
from roquet.client.outgoing_message import OutgoingMessages
from roquet.client.producer_options import ProducerOptions
from roquet.client.send_template import SendTemplates
from roquet.client.sender import DEFAULT_REGION, Begun, Deadline, Sender
from roquet.errors import ClientError
from roquet.model.message_queue import MessageQueue
from roquet.remoting.codes import ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.connection import Connection
from roquet.remoting.frame import SerializeType
from roquet.runtime import compiled

if IS_BUILT:
    from roquet import _sends

__all__ = ["QuickSends", "make_quick_sends"]

BODY_BYTES_MAX = 1 << 20
TIMEOUT_MS_MAX = 2**31 - 1

Stored = tuple[str, int, int, str | None, str | None, bool]
"""What a lane says: place, queue, offset, transaction, region, whether traces are wanted."""


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
"""A send that is under way: its answer, which is a command or what a lane says, the message, its
unique id, its queue, the broker's address, the connection, how long it may take and since when.

Not a class, because one is made for every message."""

Outcome = RemotingCommand | Stored | BaseException
"""What came of an attempt."""

Target = tuple["_sends.SendTemplate | None", str]
"""The header of sends to a queue, and its broker's address."""


class QuickSends:
    """Sends plain messages.

    Args:
        client: The connections and routes.
        group: The producer's group on the wire.
        options: How to send.
        sender: Sends what is not plain, or failed.
        outgoing: Makes such messages ready.

    Attributes:
        client: The connections and routes.
        sender: Sends what is not plain, or failed.
        outgoing: Makes such messages ready.
        begin: Sends a message, and gives what :meth:`end` needs; ``None`` if the message is not
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
        self._templates = SendTemplates(
            group, default_topic_queues=client.options.default_topic_queues
        )
        attempt_ms = options.attempt_timeout_ms if options.retry_times else None
        lane = _sends.SendLane(
            self,
            min(options.compress_over_bytes - 1, options.max_message_bytes, BODY_BYTES_MAX),
            options.send_timeout_ms,
            TIMEOUT_MS_MAX if attempt_ms is None else attempt_ms,
        )
        self.begin = lane.begin

    def end(self, sending: Sending, outcome: Outcome) -> SendResult | None:
        """A send has got its answer, or none.

        Returns:
            What became of the message; ``None`` if :meth:`go_on` has to find out.
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
        """Whatever follows after an attempt that did not simply succeed.

        Raises:
            ClientError: As :meth:`~roquet.client.producer.Producer.send`.
        """
        _, message, unique_id, queue, address, _, timeout_ms, began_ns = sending
        try:
            begun = None
            if isinstance(outcome, ClientError):
                begun = Begun(queue, address, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            elif isinstance(outcome, RemotingCommand) and outcome.code != ResponseCode.GO_AWAY:
                begun = Begun(queue, address, outcome)
            outgoing = self.outgoing.of_message(message, unique_id)
            deadline = Deadline(self.client, timeout_ms, began_ns=began_ns)
            return await self.sender.send_somewhere(outgoing, deadline, begun)
        finally:
            self.sender.in_flight.leave(len(message.body))

    def target(self, message: Message, queue: MessageQueue) -> Target | None:
        """What is the same for all plain sends to a queue."""
        name, address = self.sender.known_broker_of(queue)
        if address is None:
            return None
        outgoing = self.outgoing.of_message(message)
        literals = self._templates.literals(outgoing, queue, name)
        template = None if literals is None else lane_template(literals)
        return template, address


def lane_template(literals: list[bytes]) -> _sends.SendTemplate:
    """The lane's form of what :meth:`SendTemplates.literals` gives."""
    before, after_sys_flag, after_born, after_flag, after_properties, rest = literals
    return _sends.SendTemplate(
        [
            b'%b"0"%b"' % (before, after_sys_flag),
            b'"%b"' % after_born,
            b'"' + after_flag,
            after_properties + b":",
            b"," + rest,
        ]
    )


def make_quick_sends(
    client: ClientInstance,
    group: str,
    options: ProducerOptions,
    *,
    sender: Sender,
    outgoing: OutgoingMessages,
) -> QuickSends | None:
    """The short way of a producer's sends; ``None`` if it has none."""
    if not (
        IS_BUILT
        and compiled.is_wanted()
        and sender.is_plain
        and client.options.serialize is SerializeType.JSON
        and not client.options.namespace
        and not options.linger_ms
    ):
        return None
    return QuickSends(client, group, options, sender=sender, outgoing=outgoing)
