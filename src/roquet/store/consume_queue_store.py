"""All ConsumeQueues of a store.

Owns the tables topic → queue id → :class:`ConsumeQueue`, the descriptors they share, and which of
them have entries to write or to sync. Batch consume queues have their own table and list, so that
compiled code never sees one.

A topic has batch consume queues if its ``queue.type`` says so, if it already has one, or if one of
its records is an inner batch: such records are accepted only for these topics.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from roquet.errors import StoreDamaged
from roquet.format.commit_log import DispatchRequest
from roquet.format.segment_files import LOST_AND_FOUND
from roquet.model import sys_flag as flags
from roquet.model.topic import SCHEDULE_TOPIC
from roquet.runtime.failpoint import failpoint
from roquet.runtime.files import DescriptorCache, Files, ReadHook, WriteHook
from roquet.runtime.memory import PAGE_BYTES
from roquet.runtime.open_files import open_files_limit, queue_files_share
from roquet.store.batch_consume_queue import BatchConsumeQueue
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue, Fits
from roquet.store.consume_queue_ext import ConsumeQueueExt
from roquet.store.leaving_queues import LeavingQueues

CONSUME_QUEUE_DIR = "consumequeue"
CONSUME_QUEUE_EXT_DIR = "consumequeue_ext"
BATCH_CONSUME_QUEUE_DIR = "batchconsumequeue"

QueueName = tuple[str, int]
"""Topic and number."""
WritePlain = Callable[[list[ConsumeQueue], list[ConsumeQueue]], None]


class ConsumeQueueStore:
    """The table of queues."""

    def __init__(self, files: Files, root: Path, config: MessageStoreConfig) -> None:
        """Keep queues below ``root``, the store's directory.

        ``synced_offset`` is the end of the log up to which every entry is known to be on disk.
        ``is_batch_topic`` decides the type of the queues of a topic that has none yet.
        ``before_removal`` is called with queues that are about to be deleted or restarted.
        """
        self._files = files
        self._root = root / CONSUME_QUEUE_DIR
        self._ext_root = root / CONSUME_QUEUE_EXT_DIR
        self._batch_root = root / BATCH_CONSUME_QUEUE_DIR
        self._config = config
        files_max = config.open_queue_files_max or queue_files_share(open_files_limit().soft)
        self._descriptors = DescriptorCache(files, limit=files_max)
        self._dirty_lock = threading.Lock()
        self._dirty: dict[ConsumeQueue, None] = {}
        self.table: dict[str, dict[int, ConsumeQueue]] = {}
        self.batch_table: dict[str, dict[int, BatchConsumeQueue]] = {}
        self.is_batch_topic: Callable[[str], bool] = _has_simple_queues
        self.touched: list[ConsumeQueue] = []
        self._touched_batches: list[BatchConsumeQueue] = []
        self._grown: list[ConsumeQueue] = []
        self._leaving = LeavingQueues(files)
        self.write_plain: WritePlain | None = None
        self.before_removal: Callable[[Sequence[ConsumeQueue]], None] | None = None
        self.synced_offset = 0

    # -- access -----------------------------------------------------------------------------

    @property
    def uses_plain_files(self) -> bool:
        """Whether nothing wraps the file system, so that compiled code may write directly."""
        return type(self._files) is Files

    @property
    def write_hook(self) -> WriteHook | None:
        """Called before each write that compiled code makes itself."""
        return self._files.write_hook

    @property
    def read_hook(self) -> ReadHook | None:
        """Called before each read that compiled code makes itself."""
        return self._files.read_hook

    @property
    def open_files_max(self) -> int:
        """How many queue files are kept open at most."""
        return self._descriptors.limit

    def give_up_descriptors(self) -> None:
        """Close half of the open queue files; the next write reopens its own."""
        self._descriptors.give_up()

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue that exists."""
        queues = self.table.get(topic)
        if queues is not None:
            return queues.get(queue_id)
        batches = self.batch_table.get(topic)
        return batches.get(queue_id) if batches is not None else None

    def has_batch_queues(self, topic: str) -> bool:
        """Whether a topic's queues, existing or future, are batch consume queues."""
        return topic in self.batch_table or (topic not in self.table and self.is_batch_topic(topic))

    def topics(self) -> list[str]:
        """Every topic that has a queue."""
        return [*self.table, *self.batch_table]

    @property
    def has_pending(self) -> bool:
        """Whether entries are collected but not yet written."""
        return bool(self.touched or self._touched_batches)

    def find_or_create(
        self, topic: str, queue_id: int, *, is_inner_batch: bool = False
    ) -> ConsumeQueue:
        """A queue; a new one has no files until its first entry.

        Args:
            topic: Its topic.
            queue_id: Its number.
            is_inner_batch: Whether a record of the queue is known to be an inner batch.

        Raises:
            OSError: Files of a deleted queue of the topic are in the way and cannot be removed.
        """
        queue = self.find(topic, queue_id)
        if queue is None:
            if self._leaving:
                self._finish_deletion(topic)
            if self.has_batch_queues(topic) or (is_inner_batch and topic not in self.table):
                return self._create_batch_queue(topic, queue_id)
            ext = None
            if self._config.consume_queue_ext:
                ext = ConsumeQueueExt(
                    self._files,
                    self._files.inside(self._ext_root, topic, str(queue_id)),
                    file_bytes=self._config.consume_queue_ext_file_bytes,
                )
            queue = ConsumeQueue(
                self._files,
                self._descriptors,
                self._files.inside(self._root, topic, str(queue_id)),
                topic=topic,
                queue_id=queue_id,
                file_bytes=self._config.consume_queue_file_bytes,
                ext=ext,
            )
            self.table.setdefault(topic, {})[queue_id] = queue
        return queue

    def _create_batch_queue(self, topic: str, queue_id: int) -> BatchConsumeQueue:
        queue = BatchConsumeQueue(
            self._files,
            self._descriptors,
            self._files.inside(self._batch_root, topic, str(queue_id)),
            topic=topic,
            queue_id=queue_id,
            file_bytes=self._config.batch_consume_queue_file_bytes,
        )
        self.batch_table.setdefault(topic, {})[queue_id] = queue
        return queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        """Every queue; others may be added meanwhile."""
        for queues in list(self.table.values()):
            yield from list(queues.values())
        for batches in list(self.batch_table.values()):
            yield from list(batches.values())

    # -- building ---------------------------------------------------------------------------

    def put(self, request: DispatchRequest, bitmap: bytes | None = None) -> None:
        """Collect the entry of a record that has a queue offset."""
        if not flags.takes_queue_offset(request.sys_flag):
            return
        queue = self.find_or_create(
            request.topic,
            request.queue_id,
            is_inner_batch=bool(request.sys_flag & flags.INNER_BATCH),
        )
        if request.queue_offset == 0 and (queue.max_queue_offset or queue.pending):
            self._maybe_restart(queue, request)
        tags_code = request.tags_code
        if queue.ext is not None and request.end_offset > queue.max_physical_offset:
            address = queue.ext.put_message(
                tags_code=tags_code, store_time_ms=request.store_timestamp_ms, bitmap=bitmap
            )
            if address is not None:
                tags_code = address
        if not queue.pending:
            if isinstance(queue, BatchConsumeQueue):
                self._touched_batches.append(queue)
            else:
                self.touched.append(queue)
        queue.put(request, tags_code)

    def _maybe_restart(self, queue: ConsumeQueue, request: DispatchRequest) -> None:
        """Restart a queue if a record after all of its own shows that it was re-created.

        A rebuild or a slave sees this for a topic that was deleted and re-created. The records of
        its first life must not occupy the offsets of its second.
        """
        if request.physical_offset >= queue.max_physical_offset:
            self.announce_removal([queue])
            queue.restart()

    def announce_removal(self, queues: Sequence[ConsumeQueue]) -> None:
        """Announce queues that are about to be removed, so that nothing relies on them."""
        if queues and self.before_removal is not None:
            self.before_removal(queues)

    def write_pending(self) -> list[ConsumeQueue]:
        """Write the burst's entries, one write per queue; returns the queues that grew.

        On ``OSError``, the entries that were not written are kept for the next attempt, which also
        returns the queues that grew in this one.
        """
        grown = self._grown
        failpoint("dispatch.before")
        try:
            self._write_touched(grown)
        finally:
            # Also after an error: what was written has to be synced before a mark covers it.
            if grown:
                with self._dirty_lock:
                    for queue in grown:
                        self._dirty[queue] = None
        failpoint("dispatch.after")
        self._grown = []
        return grown

    def _write_touched(self, grown: list[ConsumeQueue]) -> None:
        """Write the entries of every touched queue, and add the queue to ``grown``."""
        while self.touched:
            if self.write_plain is not None:
                self.write_plain(self.touched, grown)
                if not self.touched:
                    break
            queue = self.touched[-1]
            if queue.pending:
                queue.write_pending()
                grown.append(queue)
            self.touched.pop()
        while self._touched_batches:
            batch_queue = self._touched_batches[-1]
            if batch_queue.pending:
                batch_queue.write_pending()
                grown.append(batch_queue)
            self._touched_batches.pop()

    # -- files ------------------------------------------------------------------------------

    def load(self, *, is_torn: bool = False) -> None:
        """Find the queues on disk, including torn ones (``is_torn``); nothing is changed."""
        found = self._queues_below(self._root)
        if self._config.consume_queue_ext:
            # A crash may have left units of a queue that has no entries: they must be removed.
            found |= self._queues_below(self._ext_root)
        batches = self._queues_below(self._batch_root)
        for topic in {topic for topic, _ in found} & {topic for topic, _ in batches}:
            # It was deleted and re-created with the other type. A directory whose removal was not
            # synced may be back after a power cut.
            found = self._without_empty(found, topic, self._root, self._ext_root)
            batches = self._without_empty(batches, topic, self._batch_root)
            self._check_one_type(topic, found, batches)
        for topic, queue_id in sorted(batches):
            self._create_batch_queue(topic, queue_id).load(is_torn=is_torn)
        for topic, queue_id in sorted(found):
            self.find_or_create(topic, queue_id).load(is_torn=is_torn)

    def _without_empty(self, queues: set[QueueName], topic: str, *roots: Path) -> set[QueueName]:
        """The queues without those of one topic that have no file below any of the roots."""
        return {
            (name, queue_id)
            for name, queue_id in queues
            if name != topic
            or any(
                self._files.list_dir(self._files.inside(root, name, str(queue_id)))
                for root in roots
            )
        }

    def _check_one_type(self, topic: str, *types: set[QueueName]) -> None:
        if not all(topic in {name for name, _ in queues} for queues in types):
            return
        raise StoreDamaged(
            f"{topic} has queues of both types",
            detail=f"there are files below {self._root / topic} and {self._batch_root / topic}",
            hint="move the ones that do not match the queue.type of the topic out of the store",
        )

    def _queues_below(self, root: Path) -> set[QueueName]:
        """Every queue that has a directory."""
        found: set[QueueName] = set()
        for topic in self._topics_below(root):
            topic_root = self._files.inside(root, topic)
            for name in self._files.list_dir(topic_root):
                if not name.isdecimal():
                    raise StoreDamaged(
                        f"{topic_root / name} is not a queue",
                        detail="a queue's directory is named by its number",
                        hint="move what does not belong to the store out of its directory",
                    )
                found.add((topic, int(name)))
        return found

    def _topics_below(self, root: Path) -> list[str]:
        return [name for name in self._files.list_dir(root) if name != LOST_AND_FOUND]

    def recover(self, log_end: int, *, erase: bool, fits: Fits | None = None) -> None:
        """Drop every entry whose record does not end at or before ``log_end`` or does not fit."""
        for queue in self:
            if queue.recover(log_end, erase=erase, fits=fits):
                self._dirty[queue] = None
        self.touched.clear()
        self._touched_batches.clear()
        self._grown.clear()

    def go_on_at(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Give a queue's next message at least this offset, although those before it are lost."""
        queue = self.find_or_create(topic, queue_id)
        queue.go_on_at(queue_offset)
        with self._dirty_lock:
            self._dirty[queue] = None

    def correct_min_offsets(self, min_physical_offset: int) -> None:
        """Set the first live entry of every queue."""
        for queue in self:
            queue.correct_min_offset(min_physical_offset)

    @property
    def max_physical_offset(self) -> int:
        """End of the newest record that has an entry, -1 if none has."""
        return max((queue.max_physical_offset for queue in self), default=-1)

    def sync_names(self) -> None:
        """Make the names of all queue files and of their directories durable."""
        for root in (self._root, self._ext_root, self._batch_root):
            if not self._files.is_dir(root):
                continue
            for topic in self._topics_below(root):
                topic_root = self._files.inside(root, topic)
                for name in self._files.list_dir(topic_root):
                    self._files.sync_dir(self._files.inside(topic_root, name))
                self._files.sync_dir(topic_root)
            self._files.sync_dir(root)

    def sync(self, *, least_pages: int) -> None:
        """Sync queues with at least this many dirty pages, or all (0), on any thread."""
        with self._dirty_lock:
            dirty, self._dirty = self._dirty, {}
        later: dict[ConsumeQueue, None] = {}
        try:
            while dirty:
                queue = next(iter(dirty))
                if queue.entries.dirty_bytes >= least_pages * PAGE_BYTES:
                    queue.sync()
                else:
                    later[queue] = None
                del dirty[queue]
        finally:
            with self._dirty_lock:
                self._dirty = {**later, **dirty, **self._dirty}

    def of_topics(self, topics: Iterable[str]) -> list[ConsumeQueue]:
        """All queues of some topics, and what is left of deleted ones."""
        return [
            queue
            for topic in topics
            for queues in (self._living(topic), self._leaving.of_topics((topic,)))
            for queue in queues
        ]

    def _living(self, topic: str) -> Iterable[ConsumeQueue]:
        return (self.table.get(topic) or self.batch_table.get(topic) or {}).values()

    def expired(
        self, queues: Iterable[ConsumeQueue], min_physical_offset: int
    ) -> list[ConsumeQueue]:
        """Those of the queues that still exist but have no record left in the log.

        Excludes queues of delayed messages, whose offsets a broker keeps elsewhere, and queues
        with records that are not yet dispatched.
        """
        return [
            queue
            for queue in queues
            if 0 < queue.max_queue_offset == queue.next_queue_offset
            and queue.max_physical_offset <= min_physical_offset
            and queue.topic != SCHEDULE_TOPIC
            and self.find(queue.topic, queue.queue_id) is queue
        ]

    def delete(self, queues: Sequence[ConsumeQueue]) -> None:
        """Delete some queues.

        Raises:
            OSError: Files are left. Nobody finds the queues any more; a repeated call, or
                :meth:`finish_deletions`, continues.
        """
        self.announce_removal(queues)
        for queue in queues:
            self._take_out(queue)
        for topic in dict.fromkeys(queue.topic for queue in queues):
            self._finish_deletion(topic)

    def _take_out(self, queue: ConsumeQueue) -> None:
        if self.find(queue.topic, queue.queue_id) is not queue:
            return  # an earlier deletion did not get further
        with self._dirty_lock:
            self._dirty.pop(queue, None)
        table: dict[str, dict[int, ConsumeQueue]] | dict[str, dict[int, BatchConsumeQueue]]
        table = self.batch_table if isinstance(queue, BatchConsumeQueue) else self.table
        queues = table[queue.topic]
        del queues[queue.queue_id]
        if not queues:
            del table[queue.topic]
        self._leaving.add(queue)

    def _finish_deletion(self, topic: str) -> None:
        is_last = topic not in self.table and topic not in self.batch_table
        self._leaving.finish(topic, is_last=is_last)

    def finish_deletions(self) -> None:
        """Delete what earlier deletions left; raises ``OSError``."""
        for topic in self._leaving.topics():
            self._finish_deletion(topic)

    def close(self) -> None:
        """Close all descriptors, even if closing one of them raises."""
        with ExitStack() as stack:
            stack.callback(self._descriptors.close)
            stack.callback(self._leaving.close)
            for queue in self:
                stack.callback(queue.close)

    def destroy(self) -> None:
        """Delete all queues."""
        self.delete(list(self))


def _has_simple_queues(_topic: str) -> bool:
    """The type of the queues of an unknown topic."""
    return False
