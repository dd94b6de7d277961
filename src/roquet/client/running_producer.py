"""The parts of a running producer.

Owns :class:`RunningProducer`, which also has the callbacks of the client instance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress

from msgspec import structs

from roquet.client.accumulator import Accumulator
from roquet.client.deadline import Deadline
from roquet.client.hooks import SendHook, batched
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import finish
from roquet.client.message import Message, ReceivedMessage, SendResult
from roquet.client.outgoing_message import OutgoingMessage, OutgoingMessages
from roquet.client.plain_send import make_plain_sends
from roquet.client.producer_options import ProducerOptions
from roquet.client.queue_choice import QueueSelector, select_by_hash
from roquet.client.recall import RecallHandle
from roquet.client.request_reply import PendingReplies
from roquet.client.sender import Sender
from roquet.client.trace import TraceDispatcher, TraceSendHook
from roquet.client.transaction import CheckTransaction, Transactions
from roquet.errors import BadMessage, BadName, ClientError, NoRoute
from roquet.model.message_queue import MessageQueue
from roquet.model.topic import is_dlq_topic, is_retry_topic
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
)

__all__ = ["RunningProducer"]


class RunningProducer:
    """A running producer, and the callbacks of its client instance.

    Args:
        client: Its client instance.
        group: Its group.
        options: The settings.
        check: Returns the state of a transaction.
        hooks: Hooks that run around every attempt to send.

    Attributes:
        client: Its client instance.
        group: Its group on the wire.
        outgoing: Prepares messages for sending.
        sender: Sends them.
        plain: Sends plain messages by compiled code; ``None`` where it does not run.
        transactions: Its transactions.
        requests: Its pending requests.
        trace: Sends the traces, if tracing is on.
        accumulator: Collects batches, if lingering is on.
    """

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        options: ProducerOptions,
        *,
        check: CheckTransaction | None,
        hooks: Sequence[SendHook],
    ) -> None:
        self.client = client
        self.group = client.wrap(group)
        self.outgoing = OutgoingMessages(options, client.options.namespace, client.unique_ids)
        self.trace: TraceDispatcher | None = None
        if options.trace:
            self.trace = TraceDispatcher(client, group, "PRODUCE", options.trace_topic)
            hooks = (*hooks, TraceSendHook(self.trace))
        self._hooks = hooks
        self.sender = Sender(client, self.group, options, hooks)
        self.plain = make_plain_sends(
            client, self.group, options, sender=self.sender, outgoing=self.outgoing
        )
        self.transactions = Transactions(client, self.group, check, hooks)
        self.requests = PendingReplies(client)
        self.accumulator: Accumulator | None = None
        if options.linger_ms:
            self.accumulator = Accumulator(
                self._send_gathered,
                linger_ms=options.linger_ms,
                linger_bytes=options.linger_bytes,
                max_bytes=options.max_message_bytes,
            )
        self._timeout_ms = options.send_timeout_ms
        self._introduced: set[str] = set()

    async def close(self) -> None:
        """Wait for the sends in flight, and leave the client instance."""
        await finish(
            self._send_gathered_now,
            self.sender.close,
            self.transactions.close,
            self._stop_tracing,
            lambda: self.client.unregister_producer(self.group),
            self.client.close,
        )

    async def _send_gathered_now(self) -> None:
        try:
            if self.accumulator is not None:
                await self.accumulator.flush()
        finally:
            self.requests.close()

    async def _stop_tracing(self) -> None:
        if self.trace is not None:
            await self.trace.close()

    # ------------------------------------------------------------------------ queue selection

    async def queue_of(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        arg: object,
        deadline: Deadline,
    ) -> MessageQueue | None:
        """Return the caller's queue, as on the wire; ``None`` if any will do."""
        key = message.sharding_key
        if queue is None and selector is None and not key:
            return None
        topic = self.outgoing.wire_topic(message.topic)
        if queue is None:
            route = await self.sender.route(topic, deadline)
            queues = self.user_queues(message.topic, route.queues)
            if selector is None:
                queue = select_by_hash(queues, message, key)
            else:
                queue = _selected(selector, queues, message, arg)
        if queue.topic != message.topic:
            raise BadMessage(
                "The queue and the message have different topics",
                detail=f"{queue.topic} and {message.topic}",
            )
        return MessageQueue(topic, queue.broker_name, queue.queue_id)

    def user_queues(self, topic: str, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """Return queues as users see them, without the namespace."""
        return [MessageQueue(topic, each.broker_name, each.queue_id) for each in queues]

    # -------------------------------------------------------------------------------- batches

    def into_batch(self, message: Message) -> Message:
        """Run the hooks of a message in a batch; returns the message to use."""
        return batched(self._hooks, message) if self._hooks else message

    async def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None, deadline: Deadline
    ) -> list[SendResult]:
        """Send one batch; returns a result for each message."""
        outgoing = self.outgoing.of_batch(messages)
        return _results_of(outgoing, await self.sender.send(outgoing, deadline, queue))

    async def _send_gathered(
        self, messages: Sequence[Message], queue: MessageQueue | None
    ) -> Sequence[SendResult]:
        deadline = Deadline(self.client, self._timeout_ms)
        if len(messages) == 1:
            outgoing = self.outgoing.of_message(messages[0])
            return [await self.sender.send(outgoing, deadline, queue)]
        return await self.send_batch(messages, queue, deadline)

    async def recall(self, topic: str, recall_handle: str, deadline: Deadline) -> str:
        """Recall a message; returns its unique id."""
        if is_retry_topic(topic) or is_dlq_topic(topic):
            raise BadName(
                f"Messages of {topic} cannot be recalled",
                hint="Only messages sent with a delivery time can.",
            )
        wire_topic = self.outgoing.wire_topic(topic)
        handle = RecallHandle.parse(recall_handle)
        await self.sender.route(wire_topic, deadline)
        address = self.client.routes.broker_address(handle.broker_name, master_only=True)
        if address is None:
            raise NoRoute(
                f"The broker {handle.broker_name} is not known",
                detail=f"it has the message {handle.message_id} of {topic}",
                hint="It may be down; no other broker has the message.",
            )
        header = RecallMessageRequestHeader(
            producer_group=self.group,
            topic=wire_topic,
            recall_handle=recall_handle,
            broker_name=handle.broker_name,
        )
        answer = await self.client.ask(
            address, RequestCode.RECALL_MESSAGE, header, timeout_ms=max(deadline.left_ms(), 1)
        )
        return decode_header(RecallMessageResponseHeader, answer.ext_fields).msg_id

    async def introduce(self, topic: str, deadline: Deadline) -> None:
        """Make sure that the brokers of a topic know this client, so that replies find it."""
        wire_topic = self.outgoing.wire_topic(topic)
        if wire_topic not in self._introduced:
            await self.sender.route(wire_topic, deadline)
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline.left_ms() / 1000):
                    await self.client.heartbeat()
            self._introduced.add(wire_topic)

    # ----------------------------------------------------- callbacks of the client instance

    def publish_topics(self) -> Collection[str]:
        """Return the topics whose routes must be kept up to date."""
        topics = set(self.outgoing.topics.values())
        if self.trace is not None:
            topics.add(self.trace.topic)
        return topics

    def check_transaction(
        self,
        message: ReceivedMessage,
        header: CheckTransactionStateRequestHeader,
        broker_address: str,
    ) -> None:
        """Check a transaction for a broker."""
        self.transactions.answer_check(message, header, broker_address)

    def reply_arrived(self, message: ReceivedMessage) -> bool:
        """Take a reply; returns whether it belongs to a request of this producer."""
        return self.requests.arrived(message)


def _results_of(outgoing: OutgoingMessage, result: SendResult) -> list[SendResult]:
    """Return the result of each message of a batch; an inner batch has only one."""
    places = result.offset_message_id.split(",")
    count = len(outgoing.unique_ids)
    if len(places) != count or result.message_id.count(",") != count - 1:
        return [result] * count
    return [
        structs.replace(
            result,
            message_id=unique_id,
            offset_message_id=place,
            queue_offset=result.queue_offset + index,
        )
        for index, (unique_id, place) in enumerate(zip(outgoing.unique_ids, places, strict=True))
    ]


def _selected(
    selector: QueueSelector, queues: Sequence[MessageQueue], message: Message, arg: object
) -> MessageQueue:
    try:
        chosen: object = selector(queues, message, arg)
    except ClientError:
        raise
    except Exception as error:
        raise BadMessage("The queue selector failed", detail=repr(error)) from error
    if not isinstance(chosen, MessageQueue):
        raise BadMessage("The queue selector returned no queue", detail=f"found {chosen!r}")
    return chosen
