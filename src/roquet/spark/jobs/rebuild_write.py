"""Entries of queues and index, written by those who read their records.

Owns the second pass of a rebuild. Each task writes the entries of its range to their places in
files that other tasks write, too: places never overlap, and to write them again changes nothing, so
a task may be repeated. Index entries are chained when all are there, a task a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from roquet.format.commit_log import DispatchRequest
from roquet.format.consume_queue import FILLER, UNIT, UNIT_BYTES
from roquet.format.derived import QueueKey
from roquet.format.file_parts import file_name
from roquet.format.index_file import (
    ENTRY,
    HEADER_BYTES,
    IndexHeader,
    entry_position,
    file_size,
    seconds_since,
)
from roquet.runtime.files import Files
from roquet.spark.jobs.rebuild_survey import LogRules, index_hashes
from roquet.spark.log.index_tables import (
    PIECE_ENTRIES,
    SLOT_TYPE,
    Chains,
    IndexPlace,
    read_entries,
)
from roquet.spark.log.queue_files import QueueFiles
from roquet.spark.log.reading import LogRange
from roquet.spark.log.records import Hurt, records_of
from roquet.spark.log.store_files import open_log

HELD_BYTES_MAX = 8 << 20
_FILLERS = 1 << 14


class IndexShape(NamedTuple):
    """Slots and entries of an index file; entry 0 is never used."""

    slots: int
    entries: int

    @property
    def used_entries(self) -> int:
        """How many entries a full file holds."""
        return self.entries - 1


@dataclass(frozen=True)
class IndexPart:
    """An index file to be.

    Attributes:
        path: Where.
        count: How many entries it gets.
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
        expected: By queue: the offset at which its entries go on.
        restarts: By queue: physical offset from which on records count.
        index_start: How many index entries are in front of those of the range.
    """

    ranges: list[LogRange]
    expected: dict[QueueKey, int]
    restarts: dict[QueueKey, int]
    index_start: int


@dataclass(frozen=True)
class WriteWorker:
    """Sent to executors: writes the entries of a range.

    Attributes:
        rules: How the log becomes entries.
        queue_root: The directory of the ConsumeQueues.
        queue_file_bytes: Length of a ConsumeQueue file.
        shape: That of index files.
        index: The index files in order.
    """

    rules: LogRules
    queue_root: str
    queue_file_bytes: int
    shape: IndexShape
    index: tuple[IndexPart, ...]

    def __call__(self, task: WriteTask) -> int:
        """Write; gives how many entries of queues."""
        return _Writing(self, task).run()


@dataclass
class _Pending:
    """Entries of a queue that are not written yet."""

    first_offset: int
    data: bytearray = field(default_factory=bytearray)


class _Writing:
    """One task at work."""

    def __init__(self, worker: WriteWorker, task: WriteTask) -> None:
        self._worker = worker
        self._task = task
        self._files = Files()
        self._expected = dict(task.expected)
        self._pending: dict[QueueKey, _Pending] = {}
        self._index_next = task.index_start
        self._index_first = task.index_start
        self._index_data = bytearray()
        self._held_bytes = 0
        self._count = 0

    def run(self) -> int:
        rules = self._worker.rules
        for part in self._task.ranges:
            for record, _, _ in records_of(self._files, part, rules.record_rules, _pass_over):
                for key, queue_offset in rules.places(record):
                    if record.physical_offset >= self._task.restarts.get(key, 0):
                        self._put(key, queue_offset, record)
                self._put_index(record)
                if self._held_bytes >= HELD_BYTES_MAX:
                    self._flush()
        self._flush()
        return self._count

    # -- queues -----------------------------------------------------------------------------

    def _put(self, key: QueueKey, queue_offset: int, record: DispatchRequest) -> None:
        expected = self._expected.get(key)
        if expected is not None and queue_offset < expected:
            return  # the place is taken by an earlier record
        if expected is None:
            entries_a_file = self._worker.queue_file_bytes // UNIT_BYTES
            expected = queue_offset - queue_offset % entries_a_file
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending(expected)
        while expected < queue_offset:
            count = min(queue_offset - expected, _FILLERS)
            self._hold(pending, FILLER * count)
            expected += count
        self._hold(pending, UNIT.pack(record.physical_offset, record.size_bytes, record.tags_code))
        self._expected[key] = queue_offset + 1
        self._count += 1

    def _hold(self, pending: _Pending, data: bytes) -> None:
        pending.data += data
        self._held_bytes += len(data)

    def _flush(self) -> None:
        for key, pending in self._pending.items():
            self._write_queue(key, pending)
        self._pending.clear()
        self._write_index()
        self._held_bytes = 0

    def _write_queue(self, key: QueueKey, pending: _Pending) -> None:
        files, size = self._files, self._worker.queue_file_bytes
        directory = files.inside(Path(self._worker.queue_root), key.topic, str(key.queue_id))
        files.make_dirs(directory)
        position, data = pending.first_offset * UNIT_BYTES, memoryview(pending.data)
        while data:
            start = position - position % size
            room = min(start + size - position, len(data))
            path = files.inside(directory, file_name(start))
            write_part(files, path, size, data[:room], position - start)
            position += room
            data = data[room:]

    # -- index ------------------------------------------------------------------------------

    def _put_index(self, record: DispatchRequest) -> None:
        each_file, parts = self._worker.shape.used_entries, self._worker.index
        for key_hash in index_hashes(record):
            file, place = divmod(self._index_next, each_file)
            begin_ms = parts[file].begin_ms if place else parts[file].before_ms
            seconds = seconds_since(begin_ms, record.store_timestamp_ms)
            self._index_data += ENTRY.pack(key_hash, record.physical_offset, seconds, 0)
            self._index_next += 1
            self._held_bytes += ENTRY.size

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
    """Write to a place of a file of fixed length, which others write to other places of."""
    fd = files.open(path, write=True, create=True)
    try:
        files.truncate(fd, size_bytes)
        files.write_at(fd, data, position)
        files.data_sync(fd)
    finally:
        files.close(fd)
    files.sync_dir(path.parent)


def _pass_over(_hurt: Hurt) -> None:
    """The survey has told of it."""


@dataclass(frozen=True)
class TimesWorker:
    """Sent to executors: finds store times of records by the number of an index entry."""

    rules: LogRules

    def __call__(self, task: tuple[list[LogRange], list[int]]) -> list[int]:
        """The store times for numbers of index entries of a range, in their order."""
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
class ChainWorker:
    """Sent to executors: chains the entries of one index file, and writes slots and header."""

    shape: IndexShape

    def __call__(self, part: IndexPart) -> None:
        """Finish a file."""
        files, shape, path = Files(), self.shape, Path(part.path)
        place = IndexPlace(part.path, shape.slots, shape.entries)
        chains, first, last = Chains(shape.slots), 0, 0
        fd = files.open(path, write=True)
        try:
            for number in range(1, part.count + 1, PIECE_ENTRIES):
                count = min(PIECE_ENTRIES, part.count - number + 1)
                entries = read_entries(files, place, number, count).copy()
                entries["previous"] = chains.add(entries["key_hash"])
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
class CarryWorker:
    """Sent to executors: copies queues whose records have all expired; their next offset counts."""

    store: str
    queue_root: str

    def __call__(self, keys: Sequence[QueueKey]) -> int:
        """Copy some queues."""
        files = Files()
        log = open_log(files, [self.store])
        for key in keys:
            queue = log.queue(*key)
            if queue is not None:
                self._copy(files, key, queue)
        return len(keys)

    def _copy(self, files: Files, key: QueueKey, queue: QueueFiles) -> None:
        directory = files.inside(Path(self.queue_root), key.topic, str(key.queue_id))
        files.make_dirs(directory)
        for path, size_bytes in queue.parts:
            data = memoryview(files.read_file(path).rstrip(b"\0"))
            write_part(files, files.inside(directory, path.name), size_bytes, data, 0)
