"""Queues that are being deleted.

Owns what is left of a queue between the moment at which it leaves the tables and the moment at
which its last file is gone. Usually both are one call. If the disk refuses in between, the queue
stays here: nobody finds it, a repeated deletion continues, and so does the creation of a queue of
the same topic, because two lives of a topic must never share files.
"""

from __future__ import annotations

from collections.abc import Iterable

from roquet.runtime.files import Files
from roquet.store.consume_queue import ConsumeQueue


class LeavingQueues:
    """The queues of one store whose files still have to be deleted."""

    def __init__(self, files: Files) -> None:
        """Start without any."""
        self._files = files
        self._by_topic: dict[str, list[ConsumeQueue]] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._by_topic)

    def add(self, queue: ConsumeQueue) -> None:
        """Take over a queue that is in no table any more."""
        self._by_topic.setdefault(queue.topic, []).append(queue)

    def of_topics(self, topics: Iterable[str]) -> list[ConsumeQueue]:
        """The queues of some topics."""
        return [queue for topic in topics for queue in self._by_topic.get(topic, ())]

    def finish(self, topic: str, *, is_last: bool) -> None:
        """Delete what is left of a topic's queues; raises ``OSError``, and a later call continues.

        Args:
            topic: The topic.
            is_last: Whether no queue of the topic stays, so that its directory goes too.
        """
        queues = self._by_topic.get(topic)
        if queues is None:
            return
        while queues:
            queue = queues[0]
            queue.destroy()
            if is_last and len(queues) == 1:
                self._files.remove_dir(queue.root.parent)
                if queue.ext is not None:
                    self._files.remove_dir(queue.ext.root.parent)
            del queues[0]
        del self._by_topic[topic]

    def topics(self) -> list[str]:
        """The topics that have such queues."""
        return list(self._by_topic)

    def close(self) -> None:
        """Close descriptors; what is left stays on disk."""
        for queue in self.of_topics(self._by_topic):
            queue.entries.close()
