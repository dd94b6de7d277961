"""Writes the entries of queues and index, in the tasks that read their records.

The second pass of a rebuild. Each task writes the entries of its range into files that other tasks
write to as well: their places never overlap, and writing is idempotent, so a task may be repeated.
Index entries are chained once all are written, one task per file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from roquet.format.batch_consume_queue import BATCH_UNIT_BYTES, batch_unit_of
from roquet.format.commit_log import DispatchRequest
from roquet.format.consume_queue import FILLER, UNIT, UNIT_BYTES
from roquet.format.consume_queue_ext import END_MARK, address_of, pack_unit, place_after
from roquet.format.derived import QueueKey
from roquet.format.index_file import (
    ENTRY,
    HEADER_BYTES,
    IndexHeader,
    entry_position,
    file_size,
    seconds_since,
)
from roquet.format.segment_files import SegmentList, file_name
from roquet.runtime.files import Files
from roquet.spark.jobs.rebuild_ext import UnitMaker
from roquet.spark.jobs.rebuild_survey import LogRules, RecordPlace, index_hashes
from roquet.spark.log.index_tables import (
    PIECE_ENTRIES,
    SLOT_TYPE,
    ExpectedChains,
    IndexFileRef,
    read_entries,
)
from roquet.storefiles.damage import DamagedRange
from roquet.storefiles.index_files import IndexShape
from roquet.storefiles.layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from roquet.storefiles.records import LogRange, records_of

HELD_BYTES_MAX = 8 << 20
_FILLERS = 1 << 14


@dataclass(frozen=True)
class IndexPart:
    """A planned index file.

    Attributes:
        path: Its path.
        count: The number of its entries.
        begin_ms: Store time of the record of its first entry.
        end_ms: Store time of the record of its last entry.
        before_ms: Store time of the last entry of the file before it; 0 for the first file.
    """

    path: str
    count: int
    begin_ms: int
    end_ms: int
    before_ms: int


@dataclass(frozen=True)
class WriteTask:
    """A range, and where its entries go.

    Attributes:
        ranges: The range.
        expected: By queue: the offset at which its entries continue.
        unit_ends: By queue: the real offset at which its units continue, if it gets any; for a
            batch consume queue, the number of its next entry.
        restarts: By queue: the physical offset from which on records count.
        index_start: The number of index entries before those of the range.
    """

    ranges: list[LogRange]
    expected: dict[QueueKey, int]
    unit_ends: dict[QueueKey, int]
    restarts: dict[QueueKey, int]
    index_start: int


@dataclass(frozen=True)
class WriteWorker:
    """Sent to executors: writes the entries of a range.

    Attributes:
        rules: How entries are made from the log.
        out: The output directory.
        queue_file_bytes: Length of a ConsumeQueue file.
        batch_file_bytes: Length of a file of a batch consume queue.
        shape: The shape of index files.
        index: The index files in order.
    """

    rules: LogRules
    out: str
    queue_file_bytes: int
    batch_file_bytes: int
    shape: IndexShape
    index: tuple[IndexPart, ...]

    def __call__(self, task: WriteTask) -> int:
        """Write a range; return the number of queue entries."""
        return _Writing(self, task).run()


@dataclass
class _Pending:
    """Unwritten bytes of a queue, and the position of the first across all its files."""

    position: int
    data: bytearray = field(default_factory=bytearray)


class _QueueBytes:
    """Buffers writes to the files of many queues, one write per queue.

    Attributes:
        held_bytes: The number of buffered bytes.
    """

    def __init__(self, files: Files, root: Path, file_bytes: int) -> None:
        self._files = files
        self._root = root
        self._file_bytes = file_bytes
        self._pending: dict[QueueKey, _Pending] = {}
        self.held_bytes = 0

    def add(self, key: QueueKey, position: int, data: bytes) -> None:
        """Append to the buffered bytes of a queue."""
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending(position)
        assert position == pending.position + len(pending.data)
        pending.data += data
        self.held_bytes += len(data)

    def flush(self) -> None:
        """Write all buffered bytes."""
        for key, pending in self._pending.items():
            self._write(key, pending)
        self._pending.clear()
        self.held_bytes = 0

    def _write(self, key: QueueKey, pending: _Pending) -> None:
        files, size = self._files, self._file_bytes
        directory = files.inside(self._root, key.topic, str(key.queue_id))
        files.make_dirs(directory)
        position, data = pending.position, memoryview(pending.data)
        while data:
            start = position - position % size
            room = min(start + size - position, len(data))
            path = files.inside(directory, file_name(start))
            write_part(files, path, size, data[:room], position - start)
            position += room
            data = data[room:]


class _Writing:
    """One task at work."""

    def __init__(self, worker: WriteWorker, task: WriteTask) -> None:
        self._worker = worker
        self._task = task
        self._files = Files()
        self._expected = dict(task.expected)
        out, ext = Path(worker.out), worker.rules.ext
        self._queues = _QueueBytes(self._files, out / CONSUME_QUEUE, worker.queue_file_bytes)
        self._batches = _QueueBytes(self._files, out / BATCH_CONSUME_QUEUE, worker.batch_file_bytes)
        self._ext_file_bytes = 0 if ext is None else ext.file_bytes
        self._ext = _QueueBytes(self._files, out / CONSUME_QUEUE_EXT, self._ext_file_bytes)
        self._unit_maker = UnitMaker.of(ext)
        self._unit_ends = dict(task.unit_ends)
        self._index_next = task.index_start
        self._index_first = task.index_start
        self._index_data = bytearray()
        self._count = 0

    def run(self) -> int:
        rules = self._worker.rules
        for part in self._task.ranges:
            for record, _, _ in records_of(self._files, part, rules.record_rules, _pass_over):
                for place in rules.places(record):
                    if record.physical_offset >= self._task.restarts.get(place.key, 0):
                        self._put(place, record)
                self._put_index(record)
                if self._held_bytes >= HELD_BYTES_MAX:
                    self._flush()
        self._flush()
        return self._count

    @property
    def _held_bytes(self) -> int:
        held = (self._queues, self._batches, self._ext)
        return sum(each.held_bytes for each in held) + len(self._index_data)

    def _flush(self) -> None:
        self._ext.flush()
        self._queues.flush()
        self._batches.flush()
        self._write_index()

    # -- queues -----------------------------------------------------------------------------

    def _put(self, place: RecordPlace, record: DispatchRequest) -> None:
        key, queue_offset = place.key, place.queue_offset
        expected = self._expected.get(key)
        if expected is not None and queue_offset < expected:
            return  # an earlier record has this offset
        self._expected[key] = queue_offset + place.messages
        self._count += 1
        if place.is_batch:
            number = self._unit_ends[key]
            self._batches.add(key, number * BATCH_UNIT_BYTES, batch_unit_of(record).pack())
            self._unit_ends[key] = number + 1
            return
        if expected is None:
            entries_a_file = self._worker.queue_file_bytes // UNIT_BYTES
            expected = queue_offset - queue_offset % entries_a_file
        while expected < queue_offset:
            count = min(queue_offset - expected, _FILLERS)
            self._queues.add(key, expected * UNIT_BYTES, FILLER * count)
            expected += count
        tags_code = self._tags_code(key, record)
        entry = UNIT.pack(record.physical_offset, record.size_bytes, tags_code)
        self._queues.add(key, queue_offset * UNIT_BYTES, entry)

    def _tags_code(self, key: QueueKey, record: DispatchRequest) -> int:
        """Return the entry's tags code, or the address of the unit that holds it."""
        unit = None if self._unit_maker is None else self._unit_maker.unit(key, record)
        if unit is None:
            return record.tags_code
        end = self._unit_ends[key]
        place = place_after(end, unit.size_bytes, self._ext_file_bytes)
        if place != end:
            self._ext.add(key, end, END_MARK.ljust(place - end, b"\0"))
        self._ext.add(key, place, pack_unit(unit))
        self._unit_ends[key] = place + unit.size_bytes
        return address_of(place)

    # -- index ------------------------------------------------------------------------------

    def _put_index(self, record: DispatchRequest) -> None:
        each_file, parts = self._worker.shape.used_entries, self._worker.index
        for key_hash in index_hashes(record):
            file, place = divmod(self._index_next, each_file)
            begin_ms = parts[file].begin_ms if place else parts[file].before_ms
            seconds = seconds_since(begin_ms, record.store_timestamp_ms)
            self._index_data += ENTRY.pack(key_hash, record.physical_offset, seconds, 0)
            self._index_next += 1

    def _write_index(self) -> None:
        shape, data = self._worker.shape, memoryview(self._index_data)
        while data:
            file, place = divmod(self._index_first, shape.used_entries)
            room = min((shape.used_entries - place) * ENTRY.size, len(data))
            write_part(
                self._files,
                Path(self._worker.index[file].path),
                file_size(*shape),
                data[:room],
                entry_position(shape.slots, place + 1),
            )
            self._index_first += room // ENTRY.size
            data = data[room:]
        self._index_data = bytearray()


def write_part(files: Files, path: Path, size_bytes: int, data: memoryview, position: int) -> None:
    """Write at a position of a file of fixed length; other tasks write at other positions."""
    fd = files.open(path, write=True, create=True)
    try:
        files.truncate(fd, size_bytes)
        files.write_at(fd, data, position)
        files.data_sync(fd)
    finally:
        files.close(fd)
    files.sync_dir(path.parent)


def _pass_over(_damage: DamagedRange) -> None:
    """Ignore damage: the survey has reported it."""


@dataclass(frozen=True)
class TimesWorker:
    """Sent to executors: finds store times of records by index entry number."""

    rules: LogRules

    def __call__(self, task: tuple[list[LogRange], list[int]]) -> list[int]:
        """Return the store times for index entry numbers of a range, in order."""
        ranges, wanted = task
        files, times, count = Files(), [0] * len(wanted), 0
        for part in ranges:
            for record, _, _ in records_of(files, part, self.rules.record_rules, _pass_over):
                before, count = count, count + len(index_hashes(record))
                for at, number in enumerate(wanted):
                    if before <= number < count:
                        times[at] = record.store_timestamp_ms
        return times


@dataclass(frozen=True)
class IndexChainWorker:
    """Sent to executors: chains the entries of one index file, and writes slots and header."""

    shape: IndexShape

    def __call__(self, part: IndexPart) -> None:
        """Finish a file."""
        files, shape, path = Files(), self.shape, Path(part.path)
        place = IndexFileRef(part.path, shape.slots, shape.entries)
        chains, first, last = ExpectedChains(np.zeros(shape.slots, dtype=np.int32)), 0, 0
        fd = files.open(path, write=True)
        try:
            for number in range(1, part.count + 1, PIECE_ENTRIES):
                count = min(PIECE_ENTRIES, part.count - number + 1)
                entries = read_entries(files, place, number, count).copy()
                entries["previous"] = chains.add(number, entries["key_hash"])
                files.write_at(fd, entries.tobytes(), entry_position(shape.slots, number))
                first = int(entries["physical_offset"][0]) if number == 1 else first
                last = int(entries["physical_offset"][-1])
            header = IndexHeader(
                part.begin_ms,
                part.end_ms,
                first,
                last,
                int(np.count_nonzero(chains.newest)),
                part.count + 1,
            )
            files.write_at(fd, chains.newest.astype(SLOT_TYPE).tobytes(), HEADER_BYTES)
            files.write_at(fd, header.pack(), 0)
            files.data_sync(fd)
        finally:
            files.close(fd)


@dataclass(frozen=True)
class CopyQueuesWorker:
    """Sent to executors: copies queues whose records have all expired, to keep their offsets.

    Attributes:
        rules: How entries are made from the log.
        out: The output directory.
    """

    rules: LogRules
    out: str

    def __call__(self, keys: Sequence[QueueKey]) -> int:
        """Copy some queues, and the units that their entries point to."""
        view, out = self.rules.open_store(), Path(self.out)
        files, has_units = view.files, self.rules.ext is not None
        for key in keys:
            for kind, queue in (
                (CONSUME_QUEUE_EXT, view.extensions.get(key) if has_units else None),
                (CONSUME_QUEUE, view.queues.get(key)),
                (BATCH_CONSUME_QUEUE, view.batch_queues.get(key)),
            ):
                if queue is not None:
                    self._copy(
                        files,
                        files.inside(out / kind, key.topic, str(key.queue_id)),
                        queue.segments,
                    )
        return len(keys)

    @staticmethod
    def _copy(files: Files, directory: Path, segments: SegmentList) -> None:
        files.make_dirs(directory)
        for segment in segments.files:
            data = memoryview(files.read_file(segment.path).rstrip(b"\0"))
            write_part(
                files, files.inside(directory, segment.path.name), segment.size_bytes, data, 0
            )
