"""The producer.

Owns :class:`Producer`, what users call to send. The parts are beside it: what goes over the wire in
``outgoing_message.py``, attempts in ``sender.py``, queues in ``queue_choice.py``, batches that
gather by themselves in ``accumulator.py``, and all of it together in ``producer_parts.py``.

Invariants:

* A send that returns is stored by a broker; how safely, its result says. A send that raises may be
  stored nevertheless when its error is ``SendFailed`` or ``RequestTimeout``.
* The number and the bytes of unanswered sends are bounded; further sends wait.
* Closing waits for the sends that are under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Unpack

from msgspec import structs

from roquet.client.hooks import SendHook
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import Running
from roquet.client.message import Message, ReceivedMessage, SendResult
from roquet.client.names import check_group
from roquet.client.options import ClientOptions
from roquet.client.outgoing_message import check_batch, split_batch
from roquet.client.producer_options import ProducerOptions, ProducerSettings
from roquet.client.producer_parts import ProducerParts
from roquet.client.queue_choice import QueueSelector
from roquet.client.quick_send import Outcome
from roquet.client.sender import Deadline
from roquet.client.transaction import (
    CheckTransaction,
    ExecuteTransaction,
    TransactionResult,
)
from roquet.errors import BadMessage, ClientError, PartlySent
from roquet.model.message_queue import MessageQueue

__all__ = ["Producer"]


class Producer(Running[ProducerParts]):
    """Sends messages.

    Args:
        client: The name servers, as ``host:port``, several with semicolons or as a sequence; or
            all settings of the client.
        group: The group. Brokers ask any producer of it after transactions.
        check: Says what became of a transaction; needed to send in transactions.
        hooks: What runs around every attempt to send.
        settings: The fields of :class:`~roquet.client.ProducerOptions`.

    Raises:
        BadName: The group cannot have this name.
        ConfigError: A setting cannot be used.

    Example:
        >>> from roquet.testing.broker import broker  # any RocketMQ will do
        >>> async def main() -> str:
        ...     async with broker() as b:
        ...         async with Producer(b.namesrv, group="billing", retry_times=5) as producer:
        ...             result = await producer.send(Message("Orders", b"paid", keys="17"))
        ...     return result.status.value
        >>> asyncio.run(main())
        'SEND_OK'
    """

    def __init__(
        self,
        client: str | Sequence[str] | ClientOptions,
        *,
        group: str,
        check: CheckTransaction | None = None,
        hooks: Sequence[SendHook] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None:
        check_group(group)
        super().__init__(f"The producer {group}")
        self._client_options = ClientOptions.of(client)
        self.group = group
        self.options = ProducerOptions(**settings)
        self.options.check()
        self._check = check
        self._hooks = tuple(hooks)

    # ----------------------------------------------------------------------- life and death

    async def start(self) -> None:
        """Begin. No broker is asked yet: a wrong address shows with the first send.

        Raises:
            ConfigError: The client has another producer of the group, or other settings.
            ClientClosed: The producer was closed.

        Example:
            later = Producer(namesrv, group="later")
            await later.start()
            await later.close()
        """
        await super().start()

    async def _open(self) -> ProducerParts:
        client = await ClientInstance.open(self._client_options)
        try:
            parts = ProducerParts(
                client, self.group, self.options, check=self._check, hooks=self._hooks
            )
            client.register_producer(parts.group, parts)
        except BaseException:
            await client.close()
            raise
        try:
            await client.heartbeat()
        except BaseException:
            await parts.close()
            raise
        return parts

    async def close(self) -> None:
        """Wait for the sends that are under way, and leave.

        Example:
            short = Producer(namesrv, group="short")
            await short.start()
            await short.close()
        """
        await super().close()

    @property
    def client(self) -> ClientInstance:
        """The client that the producer is part of.

        Raises:
            ClientClosed: The producer is not started, or closed.

        Example:
            print(producer.client.client_id)
        """
        return self._parts.client

    @property
    def in_flight(self) -> int:
        """How many sends are not done.

        Example:
            assert producer.in_flight == 0
        """
        return 0 if self._running is None else self._running.sender.in_flight.count

    # ------------------------------------------------------------------------------ sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message, and wait until a broker has stored it.

        Without ``queue``, ``selector`` and a sharding key, the queues take turns, and after a
        failure another broker is tried. Otherwise the message is tried once.

        Args:
            message: The message.
            queue: The queue to send to.
            selector: Chooses the queue.
            arg: What the selector gets.
            sharding_key: Messages of one key go to one queue; by default the message's own key.
            timeout_ms: How long it may take; by default ``send_timeout_ms``.

        Raises:
            ClientClosed: The producer is not started, or closed.
            BadName: The topic cannot be sent to.
            BadMessage: The message cannot be sent as it is.
            MessageTooLarge: Its body or its properties are too long.
            NoRoute: No broker has the topic.
            ConnectFailed: No broker could be reached; the message is not stored.
            SendFailed: The connection was lost; whether the message is stored is not known.
            RequestTimeout: No answer came in time; whether the message is stored is not known.
            BrokerRefused: A broker said no.

        Example:
            result = await producer.send(Message("Orders", b"paid", tags="paid", keys="17"))
            print(result.status, result.message_id, result.queue_offset)
            await producer.send(Message("Orders", b"sent"), sharding_key="17")
        """
        parts = self._parts
        quick = parts.quick
        if quick is not None and queue is None and selector is None and sharding_key is None:
            sending = quick.begin(message, timeout_ms)
            if sending is not None:
                try:
                    outcome: Outcome = await sending[0]
                except BaseException as error:  # noqa: BLE001 - raised again by go_on
                    outcome = error
                return quick.end(sending, outcome) or await quick.go_on(sending, outcome)
        if sharding_key is not None:
            message = _with_sharding_key(message, sharding_key)
        deadline = self._deadline(timeout_ms)
        to = None
        if queue is not None or selector is not None or message.sharding_key:
            to = await parts.queue_of(message, queue, selector, arg, deadline)
        accumulator = parts.accumulator
        if accumulator is not None and timeout_ms is None and accumulator.takes(message):
            message = parts.into_batch(message)
            parts.outgoing.check(message)
            return await accumulator.send(message, to)
        return await parts.sender.send(parts.outgoing.of_message(message), deadline, to)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Send a message, and never learn what became of it; nothing is tried again.

        Args:
            message: The message.
            queue: The queue to send to.
            selector: Chooses the queue.
            arg: What the selector gets.
            sharding_key: Messages of one key go to one queue.
            timeout_ms: How long it may take until it is handed to the network.

        Raises:
            ClientError: As :meth:`send`, except for what a broker would answer.

        Example:
            await producer.send_oneway(Message("Orders", b"looked at"))
        """
        parts = self._parts
        message = _with_sharding_key(message, sharding_key)
        deadline = self._deadline(timeout_ms)
        to = await parts.queue_of(message, queue, selector, arg, deadline)
        await parts.sender.send_oneway(parts.outgoing.of_message(message), deadline, to)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic together, in one request or as few as their size allows.

        Args:
            messages: The messages; one topic, none to be delivered later.
            queue: The queue to send to.
            sharding_key: Messages of one key go to one queue; by default the messages' own, which
                must be one unless the queue is given.
            timeout_ms: How long each request may take; by default ``send_timeout_ms``.

        Returns:
            A result for each message, in their order.

        Raises:
            PartlySent: A request failed after others were stored; it says how many messages are.
            ClientError: As :meth:`send`, when nothing is stored yet.

        Example:
            orders = [Message("Orders", b"%d" % number) for number in range(3)]
            results = await producer.send_batch(orders)
            assert len(results) == 3
        """
        parts = self._parts
        check_batch(messages)
        keys = {sharding_key or message.sharding_key for message in messages}
        if queue is None and len(keys) > 1:
            raise BadMessage(
                "The messages of a batch have one sharding key",
                detail=", ".join(sorted(str(key) for key in keys)),
                hint="Send one batch for each key, or give the queue.",
            )
        messages = [parts.into_batch(message) for message in messages]
        for message in messages:
            parts.outgoing.check(message)
        results: list[SendResult] = []
        for chunk in split_batch(messages, max_bytes=self.options.max_message_bytes):
            try:
                keyed = [_with_sharding_key(message, sharding_key) for message in chunk]
                deadline = self._deadline(timeout_ms)
                to = await parts.queue_of(keyed[0], queue, None, None, deadline)
                results += await parts.send_batch(keyed, to, deadline)
            except ClientError as error:
                if not results:
                    raise
                raise PartlySent(
                    f"{len(results)} of {len(messages)} messages are stored",
                    sent=len(results),
                    detail=error.message,
                    hint="Send the others again.",
                ) from error
        return results

    async def flush(self) -> None:
        """Wait until all sends that are under way are done.

        Example:
            await producer.send_oneway(Message("Orders", b"looked at"))
            await producer.flush()
        """
        parts = self._parts
        if parts.accumulator is not None:
            await parts.accumulator.flush()
        await parts.sender.in_flight.wait_idle()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be written.

        Raises:
            NoRoute: No broker has the topic.

        Example:
            queues = await producer.queues("Orders")
            await producer.send(Message("Orders", b"paid"), queue=queues[0])
        """
        parts = self._parts
        route = await parts.sender.route(parts.outgoing.wire_topic(topic), self._deadline(None))
        return parts.user_queues(topic, route.queues)

    async def recall_message(
        self, topic: str, recall_handle: str, *, timeout_ms: int | None = None
    ) -> str:
        """Have a message that is to be delivered later never be delivered.

        Needs a broker with the timer, version 5.3.2 or later, that allows it
        (``recallMessageEnable``), and some time before the message is due.

        Args:
            topic: The topic of the message.
            recall_handle: The handle of the result of its send.
            timeout_ms: How long it may take; by default ``send_timeout_ms``.

        Returns:
            The unique id of the message.

        Raises:
            BadName: The topic cannot have this name, or is one of retries or dead letters.
            BadMessage: The handle is none.
            NoRoute: Its broker is not known.
            BrokerRefused: The broker does not allow it, or the message is due already.
            ClientError: No answer came.

        Example:
            sent = await producer.send(Message("Orders", b"remind me", delay_level=3))
            if sent.recall_handle is not None:  # a broker with the timer gives one
                await producer.recall_message("Orders", sent.recall_handle)
        """
        return await self._parts.recall(topic, recall_handle, self._deadline(timeout_ms))

    # ------------------------------------------------------------- transactions and requests

    async def send_in_transaction(
        self, message: Message, execute: ExecuteTransaction, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Send a message that consumers see only if some work of the caller's own succeeds.

        The message is stored first, unseen; then ``execute`` runs; then the broker is told to show
        or to forget it. When that is lost, or the work raised, the broker asks ``check`` later.

        Args:
            message: The message.
            execute: Does the work: gets the message and the id of the transaction.
            timeout_ms: How long storing may take; by default ``send_timeout_ms``.

        Raises:
            ConfigError: The producer has no ``check``.
            BadMessage: The message is to be delivered later.
            ClientError: As :meth:`send`; then the work was not begun.

        Example:
            def book(message: Message, transaction_id: str) -> TransactionState:
                return TransactionState.COMMIT

            result = await producer.send_in_transaction(Message("Orders", b"paid"), book)
            assert result.state is TransactionState.COMMIT
        """
        parts = self._parts
        half = parts.transactions.half(message)
        deadline = self._deadline(timeout_ms)
        to = await parts.queue_of(message, None, None, None, deadline)
        sent = await parts.sender.send(parts.outgoing.of_message(half), deadline, to)
        return await parts.transactions.run(message, sent, execute, deadline.timeout_ms)

    async def request(
        self,
        message: Message,
        *,
        timeout_ms: int | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
    ) -> ReceivedMessage:
        """Send a message, and wait for the reply of a consumer.

        Args:
            message: The request.
            timeout_ms: How long storing and replying may take together; by default
                ``send_timeout_ms``.
            queue: The queue to send to.
            selector: Chooses the queue.
            arg: What the selector gets.

        Raises:
            RequestTimeout: No reply came in time.
            ClientError: As :meth:`send`.

        Example:
            try:
                answer = await producer.request(Message("Orders", b"how much?"), timeout_ms=100)
            except RequestTimeout as error:
                print(error.hint)
        """
        parts = self._parts
        deadline = self._deadline(timeout_ms)
        to = await parts.queue_of(message, queue, selector, arg, deadline)
        await parts.introduce(message.topic, deadline)
        asked, correlation_id, answer = parts.requests.open(message, deadline.timeout_ms)
        try:
            await parts.sender.send(parts.outgoing.of_message(asked), deadline, to)
            async with asyncio.timeout(max(deadline.left_ms(), 0) / 1000):
                return await answer
        except TimeoutError:
            raise parts.requests.late(message, deadline.timeout_ms) from None
        finally:
            parts.requests.forget(correlation_id)

    def _deadline(self, timeout_ms: int | None) -> Deadline:
        timeout_ms = self.options.send_timeout_ms if timeout_ms is None else timeout_ms
        return Deadline(self._parts.client, timeout_ms)


def _with_sharding_key(message: Message, sharding_key: str | None) -> Message:
    if sharding_key is None or message.sharding_key == sharding_key:
        return message
    return structs.replace(message, sharding_key=sharding_key)
