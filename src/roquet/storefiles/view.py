"""An open store, for reading only.

Owns the open segments: a few at a time, so that memory stays flat however long the log is.
:class:`StoreView` finds records by physical offset and knows whether the store was closed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from roquet.errors import DataLost, StoreDamaged
from roquet.format.checkpoint import Checkpoint
from roquet.format.commit_log import (
    Blank,
    DispatchRequest,
    RecordFault,
    RecordRules,
    decode_record,
)
from roquet.format.config_files import BACKUP_SUFFIX, TOPICS, batch_topic_names, topic_names
from roquet.format.derived import QueueKey
from roquet.model.delay_level import DelayLevels
from roquet.model.message import StoredMessage
from roquet.runtime.files import Files
from roquet.runtime.held_stores import store_holder
from roquet.storefiles import damage
from roquet.storefiles.closeable import Closeable
from roquet.storefiles.index_files import IndexFileView, open_index_files
from roquet.storefiles.layout import (
    ABORT,
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    locate,
    read_segments,
)
from roquet.storefiles.queues import (
    BatchQueueView,
    ExtView,
    QueueEntry,
    QueueView,
    batch_queues_below,
    extensions_below,
    queues_below,
)
from roquet.storefiles.window import Window

OPEN_SEGMENTS_MAX = 8
AHEAD_BYTES = 64 << 10


class StoreView(Closeable):
    """One store, open until :meth:`close`; use it in a ``with`` block.

    Args:
        files: Access to the disk.
        path: The store directory.
        delay_levels: The broker's ``messageDelayLevel``, which sets when messages are due.
        is_lock_ours: Whether the caller has locked the store, so that no broker runs on it.

    Attributes:
        root: The store directory, links resolved.
        segments: Files of the log in order.
        segment_bytes: Size of a segment.
        log_directory: Directory of the log, links resolved.
        problems: Wrong names and sizes of log files.
        lock_holder: Process that has the store open, 0 if unknown, ``None`` if there is none.
        has_abort: Whether the abort file exists.
    """

    def __init__(
        self,
        files: Files,
        path: Path,
        *,
        delay_levels: DelayLevels | None = None,
        is_lock_ours: bool = False,
    ) -> None:
        self.files = files
        self.root = locate(files, path)
        self.rules = RecordRules(delay_levels or DelayLevels())
        self.lock_holder = None if is_lock_ours else store_holder(files, self.root)
        self.has_abort = files.exists(self.root / ABORT)
        self.log_directory = (self.root / COMMIT_LOG).resolve()
        segments = read_segments(files, self.log_directory)
        self.segments = segments.files
        self.segment_bytes = segments.size_bytes
        self.problems: list[StoreDamaged] = segments.problems
        self._starts = [part.start for part in self.segments]
        self._windows: dict[int, Window] = {}
        self._index_files: list[IndexFileView] = []

    def reopened_under_lock(self) -> StoreView:
        """The same store as it is now, after the caller has locked it."""
        levels = self.rules.delay_levels
        return StoreView(self.files, self.root, delay_levels=levels, is_lock_ours=True)

    def close(self) -> None:
        """Close all files."""
        for window in self._windows.values():
            window.close()
        self._windows.clear()
        for index_file in self._index_files:
            index_file.close()
        self._index_files.clear()

    def open_index(self, *, slots: int | None = None) -> tuple[list[IndexFileView], list[Path]]:
        """The index files, open until the store is closed, and paths that are not index files.

        Args:
            slots: Slots of an index file, if the files themselves do not show it.
        """
        found, strangers = open_index_files(self.files, self.index_directory, slots=slots)
        self._index_files += found
        return found, strangers

    @property
    def is_running(self) -> bool:
        """Whether some process has the store open."""
        return self.lock_holder is not None

    @property
    def crashed(self) -> bool:
        """Whether the last process that had the store open did not close it."""
        return self.has_abort and not self.is_running

    @property
    def min_offset(self) -> int:
        """Physical offset where the oldest segment starts; 0 in an empty store."""
        return self.segments[0].start if self.segments else 0

    @property
    def max_offset(self) -> int:
        """Physical offset where the newest segment ends."""
        return self.segments[-1].end if self.segments else 0

    @property
    def index_directory(self) -> Path:
        """Where the index files are."""
        return self.root / INDEX

    def name_of(self, path: Path) -> str:
        """A file's name relative to the store, for display."""
        if path == self.log_directory:
            return COMMIT_LOG
        if path.parent == self.log_directory:
            return f"{COMMIT_LOG}/{path.name}"
        return path.relative_to(self.root).as_posix()

    def segment_index(self, physical_offset: int) -> int | None:
        """Index of the segment that holds an offset, if any."""
        index = bisect_right(self._starts, physical_offset) - 1
        if index < 0 or physical_offset >= self.segments[index].end:
            return None
        return index

    def _window_at(self, physical_offset: int) -> Window | None:
        """The segment that holds an offset; ``None`` if a running broker has deleted it."""
        index = self.segment_index(physical_offset)
        return None if index is None else self._window(index)

    def _window(self, index: int) -> Window | None:
        window = self._windows.pop(index, None)
        if window is None:
            try:
                window = Window(self.files, self.segments[index])
            except DataLost:
                return None
            while len(self._windows) >= OPEN_SEGMENTS_MAX:
                self._windows.pop(next(iter(self._windows))).close()
        self._windows[index] = window
        return window

    def check_at(self, physical_offset: int) -> DispatchRequest | Blank | RecordFault:
        """The record at an offset, fully checked; a fault if none starts there."""
        window = self._window_at(physical_offset)
        if window is None:
            return RecordFault(physical_offset, "physicalOffset", "is outside the log")
        window.limit = physical_offset + AHEAD_BYTES
        return damage.check_at(window, physical_offset, window.segment.end, self.rules)

    def record_at(self, physical_offset: int) -> DispatchRequest | None:
        """The valid record at an offset, ``None`` if there is none."""
        found = self.check_at(physical_offset)
        return found if isinstance(found, DispatchRequest) else None

    def message_at(self, physical_offset: int) -> StoredMessage:
        """All fields of the record at an offset; its shape must be right."""
        data = self.bytes_at(physical_offset, 4)
        data = self.bytes_at(physical_offset, int.from_bytes(data, "big"))
        if not data:
            raise StoreDamaged(f"offset {physical_offset} is outside the log")
        return decode_record(data, 0, len(data))

    def bytes_at(self, physical_offset: int, size_bytes: int) -> bytes:
        """A copy of a range of the log, up to the end of its segment."""
        window = self._window_at(physical_offset)
        if window is None:
            return b""
        window.limit = physical_offset + AHEAD_BYTES
        rest = window.segment.end - physical_offset
        return bytes(window.need(physical_offset, min(size_bytes, rest)))

    def last_record(self, index: int) -> DispatchRequest | None:
        """The last valid record of a segment; ``None`` if it was allocated but not used yet."""
        window = self._window(index)
        if window is None:
            return None
        window.limit = window.segment.start
        return damage.last_record(window)

    @cached_property
    def queues(self) -> dict[QueueKey, QueueView]:
        """All ConsumeQueues of the store."""
        return queues_below(self.files, self.root / CONSUME_QUEUE)

    @cached_property
    def batch_queues(self) -> dict[QueueKey, BatchQueueView]:
        """All batch consume queues of the store."""
        return batch_queues_below(self.files, self.root / BATCH_CONSUME_QUEUE)

    def queue_of(self, key: QueueKey) -> QueueView | None:
        """A queue of either type."""
        return self.queues.get(key) or self.batch_queues.get(key)

    @property
    def all_queues(self) -> list[QueueView]:
        """The queues of both types."""
        return [*self.queues.values(), *self.batch_queues.values()]

    @property
    def has_queues(self) -> bool:
        """Whether the directory of the ConsumeQueues exists."""
        return self.files.is_dir(self.root / CONSUME_QUEUE)

    def batch_topics(self) -> set[str]:
        """Topics with batch consume queues, judging by files or the broker's settings."""
        found = {key.topic for key in self.batch_queues}
        for data in self.config_contents(TOPICS):
            names = batch_topic_names(data)
            if names is not None:
                return found | (names - {key.topic for key in self.queues})
        return found

    def known_topics(self) -> set[str] | None:
        """The topics in ``topics.json`` or its backup; ``None`` if neither can be read."""
        for data in self.config_contents(TOPICS):
            names = topic_names(data)
            if names is not None:
                return names
        return None

    def config_contents(self, name: str) -> Iterator[bytes]:
        """The contents of a config file and its backup, as far as they exist."""
        for each in (name, name + BACKUP_SUFFIX):
            data = self.content(self.root / CONFIG / each)
            if data is not None:
                yield data

    def content(self, path: Path) -> bytes | None:
        """The content of a small file; ``None`` if it does not exist."""
        try:
            return self.files.read_file(path)
        except (FileNotFoundError, IsADirectoryError):
            return None

    @cached_property
    def extensions(self) -> dict[QueueKey, ExtView]:
        """All ConsumeQueueExt of the store."""
        return extensions_below(self.files, self.root / CONSUME_QUEUE_EXT)

    def checkpoint(self) -> Checkpoint | None:
        """The marks of the last flush; ``None`` if there is no checkpoint file."""
        path = self.root / CHECKPOINT
        if not self.files.exists(path):
            return None
        return Checkpoint.unpack(self.files.read_file(path))

    def entries_between(self, low: int, high: int) -> list[QueueEntry]:
        """ConsumeQueue entries of the records from ``low`` to ``high``, by physical offset."""
        found: list[QueueEntry] = []
        for queue in self.all_queues:
            found += queue.between(low, high)
        return sorted(found, key=lambda entry: entry.unit.physical_offset)

    def stable_end(self) -> int:
        """Where the finished records of a running store end now.

        A record with a ConsumeQueue entry is finished, and so are the valid records after it. A
        record that is being written at this moment is not included.
        """
        known = [self.min_offset]
        for queue in self.all_queues:
            unit = queue.entry(queue.written_end() - 1)
            if unit is not None:
                known.append(unit.physical_offset)
        good = (offset for offset in sorted(known, reverse=True) if self.record_at(offset))
        end = self._end_of_chain(next(good, self.min_offset))
        while damaged := self.entries_between(end, end + 1):
            end = self._end_of_chain(max(entry.unit.end_offset for entry in damaged))
        return end

    def _end_of_chain(self, offset: int) -> int:
        while True:
            found = self.check_at(offset)
            if isinstance(found, DispatchRequest):
                offset = found.end_offset
            elif isinstance(found, Blank) and (index := self.segment_index(offset)) is not None:
                offset = self.segments[index].end
            else:
                return offset
