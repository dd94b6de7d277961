"""Index files of an audit.

Owns two looks at them. One task a file compares it with itself: chains, slots, header. The tasks
that walk the log compare entries with records, each those entries that point into its range.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from roquet.format.commit_log import DispatchRequest
from roquet.format.index_file import IndexHeader
from roquet.runtime.files import Files
from roquet.spark.jobs import audit_findings as kinds
from roquet.spark.jobs.audit_findings import Findings
from roquet.spark.log.index_tables import (
    PIECE_ENTRIES,
    Array,
    Chains,
    IndexPlace,
    open_index,
    read_entries,
    read_slots,
    seconds_of,
)
from roquet.spark.log.records import Hurt
from roquet.spark.log.splits import store_time_ms
from roquet.spark.log.store_files import LogFiles, open_log
from roquet.spark.log.window import Window

_HASH_BITS = 32
_MAX_OFFSET = 2**63 - 1


@dataclass(frozen=True)
class IndexTask:
    """An index file to look at; ``is_growing`` if a broker writes to it now."""

    place: IndexPlace
    is_growing: bool


@dataclass
class IndexSpan:
    """An index file as the tasks that walk the log need it.

    Attributes:
        place: The file.
        header: Its header.
        count: Number of its entries.
        min_physical: The least offset that an entry has.
        max_physical: The greatest.
        first_physical: That of the first entry.
        last_physical: That of the last entry.
        first_ms: Store time of the record of the first entry; ``None`` if it is not there.
        first_seconds: What the first entry may say; empty if that is not known.
    """

    place: IndexPlace
    header: IndexHeader
    count: int
    min_physical: int = _MAX_OFFSET
    max_physical: int = -1
    first_physical: int = -1
    last_physical: int = -1
    first_ms: int | None = None
    first_seconds: tuple[int, ...] = ()


@dataclass
class IndexSeen:
    """What a task says of an index file; there is no span if nothing can be compared."""

    span: IndexSpan | None = None
    findings: Findings = field(default_factory=Findings)


@dataclass(frozen=True)
class IndexWorker:
    """Sent to executors: compares one index file with itself."""

    store: str

    def __call__(self, task: IndexTask) -> IndexSeen:
        """Look at a file."""
        seen, files, place = IndexSeen(), Files(), task.place
        with open_index(files, Path(place.path)) as view:
            header = view.header
            if place.slots == 0:
                if header.index_count > 1:
                    detail = "entries and slots agree under no number of slots"
                    seen.findings.add(kinds.INDEX_HEADER, _name(place), detail)
                elif not view.is_untouched():
                    detail = f"says {header.index_count} entries, but the file is not empty"
                    seen.findings.add(kinds.INDEX_HEADER, _name(place), detail)
                return seen
        if header.index_count > place.entry_capacity:
            detail = f"says {header.index_count} entries, room is for {place.entry_capacity}"
            seen.findings.add(kinds.INDEX_HEADER, _name(place), detail)
        count = max(0, min(header.index_count, place.entry_capacity) - 1)
        seen.span = span = IndexSpan(place, header, count)
        chains = _read_chains(files, span, seen.findings)
        if not task.is_growing:
            _check_slots(files, span, chains, seen.findings)
        if span.count:
            self._check_header(files, task, span, seen.findings)
        return seen

    def _check_header(
        self, files: Files, task: IndexTask, span: IndexSpan, findings: Findings
    ) -> None:
        """The header says where and when the first and the last entry are."""
        log, header = open_log(files, [self.store]), span.header
        span.first_ms = _time_at(log, span.first_physical)
        said: list[tuple[str, int, int | None]] = [
            ("beginPhyOffset", header.begin_physical_offset, span.first_physical),
            ("beginTimestamp", header.begin_timestamp_ms, span.first_ms),
        ]
        if not task.is_growing:
            said += [
                ("endPhyOffset", header.end_physical_offset, span.last_physical),
                ("endTimestamp", header.end_timestamp_ms, _time_at(log, span.last_physical)),
            ]
        for name, stated, actual in said:
            if actual is not None and stated != actual:
                detail = f"{name} is {stated}, that of the entry {actual}"
                findings.add(kinds.INDEX_HEADER, _name(task.place), detail)


def _name(place: IndexPlace) -> str:
    return f"index file {Path(place.path).name}"


def _time_at(log: LogFiles, physical_offset: int) -> int | None:
    """When the record at an offset was stored; ``None`` if the log has none there."""
    segment = log.segment_of(physical_offset)
    if segment is None:
        return None
    with Window(log.files, segment, limit=physical_offset) as window:
        return store_time_ms(window, physical_offset)


def _read_chains(files: Files, span: IndexSpan, findings: Findings) -> Chains:
    """Go through all entries; tells of those that name a wrong previous one."""
    chains, name = Chains(span.place.slots), _name(span.place)
    number = 1
    while number <= span.count:
        wanted = min(PIECE_ENTRIES, span.count - number + 1)
        entries = read_entries(files, span.place, number, wanted)
        empty = np.flatnonzero(
            (entries["physical_offset"] == 0)
            & (entries["key_hash"] == 0)
            & (entries["seconds"] == 0)
            & (entries["previous"] == 0)
            & (np.arange(number, number + len(entries)) > 1)
        )
        if len(empty) or len(entries) < wanted:
            end = int(empty[0]) if len(empty) else len(entries)
            detail = f"says {span.count} entries, but entry {number + end} is empty"
            findings.add(kinds.INDEX_HEADER, name, detail)
            entries, span.count = entries[:end], number + end - 1
        for at in np.flatnonzero(entries["key_hash"] < 0):
            detail = f"has the negative hash {entries['key_hash'][at]}"
            findings.add(kinds.INDEX_WRONG, f"{name}, entry {number + at}", detail)
        expected = chains.add(entries["key_hash"])
        for at in np.flatnonzero(entries["previous"] != expected):
            detail = f"follows entry {entries['previous'][at]}, expected {expected[at]}"
            findings.add(kinds.INDEX_CHAIN, f"{name}, entry {number + at}", detail)
        if len(entries):
            offsets = entries["physical_offset"]
            span.min_physical = min(span.min_physical, int(offsets.min()))
            span.max_physical = max(span.max_physical, int(offsets.max()))
            span.last_physical = int(offsets[-1])
            if number == 1:
                span.first_physical = int(offsets[0])
        number += max(len(entries), 1)
    return chains


def _check_slots(files: Files, span: IndexSpan, chains: Chains, findings: Findings) -> None:
    """The slots must lead to the newest entry of each chain, and be counted in the header."""
    name, slots = _name(span.place), read_slots(files, span.place)
    wrong = np.flatnonzero(slots != chains.newest)
    beyond = wrong[(slots[wrong] > span.count) & (slots[wrong] < span.place.entry_capacity)]
    if len(beyond):
        detail = f"says {span.count} entries, but slots lead to entry {slots[beyond].max()}"
        findings.add(kinds.INDEX_HEADER, name, detail)
    for slot in np.setdiff1d(wrong, beyond):
        detail = f"leads to entry {slots[slot]}, expected {chains.newest[slot]}"
        findings.add(kinds.INDEX_CHAIN, f"{name}, slot {slot}", detail)
    used = int(np.count_nonzero(chains.newest))
    # Brokers before 4.9 counted entries here.
    if not len(wrong) and span.header.hash_slot_count not in {used, span.count}:
        detail = f"hashSlotCount is {span.header.hash_slot_count}, {used} are in use"
        findings.add(kinds.INDEX_HEADER, name, detail)


class IndexMatcher:
    """Collects the records of a range, and compares them with the entries that point there."""

    def __init__(
        self,
        files: Files,
        spans: Sequence[IndexSpan],
        bounds: tuple[int, int],
        findings: Findings,
    ) -> None:
        """Take the index files, and between which offsets every record is in the index."""
        self._files = files
        self._spans = spans
        self._bounds = bounds
        self._findings = findings
        self._offsets = array("q")
        self._times_ms = array("q")
        self._owed = array("q")
        self._tags = array("q")

    def add(self, record: DispatchRequest, hashes: Sequence[int], tag: int | None) -> None:
        """Take the next record; every broker puts ``hashes``, and some ``tag``."""
        if not self._spans:
            return
        at = len(self._offsets) << _HASH_BITS
        self._offsets.append(record.physical_offset)
        self._times_ms.append(record.store_timestamp_ms)
        self._owed.extend([at | value for value in hashes])
        if tag is not None:
            self._tags.append(at | tag)

    def finish(self, start: int, stop: int, hurts: Sequence[Hurt]) -> None:
        """Compare the records between two offsets."""
        if not self._spans:
            return
        offsets = np.frombuffer(self._offsets, dtype=np.int64)
        times_ms = np.frombuffer(self._times_ms, dtype=np.int64)
        owed = np.frombuffer(self._owed, dtype=np.int64)
        known = np.concatenate([owed, np.frombuffer(self._tags, dtype=np.int64)])
        found: list[Array] = []
        for span in self._spans:
            if span.max_physical < start or span.min_physical >= stop:
                continue
            for number in range(1, span.count + 1, PIECE_ENTRIES):
                wanted = min(PIECE_ENTRIES, span.count - number + 1)
                entries = read_entries(self._files, span.place, number, wanted)
                inside = (entries["physical_offset"] >= start) & (entries["physical_offset"] < stop)
                at = np.flatnonzero(inside)
                if len(at):
                    piece = entries[at]
                    found.append(
                        self._match(span, piece, at + number, offsets, times_ms, known, hurts)
                    )
        have = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
        low, high = self._bounds
        due = owed[~np.isin(owed, have)]
        places = offsets[due >> _HASH_BITS]
        for offset in np.unique(places[(places >= low) & (places < high)]):
            count = int(np.count_nonzero(places == offset))
            detail = f"{count} of its keys are in no index file"
            self._findings.add(kinds.INDEX_MISSING, f"physical offset {offset}", detail)

    def _match(  # noqa: PLR0917 - the two sides of a comparison
        self,
        span: IndexSpan,
        entries: Array,
        numbers: Array,
        offsets: Array,
        times_ms: Array,
        known: Array,
        hurts: Sequence[Hurt],
    ) -> Array:
        """Compare entries with their records; gives which keys of which records they are."""
        name = _name(span.place)
        physical = entries["physical_offset"].astype(np.int64)
        at = np.minimum(np.searchsorted(offsets, physical), max(len(offsets) - 1, 0))
        is_record = offsets[at] == physical if len(offsets) else np.zeros(len(at), dtype=bool)
        keys = (at.astype(np.int64) << _HASH_BITS) | entries["key_hash"].astype(np.int64)
        for row in np.flatnonzero(~is_record):
            offset = int(physical[row])
            if not any(hurt.start <= offset < hurt.end for hurt in hurts):
                where = f"{name}, entry {numbers[row]}"
                self._findings.add(kinds.INDEX_WRONG, where, f"no record starts at {offset}")
        is_known = is_record & np.isin(keys, known)
        for row in np.flatnonzero(is_record & ~is_known & (entries["key_hash"] >= 0)):
            detail = f"the record at {physical[row]} has no key of this hash"
            self._findings.add(kinds.INDEX_WRONG, f"{name}, entry {numbers[row]}", detail)
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
        for row in np.flatnonzero(~fits):
            detail = f"says {entries['seconds'][row]} seconds, which is not its record's time"
            where = f"{_name(span.place)}, entry {numbers[row]}"
            self._findings.add(kinds.INDEX_WRONG, where, detail)
