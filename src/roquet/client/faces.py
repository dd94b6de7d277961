"""What a :class:`~roquet.client.instance.ClientInstance` asks of its producers and consumers.

Owns the two protocols. Everything runs on the event loop; a method that returns ``None`` must not
wait, so it starts a task for work that takes time. Topics and groups are those of the wire, with
the namespace.
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

__all__ = ["ConsumerFace", "ProducerFace"]


class ProducerFace(Protocol):
    """A producer, as its client instance sees it.

    Example:
        >>> class Quiet:
        ...     def publish_topics(self) -> list[str]:
        ...         return ["Orders"]
        ...     def check_transaction(self, message, header, broker_address) -> None:
        ...         print("what became of", message.transaction_id)
        ...     def reply_arrived(self, message) -> bool:
        ...         return False
        >>> face: ProducerFace = Quiet()
        >>> face.publish_topics()
        ['Orders']
    """

    def publish_topics(self) -> Collection[str]:
        """The topics whose routes are to be kept fresh.

        Example:
            assert "Orders" in producer_face.publish_topics()
        """
        ...

    def check_transaction(
        self,
        message: ReceivedMessage,
        header: CheckTransactionStateRequestHeader,
        broker_address: str,
    ) -> None:
        """A broker asks what became of a half message; END_TRANSACTION goes to that address.

        Example:
            from roquet.remoting.headers.send import CheckTransactionStateRequestHeader

            header = CheckTransactionStateRequestHeader(
                topic="Orders", half_queue_offset=0, physical_offset=0
            )
            producer_face.check_transaction(received, header, broker_address)
        """
        ...

    def reply_arrived(self, message: ReceivedMessage) -> bool:
        """A reply came; whether it answers a request of this producer.

        Example:
            is_ours = producer_face.reply_arrived(received)
        """
        ...


class ConsumerFace(Protocol):
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
        >>> face: ConsumerFace = Idle()
        >>> face.heartbeat_data().group_name
        'billing'
    """

    def heartbeat_data(self) -> ConsumerData:
        """What brokers are told: the group, its kind and its subscriptions.

        Example:
            assert consumer_face.heartbeat_data().group_name == "billing"
        """
        ...

    def rebalance_now(self) -> None:
        """The group changed: share the queues anew, soon.

        Example:
            consumer_face.rebalance_now()
        """
        ...

    async def persist_offsets(self) -> None:
        """Store how far the consumer is.

        Example:
            await consumer_face.persist_offsets()
        """
        ...

    def reset_offsets(self, topic: str, queue_offsets: Mapping[MessageQueue, int]) -> None:
        """Go on from these offsets.

        Example:
            consumer_face.reset_offsets("Orders", {queue: 0})
        """
        ...

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """How far the consumer is in each queue that it has of a topic.

        Example:
            print(consumer_face.status("Orders"))
        """
        ...

    def running_info(self) -> ConsumerRunningInfo:
        """How the consumer is, for people.

        Example:
            print(consumer_face.running_info().properties)
        """
        ...

    async def consume_directly(
        self, message: ReceivedMessage, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        """Have the handler consume one message now, out of turn.

        Example:
            result = await consumer_face.consume_directly(received, "dev")
        """
        ...
