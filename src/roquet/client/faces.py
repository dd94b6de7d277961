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
        """The topics whose routes are to be kept fresh."""
        ...

    def check_transaction(
        self,
        message: ReceivedMessage,
        header: CheckTransactionStateRequestHeader,
        broker_address: str,
    ) -> None:
        """A broker asks what became of a half message; END_TRANSACTION goes to that address."""
        ...

    def reply_arrived(self, message: ReceivedMessage) -> bool:
        """A reply came; whether it answers a request of this producer."""
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
        """What brokers are told: the group, its kind and its subscriptions."""
        ...

    def rebalance_now(self) -> None:
        """The group changed: share the queues anew, soon."""
        ...

    async def persist_offsets(self) -> None:
        """Store how far the consumer is."""
        ...

    def reset_offsets(self, topic: str, queue_offsets: Mapping[MessageQueue, int]) -> None:
        """Go on from these offsets."""
        ...

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """How far the consumer is in each queue that it has of a topic."""
        ...

    def running_info(self) -> ConsumerRunningInfo:
        """How the consumer is, for people."""
        ...

    async def consume_directly(
        self, message: ReceivedMessage, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        """Have the handler consume one message now, out of turn."""
        ...
