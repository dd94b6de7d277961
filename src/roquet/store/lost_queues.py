"""Queues whose files are missing although the manifest lists them.

Finds them, and owns what recovery does about them. Entries are derived from the log, so a queue
that lost files is dropped and rebuilt from the beginning of the log. Its next offset is not
derived: once its records have expired, only the entries show it. So a queue never continues below
the offset in the manifest; otherwise an offset would be used for two messages.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

from roquet.errors import StoreDamaged
from roquet.model.topic import LMQ_PREFIX
from roquet.store.batch_consume_queue import BatchConsumeQueue
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.storefiles.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, MANIFEST_FILE
from roquet.storefiles.manifest import Manifest, QueueBounds, is_made_anew, vouched_queues

log = logging.getLogger(__name__)


class LostQueues:
    """The queues that one recovery has to rebuild."""

    def __init__(
        self,
        queues: ConsumeQueueStore,
        manifest: Manifest | None,
        *,
        is_ours: bool,
        known_topics: Collection[str] | None,
    ) -> None:
        """Compare ``queues`` with ``manifest``.

        Unless the manifest is up to date (``is_ours``), a Java broker may have deleted topics
        since: a topic that the broker does not know (``known_topics``) is not missing.
        """
        self._queues = queues
        self._manifest = manifest
        self._is_ours = is_ours
        self._known_topics = None if is_ours else known_topics
        self._lost: list[QueueBounds] = []
        self._kept: set[tuple[str, int]] = set()

    def find_missing(self, log_start: int, *, clean_exit: bool) -> bool:
        """Whether files of some queue are missing, by their names; nothing is changed.

        While a store runs, expired files at a queue's start are deleted without updating the
        manifest.
        """
        is_same_start = (
            clean_exit and self._manifest is not None and self._manifest.log_start == log_start
        )
        for place in self._vouched():
            queue = self._queues.find(*place.key)
            if queue is None or not queue.entries.starts:
                self._lost.append(place)
            elif not place.is_batch:
                begins, ends = queue.entries.first_place, queue.entries.room_end
                is_short = ends < place.end or (is_same_start and begins > place.first)
                if is_short and not self._is_made_anew(queue):
                    self._lost.append(place)
        light = next((each for each in self._lost if each.key.topic.startswith(LMQ_PREFIX)), None)
        if light is not None:
            raise self._damaged(light, "is gone, and belongs to a light queue")
        return bool(self._lost)

    def drop(self) -> None:
        """Drop what is left of the queues, so that dispatch from the log's start rebuilds them."""
        for place in self._lost:
            queue = self._queues.find_or_create(*place.key, is_inner_batch=place.is_batch)
            log.error(
                "%s has lost files; it is filled again from the log, up to %d",
                queue.root,
                place.end,
            )
            queue.drop()
        self._kept = {(queue.topic, queue.queue_id) for queue in self._queues}

    def remove_deleted(self, log_start: int, *, clean_exit: bool) -> None:
        """After dispatch: remove the queues of topics deleted before the store was closed.

        The log still has their records, so they came back. Neither the files nor the manifest had
        them, and a queue created after the manifest has records after the end it names. If the
        manifest names no queues, it is unknown which were deleted, so they all stay. After an
        unclean exit, files prove nothing: an interrupted start may have created them. Batch
        consume queues stay then: nothing proves that they were deleted.
        """
        if self._manifest is None or self._manifest.queues is None:
            return
        end = self._manifest.log_end
        vouched = self._manifest.queues
        for queue in list(self._queues):
            is_known = queue.queue_id in vouched.get(queue.topic, {})
            if clean_exit:
                is_known = is_known or (queue.topic, queue.queue_id) in self._kept
            else:
                is_known = is_known or isinstance(queue, BatchConsumeQueue)
            if not is_known and log_start < queue.max_physical_offset <= end:
                self._queues.delete([queue])

    def settle(self, *, clean_exit: bool) -> None:
        """After dispatch: let no queue continue below the offset it had.

        After an unclean exit, a queue may end below it: recovery drops what follows the entries in
        doubt, including the filler after an accepted loss.

        Raises:
            StoreDamaged: A queue has its files, but fewer entries in them than it had, and only
                Roquet has used the store since.
        """
        lost = set(self._lost)
        for place in self._vouched():
            queue = self._queues.find(*place.key)
            if queue is not None and (
                queue.max_queue_offset >= place.end or self._is_made_anew(queue)
            ):
                continue
            is_kept = clean_exit and self._is_ours and place not in lost and queue is not None
            if is_kept or place.is_batch:
                end = queue.max_queue_offset if queue is not None else 0
                raise self._damaged(place, f"ends at {end}")
            self._queues.go_on_at(*place.key, place.end)

    def _is_made_anew(self, queue: ConsumeQueue) -> bool:
        manifest = self._manifest
        return manifest is not None and is_made_anew(manifest, queue.entries.peek_first())

    def _vouched(self) -> Iterator[QueueBounds]:
        if self._manifest is not None:
            yield from vouched_queues(self._manifest, self._known_topics)

    def _damaged(self, place: QueueBounds, what: str) -> StoreDamaged:
        folder = BATCH_CONSUME_QUEUE if place.is_batch else CONSUME_QUEUE
        return StoreDamaged(
            f"{folder}/{place.key.topic}/{place.key.queue_id} {what}",
            detail=f"it had entries from {place.first} to {place.end} when the store was closed",
            hint="stop here and run 'roquet store verify'; 'roquet store rebuild' rebuilds the "
            f"queues from the log; if a version of Roquet without {MANIFEST_FILE} had the store "
            "since, remove that file",
        )
