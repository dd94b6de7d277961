"""The log against the index files: each entry points to a record with its key, and vice versa.

Compares them while the log is walked. Entries are in the order of the log, so both are read side
by side; an entry that still lacks its record, or a record that still lacks an entry, is kept until
it is settled. :mod:`roquet.storefiles` decides what is wrong with an entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from roquet.format.commit_log import Blank, DispatchRequest, RecordFault
from roquet.format.derived import key_hashes, tag_hash
from roquet.format.index_file import IndexEntry
from roquet.store.inspect.report import Reporter
from roquet.storefiles.damage import DamagedRanges
from roquet.storefiles.faults import StoreFault
from roquet.storefiles.index_chains import IndexChains
from roquet.storefiles.index_checks import (
    IndexFileEnd,
    count_written,
    end_faults,
    first_seconds,
    later_seconds,
    missing_fault,
    seconds_fault,
    shape_fault,
    stray_fault,
    wrong_key_fault,
)
from roquet.storefiles.index_files import IndexFileView
from roquet.storefiles.small_files import is_unfinished_index
from roquet.storefiles.view import StoreView
from roquet.storefiles.walk import BadRecord

OWED_MAX = 100_000


class _NumberedEntry(NamedTuple):
    """An entry and its position."""

    file: _FileState
    number: int
    entry: IndexEntry


class _FileState:
    """What is known about one index file so far."""

    def __init__(self, index_file: IndexFileView, count: int, before: _FileState | None) -> None:
        self.view = index_file
        self.path = index_file.path
        self.header = index_file.header
        self.before = before
        self.count = count
        self.wild: set[int] = set()
        self.first_ms: int | None = None
        self.last_ms: int | None = None


class IndexChecker:
    """Compares each record of a walk with the entries of its keys."""

    def __init__(
        self, view: StoreView, reporter: Reporter, *, slots: int | None, log_end: int | None
    ) -> None:
        self._view = view
        self._reporter = reporter
        self._log_end = log_end
        self._damages = DamagedRanges()
        self._owed: dict[int, tuple[DispatchRequest, list[int]]] = {}
        self._end_offset = -1
        self._begin_offset: int | None = None
        self._is_complete = True
        files, strangers = view.open_index(slots=slots)
        for path in strangers:
            self._judge_stranger(path)
        self._states: list[_FileState] = []
        for index_file in files:
            self._open(index_file)
        self._reporter.report.counts.index_files = len(files)
        self._entries = self._all_entries()
        self._next: _NumberedEntry | None = next(self._entries, None)

    def _judge_stranger(self, path: Path) -> None:
        if is_unfinished_index(self._view, path):
            detail = f"{self._view.name_of(path)} was being created when the broker ended"
            self._reporter.note("unfinished", detail)
            return
        self._reporter.fault(path, "file", "not an index file by name or length")
        self._is_complete = False

    def _open(self, index_file: IndexFileView) -> None:
        header = index_file.header
        self._add(shape_fault(index_file))
        if index_file.slots == 0:
            self._is_complete = False
            return
        count, fault = count_written(index_file)
        self._add(fault)
        state = _FileState(index_file, count, self._states[-1] if self._states else None)
        self._states.append(state)
        if state.count:
            last = index_file.entry(state.count).physical_offset
            self._end_offset = max(self._end_offset, min(header.end_physical_offset, last))
            if self._begin_offset is None:
                first = index_file.entry(1).physical_offset
                self._begin_offset = max(header.begin_physical_offset, first)

    def on_damage(self, damage: BadRecord) -> None:
        """Remember where records are lost, so that their entries are not blamed too."""
        self._damages.add(damage.start, damage.end)

    # -- entries ----------------------------------------------------------------------------

    def _all_entries(self) -> Iterator[_NumberedEntry]:
        """Entries of all files in order; faults of their chains are reported on the way."""
        for state in self._states:
            chains = IndexChains(state.view)
            state.wild = chains.wild
            for number, entry in islice(state.view.entries(), state.count):
                if entry.key_hash >= 0:
                    yield _NumberedEntry(state, number, entry)
                self._add(chains.follow(number, entry))
            self._reporter.report.counts.index_entries += state.count
            if not self._is_growing(state):
                for fault in chains.check_slots(state.count):
                    self._reporter.add(fault)

    def on_record(self, record: DispatchRequest) -> None:
        """Compare a record with the entries that point at it."""
        offset = record.physical_offset
        hashes = key_hashes(record)
        begin = self._begin_offset
        if (
            hashes
            and self._is_complete
            and begin is not None
            and begin <= offset < self._end_offset
        ):
            self._owed[offset] = (record, hashes.copy())
            if len(self._owed) > OWED_MAX:
                self._report_owed(OWED_MAX // 2)
        while (numbered := self._next) is not None:
            if numbered.entry.physical_offset == offset:
                self._match(numbered, record, hashes)
            elif not self._settle_elsewhere(numbered, offset):
                return
            self._next = next(self._entries, None)

    def _settle_elsewhere(self, numbered: _NumberedEntry, offset: int) -> bool:
        """Judge an entry that does not point at the current record; false if it has to wait."""
        stated = numbered.entry.physical_offset
        if 0 <= stated < self._view.min_offset:
            return True  # expired
        if self._log_end is not None and stated >= self._log_end:
            return True  # newer than what is checked
        if stated > offset and _is_in_order(numbered):
            return False
        found = self._view.check_at(stated)
        if isinstance(found, Blank | RecordFault):
            numbered.file.wild.add(numbered.number)
            if not self._damages.covers(stated):
                self._add(stray_fault(numbered.file.path, numbered.number, numbered.entry))
            return True
        hashes = key_hashes(found)
        if stated > offset and _has_key(found, hashes, numbered.entry):
            return False
        self._match(numbered, found, hashes)
        return True

    def _match(self, numbered: _NumberedEntry, record: DispatchRequest, hashes: list[int]) -> None:
        """Compare an entry with the record it points at, which has keys with these hashes."""
        state, number, entry = numbered
        if not _has_key(record, hashes, entry):
            state.wild.add(number)
            self._add(wrong_key_fault(state.path, number, entry, record))
            return
        self._settle(record.physical_offset, entry.key_hash)
        time_ms = record.store_timestamp_ms
        if number == 1:
            state.first_ms = time_ms
            before = None if state.before is None else state.before.header
            expected = set(first_seconds(before, time_ms, self._view.min_offset))
        else:
            expected = later_seconds(state.header, state.first_ms, time_ms)
        self._add(seconds_fault(state.path, number, entry, expected, record))
        if number == state.count:
            state.last_ms = time_ms

    def _settle(self, offset: int, key_hash: int) -> None:
        found = self._owed.get(offset)
        if found is None:
            return
        if key_hash in found[1]:
            found[1].remove(key_hash)
        if not found[1]:
            del self._owed[offset]

    # -- the end ----------------------------------------------------------------------------

    def finish(self, log_end: int) -> None:
        """Judge what is left: entries beyond the log, records without entries, headers."""
        while (numbered := self._next) is not None:
            if numbered.entry.physical_offset >= log_end:
                if not self._view.is_running and not self._view.crashed:
                    self._add(
                        stray_fault(numbered.file.path, numbered.number, numbered.entry, log_end)
                    )
                numbered.file.wild.add(numbered.number)
            else:
                self._settle_elsewhere(numbered, log_end)
            self._next = next(self._entries, None)
        self._report_owed(len(self._owed))
        for state in self._states:
            self._check_header(state)

    def _report_owed(self, count: int) -> None:
        """Report the oldest records that still lack an index entry."""
        for offset in list(self._owed)[:count]:
            record, hashes = self._owed.pop(offset)
            self._reporter.add(missing_fault(offset, len(hashes), record))

    def _check_header(self, state: _FileState) -> None:
        """Check the header's offsets and times of the first and the last entry."""
        if state.count == 0:
            return
        ends = [
            IndexFileEnd(
                0 if number in state.wild else number,
                state.view.entry(number).physical_offset,
                time_ms,
            )
            for number, time_ms in ((1, state.first_ms), (state.count, state.last_ms))
        ]
        first, last = ends[0], ends[1]._replace(number=0) if self._is_growing(state) else ends[1]
        for fault in end_faults(state.view.path, state.header, first=first, last=last):
            self._reporter.add(fault)

    def _is_growing(self, state: _FileState) -> bool:
        """Whether a broker is writing to a file now."""
        return self._view.is_running and state is self._states[-1]

    def _add(self, fault: StoreFault | None) -> None:
        if fault is not None:
            self._reporter.add(fault)


def _has_key(record: DispatchRequest, hashes: list[int], entry: IndexEntry) -> bool:
    return entry.key_hash in hashes or entry.key_hash == tag_hash(record)


def _is_in_order(numbered: _NumberedEntry) -> bool:
    """Whether the next entry points at the same record or a later one, as it should."""
    state, number, entry = numbered
    if number >= state.count:
        return True
    return entry.physical_offset <= state.view.entry(number + 1).physical_offset
