"""The name of a queue in a cluster."""

from __future__ import annotations

from msgspec import Struct


class MessageQueue(Struct, frozen=True, order=True, cache_hash=True, rename="camel"):
    """One queue of a topic on one broker; upstream sorts by topic, broker and queue, so do we.

    Example:
        queues = [MessageQueue("Orders", "dev", 1), MessageQueue("Orders", "dev", 0)]
        assert [each.queue_id for each in sorted(queues)] == [0, 1]
    """

    topic: str
    broker_name: str
    queue_id: int
