"""Where groups stand in queues: what ``lag`` asks of a store or a cluster, and is told."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Asked", "Stand"]


class Asked(NamedTuple):
    """A queue of a group.

    Attributes:
        group: The group.
        topic: The topic.
        broker: The broker; ``None`` for a store, which does not say whose it is.
        queue_id: The queue.
        offset: From which the group goes on.
    """

    group: str
    topic: str
    broker: str | None
    queue_id: int
    offset: int


class Stand(NamedTuple):
    """Where a group stands in a queue; the first fields are those of :class:`Asked`.

    Attributes:
        min_offset: Of the first message that is there.
        max_offset: That the next message gets.
        next_store_ms: When the message was stored from which the group goes on, if there is one.
        last_store_ms: When the last message of the queue was stored, if that was looked at.
    """

    group: str
    topic: str
    broker: str | None
    queue_id: int
    offset: int
    min_offset: int
    max_offset: int
    next_store_ms: int | None
    last_store_ms: int | None
