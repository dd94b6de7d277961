"""The producer whose transactions have one listener.

Owns :class:`TransactionProducer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from roquet.client.hooks import SendHook
from roquet.client.message import Message
from roquet.client.options import ClientOptions
from roquet.client.producer import Producer
from roquet.client.producer_options import ProducerSettings
from roquet.client.transaction import TransactionListener, TransactionResult

__all__ = ["TransactionProducer"]


class TransactionProducer(Producer):
    """A producer whose transactions have one listener.

    Args:
        client: As of :class:`Producer`.
        group: As of :class:`Producer`.
        listener: Does the work of transactions, and returns its state when checked.
        hooks: As of :class:`Producer`.
        settings: As of :class:`Producer`.

    Example:
        class Payments:
            booked: set[str | None] = set()

            def execute(self, message: Message, transaction_id: str) -> TransactionState:
                self.booked.add(transaction_id)
                return TransactionState.COMMIT

            async def check(self, message: ReceivedMessage) -> TransactionState:
                is_booked = message.transaction_id in self.booked
                return TransactionState.COMMIT if is_booked else TransactionState.ROLLBACK

        async with TransactionProducer(namesrv, group="payments", listener=Payments()) as payments:
            result = await payments.send_transaction(Message("Orders", b"paid"))
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

    async def send_transaction(
        self, message: Message, *, timeout_ms: int | None = None
    ) -> TransactionResult:
        """Send a message in a transaction whose work the listener does.

        Args:
            message: The message.
            timeout_ms: How long storing may take; by default ``send_timeout_ms``.

        Raises:
            ClientError: As :meth:`Producer.send_in_transaction`.

        Example:
            result = await transaction_producer.send_transaction(Message("Orders", b"paid"))
            assert result.state is TransactionState.COMMIT
        """
        return await self.send_in_transaction(
            message, self._listener.execute, timeout_ms=timeout_ms
        )
