"""The queue offsets of a query.

Owns their two forms: a map by queue, which the code uses, and the JSON of checkpoints and options,
``{topic: {broker: {queue: offset}}}``.

Invariant: :func:`from_json` reads what :func:`to_json` of this or any earlier version wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from roquet.errors import SparkOptionError
from roquet.model.message_queue import MessageQueue
from roquet.spark.options import Offsets, parse_offsets

__all__ = [
    "OffsetsJson",
    "QueueOffsets",
    "by_queue",
    "from_json",
    "named",
    "parse_assignment",
    "queue_text",
    "to_json",
]

QueueOffsets: TypeAlias = dict[MessageQueue, int]
OffsetsJson: TypeAlias = dict[str, dict[str, dict[str, int]]]


def queue_text(queue: MessageQueue) -> str:
    """Return the name of a queue for messages.

    Example:
        >>> queue_text(MessageQueue("Orders", "broker-a", 3))
        'queue 3 of Orders on broker-a'
    """
    return f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"


def to_json(offsets: Mapping[MessageQueue, int]) -> OffsetsJson:
    """The JSON form, sorted so that equal offsets have equal texts.

    Example:
        >>> to_json({MessageQueue("Orders", "a", 1): 7, MessageQueue("Orders", "a", 0): 3})
        {'Orders': {'a': {'0': 3, '1': 7}}}
    """
    found: OffsetsJson = {}
    for queue in sorted(offsets):
        brokers = found.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return found


def by_queue(offsets: Offsets) -> QueueOffsets:
    """The offsets of an option, by queue.

    Example:
        >>> by_queue({"Orders": {"a": {0: -2}}})
        {MessageQueue(topic='Orders', broker_name='a', queue_id=0): -2}
    """
    return {
        MessageQueue(topic, broker, queue_id): offset
        for topic, brokers in offsets.items()
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


def from_json(value: object) -> QueueOffsets:
    """The offsets of a checkpoint.

    Args:
        value: The decoded JSON.

    Raises:
        SparkOptionError: The JSON has another form.
    """
    try:
        return by_queue(parse_offsets(msgspec.json.encode(value).decode()))
    except ValueError as error:
        raise SparkOptionError(
            f"The offsets in the checkpoint cannot be used: they are {error}.",
            hint="Is it the checkpoint of another query? Use a separate folder for this one.",
        ) from None


def parse_assignment(text: str) -> list[MessageQueue]:
    """The queues of the option ``assign``: ``{topic: {broker: [queue, …]}}``.

    Raises:
        ValueError: It is not JSON of that form; the text says why and follows "which is".

    Example:
        >>> [queue_text(each) for each in parse_assignment('{"Orders": {"a": [1]}}')]
        ['queue 1 of Orders on a']
    """
    try:
        decoded = msgspec.json.decode(text, type=dict[str, dict[str, list[int]]])
    except msgspec.ValidationError as error:
        raise ValueError(f"of a wrong shape ({error})") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"not JSON ({error})") from None
    found = {
        MessageQueue(topic, broker, queue_id)
        for topic, brokers in decoded.items()
        for broker, queue_ids in brokers.items()
        for queue_id in queue_ids
    }
    if not found or any(queue.queue_id < 0 for queue in found):
        raise ValueError("naming no queue" if not found else "naming a queue below 0")
    return sorted(found)


def named(queues: Iterable[MessageQueue], *, most: int = 5) -> str:
    """A list of queues for a message, truncated when long.

    Example:
        >>> named([MessageQueue("Orders", "a", 1), MessageQueue("Orders", "a", 0)], most=1)
        'queue 0 of Orders on a and 1 more'
    """
    ordered = sorted(queues)
    shown = ", ".join(queue_text(queue) for queue in ordered[:most])
    left = len(ordered) - most
    return f"{shown} and {left} more" if left > 0 else shown
