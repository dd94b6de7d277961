"""Results of the admin API that are not bodies of the protocol.

Owns :class:`ServerResults`, the responses of several servers, and the small structs of the areas.
Anything else that :class:`~roquet.admin.Admin` returns is a body of :mod:`roquet.remoting.bodies`
or a setting of :mod:`roquet.model`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from msgspec import Struct, field

from roquet.client import ReceivedMessage
from roquet.errors import BrokersFailed, RoquetError
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.offset import OffsetWrapper
from roquet.remoting.bodies.topic import TopicOffset

__all__ = [
    "BrokerInfo",
    "GroupProgress",
    "MessagesFound",
    "QueueOffsets",
    "QueueReset",
    "ReplicaLag",
    "ServerResults",
    "TopicStats",
]

T = TypeVar("T")


class ServerResults(Struct, Generic[T], frozen=True, kw_only=True):
    """The results of several servers, and the failures.

    Attributes:
        answers: The results by broker name or name server address.
        failures: The errors of the other servers.

    Example:
        >>> ServerResults(answers={"broker-a": 3, "broker-b": 4}, failures={}).complete("Counting")
        {'broker-a': 3, 'broker-b': 4}
    """

    answers: dict[str, T]
    failures: dict[str, RoquetError]

    def complete(self, what: str) -> dict[str, T]:
        """Return the results if no server failed.

        Args:
            what: The operation, for the error message.

        Raises:
            RoquetError: There was only one server, and it failed.
            BrokersFailed: Some failed.

        Example:
            >>> from roquet.errors import ConnectFailed
            >>> found = ServerResults(answers={"a": 3}, failures={"b": ConnectFailed("b is down")})
            >>> try:
            ...     found.complete("Counting")
            ... except BrokersFailed as error:
            ...     print(error.message, error.detail, error.succeeded)
            Counting failed on 1 of 2 servers b: b is down ('a',)
        """
        if not self.failures:
            return self.answers
        if not self.answers and len(self.failures) == 1:
            raise next(iter(self.failures.values()))
        asked = len(self.answers) + len(self.failures)
        hints = {each.hint for each in self.failures.values()}
        raise BrokersFailed(
            f"{what} failed on {len(self.failures)} of {asked} servers",
            failures=self.failures,
            succeeded=tuple(self.answers),
            detail="; ".join(_words(name, error) for name, error in self.failures.items()),
            hint=hints.pop() if len(hints) == 1 else None,
        )

    def partial(self, what: str) -> dict[str, T]:
        """Return the results if there are any; the rest stays in :attr:`failures`.

        Args:
            what: The operation, for the error message.

        Raises:
            RoquetError: There was only one server, and it failed.
            BrokersFailed: All failed.

        Example:
            >>> from roquet.errors import ConnectFailed
            >>> found = ServerResults(answers={"a": 3}, failures={"b": ConnectFailed("b is down")})
            >>> found.partial("Counting")
            {'a': 3}
        """
        return self.answers or self.complete(what)


def _words(name: str, error: RoquetError) -> str:
    text = f"{name}: {error.message}"
    return f"{text} ({error.detail})" if error.detail else text


class BrokerInfo(Struct, frozen=True, kw_only=True):
    """One broker process.

    Attributes:
        cluster: Its cluster.
        name: Its name, which its slaves have too.
        broker_id: 0 for a master.
        address: Its address.

    Example:
        >>> BrokerInfo(cluster="c", name="broker-a", broker_id=0, address="h:1").is_master
        True
    """

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        """Whether it takes writes.

        Example:
            masters = [each.name for each in await admin.clusters.brokers() if each.is_master]
            assert masters == ["dev"]
        """
        return self.broker_id == 0


class ReplicaLag(Struct, frozen=True, kw_only=True):
    """How far one slave is behind its master.

    Attributes:
        broker: The slave.
        behind_bytes: How much of the master's log it does not have.
        behind_ms: The age of the oldest message that it does not have; 0 if it has all, ``None``
            if the master could not tell.

    Example:
        >>> slave = BrokerInfo(cluster="c", name="broker-a", broker_id=1, address="h:1")
        >>> ReplicaLag(broker=slave, behind_bytes=4096, behind_ms=20).behind_bytes
        4096
    """

    broker: BrokerInfo
    behind_bytes: int
    behind_ms: int | None


class TopicStats(Struct, frozen=True, kw_only=True):
    """The queues of a topic on all of its brokers.

    Attributes:
        topic: The topic.
        queues: First and next offset of each queue, sorted.
        put_tps: Messages stored per second.
        failures: Brokers whose queues are missing, and why.

    Example:
        >>> queue = MessageQueue("Orders", "broker-a", 0)
        >>> found = TopicStats(topic="Orders", queues={queue: TopicOffset(min_offset=3,
        ...                    max_offset=10)})
        >>> found.messages
        7
    """

    topic: str
    queues: dict[MessageQueue, TopicOffset]
    put_tps: float = 0.0
    failures: dict[str, RoquetError] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """The number of messages that can be read.

        Example:
            stats = await admin.topics.stats("Orders")
            assert stats.messages > 0
        """
        return sum(each.max_offset - each.min_offset for each in self.queues.values())


class QueueOffsets(Struct, frozen=True, kw_only=True):
    """The ends of a queue.

    Attributes:
        min_offset: The offset of the first message that still exists.
        max_offset: The offset that the next message gets.

    Example:
        >>> QueueOffsets(min_offset=3, max_offset=10)
        QueueOffsets(min_offset=3, max_offset=10)
    """

    min_offset: int
    max_offset: int


class GroupProgress(Struct, frozen=True, kw_only=True):
    """The progress of a group.

    Attributes:
        group: The group.
        queues: The offsets of the broker and of the group by queue, sorted.
        consume_tps: Messages consumed per second.
        failures: Brokers whose queues are missing, and why.

    Example:
        >>> queue = MessageQueue("Orders", "broker-a", 0)
        >>> progress = GroupProgress(group="billing", queues={queue: OffsetWrapper(
        ...     broker_offset=10, consumer_offset=7, pull_offset=9)})
        >>> progress.lag, progress.in_flight, progress.topics
        (3, 2, ['Orders'])
    """

    group: str
    queues: dict[MessageQueue, OffsetWrapper]
    consume_tps: float = 0.0
    failures: dict[str, RoquetError] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        """The number of messages not yet consumed.

        Example:
            progress = await admin.offsets.progress("billing")
            print(progress.lag)
        """
        return sum(each.broker_offset - each.consumer_offset for each in self.queues.values())

    @property
    def in_flight(self) -> int:
        """The number of these that clients have already pulled.

        Example:
            progress = await admin.offsets.progress("billing")
            print(progress.in_flight)
        """
        return sum(max(each.pull_offset - each.consumer_offset, 0) for each in self.queues.values())

    @property
    def topics(self) -> list[str]:
        """The topics, sorted.

        Example:
            progress = await admin.offsets.progress("billing")
            print(progress.topics)
        """
        return sorted({queue.topic for queue in self.queues})


class QueueReset(Struct, frozen=True, kw_only=True):
    """The reset of a group's offset in a queue.

    Attributes:
        queue: The queue.
        committed_offset: The old offset; -1 if the group had committed nothing.
        target_offset: The new offset.

    Example:
        >>> reset = QueueReset(queue=MessageQueue("Orders", "broker-a", 0), committed_offset=9,
        ...                    target_offset=4)
        >>> reset.is_move
        True
    """

    queue: MessageQueue
    committed_offset: int
    target_offset: int

    @property
    def is_move(self) -> bool:
        """Whether the offset changes.

        Example:
            plan = await admin.offsets.plan_reset("billing", "Orders", "earliest")
            moved = [each for each in plan if each.is_move]
        """
        return self.committed_offset != self.target_offset


class MessagesFound(Struct, frozen=True, kw_only=True):
    """Messages that a search found.

    Attributes:
        messages: The messages, sorted by store time.
        failures: Brokers whose messages are missing, and why.
        is_cut: Whether there are more than the limit.

    Example:
        >>> late = ReceivedMessage(topic="T", raw_body=b"2", store_timestamp_ms=9)
        >>> soon = ReceivedMessage(topic="T", raw_body=b"1", store_timestamp_ms=4)
        >>> found = MessagesFound.of([[late], [soon]], {}, max_messages=1)
        >>> [each.body for each in found.messages], found.is_cut
        ([b'1'], True)
    """

    messages: list[ReceivedMessage]
    failures: dict[str, RoquetError] = field(default_factory=dict)
    is_cut: bool = False

    @classmethod
    def of(
        cls,
        parts: Iterable[list[ReceivedMessage]],
        failures: dict[str, RoquetError],
        *,
        max_messages: int | None = None,
    ) -> MessagesFound:
        """Merge and sort the messages of brokers, up to the limit.

        Example:
            >>> MessagesFound.of([], {}).messages
            []
        """
        messages = sorted(
            (each for part in parts for each in part),
            key=lambda each: (each.store_timestamp_ms, each.queue, each.queue_offset),
        )
        is_cut = max_messages is not None and len(messages) > max_messages
        return cls(messages=messages[:max_messages], failures=failures, is_cut=is_cut)

    def check_complete(self, what: str) -> None:
        """Raise if some brokers did not respond.

        Args:
            what: The operation, for the error message.

        Raises:
            RoquetError: One failed.
            BrokersFailed: Several failed.

        Example:
            >>> MessagesFound(messages=[]).check_complete("Searching")
        """
        ServerResults[None](answers={}, failures=self.failures).complete(what)
