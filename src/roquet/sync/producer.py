"""The producer without asyncio.

Owns the blocking :class:`Producer` and :class:`TransactionProducer`. Any number of threads may use
one of them.

Where the caller's functions run:

============================ =================================================================
the work of a transaction    in the thread that sends it
``check`` of transactions    in a thread; it may block and may send
selectors and hooks          on the thread of the event loop; they must not block
============================ =================================================================
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Unpack

from roquet import client as aio
from roquet.client.hooks import SendHook
from roquet.client.message import Message, ReceivedMessage
from roquet.client.options import ClientOptions
from roquet.client.producer_options import ProducerOptions, ProducerSettings
from roquet.client.transaction import (
    CheckTransaction,
    ExecuteTransaction,
    TransactionListener,
    TransactionResult,
    TransactionState,
)
from roquet.sync.blocking_proxy import LifetimeProxy, blocking
from roquet.sync.loop import CallerThreadCalls

__all__ = ["Producer", "TransactionProducer"]


class Producer(LifetimeProxy[aio.Producer]):
    """Sends messages, and waits until each is stored.

    Args:
        client: The name servers, as ``host:port``, separated by semicolons or as a sequence; or
            all settings of the client.
        group: The group. Brokers check transactions with any producer of it.
        check: Returns the state of a transaction; needed to send in transactions. It runs in a
            thread.
        hooks: Hooks that run around every attempt to send, on the thread of the event loop.
        settings: The fields of :class:`~roquet.client.ProducerOptions`.

    Raises:
        BadName: The group cannot have this name.
        ConfigError: A setting cannot be used.

    Example:
        with Producer(namesrv, group="billing") as producer:
            result = producer.send(Message("Orders", b"paid", keys="17"))
        assert result.status is SendStatus.SEND_OK
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
        check = None if check is None else _in_thread(check)
        super().__init__(aio.Producer(client, group=group, check=check, hooks=hooks, **settings))

    @property
    def group(self) -> str:
        """The group.

        Example:
            assert producer.group == "examples"
        """
        return self._inner.group

    @property
    def options(self) -> ProducerOptions:
        """The settings.

        Example:
            assert producer.options.retry_times == 2
        """
        return self._inner.options

    @property
    def in_flight(self) -> int:
        """The number of sends in flight, from other threads.

        Example:
            assert producer.in_flight == 0
        """
        return self._inner.in_flight

    send = blocking(aio.Producer.send)
    send_oneway = blocking(aio.Producer.send_oneway)
    send_batch = blocking(aio.Producer.send_batch)
    flush = blocking(aio.Producer.flush)
    queues = blocking(aio.Producer.queues)
    recall_message = blocking(aio.Producer.recall_message)
    request = blocking(aio.Producer.request)

    def send_in_transaction(
        self, message: Message, execute: ExecuteTransaction, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Send a message that consumers see only if the caller's local work succeeds.

        The message is first stored as a half message, which consumers do not see; then ``execute``
        runs, in this thread; then the broker commits it or rolls it back. If that request is lost,
        or the state is ``UNKNOWN``, the broker calls ``check`` later.

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

            result = producer.send_in_transaction(Message("Orders", b"paid"), book)
            assert result.state is TransactionState.COMMIT
        """
        turns = CallerThreadCalls(execute)

        async def executed(message: Message, transaction_id: str) -> TransactionState:
            state = await turns.call(message, transaction_id)
            return await state if inspect.isawaitable(state) else state

        return self._runner.run(
            lambda: self._inner.send_in_transaction(message, executed, timeout_ms=timeout_ms),
            meanwhile=turns.serve,
        )


class TransactionProducer(Producer):
    """A producer whose transactions have one listener.

    Args:
        client: The name servers, or all settings of the client.
        group: The group.
        listener: Does the work, in the thread that sends, and is asked for its outcome later, in
            another thread.
        hooks: Hooks that run around every attempt to send, on the thread of the event loop.
        settings: The fields of :class:`~roquet.client.ProducerOptions`.

    Raises:
        BadName: The group cannot have this name.
        ConfigError: A setting cannot be used.

    Example:
        class Payments:
            def execute(self, message: Message, transaction_id: str) -> TransactionState:
                return TransactionState.COMMIT

            def check(self, message: ReceivedMessage) -> TransactionState:
                return TransactionState.COMMIT

        with TransactionProducer(namesrv, group="payments", listener=Payments()) as payments:
            result = payments.send_transaction(Message("Orders", b"paid"))
        assert result.state is TransactionState.COMMIT
    """

    def __init__(
        self,
        client: str | Sequence[str] | ClientOptions,
        *,
        group: str,
        listener: TransactionListener,
        hooks: Sequence[SendHook] = (),
        **settings: Unpack[ProducerSettings],
    ) -> None:
        super().__init__(client, group=group, check=listener.check, hooks=hooks, **settings)
        self._listener = listener

    def send_transaction(
        self, message: Message, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Send a message in a transaction whose work the listener does, in this thread.

        Args:
            message: The message.
            timeout_ms: How long storing may take; by default ``send_timeout_ms``.

        Raises:
            ClientError: As :meth:`Producer.send_in_transaction`.

        Example:
            result = transaction_producer.send_transaction(Message("Orders", b"paid"))
            assert result.state is TransactionState.COMMIT
        """
        return self.send_in_transaction(message, self._listener.execute, timeout_ms=timeout_ms)


def _in_thread(check: CheckTransaction) -> CheckTransaction:
    async def checked(message: ReceivedMessage) -> TransactionState:
        state = await asyncio.to_thread(check, message)
        return await state if inspect.isawaitable(state) else state

    return checked
