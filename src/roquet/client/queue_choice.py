"""Which queue a message goes to.

Owns the round robin of Apache RocketMQ's client, which avoids the broker that just failed and
brokers with faults, and the ready-made selectors.

Invariants:

* Every topic has its own position in the round, with a random start, so that producers that start
  together do not all begin with one broker.
* Selectors use Java's hashes: a Java and a Python producer send the same key to the same queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from roquet.client.fault import LatencyFaults
from roquet.client.message import Message
from roquet.errors import BadMessage
from roquet.model.java_string import java_hash
from roquet.model.message_queue import MessageQueue
from roquet.runtime.randomness import Randomness

__all__ = [
    "QueueSelector",
    "RoundRobinQueues",
    "select_by_hash",
    "select_by_random",
    "select_by_sharding_key",
]

QueueSelector: TypeAlias = Callable[[Sequence[MessageQueue], Message, object], MessageQueue]
"""Chooses the queue of a message, given the queues, the message and the caller's argument.

Example:
    def by_customer(
        queues: Sequence[MessageQueue], message: Message, customer: object
    ) -> MessageQueue:
        return queues[int(str(customer)) % len(queues)]

    await producer.send(Message("Orders", b"paid"), selector=by_customer, arg=17)
"""

_INDEX_MASK = 0x7FFFFFFF
_INT_MAX = 2**31 - 1


class RoundRobinQueues:
    """Chooses queues in turn.

    Args:
        randomness: Chooses where rounds start.
        faults: Brokers to avoid; ``None`` avoids only the one that just failed.

    Attributes:
        indexes: The position in the round by topic.
    """

    def __init__(self, randomness: Randomness, faults: LatencyFaults | None = None) -> None:
        self._randomness = randomness
        self._faults = faults
        self.indexes: dict[str, int] = {}

    def choose(
        self, topic: str, queues: Sequence[MessageQueue], *, after_broker: str | None = None
    ) -> MessageQueue:
        """Return the next queue.

        Args:
            topic: The topic.
            queues: Its queues; at least one.
            after_broker: The broker where the last attempt of the same message failed.
        """
        faults = self._faults
        if faults is None:
            if after_broker is None:
                return queues[self._next(topic) % len(queues)]
            found = self._first(topic, queues, after_broker, None)
            return found or queues[self._next(topic) % len(queues)]
        if after_broker is not None:
            self.indexes[topic] = self._randomness.getrandbits(31)
        return (
            self._first(topic, queues, after_broker, faults.is_available)
            or self._first(topic, queues, after_broker, faults.is_reachable)
            or queues[self._next(topic) % len(queues)]
        )

    def _first(
        self,
        topic: str,
        queues: Sequence[MessageQueue],
        after_broker: str | None,
        is_good: Callable[[str], bool] | None,
    ) -> MessageQueue | None:
        for _ in queues:
            queue = queues[self._next(topic) % len(queues)]
            name = queue.broker_name
            if name != after_broker and (is_good is None or is_good(name)):
                return queue
        return None

    def _next(self, topic: str) -> int:
        index = self.indexes.get(topic)
        if index is None:
            index = self._randomness.getrandbits(31)
        index = (index + 1) & _INDEX_MASK
        self.indexes[topic] = index
        return index


def select_by_hash(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """Return the queue that Java's ``SelectMessageQueueByHash`` selects for the argument.

    Strings and integers hash as in Java; anything else is converted to a string first.

    Example:
        >>> queues = [MessageQueue("T", "a", queue_id) for queue_id in range(4)]
        >>> select_by_hash(queues, Message("T", b"x"), "order-17").queue_id
        1
        >>> select_by_hash(queues, Message("T", b"x"), -6).queue_id
        2
    """
    del message
    return queues[abs(_java_hash_of(arg)) % len(queues)]


def select_by_random(randomness: Randomness) -> QueueSelector:
    """Return a selector that chooses a random queue.

    Example:
        >>> from roquet.runtime.randomness import seeded
        >>> selector = select_by_random(seeded(1))
        >>> selector([MessageQueue("T", "a", 0)], Message("T", b"x"), None).queue_id
        0
    """

    def select(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        del message, arg
        return queues[randomness.randrange(len(queues))]

    return select


def select_by_sharding_key(
    queues: Sequence[MessageQueue], message: Message, arg: object
) -> MessageQueue:
    """Return the queue for the message's sharding key.

    Raises:
        BadMessage: It has none.

    Example:
        >>> queues = [MessageQueue("T", "a", queue_id) for queue_id in range(4)]
        >>> message = Message("T", b"x", sharding_key="order-17")
        >>> select_by_sharding_key(queues, message, None).queue_id
        1
    """
    del arg
    if not message.sharding_key:
        raise BadMessage("The message has no sharding key", hint="Set sharding_key.")
    return select_by_hash(queues, message, message.sharding_key)


def _java_hash_of(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        return java_hash(str(value))
    if -_INT_MAX - 1 <= value <= _INT_MAX:
        return value
    # Long.hashCode(): the high half XOR the low half, as a signed 32-bit number.
    folded = (value ^ ((value & (2**64 - 1)) >> 32)) & 0xFFFFFFFF
    return folded - 2**32 if folded > _INT_MAX else folded
