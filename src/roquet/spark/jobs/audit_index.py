"""Audits index files.

Three checks by the rules of :mod:`roquet.storefiles`. One task per file compares its header with
its first and last entries. The tasks that walk the log compare records with the entries that point
into their range. Then one task per file follows its chains, skipping entries already found bad.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from roquet.format.commit_log import DispatchRequest, peek_store_timestamp_ms
from roquet.format.index_file import IndexEntry, IndexHeader
from roquet.runtime.files import Files
from roquet.spark.jobs.audit_findings import Findings
from roquet.spark.log.index_tables import (
    PIECE_ENTRIES,
    Array,
    ExpectedChains,
    IndexFileRef,
    read_entries,
    seconds_of,
)
from roquet.storefiles.damage import DamagedRanges
from roquet.storefiles.index_chains import IndexChains
from roquet.storefiles.index_checks import (
    IndexFileEnd,
    count_written,
    end_faults,
    later_seconds,
    missing_fault,
    seconds_fault,
    shape_fault,
    stray_fault,
    wrong_key_fault,
)
from roquet.storefiles.index_files import IndexFileView
from roquet.storefiles.plain_blocks import PlainBlock
from roquet.storefiles.view import StoreView

_HASH_BITS = 32
_HASH_MASK = (1 << _HASH_BITS) - 1
_PEEK_BYTES = 128
OFFSET_MAX = 2**63 - 1

CHUNK_ENTRIES = 1 << 15
"""A divisor of PIECE_ENTRIES: how many entries of an index file are compared at a time."""


@dataclass(frozen=True)
class IndexTask:
    """An index file to check; ``is_growing`` if a broker is writing to it."""

    place: IndexFileRef
    is_growing: bool


@dataclass
class IndexSpan:
    """What the tasks that walk the log need to know about an index file.

    Attributes:
        place: The file.
        header: Its header.
        count: The number of its entries.
        first_physical: The physical offset of the first entry.
        last_physical: That of the last entry.
        first_ms: The store time of the first entry's record; ``None`` if that is gone.
        first_seconds: The times that the first entry may have; empty if unknown.
        chunks: For each ``CHUNK_ENTRIES`` of them, the lowest and the highest physical offset.
    """

    place: IndexFileRef
    header: IndexHeader
    count: int
    first_physical: int = -1
    last_physical: int = -1
    first_ms: int | None = None
    first_seconds: tuple[int, ...] = ()
    chunks: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class IndexTaskResult:
    """A task's result for an index file; there is no span if nothing can be compared."""

    span: IndexSpan | None = None
    findings: Findings = field(default_factory=Findings)


@dataclass(frozen=True)
class IndexWorker:
    """Sent to executors: compares headers of index files with their first and last records."""

    root: str

    def __call__(self, tasks: Sequence[IndexTask]) -> list[IndexTaskResult]:
        """Check some files."""
        with StoreView(Files(), Path(self.root)) as view:
            return [_look_at(view, task) for task in tasks]


def _look_at(view: StoreView, task: IndexTask) -> IndexTaskResult:
    seen, place, path = IndexTaskResult(), task.place, Path(task.place.path)
    with closing(IndexFileView(view.files, path)) as index_file:
        index_file.slots, header = place.slots, index_file.header
        seen.findings.add_if(shape_fault(index_file))
        if not place.slots:
            return seen
        count, fault = count_written(index_file)
        seen.findings.add_if(fault)
    seen.span = span = IndexSpan(place, header, count)
    _measure(view.files, span)
    if span.count:
        span.first_ms = _time_at(view, span.first_physical)
        first = IndexFileEnd(1, span.first_physical, span.first_ms)
        last = IndexFileEnd(span.count, span.last_physical, _time_at(view, span.last_physical))
        if task.is_growing:
            last = last._replace(number=0)
        seen.findings.add_all(end_faults(path, header, first=first, last=last))
    return seen


def _time_at(view: StoreView, physical_offset: int) -> int | None:
    """Return the store time of the record at an offset; ``None`` if there is none."""
    index = view.segment_index(physical_offset)
    if index is None:
        return None
    head = view.bytes_at(physical_offset, _PEEK_BYTES)
    return peek_store_timestamp_ms(head, 0, view.segments[index].end - physical_offset)


def _entry(entries: Array, row: int) -> IndexEntry:
    return IndexEntry._make(entries[row].item())


def _pieces(files: Files, span: IndexSpan) -> Iterator[tuple[int, Array]]:
    """Yield the entries of a file in pieces, each with the number of its first entry."""
    for number in range(1, span.count + 1, PIECE_ENTRIES):
        wanted = min(PIECE_ENTRIES, span.count - number + 1)
        yield number, read_entries(files, span.place, number, wanted)


def _pieces_between(
    files: Files, span: IndexSpan, start: int, stop: int
) -> Iterator[tuple[int, Array]]:
    """Yield those chunks of a file that have entries of records from one offset to another."""
    for at, (low, high) in enumerate(span.chunks):
        if low < stop and high >= start:
            number = at * CHUNK_ENTRIES + 1
            wanted = min(CHUNK_ENTRIES, span.count - number + 1)
            yield number, read_entries(files, span.place, number, wanted)


def _measure(files: Files, span: IndexSpan) -> None:
    """Set which physical offsets the entries of a file have."""
    for number, entries in _pieces(files, span):
        offsets = entries["physical_offset"].astype(np.int64)
        begins = np.arange(0, len(offsets), CHUNK_ENTRIES)
        lows, highs = np.minimum.reduceat(offsets, begins), np.maximum.reduceat(offsets, begins)
        span.chunks += zip(lows.tolist(), highs.tolist(), strict=True)
        span.last_physical = int(offsets[-1])
        if number == 1:
            span.first_physical = int(offsets[0])


@dataclass(frozen=True)
class ChainTask:
    """An index file whose chains to follow, and the numbers of its bad entries."""

    span: IndexSpan
    is_growing: bool
    wild: array[int]


@dataclass(frozen=True)
class ChainWorker:
    """Sent to executors: follows the chains of index files.

    Attributes:
        log_end: Where the log ends, if all of it was read.
        is_end_known: Whether entries past the end are faults.
        is_running: Whether files may be deleted meanwhile.
    """

    log_end: int
    is_end_known: bool
    is_running: bool

    def __call__(self, tasks: Sequence[ChainTask]) -> Findings:
        """Check some files."""
        findings = Findings()
        for task in tasks:
            place = task.span.place
            try:
                with closing(IndexFileView(Files(), Path(place.path))) as index_file:
                    index_file.slots = place.slots
                    self._follow(index_file, task, findings)
            except FileNotFoundError:
                if not self.is_running:
                    raise
        return findings

    def _follow(self, index_file: IndexFileView, task: ChainTask, findings: Findings) -> None:
        chains = IndexChains(index_file, task.wild)
        fast = ExpectedChains(np.frombuffer(chains.newest, dtype=np.int32))
        for number, entries in _pieces(Files(), task.span):
            self._judge_ends(index_file.path, number, entries, chains.wild, findings)
            numbers = range(number, number + len(entries))
            is_tame = not chains.wild or chains.wild.isdisjoint(numbers)
            if not (is_tame and fast.add_sound(number, entries)):
                for row in range(len(entries)):
                    findings.add_if(chains.follow(number + row, _entry(entries, row)))
        if not task.is_growing:
            findings.add_all(chains.check_slots(task.span.count))

    def _judge_ends(
        self, path: Path, number: int, entries: Array, wild: set[int], findings: Findings
    ) -> None:
        """Check entries that point outside the log, which the walk has not compared."""
        offsets = entries["physical_offset"]
        for row in np.flatnonzero((offsets < 0) | (offsets >= self.log_end)).tolist():
            wild.add(number + row)
            entry = _entry(entries, row)
            if entry.physical_offset < 0:
                findings.add(stray_fault(path, number + row, entry))
            elif self.is_end_known:
                findings.add(stray_fault(path, number + row, entry, self.log_end))


def is_among(values: Array, ordered: Array) -> Array:
    """Return which values are in a sorted array."""
    if not len(ordered):
        return np.zeros(len(values), dtype=bool)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: Array = ordered[at] == values
    return found


def _in_order(owed: Array, tags: Array) -> Array:
    """Return all keys in the order of records; that of its tags is the last of a record."""
    places = np.searchsorted(owed >> _HASH_BITS, tags >> _HASH_BITS, side="right")
    merged: Array = np.insert(owed, places, tags)
    return merged


class IndexMatcher:
    """Collects the records of a range, and compares them with the entries that point there.

    Attributes:
        wild: Numbers of entries that do not fit their record, by index file.
    """

    def __init__(
        self,
        files: Files,
        spans: Sequence[IndexSpan],
        bounds: tuple[int, int],
        findings: Findings,
    ) -> None:
        """Set the index files, and the range whose records must all be in the index."""
        self._files = files
        self._spans = spans
        self._bounds = bounds
        self._findings = findings
        self._offsets = array("q")
        self._times_ms = array("q")
        self._owed = array("q")
        self._tags = array("q")
        self.wild: dict[str, array[int]] = {}

    def add(self, record: DispatchRequest, hashes: Sequence[int], tag: int | None) -> None:
        """Add the next record; every broker indexes ``hashes``, and some index ``tag``."""
        if not self._spans:
            return
        at = len(self._offsets) << _HASH_BITS
        self._offsets.append(record.physical_offset)
        self._times_ms.append(record.store_timestamp_ms)
        self._owed.extend([at | value for value in hashes])
        if tag is not None:
            self._tags.append(at | tag)

    def add_block(self, block: PlainBlock) -> None:
        """Add the next records."""
        if not self._spans:
            return
        first = len(self._offsets) << _HASH_BITS
        self._offsets.extend(block.physical_offsets)
        self._times_ms.extend(block.store_times_ms)
        for mine, keys in ((self._owed, block.owed_keys), (self._tags, block.tag_keys)):
            mine.frombytes((np.frombuffer(keys, dtype=np.int64) + first).tobytes())

    def finish(self, start: int, stop: int, damages: DamagedRanges) -> None:
        """Compare the records between two offsets."""
        if not self._spans:
            return
        offsets = np.frombuffer(self._offsets, dtype=np.int64)
        times_ms = np.frombuffer(self._times_ms, dtype=np.int64)
        owed = np.frombuffer(self._owed, dtype=np.int64)
        tags = np.frombuffer(self._tags, dtype=np.int64)
        pieces = list(self._pieces(start, stop))
        if self._is_as_expected(pieces, offsets, times_ms, owed, tags):
            return
        known = np.sort(np.concatenate([owed, tags]))
        found = [
            self._match(span, entries, numbers, offsets, times_ms, known, damages)
            for span, numbers, entries in pieces
        ]
        have = np.sort(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)
        low, high = self._bounds
        due = owed[~is_among(owed, have)]
        places = offsets[due >> _HASH_BITS]
        for offset in np.unique(places[(places >= low) & (places < high)]):
            count = int(np.count_nonzero(places == offset))
            self._findings.add(missing_fault(int(offset), count))

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[IndexSpan, Array, Array]]:
        """Yield the numbers and entries, by file, that point into a range."""
        for span in self._spans:
            for number, entries in _pieces_between(self._files, span, start, stop):
                physical = entries["physical_offset"]
                at = np.flatnonzero((physical >= start) & (physical < stop))
                if len(at) == len(entries):
                    yield span, at + number, entries
                elif len(at):
                    yield span, at + number, entries[at]

    def _is_as_expected(
        self,
        pieces: Sequence[tuple[IndexSpan, Array, Array]],
        offsets: Array,
        times_ms: Array,
        owed: Array,
        tags: Array,
    ) -> bool:
        """Whether entries are those that brokers write for the records, in that order.

        If they are, all of them match but perhaps their times, which are checked here.
        """
        count = sum(len(entries) for _, _, entries in pieces)
        if count == len(owed):
            keys = owed
        elif count == len(owed) + len(tags):
            keys = _in_order(owed, tags)
        else:
            return False
        at = 0
        rows: list[Array] = []
        for _, _, entries in pieces:
            piece = keys[at : at + len(entries)]
            at += len(entries)
            rows.append(piece >> _HASH_BITS)
            hashes = (piece & _HASH_MASK).astype(np.int32)
            if not (
                np.array_equal(entries["key_hash"], hashes)
                and np.array_equal(entries["physical_offset"], offsets[rows[-1]])
            ):
                return False
        for (span, numbers, entries), each in zip(pieces, rows, strict=True):
            self.wild.setdefault(span.place.path, array("i"))
            self._check_seconds(span, entries, numbers, times_ms[each])
        return True

    def _match(  # noqa: PLR0917 - the two sides of a comparison
        self,
        span: IndexSpan,
        entries: Array,
        numbers: Array,
        offsets: Array,
        times_ms: Array,
        known: Array,
        damages: DamagedRanges,
    ) -> Array:
        """Compare entries with their records; return which keys of which records they are."""
        path, wild = Path(span.place.path), self.wild.setdefault(span.place.path, array("i"))
        physical = entries["physical_offset"].astype(np.int64)
        at = np.minimum(np.searchsorted(offsets, physical), max(len(offsets) - 1, 0))
        is_record = offsets[at] == physical if len(offsets) else np.zeros(len(at), dtype=bool)
        keys = (at.astype(np.int64) << _HASH_BITS) | entries["key_hash"].astype(np.int64)
        for row in np.flatnonzero(~is_record).tolist():
            wild.append(int(numbers[row]))
            if not damages.covers(int(physical[row])):
                fault = stray_fault(path, int(numbers[row]), _entry(entries, row))
                self._findings.add(fault)
        is_known = is_record & is_among(keys, known)
        for row in np.flatnonzero(is_record & ~is_known & (entries["key_hash"] >= 0)).tolist():
            wild.append(int(numbers[row]))
            self._findings.add(wrong_key_fault(path, int(numbers[row]), _entry(entries, row)))
        rows = np.flatnonzero(is_known)
        self._check_seconds(span, entries[rows], numbers[rows], times_ms[at[rows]])
        matched: Array = keys[rows]
        return matched

    def _check_seconds(
        self, span: IndexSpan, entries: Array, numbers: Array, times_ms: Array
    ) -> None:
        begin_ms = span.header.begin_timestamp_ms
        fits = entries["seconds"] == seconds_of(begin_ms, times_ms)
        if span.first_ms is not None:
            fits |= entries["seconds"] == seconds_of(span.first_ms, times_ms)
        first = numbers == 1
        if span.first_seconds:
            fits[first] = np.isin(entries["seconds"][first], span.first_seconds)
        else:
            fits[first] = True
        for row in np.flatnonzero(~fits).tolist():
            number, entry, time_ms = int(numbers[row]), _entry(entries, row), int(times_ms[row])
            expected = later_seconds(span.header, span.first_ms, time_ms)
            self._findings.add_if(
                seconds_fault(
                    Path(span.place.path),
                    number,
                    entry,
                    span.first_seconds if number == 1 else expected,
                )
            )
