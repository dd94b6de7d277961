"""All ConsumeQueues of a store.

Owns the table topic → queue id → :class:`ConsumeQueue`, the descriptors they share, and which of
them have entries to write or to sync.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from roquet.errors import StoreDamaged
from roquet.format.commit_log import DispatchRequest
from roquet.model import sys_flag as flags
from roquet.model.topic import SCHEDULE_TOPIC
from roquet.runtime.failpoint import failpoint
from roquet.runtime.files import DescriptorCache, Files
from roquet.runtime.memory import PAGE_BYTES
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue, Fits
from roquet.store.consume_queue_ext import ConsumeQueueExt

CONSUME_QUEUE_DIR = "consumequeue"
CONSUME_QUEUE_EXT_DIR = "consumequeue_ext"
_DESCRIPTORS_MAX = 512

WritePlain = Callable[[list[ConsumeQueue], list[ConsumeQueue]], None]


class ConsumeQueueStore:
    """The table of queues."""

    def __init__(self, files: Files, root: Path, config: MessageStoreConfig) -> None:
        """Keep queues below ``root``, the store's directory.

        ``synced_offset`` is the end of the log up to which every entry is known to be on disk.
        """
        self._files = files
        self._root = root / CONSUME_QUEUE_DIR
        self._ext_root = root / CONSUME_QUEUE_EXT_DIR
        self._config = config
        self._descriptors = DescriptorCache(files, limit=_DESCRIPTORS_MAX)
        self._dirty_lock = threading.Lock()
        self._dirty: dict[ConsumeQueue, None] = {}
        self.table: dict[str, dict[int, ConsumeQueue]] = {}
        self.touched: list[ConsumeQueue] = []
        self.write_plain: WritePlain | None = None
        self.synced_offset = 0

    # -- access -----------------------------------------------------------------------------

    @property
    def uses_plain_files(self) -> bool:
        """Whether nothing stands between the queues and the system calls."""
        return type(self._files) is Files

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue that exists."""
        queues = self.table.get(topic)
        return queues.get(queue_id) if queues is not None else None

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A queue; a new one has no files until its first entry."""
        queue = self.find(topic, queue_id)
        if queue is None:
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

    def __iter__(self) -> Iterator[ConsumeQueue]:
        """Every queue; others may be added meanwhile."""
        for queues in list(self.table.values()):
            yield from list(queues.values())

    # -- building ---------------------------------------------------------------------------

    def put(self, request: DispatchRequest, bitmap: bytes | None = None) -> None:
        """Collect the entry of a record that has a place in its queue."""
        if not flags.takes_queue_offset(request.sys_flag):
            return
        queue = self.find_or_create(request.topic, request.queue_id)
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
            self.touched.append(queue)
        queue.put(request, tags_code)

    def _maybe_restart(self, queue: ConsumeQueue, request: DispatchRequest) -> None:
        """Begin a queue anew if a record says so that lies behind all it has.

        That is a topic which was deleted and made again, seen by a rebuild or a slave. The records
        of its first life must not stand in the places of those of its second.
        """
        if request.physical_offset >= queue.max_physical_offset:
            queue.restart()

    def write_pending(self) -> list[ConsumeQueue]:
        """Write the burst's entries, one write a queue; returns the queues that grew.

        On ``OSError`` the entries that were not written stay collected for the next try.
        """
        grown: list[ConsumeQueue] = []
        failpoint("dispatch.before")
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
        failpoint("dispatch.after")
        if grown:
            with self._dirty_lock:
                self._dirty.update(dict.fromkeys(grown))
        return grown

    # -- files ------------------------------------------------------------------------------

    def load(self, *, is_torn: bool = False) -> None:
        """Find the queues on disk, after an unclean exit torn ones too; nothing is changed."""
        found = self._queues_below(self._root)
        if self._config.consume_queue_ext:
            # A crash may have left the units of a queue without its entries: they must go.
            found |= self._queues_below(self._ext_root)
        for topic, queue_id in sorted(found):
            self.find_or_create(topic, queue_id).load(is_torn=is_torn)

    def _queues_below(self, root: Path) -> set[tuple[str, int]]:
        """Topic and number of every queue that has a directory."""
        found: set[tuple[str, int]] = set()
        for topic in self._files.list_dir(root):
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

    def recover(self, log_end: int, *, erase: bool, fits: Fits | None = None) -> None:
        """Drop every entry whose record does not end at or before ``log_end`` or does not fit."""
        for queue in self:
            if queue.recover(log_end, erase=erase, fits=fits):
                self._dirty[queue] = None
        self.touched.clear()

    def correct_min_offsets(self, min_physical_offset: int) -> None:
        """Set the first living entry of every queue."""
        for queue in self:
            queue.correct_min_offset(min_physical_offset)

    @property
    def max_physical_offset(self) -> int:
        """End of the newest record that has an entry, -1 if none has."""
        return max((queue.max_physical_offset for queue in self), default=-1)

    def sync_names(self) -> None:
        """Make the names of all queue files and of their directories durable."""
        for root in (self._root, self._ext_root):
            if not self._files.is_dir(root):
                continue
            for topic in self._files.list_dir(root):
                topic_root = self._files.inside(root, topic)
                for name in self._files.list_dir(topic_root):
                    self._files.sync_dir(self._files.inside(topic_root, name))
                self._files.sync_dir(topic_root)
            self._files.sync_dir(root)

    def sync(self, *, least_pages: int) -> None:
        """Put entries on disk, on any thread: queues with that many dirty pages, or all (0)."""
        with self._dirty_lock:
            dirty, self._dirty = self._dirty, {}
        later: dict[ConsumeQueue, None] = {}
        try:
            while dirty:
                queue = next(iter(dirty))
                if queue.dirty_bytes >= least_pages * PAGE_BYTES:
                    queue.sync()
                else:
                    later[queue] = None
                del dirty[queue]
        finally:
            with self._dirty_lock:
                self._dirty = {**later, **dirty, **self._dirty}

    def clean_expired_queues(self, min_physical_offset: int) -> int:
        """Delete queues none of whose records the log still holds; returns how many.

        Not those of delayed messages, whose places a broker remembers elsewhere, nor those with
        records that are still to be dispatched.
        """
        expired = [
            queue
            for queue in self
            if 0 < queue.max_queue_offset == queue.next_queue_offset
            and queue.max_physical_offset <= min_physical_offset
            and queue.topic != SCHEDULE_TOPIC
        ]
        for queue in expired:
            self._remove(queue)
        return len(expired)

    def delete_topic(self, topic: str) -> None:
        """Delete all queues of a topic."""
        for queue in list(self.table.get(topic, {}).values()):
            self._remove(queue)

    def _remove(self, queue: ConsumeQueue) -> None:
        with self._dirty_lock:
            self._dirty.pop(queue, None)
        queue.destroy()
        queues = self.table[queue.topic]
        del queues[queue.queue_id]
        if not queues:
            del self.table[queue.topic]
            self._files.remove_dir(queue.root.parent)
            if queue.ext is not None:
                self._files.remove_dir(queue.ext.root.parent)

    def total_bytes(self) -> int:
        """Length of all queue files."""
        return sum(queue.total_bytes() for queue in self)

    def close(self) -> None:
        """Close all descriptors, whatever the closing of one of them raises."""
        with ExitStack() as stack:
            stack.callback(self._descriptors.close)
            for queue in self:
                stack.callback(queue.close)

    def destroy(self) -> None:
        """Delete all queues."""
        for queue in list(self):
            self._remove(queue)
