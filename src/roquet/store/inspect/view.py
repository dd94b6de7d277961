"""An open store, for reading only.

Owns the mapped segments: a few at a time, so that memory stays flat however long the log is.
:class:`StoreView` finds records by physical offset and knows in what state the store was left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from roquet.errors import StoreDamaged
from roquet.format.checkpoint import Checkpoint
from roquet.format.commit_log import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    Blank,
    DispatchRequest,
    RecordFault,
    RecordRules,
    check_record,
    decode_record,
)
from roquet.format.derived import QueueKey
from roquet.format.file_parts import FilePart
from roquet.model.delay_level import DelayLevels
from roquet.model.message import StoredMessage
from roquet.runtime.files import Files, Mapping
from roquet.runtime.held_stores import store_holder
from roquet.store.inspect.index_files import IndexFileView, open_index_files
from roquet.store.inspect.layout import (
    ABORT,
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    COMMIT_LOG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    locate,
    queue_directories,
    read_parts,
)
from roquet.store.inspect.queues import ExtView, QueueEntry, QueueView

MAPPED_SEGMENTS_MAX = 8
MAGICS = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))
MAGIC_AT = 4
SEARCH_BYTES = 1 << 20


class MappedSegment(NamedTuple):
    """A segment in memory: the mapping to search in, and a view of it to cut."""

    part: FilePart
    mapping: Mapping
    view: memoryview


class StoreView:
    """One store, open until :meth:`close`; use it in a ``with`` block.

    Args:
        files: The way to the disk.
        path: The store directory.
        delay_levels: The broker's ``messageDelayLevel``, by which delayed messages are due.
        is_lock_ours: Whether the caller has locked the store, so that nobody runs it.

    Attributes:
        root: The store directory, links resolved.
        segments: Files of the log in order.
        segment_bytes: Size of a segment.
        log_directory: Directory of the log, links resolved.
        problems: What is wrong with the files of the log by name and size.
        lock_holder: Process that has the store open, 0 if it cannot be seen, ``None`` if nobody.
        has_abort: Whether the abort file is there.
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
        parts = read_parts(files, self.log_directory)
        self.segments = parts.files
        self.segment_bytes = parts.size_bytes
        self.problems: list[StoreDamaged] = parts.problems
        self._starts = [part.start for part in self.segments]
        self._mapped: dict[int, MappedSegment] = {}
        self._index_files: list[IndexFileView] = []
        self._queues: dict[QueueKey, QueueView] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def reopened_under_lock(self) -> StoreView:
        """The same store as it is now, after the caller has locked it."""
        levels = self.rules.delay_levels
        return StoreView(self.files, self.root, delay_levels=levels, is_lock_ours=True)

    def close(self) -> None:
        """Let go of all mappings."""
        for index in list(self._mapped):
            self._unmap(index)
        for index_file in self._index_files:
            index_file.close()
        self._index_files.clear()

    def _unmap(self, index: int) -> None:
        mapped = self._mapped.pop(index)
        self.files.unmap(mapped.mapping, mapped.view)

    def open_index(self, *, slots: int | None = None) -> tuple[list[IndexFileView], list[Path]]:
        """The index files, open as long as the store is, and paths that are none.

        Args:
            slots: Slots of an index file, where the files themselves do not tell.
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
        """A file's name relative to the store, for people."""
        if path == self.log_directory:
            return COMMIT_LOG
        if path.parent == self.log_directory:
            return f"{COMMIT_LOG}/{path.name}"
        return path.relative_to(self.root).as_posix()

    def segment_index(self, physical_offset: int) -> int | None:
        """Which segment holds an offset, if one does."""
        index = bisect_right(self._starts, physical_offset) - 1
        if index < 0 or physical_offset >= self.segments[index].end:
            return None
        return index

    def map_segment(self, index: int) -> MappedSegment | None:
        """A segment in memory; ``None`` if a running broker has deleted it meanwhile."""
        mapped = self._mapped.pop(index, None)
        if mapped is None:
            part = self.segments[index]
            try:
                fd = self.files.open(part.path)
            except FileNotFoundError:
                return None
            try:
                mapping = self.files.map(fd, part.size_bytes, write=False)
            finally:
                self.files.close(fd)
            mapped = MappedSegment(part, mapping, memoryview(mapping))
            while len(self._mapped) >= MAPPED_SEGMENTS_MAX:
                del self._mapped[next(iter(self._mapped))]
        self._mapped[index] = mapped
        return mapped

    def check_at(self, physical_offset: int) -> DispatchRequest | Blank | RecordFault:
        """The record at an offset, fully checked; a fault if none starts there."""
        segment = self._segment_at(physical_offset)
        if segment is None:
            return RecordFault(physical_offset, "physicalOffset", "is outside of the log")
        return check_record(
            segment.view,
            physical_offset - segment.part.start,
            segment.part.size_bytes,
            physical_offset=physical_offset,
            rules=self.rules,
        )

    def message_at(self, physical_offset: int) -> StoredMessage:
        """All fields of the record at an offset; its shape must be right."""
        segment = self._segment_at(physical_offset)
        if segment is None:
            raise StoreDamaged(f"offset {physical_offset} is outside of the log")
        start = physical_offset - segment.part.start
        return decode_record(segment.view, start, segment.part.size_bytes)

    def bytes_at(self, physical_offset: int, size_bytes: int) -> bytes:
        """A copy of a range of the log, cut at the end of its segment."""
        segment = self._segment_at(physical_offset)
        if segment is None:
            return b""
        start = physical_offset - segment.part.start
        return bytes(segment.view[start : start + size_bytes])

    def _segment_at(self, physical_offset: int) -> MappedSegment | None:
        index = self.segment_index(physical_offset)
        return None if index is None else self.map_segment(index)

    def next_record(self, after: int, before: int) -> DispatchRequest | None:
        """The first good record that starts behind ``after`` and in front of ``before``.

        Found by its magic number. That a record names its own offset keeps bytes of a body that
        look like a record from being taken for one.
        """
        index = bisect_right(self._starts, after) - 1
        for number in range(max(index, 0), len(self.segments)):
            segment = self.map_segment(number)
            if segment is None or segment.part.start >= before:
                continue
            low = max(after + 1 - segment.part.start, 0)
            high = min(before - segment.part.start, segment.part.size_bytes)
            for position in _magics(segment.mapping, low, high):
                found = self.check_at(segment.part.start + position)
                if isinstance(found, DispatchRequest):
                    return found
        return None

    def last_record(self, index: int) -> DispatchRequest | None:
        """The last good record of a segment; none in one that was made ahead and not used yet."""
        segment = self.map_segment(index)
        if segment is None or not any(segment.view[: MAGIC_AT * 2]):
            return None
        end = segment.part.size_bytes
        while end >= RECORD_BYTES_MIN:
            position = max(segment.mapping.rfind(magic, 0, end) for magic in MAGICS) - MAGIC_AT
            if position < 0:
                return None
            found = self.check_at(segment.part.start + position)
            if isinstance(found, DispatchRequest):
                return found
            end = position + MAGIC_AT + 3
        return None

    @property
    def queues(self) -> dict[QueueKey, QueueView]:
        """All ConsumeQueues of the store."""
        if self._queues is None:
            base = self.root / CONSUME_QUEUE
            self._queues = {
                QueueKey(topic, queue_id): QueueView(
                    self.files, QueueKey(topic, queue_id), directory
                )
                for topic, queue_id, directory in queue_directories(self.files, base)
            }
        return self._queues

    @property
    def has_queues(self) -> bool:
        """Whether the directory of the ConsumeQueues is there at all."""
        return self.files.is_dir(self.root / CONSUME_QUEUE)

    def batch_topics(self) -> set[str]:
        """Topics whose queues are of the batch kind, which is kept elsewhere."""
        base = self.root / BATCH_CONSUME_QUEUE
        return {topic for topic, _, _ in queue_directories(self.files, base)}

    def extensions(self) -> dict[QueueKey, ExtView]:
        """All ConsumeQueueExt of the store."""
        base = self.root / CONSUME_QUEUE_EXT
        return {
            QueueKey(topic, queue_id): ExtView(self.files, directory)
            for topic, queue_id, directory in queue_directories(self.files, base)
        }

    def checkpoint(self) -> Checkpoint | None:
        """The marks of the last flush; ``None`` without that file."""
        path = self.root / CHECKPOINT
        if not self.files.exists(path):
            return None
        return Checkpoint.unpack(self.files.read_file(path))

    def entries_between(self, low: int, high: int) -> list[QueueEntry]:
        """ConsumeQueue entries of the records from ``low`` to ``high``, by physical offset."""
        found: list[QueueEntry] = []
        for queue in self.queues.values():
            found += queue.between(low, high)
        return sorted(found, key=lambda entry: entry.unit.physical_offset)

    def stable_end(self) -> int:
        """Where the finished records of a running store end now.

        What a ConsumeQueue knows is finished, and so is all that follows it record by record. A
        record that is being written at this moment is left out.
        """
        known = [self.min_offset]
        for queue in self.queues.values():
            unit = queue.unit(queue.written_end() - 1)
            if unit is not None and unit.is_written and not unit.is_filler:
                known.append(unit.physical_offset)
        good = (offset for offset in sorted(known, reverse=True) if self._is_record(offset))
        end = self._end_of_chain(next(good, self.min_offset))
        while damaged := self.entries_between(end, end + 1):
            end = self._end_of_chain(max(entry.unit.end_offset for entry in damaged))
        return end

    def _is_record(self, physical_offset: int) -> bool:
        return isinstance(self.check_at(physical_offset), DispatchRequest)

    def _end_of_chain(self, offset: int) -> int:
        while True:
            found = self.check_at(offset)
            if isinstance(found, DispatchRequest):
                offset = found.end_offset
            elif isinstance(found, Blank) and (index := self.segment_index(offset)) is not None:
                offset = self.segments[index].end
            else:
                return offset


def _magics(mapping: Mapping, low: int, high: int) -> Iterator[int]:
    """Positions from ``low`` to ``high`` where a record may start, by its magic number."""
    for start in range(low, high, SEARCH_BYTES):
        end = min(start + SEARCH_BYTES, high)
        found: list[int] = []
        for magic in MAGICS:
            position = mapping.find(magic, start + MAGIC_AT, end + MAGIC_AT + 3)
            while position >= 0:
                found.append(position - MAGIC_AT)
                position = mapping.find(magic, position + 1, end + MAGIC_AT + 3)
        yield from sorted(found)
