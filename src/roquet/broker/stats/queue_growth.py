"""Messages that topics take, read off the growth of their queues.

Whoever appends, by whatever way, makes a queue grow, and the store tells of every queue that grew,
once a burst. So the messages of all topics are counted here, at a cost that does not depend on how
many they are, and none of the ways has to count. How many bytes they have is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable

from roquet.broker.stats.broker_stats import BrokerStats
from roquet.store.consume_queue import ConsumeQueue

__all__ = ["QueueGrowth"]


class QueueGrowth:
    """Counts what queues grow by.

    Args:
        stats: The counters.
        queues: The queues that are there already; what they hold is not counted.
    """

    def __init__(self, stats: BrokerStats, queues: Iterable[ConsumeQueue]) -> None:
        self._stats = stats
        self._ends = {(each.topic, each.queue_id): each.max_queue_offset for each in queues}

    def notify_arriving(self, queue: ConsumeQueue) -> None:
        """Called by the store: a queue grew."""
        key = (queue.topic, queue.queue_id)
        end = queue.max_queue_offset
        start = self._ends.get(key, -1)
        self._ends[key] = end
        # A queue that is new, or was deleted and made again, starts anew.
        count = end - (start if 0 <= start <= end else queue.min_queue_offset)
        if count > 0:
            self._stats.add_put_nums(queue.topic, count)

    def topic_deleted(self, topic: str) -> None:
        """Forget the queues of a topic."""
        for key in [each for each in self._ends if each[0] == topic]:
            del self._ends[key]
