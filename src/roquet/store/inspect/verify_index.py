"""The log against the index files: each entry leads to a record with its key, and the reverse.

Owns the comparison, done while the log is walked. Entries were put in the order of the log, so
both are read side by side; what an entry still owes to a record, or a record to the index, is kept
until it is settled.

A bad entry is called wild: others may rightly point at it, so they are not blamed for doing so.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from roquet.format.commit_log import Blank, DispatchRequest, RecordFault
from roquet.format.derived import QueueKey, key_hashes, tag_hash
from roquet.format.index_file import HEADER_BYTES, IndexEntry, seconds_since
from roquet.store.inspect.index_files import IndexFileView
from roquet.store.inspect.report import Reporter
from roquet.store.inspect.view import StoreView
from roquet.store.inspect.walk import Damage, Damages

OWED_MAX = 100_000
_NO_ENTRY = IndexEntry(0, 0, 0, 0)


class _Place(NamedTuple):
    """An entry and where it stands."""

    file: _FileState
    number: int
    entry: IndexEntry


class _FileState:
    """What is known of one index file so far."""

    def __init__(self, index_file: IndexFileView, before: _FileState | None) -> None:
        self.view = index_file
        self.header = index_file.header
        self.before = before
        self.count = index_file.count
        self.newest = array("i", bytes(4 * index_file.slots))
        self.wild: set[int] = set()
        self.first_ms: int | None = None
        self.last_ms: int | None = None

    @property
    def begins_ms(self) -> set[int]:
        """Times that entries may count from; header and first record should agree on one."""
        header_ms = self.header.begin_timestamp_ms
        return {header_ms, header_ms if self.first_ms is None else self.first_ms}


class IndexChecker:
    """Compares each record of a walk with the entries of its keys."""

    def __init__(
        self, view: StoreView, reporter: Reporter, *, slots: int | None, log_end: int | None
    ) -> None:
        self._view = view
        self._reporter = reporter
        self._log_end = log_end
        self._damages = Damages()
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
        self._places = self._all_places()
        self._next: _Place | None = next(self._places, None)

    def _judge_stranger(self, path: Path) -> None:
        files = self._view.files
        is_unfinished = path.name.isdecimal() and not any(files.read_file(path)[:HEADER_BYTES])
        if is_unfinished and (self._view.crashed or self._view.is_running):
            detail = f"{self._view.name_of(path)} was being made when the broker ended"
            self._reporter.note("unfinished", detail)
            return
        self._reporter.fault(path, "file", "is no index file by name or length")
        self._is_complete = False

    def _open(self, index_file: IndexFileView) -> None:
        header = index_file.header
        if index_file.slots == 0:
            self._is_complete = False
            if header.index_count > 1:
                detail = "entries and slots agree under no number of slots"
                self._fault(index_file.path, "indexCount", detail)
            elif not index_file.is_untouched():
                detail = f"{header.index_count}, but the file is not empty"
                self._fault(index_file.path, "indexCount", detail)
            return
        state = _FileState(index_file, self._states[-1] if self._states else None)
        if header.index_count > index_file.entry_capacity:
            detail = f"{header.index_count}, room is for {index_file.entry_capacity}"
            self._fault(index_file.path, "indexCount", detail)
        self._states.append(state)
        if state.count:
            last = index_file.entry(state.count).physical_offset
            self._end_offset = max(self._end_offset, min(header.end_physical_offset, last))
            if self._begin_offset is None:
                first = index_file.entry(1).physical_offset
                self._begin_offset = max(header.begin_physical_offset, first)

    def on_damage(self, damage: Damage) -> None:
        """Remember where records are lost, so that their entries are not blamed too."""
        self._damages.add(damage)

    # -- entries ----------------------------------------------------------------------------

    def _all_places(self) -> Iterator[_Place]:
        """Entries of all files in order; what is wrong with their chains is told on the way."""
        for state in self._states:
            slots, newest, wild = state.view.slots, state.newest, state.wild
            for number, entry in state.view.entries():
                if entry == _NO_ENTRY and number > 1:
                    detail = f"{state.header.index_count}, but entry {number} is empty"
                    self._fault(state.view.path, "indexCount", detail)
                    state.count = number - 1
                    break
                self._reporter.report.counts.index_entries += 1
                if entry.key_hash < 0:
                    self._blame(state, number, entry, "keyHash", "is negative")
                    wild.add(number)
                    continue
                yield _Place(state, number, entry)
                if number in wild:
                    continue
                slot = entry.key_hash % slots
                if entry.previous != newest[slot] and entry.previous not in wild:
                    self._blame(state, number, entry, "previous", f"expected {newest[slot]}")
                newest[slot] = number

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
        while (place := self._next) is not None:
            if place.entry.physical_offset == offset:
                self._match(place, record, hashes)
            elif not self._settle_elsewhere(place, offset):
                return
            self._next = next(self._places, None)

    def _settle_elsewhere(self, place: _Place, offset: int) -> bool:
        """Judge an entry that does not point at the current record; false if it has to wait."""
        stated = place.entry.physical_offset
        if 0 <= stated < self._view.min_offset:
            return True  # expired
        if self._log_end is not None and stated >= self._log_end:
            return True  # newer than what is looked at
        if stated > offset and _is_in_order(place):
            return False
        found = self._view.check_at(stated)
        if isinstance(found, Blank | RecordFault):
            place.file.wild.add(place.number)
            if not self._damages.covers(stated):
                detail = "no record starts there"
                self._blame(place.file, place.number, place.entry, "physicalOffset", detail)
            return True
        hashes = key_hashes(found)
        if stated > offset and _has_key(found, hashes, place.entry):
            return False
        self._match(place, found, hashes)
        return True

    def _match(self, place: _Place, record: DispatchRequest, hashes: list[int]) -> None:
        """Compare an entry with the record it points at, which has keys with these hashes."""
        state, number, entry = place
        if not _has_key(record, hashes, entry):
            state.wild.add(number)
            detail = "belongs to no key of the record"
            self._blame(state, number, entry, "keyHash", detail, record)
            return
        self._settle(record.physical_offset, entry.key_hash)
        time_ms = record.store_timestamp_ms
        if number == 1:
            state.first_ms = time_ms
            expected = self._first_seconds(state, time_ms)
        else:
            expected = {seconds_since(begin_ms, time_ms) for begin_ms in state.begins_ms}
        if expected and entry.seconds not in expected:
            detail = f"expected {max(expected)}"
            self._blame(state, number, entry, "seconds", detail, record)
        if number == state.count:
            state.last_ms = time_ms

    def _first_seconds(self, state: _FileState, time_ms: int) -> set[int]:
        """What the first entry may say: a new file counts from the end of the one before it."""
        if state.before is not None:
            return {0, seconds_since(state.before.header.end_timestamp_ms, time_ms)}
        return {0} if self._view.min_offset == 0 else set()

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
        """Judge what is left: entries behind the log, records without entries, heads and slots."""
        while (place := self._next) is not None:
            if place.entry.physical_offset >= log_end:
                if not self._view.is_running and not self._view.crashed:
                    detail = f"the log ends at {log_end}"
                    self._blame(place.file, place.number, place.entry, "physicalOffset", detail)
                place.file.wild.add(place.number)
            else:
                self._settle_elsewhere(place, log_end)
            self._next = next(self._places, None)
        self._report_owed(len(self._owed))
        for state in self._states:
            self._check_header(state)
            self._check_slots(state)

    def _report_owed(self, count: int) -> None:
        """Tell of the oldest records that the index still owes an entry."""
        for offset in list(self._owed)[:count]:
            record, hashes = self._owed.pop(offset)
            detail = f"{len(hashes)} of its keys are in no index file"
            self._reporter.record_fault(record, "keys", detail)

    def _check_header(self, state: _FileState) -> None:
        if state.count == 0:
            return
        header, last = state.header, state.count
        self._check_end(state, 1, "begin", header.begin_physical_offset, header.begin_timestamp_ms)
        if not (self._view.is_running and state is self._states[-1]):
            self._check_end(state, last, "end", header.end_physical_offset, header.end_timestamp_ms)

    def _check_end(
        self, state: _FileState, number: int, side: str, offset: int, time_ms: int
    ) -> None:
        """Compare what the header says of the first or last entry with that entry."""
        if number in state.wild:
            return
        actual_offset = state.view.entry(number).physical_offset
        actual_ms = state.first_ms if number == 1 and side == "begin" else state.last_ms
        for name, stated, actual in (
            (f"{side}PhyOffset", offset, actual_offset),
            (f"{side}Timestamp", time_ms, actual_ms),
        ):
            if actual is not None and stated != actual:
                self._reporter.fault(
                    state.view.path,
                    name,
                    f"the header says {stated}, the record of entry {number} {actual}",
                    physical_offset=actual_offset,
                )

    def _check_slots(self, state: _FileState) -> None:
        """The slots must lead to the newest entry of each chain, and be counted in the header."""
        if self._view.is_running and state is self._states[-1]:
            return
        index_file, newest = state.view, state.newest
        if index_file.slots_equal(newest):
            used = index_file.slots - newest.count(0)
            # Brokers before 4.9 counted entries here.
            if state.header.hash_slot_count not in {used, state.count} and not state.wild:
                detail = f"the header says {state.header.hash_slot_count}, {used} are in use"
                self._fault(index_file.path, "hashSlotCount", detail)
            return
        beyond = 0
        for slot in range(index_file.slots):
            found = index_file.slot(slot)
            if found == newest[slot] or found in state.wild:
                continue
            if state.count < found < index_file.entry_capacity:
                beyond = max(beyond, found)
                continue
            detail = f"slot {slot} says {found}, expected {newest[slot]}"
            self._fault(index_file.path, "slot", detail)
        if beyond:
            detail = f"{state.header.index_count}, but slots lead to entry {beyond}"
            self._fault(index_file.path, "indexCount", detail)

    # -- words ------------------------------------------------------------------------------

    def _blame(  # noqa: PLR0917 - one parameter a part of the sentence
        self,
        state: _FileState,
        number: int,
        entry: IndexEntry,
        name: str,
        detail: str,
        record: DispatchRequest | None = None,
    ) -> None:
        stated = {
            "keyHash": entry.key_hash,
            "physicalOffset": entry.physical_offset,
            "seconds": entry.seconds,
            "previous": entry.previous,
        }[name]
        self._reporter.fault(
            state.view.path,
            name,
            f"entry {number} says {stated}: {detail}",
            physical_offset=entry.physical_offset,
            key=None if record is None else QueueKey(record.topic, record.queue_id),
            queue_offset=None if record is None else record.queue_offset,
        )

    def _fault(self, path: Path, name: str, detail: str) -> None:
        self._reporter.fault(path, name, detail)


def _has_key(record: DispatchRequest, hashes: list[int], entry: IndexEntry) -> bool:
    return entry.key_hash in hashes or entry.key_hash == tag_hash(record)


def _is_in_order(place: _Place) -> bool:
    """Whether the next entry points at the same record or further, as entries do."""
    state, number, entry = place
    if number >= state.count:
        return True
    return entry.physical_offset <= state.view.entry(number + 1).physical_offset
