"""The file ``roquet-manifest.json``, while a store runs.

Owns when it is written, and its content then (:mod:`roquet.storefiles.manifest`).

It is written at the end of a clean shutdown and stays while the store runs. Until the next one, its
numbers are lower bounds: a log and its queues only grow at their ends. Before anything is removed,
as when a log is truncated or a queue deleted, the manifest is lowered on disk.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from roquet.runtime.files import Files
from roquet.store.commit_log import CommitLog
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.index import IndexService
from roquet.storefiles.layout import MANIFEST_FILE
from roquet.storefiles.manifest import LogTail, Manifest, QueueRanges, read_manifest

_TAIL_BYTES = 4096


def tail_of(commit_log: CommitLog) -> LogTail | None:
    """The last bytes of an open log."""
    segment = commit_log.queue.last
    if segment is None or segment.wrote == 0:
        return None
    position = max(segment.wrote - _TAIL_BYTES, 0)
    crc = zlib.crc32(segment.view[position : segment.wrote])
    return LogTail(segment.start_offset + position, segment.wrote - position, crc)


class StoreManifest:
    """The manifest of one store, while the store is open."""

    def __init__(self, files: Files, root: Path) -> None:
        """Keep it in ``root``; nothing is read yet."""
        self._files = files
        self._root = root
        self._lock = threading.Lock()
        self.saved: Manifest | None = None

    def load(self) -> None:
        """Read the file."""
        self.saved = read_manifest(self._files, self._root)

    def save(self, manifest: Manifest) -> None:
        """Replace the file, durably; raises ``OSError``."""
        with self._lock:
            self._save(manifest)

    def _save(self, manifest: Manifest) -> None:
        if manifest != self.saved:
            write_manifest(self._files, self._root, manifest)
            self.saved = manifest

    def forget_queues(self, queues: Iterable[ConsumeQueue]) -> None:
        """Stop vouching for some queues, which are about to be deleted."""
        keys = {(queue.topic, queue.queue_id) for queue in queues}
        with self._lock:
            saved = self.saved
            if saved is None or saved.queues is None:
                return
            tables = (saved.queues, saved.batch_queues)
            gone = {
                (topic, queue_id)
                for topic, queue_id in keys
                if any(queue_id in table.get(topic, ()) for table in tables)
            }
            if gone:
                queues_left, batches_left = (_without(table, gone) for table in tables)
                self._save(
                    msgspec.structs.replace(saved, queues=queues_left, batch_queues=batches_left)
                )

    def forget_derived(self) -> None:
        """Vouch for no queue or index file until the next clean shutdown; they will be replaced."""
        if self.saved is not None:
            self.save(
                msgspec.structs.replace(self.saved, queues=None, batch_queues={}, index_files=[])
            )

    def forget_end(self, physical_offset: int) -> None:
        """Vouch for nothing after an offset, where the log is about to be truncated."""
        if self.saved is not None:
            self.save(
                Manifest(
                    log_start=min(self.saved.log_start, physical_offset),
                    log_end=min(self.saved.log_end, physical_offset),
                    queues=None,
                )
            )

    def forget_start(self, physical_offset: int) -> None:
        """Vouch for nothing before an offset; older segments are about to be deleted."""
        if self.saved is not None and self.saved.log_start < physical_offset:
            self.save(msgspec.structs.replace(self.saved, log_start=physical_offset))

    def note_closed(
        self, commit_log: CommitLog, queues: ConsumeQueueStore, index: IndexService | None
    ) -> None:
        """Write what the store holds, all of which is on disk; raises ``OSError``."""
        index_files = [file.path.name for file in index.index_files] if index else []
        self.save(
            msgspec.structs.replace(
                derived_contents(queues, index_files),
                log_start=commit_log.min_offset,
                log_end=commit_log.wrote_offset,
                tail=tail_of(commit_log),
            )
        )

    def remove(self) -> None:
        """Delete the file, together with its store."""
        self._files.unlink(self._root / MANIFEST_FILE)
        self.saved = None


def derived_contents(queues: ConsumeQueueStore, index_files: list[str]) -> Manifest:
    """A manifest with the queues of both types and the index files, but no log."""
    return Manifest(
        queues=_ranges(queue for each in queues.table.values() for queue in each.values()),
        batch_queues=_ranges(
            queue for each in queues.batch_table.values() for queue in each.values()
        ),
        index_files=index_files,
    )


def _ranges(queues: Iterable[ConsumeQueue]) -> QueueRanges:
    ranges: QueueRanges = {}
    for queue in sorted(queues, key=lambda queue: (queue.topic, queue.queue_id)):
        if queue.max_queue_offset > 0:
            place = (queue.min_queue_offset, queue.max_queue_offset)
            ranges.setdefault(queue.topic, {})[queue.queue_id] = place
    return ranges


def _without(ranges: QueueRanges, gone: Collection[tuple[str, int]]) -> QueueRanges:
    """The table without some queues, and without topics that have none left."""
    left = dict(ranges)
    for topic in {topic for topic, _ in gone} & ranges.keys():
        left[topic] = {
            key: place for key, place in ranges[topic].items() if (topic, key) not in gone
        }
        if not left[topic]:
            del left[topic]
    return left


def write_manifest(files: Files, root: Path, manifest: Manifest) -> None:
    """Replace the manifest of a store, durably; raises ``OSError``."""
    path = root / MANIFEST_FILE
    fresh = path.with_name(f"{path.name}.tmp")
    files.unlink(fresh)
    fd = files.open(fresh, write=True, create=True)
    try:
        files.write_at(fd, msgspec.json.encode(manifest), 0)
        files.data_sync(fd)
    finally:
        files.close(fd)
    files.rename(fresh, path)
    files.sync_dir(root)
