"""Maintenance requested by an administrator.

Before queues are deleted, everything is dispatched: a record that is dispatched later would bring
its queue back. The rules of expiry are in :mod:`roquet.store.retention`.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator

from roquet.model.topic import LMQ_PREFIX, is_system_topic
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.flush import FlushCommitLog
from roquet.store.retention import Retention
from roquet.store.store_components import StoreComponents

log = logging.getLogger(__name__)

TOPICS_A_STEP = 4
QUEUES_A_STEP = 16
"""How many queues are deleted before others may use the store."""


class StoreMaintenance:
    """Maintenance of one store."""

    def __init__(
        self, components: StoreComponents, flusher: FlushCommitLog, retention: Retention
    ) -> None:
        """Maintain ``components``."""
        self._components = components
        self._flusher = flusher
        self._retention = retention
        self._lock = components.lock
        self._log = components.commit_log
        self._queues = components.queues

    def flush(self) -> int:
        """Put everything appended so far on disk; returns how far that is."""
        self._flusher.flush_all()
        return self._log.flushed_offset

    def delete_files_manually(self, *, archived_offset: int | None = None) -> None:
        """Delete segments that are old enough, whatever the hour.

        With ``archived_offset``, delete those that end at or before this physical offset: they
        are archived elsewhere, so ``archivedFileReservedTime`` applies to them.
        """
        if archived_offset is None:
            self._retention.request_manual()
        else:
            self._retention.request_archived(archived_offset)

    def delete_topics(self, topics: Iterable[str]) -> int:
        """Delete the queues of topics; returns how many topics had any."""
        with self._lock:
            self._dispatch_all()
            queues = self._queues.of_topics(set(topics))
            self._queues.delete(queues)
            known = {queue.topic for queue in queues}
            for topic in known:
                log.info("deleted the queues of %s", topic)
            return len(known)

    def clean_unused_topics(self, retained: Container[str]) -> Iterator[int]:
        """Delete the queues of topics that are neither retained nor the broker's own, in steps.

        Each step yields how many topics it deleted. Between steps the store may be used; a topic
        that is retained by then stays.
        """

        def is_unused(topic: str) -> bool:
            is_own = is_system_topic(topic) or topic.startswith(LMQ_PREFIX)
            return topic not in retained and not is_own

        with self._lock:
            unused = list(filter(is_unused, self._queues.topics()))
            # All at once: announcing one takes as long as announcing all of them.
            self._queues.announce_removal(self._queues.of_topics(unused))
        for start in range(0, len(unused), TOPICS_A_STEP):
            yield self.delete_topics(filter(is_unused, unused[start : start + TOPICS_A_STEP]))

    def clean_expired_consume_queues(self) -> Iterator[int]:
        """Delete queues that have no message left in the log, in steps.

        Each step yields how many queues it deleted. Between steps the store may be used; a queue
        that gets a message stays.
        """
        with self._lock:
            self._dispatch_all()
            expired = self._queues.expired(self._queues, self._log.min_offset)
            self._queues.announce_removal(expired)
        for start in range(0, len(expired), QUEUES_A_STEP):
            yield self._clean_expired(expired[start : start + QUEUES_A_STEP])

    def _clean_expired(self, queues: list[ConsumeQueue]) -> int:
        with self._lock:
            self._dispatch_all()
            expired = self._queues.expired(queues, self._log.min_offset)
            self._queues.delete(expired)
            return len(expired)

    def _dispatch_all(self) -> None:
        """Dispatch every record, because a later dispatch would bring back a deleted queue."""
        if self._components.dispatcher.dispatched_offset < self._log.wrote_offset:
            self._flusher.flush_all()
            self._components.dispatcher.run(self._components.confirm_offset)
        self._components.dispatcher.finish()
