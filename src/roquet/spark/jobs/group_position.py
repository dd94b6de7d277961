"""The positions of groups in queues: what ``lag`` asks a store or a cluster, and the result."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["GroupPosition", "OffsetQuery"]


class OffsetQuery(NamedTuple):
    """A queue of a group.

    Attributes:
        group: The group.
        topic: The topic.
        broker: The broker; ``None`` for a store, which does not name its broker.
        queue_id: The queue.
        offset: The next offset that the group consumes.
    """

    group: str
    topic: str
    broker: str | None
    queue_id: int
    offset: int


class GroupPosition(NamedTuple):
    """The position of a group in a queue; the first fields are those of :class:`OffsetQuery`.

    Attributes:
        min_offset: Of the first message that still exists.
        max_offset: Of the next message to arrive.
        next_store_ms: When the group's next message was stored, if there is one.
        last_store_ms: When the last message of the queue was stored, if that was looked up.
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
