"""The producer.

Owns :class:`Producer`, the public class. Its parts are other modules: messages on the wire in
``outgoing_message.py``, attempts in ``sender.py``, queues in ``queue_choice.py``, automatic batches
in ``accumulator.py``, and ``running_producer.py`` combines them.

Invariants:

* When a send returns, the message is stored; its result says how safely. If it raises
  ``SendFailed`` or ``RequestTimeout``, the message may still have been stored.
* The sends in flight are bounded in number and bytes; further sends wait.
* Closing waits for the sends in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Unpack

from msgspec import structs

from roquet.client.deadline import Deadline
from roquet.client.hooks import SendHook
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import Running
from roquet.client.message import Message, ReceivedMessage, SendResult
from roquet.client.names import check_group
from roquet.client.options import ClientOptions
from roquet.client.outgoing_message import check_batch, split_batch
from roquet.client.plain_send import Outcome
from roquet.client.producer_options import ProducerOptions, ProducerSettings
from roquet.client.queue_choice import QueueSelector
from roquet.client.running_producer import RunningProducer
from roquet.client.transaction import (
    CheckTransaction,
    ExecuteTransaction,
    TransactionResult,
)
from roquet.errors import BadMessage, ClientError, PartlySent
from roquet.model.message_queue import MessageQueue

__all__ = ["Producer"]


class Producer(Running[RunningProducer]):
    """Sends messages.

    Args:
        client: The name servers, as ``host:port``, separated by semicolons or as a sequence; or
            all settings of the client.
        group: The group. Brokers check transactions with any producer of it.
        check: Returns the state of a transaction; needed to send in transactions.
        hooks: Hooks that run around every attempt to send.
        settings: The fields of :class:`~roquet.client.ProducerOptions`.

    Raises:
        BadName: The group cannot have this name.
        ConfigError: A setting cannot be used.

    Example:
        >>> from roquet.testing import broker  # any RocketMQ will do
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

    # ---------------------------------------------------------------------- start and close

    async def start(self) -> None:
        """Start. No request is sent yet: a wrong address shows with the first send.

        Raises:
            ConfigError: The client has another producer of the group, or other settings.
            ClientClosed: The producer was closed.

        Example:
            later = Producer(namesrv, group="later")
            await later.start()
            await later.close()
        """
        await super().start()

    async def _open(self) -> RunningProducer:
        client = await ClientInstance.open(self._client_options)
        try:
            running = RunningProducer(
                client, self.group, self.options, check=self._check, hooks=self._hooks
            )
            client.register_producer(running.group, running)
        except BaseException:
            await client.close()
            raise
        try:
            await client.heartbeat()
        except BaseException:
            await running.close()
            raise
        return running

    async def close(self) -> None:
        """Wait for the sends in flight, and close.

        Example:
            short = Producer(namesrv, group="short")
            await short.start()
            await short.close()
        """
        await super().close()

    @property
    def client(self) -> ClientInstance:
        """The client instance of the producer.

        Raises:
            ClientClosed: The producer is not started, or closed.

        Example:
            print(producer.client.client_id)
        """
        return self._started.client

    @property
    def in_flight(self) -> int:
        """The number of sends in flight.

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
        failure another broker is tried. Otherwise there is one attempt. The send waits for
        unreachable brokers until its timeout, unless ``retry_times`` is 0.

        Args:
            message: The message.
            queue: The queue to send to.
            selector: Chooses the queue.
            arg: An argument for the selector.
            sharding_key: Messages with one key go to one queue; by default the message's own key.
            timeout_ms: How long it may take; by default ``send_timeout_ms``.

        Raises:
            ClientClosed: The producer is not started, or closed.
            BadName: The topic cannot be sent to.
            BadMessage: The message is invalid.
            MessageTooLarge: Its body or its properties are too long.
            NoRoute: No broker has the topic.
            ConnectFailed: No broker could be reached; the message is not stored.
            SendFailed: The connection was lost; the message may still have been stored.
            RequestTimeout: No response came in time; the message may still have been stored.
            BrokerRefused: A broker refused the message.

        Example:
            result = await producer.send(Message("Orders", b"paid", tags="paid", keys="17"))
            print(result.status, result.message_id, result.queue_offset)
            await producer.send(Message("Orders", b"sent"), sharding_key="17")
        """
        running = self._started
        plain = running.plain
        if plain is not None and queue is None and selector is None and sharding_key is None:
            sending = plain.begin(message, timeout_ms)
            if sending is not None:
                try:
                    outcome: Outcome = await sending[0]
                except BaseException as error:  # noqa: BLE001 - raised again by go_on
                    outcome = error
                return plain.end(sending, outcome) or await plain.go_on(sending, outcome)
        if sharding_key is not None:
            message = _with_sharding_key(message, sharding_key)
        deadline = self._deadline(timeout_ms)
        to = None
        if queue is not None or selector is not None or message.sharding_key:
            to = await running.queue_of(message, queue, selector, arg, deadline)
        accumulator = running.accumulator
        if accumulator is not None and timeout_ms is None and accumulator.takes(message):
            message = running.into_batch(message)
            running.outgoing.check(message)
            return await accumulator.send(message, to)
        return await running.sender.send(running.outgoing.of_message(message), deadline, to)

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
        """Send a message without waiting for a response, and without retries.

        Args:
            message: The message.
            queue: The queue to send to.
            selector: Chooses the queue.
            arg: An argument for the selector.
            sharding_key: Messages with one key go to one queue.
            timeout_ms: How long it may take to hand the message to the network.

        Raises:
            ClientError: As :meth:`send`, except for errors from a broker's response.

        Example:
            await producer.send_oneway(Message("Orders", b"looked at"))
        """
        running = self._started
        message = _with_sharding_key(message, sharding_key)
        deadline = self._deadline(timeout_ms)
        to = await running.queue_of(message, queue, selector, arg, deadline)
        await running.sender.send_oneway(running.outgoing.of_message(message), deadline, to)

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
            messages: The messages; all of one topic, and none of them delayed.
            queue: The queue to send to.
            sharding_key: Messages with one key go to one queue; by default the messages' own key,
                which must be the same for all unless the queue is given.
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
        running = self._started
        check_batch(messages)
        keys = {sharding_key or message.sharding_key for message in messages}
        if queue is None and len(keys) > 1:
            raise BadMessage(
                "The messages of a batch must have the same sharding key",
                detail=", ".join(sorted(str(key) for key in keys)),
                hint="Send one batch for each key, or pass the queue.",
            )
        messages = [running.into_batch(message) for message in messages]
        for message in messages:
            running.outgoing.check(message)
        results: list[SendResult] = []
        for chunk in split_batch(messages, max_bytes=self.options.max_message_bytes):
            try:
                keyed = [_with_sharding_key(message, sharding_key) for message in chunk]
                deadline = self._deadline(timeout_ms)
                to = await running.queue_of(keyed[0], queue, None, None, deadline)
                results += await running.send_batch(keyed, to, deadline)
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
        """Wait until all sends in flight are done.

        Example:
            await producer.send_oneway(Message("Orders", b"looked at"))
            await producer.flush()
        """
        running = self._started
        if running.accumulator is not None:
            await running.accumulator.flush()
        await running.sender.in_flight.wait_idle()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic.

        Raises:
            NoRoute: No broker has the topic.

        Example:
            queues = await producer.queues("Orders")
            await producer.send(Message("Orders", b"paid"), queue=queues[0])
        """
        running = self._started
        route = await running.sender.route(running.outgoing.wire_topic(topic), self._deadline(None))
        return running.user_queues(topic, route.queues)

    async def recall_message(
        self, topic: str, recall_handle: str, *, timeout_ms: int | None = None
    ) -> str:
        """Recall a delayed message, so that it is never delivered.

        Needs a broker with the timer, version 5.3.2 or later, that allows recalls
        (``recallMessageEnable``), and some time before the message is due.

        Args:
            topic: The topic of the message.
            recall_handle: The handle from the result of its send.
            timeout_ms: How long it may take; by default ``send_timeout_ms``.

        Returns:
            The unique id of the message.

        Raises:
            BadName: The topic cannot have this name, or is a retry or dead-letter topic.
            BadMessage: The handle is invalid.
            NoRoute: Its broker is unknown.
            BrokerRefused: The broker does not allow it, or the message is already due.
            ClientError: No response came.

        Example:
            sent = await producer.send(Message("Orders", b"remind me", delay_level=3))
            if sent.recall_handle is not None:  # a broker with the timer gives one
                await producer.recall_message("Orders", sent.recall_handle)
        """
        return await self._started.recall(topic, recall_handle, self._deadline(timeout_ms))

    # ------------------------------------------------------------- transactions and requests

    async def send_in_transaction(
        self, message: Message, execute: ExecuteTransaction, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Send a message that consumers see only if the caller's local work succeeds.

        The message is first stored as a half message, which consumers do not see; then ``execute``
        runs; then the broker commits it or rolls it back. If that request is lost, or the state is
        ``UNKNOWN``, the broker calls ``check`` later.

        Args:
            message: The message.
            execute: Does the work, given the message and the transaction id.
            timeout_ms: How long storing may take; by default ``send_timeout_ms``.

        Raises:
            ConfigError: The producer has no ``check``.
            BadMessage: The message is delayed.
            ClientError: As :meth:`send`; the work was not started.
            Exception: The exception of ``execute``, after the message was rolled back.

        Example:
            def book(message: Message, transaction_id: str) -> TransactionState:
                return TransactionState.COMMIT

            result = await producer.send_in_transaction(Message("Orders", b"paid"), book)
            assert result.state is TransactionState.COMMIT
        """
        running = self._started
        half = running.transactions.half(message)
        deadline = self._deadline(timeout_ms)
        to = await running.queue_of(message, None, None, None, deadline)
        sent = await running.sender.send(running.outgoing.of_message(half), deadline, to)
        return await running.transactions.run(message, sent, execute, deadline.timeout_ms)

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
            arg: An argument for the selector.

        Raises:
            RequestTimeout: No reply came in time.
            ClientError: As :meth:`send`.

        Example:
            try:
                answer = await producer.request(Message("Orders", b"how much?"), timeout_ms=100)
            except RequestTimeout as error:
                print(error.hint)
        """
        running = self._started
        deadline = self._deadline(timeout_ms)
        to = await running.queue_of(message, queue, selector, arg, deadline)
        await running.introduce(message.topic, deadline)
        asked, correlation_id, answer = running.requests.open(message, deadline.timeout_ms)
        try:
            await running.sender.send(running.outgoing.of_message(asked), deadline, to)
            async with asyncio.timeout(max(deadline.left_ms(), 0) / 1000):
                return await answer
        except TimeoutError:
            raise running.requests.late(message, deadline.timeout_ms) from None
        finally:
            running.requests.forget(correlation_id)

    def _deadline(self, timeout_ms: int | None) -> Deadline:
        timeout_ms = self.options.send_timeout_ms if timeout_ms is None else timeout_ms
        return Deadline(self._started.client, timeout_ms)


def _with_sharding_key(message: Message, sharding_key: str | None) -> Message:
    if sharding_key is None or message.sharding_key == sharding_key:
        return message
    return structs.replace(message, sharding_key=sharding_key)
