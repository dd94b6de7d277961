"""The callbacks from a :class:`~roquet.client.instance.ClientInstance` to its users.

Owns the two protocols. Everything runs on the event loop; a method that returns ``None`` must not
wait, so it starts a task for longer work. Topics and groups have their names on the wire, with the
namespace.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from roquet.client.message import ReceivedMessage
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.client import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
)
from roquet.remoting.headers.send import CheckTransactionStateRequestHeader

__all__ = ["ConsumerCallbacks", "ProducerCallbacks"]


class ProducerCallbacks(Protocol):
    """A producer, as its client instance sees it.

    Example:
        >>> class Quiet:
        ...     def publish_topics(self) -> list[str]:
        ...         return ["Orders"]
        ...     def check_transaction(self, message, header, broker_address) -> None:
        ...         print("what became of", message.transaction_id)
        ...     def reply_arrived(self, message) -> bool:
        ...         return False
        >>> callbacks: ProducerCallbacks = Quiet()
        >>> callbacks.publish_topics()
        ['Orders']
    """

    def publish_topics(self) -> Collection[str]:
        """Return the topics whose routes must be kept up to date.

        Example:
            assert "Orders" in producer_callbacks.publish_topics()
        """
        ...

    def check_transaction(
        self,
        message: ReceivedMessage,
        header: CheckTransactionStateRequestHeader,
        broker_address: str,
    ) -> None:
        """Check a transaction for a broker; END_TRANSACTION goes to this address.

        Example:
            from roquet.remoting.headers.send import CheckTransactionStateRequestHeader

            header = CheckTransactionStateRequestHeader(
                topic="Orders", half_queue_offset=0, physical_offset=0
            )
            producer_callbacks.check_transaction(received, header, broker_address)
        """
        ...

    def reply_arrived(self, message: ReceivedMessage) -> bool:
        """Take a reply; returns whether it belongs to a request of this producer.

        Example:
            is_ours = producer_callbacks.reply_arrived(received)
        """
        ...


class ConsumerCallbacks(Protocol):
    """A consumer, as its client instance sees it.

    Example:
        >>> class Idle:
        ...     def heartbeat_data(self) -> ConsumerData:
        ...         return ConsumerData(group_name="billing")
        ...     def rebalance_now(self) -> None: ...
        ...     async def persist_offsets(self) -> None: ...
        ...     def reset_offsets(self, topic, queue_offsets) -> None: ...
        ...     def status(self, topic) -> dict[MessageQueue, int]:
        ...         return {}
        ...     def running_info(self) -> ConsumerRunningInfo:
        ...         return ConsumerRunningInfo()
        ...     async def consume_directly(self, message, broker_name):
        ...         return ConsumeMessageDirectlyResult()
        >>> callbacks: ConsumerCallbacks = Idle()
        >>> callbacks.heartbeat_data().group_name
        'billing'
    """

    def heartbeat_data(self) -> ConsumerData:
        """Return the data for heartbeats: the group, its kind and its subscriptions.

        Example:
            assert consumer_callbacks.heartbeat_data().group_name == "billing"
        """
        ...

    def rebalance_now(self) -> None:
        """Rebalance the queues soon, because the group changed.

        Example:
            consumer_callbacks.rebalance_now()
        """
        ...

    async def persist_offsets(self) -> None:
        """Store the consumer's offsets.

        Example:
            await consumer_callbacks.persist_offsets()
        """
        ...

    def reset_offsets(self, topic: str, queue_offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from these offsets.

        Example:
            consumer_callbacks.reset_offsets("Orders", {queue: 0})
        """
        ...

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the consumer's offset in each of its queues of a topic.

        Example:
            print(consumer_callbacks.status("Orders"))
        """
        ...

    def running_info(self) -> ConsumerRunningInfo:
        """Return the consumer's state, for administrators.

        Example:
            print(consumer_callbacks.running_info().properties)
        """
        ...

    async def consume_directly(
        self, message: ReceivedMessage, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        """Have the handler consume one message now, out of turn.

        Example:
            result = await consumer_callbacks.consume_directly(received, "dev")
        """
        ...
