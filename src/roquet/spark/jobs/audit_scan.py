"""Walks a range of the log for an audit.

Owns the work of one task: it checks every record, and compares it with its entries in ConsumeQueues
and index. It returns what depends on other ranges: where each queue starts and ends in the range,
which entries were compared, which records have none. The rules are those of
:mod:`roquet.storefiles`, as for ``roquet store verify``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from roquet.format.commit_log import DispatchRequest, check_record
from roquet.format.derived import QueueKey, key_hashes, tag_hash
from roquet.model.delay_level import DelayLevels
from roquet.runtime.files import Files
from roquet.spark.jobs.audit_findings import Findings
from roquet.spark.jobs.audit_index import IndexMatcher, IndexSpan
from roquet.spark.log.index_tables import Array
from roquet.storefiles.damage import DamagedRange, DamagedRanges
from roquet.storefiles.plain_blocks import PlainBlock, RecordBlock, make_block_reader
from roquet.storefiles.queue_checks import QueueChecker, QueueRangeState, QueueRules, RecordRun
from roquet.storefiles.record_checks import RecordChecker
from roquet.storefiles.records import FoundRecord, LogRange, blocks_of
from roquet.storefiles.view import StoreView


@dataclass(frozen=True, kw_only=True)
class AuditRules:
    """The rules that all tasks of an audit share.

    Attributes:
        root: The store directory.
        start: The physical offset at which the audit starts.
        queues: How queues are checked.
        delay_levels: The broker's ``messageDelayLevel``.
        now_ms: The current time; no store time may be later.
    """

    root: str
    start: int
    queues: QueueRules
    delay_levels: str
    now_ms: int

    @property
    def is_closed(self) -> bool:
        """Whether the store was closed cleanly and no broker has it open."""
        return not (self.queues.is_running or self.queues.has_crashed)

    def open_store(self) -> StoreView:
        """Open the store on the executor."""
        return StoreView(Files(), Path(self.root), delay_levels=DelayLevels(self.delay_levels))


@dataclass
class ScanTaskResult:
    """The result of walking a range.

    Attributes:
        records: The number of valid records.
        good_end: Where the last of them ends; -1 if there is none.
        first_ms: The store time of the first.
        first_physical: The physical offset of the first.
        last_ms: The store time of the last.
        newest_ms: The latest store time of all.
        damages: Damaged bytes.
        queues: The state of each queue.
        wild: Numbers of index entries that do not match their record, by index file.
        findings: The findings.
    """

    records: int = 0
    good_end: int = -1
    first_ms: int = 0
    first_physical: int = -1
    last_ms: int = 0
    newest_ms: int = 0
    damages: list[DamagedRange] = field(default_factory=list)
    queues: dict[QueueKey, QueueRangeState] = field(default_factory=dict)
    wild: dict[str, array[int]] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)


@dataclass(frozen=True)
class ScanWorker:
    """Sent to executors: walks the ranges of one task."""

    rules: AuditRules
    index: tuple[IndexSpan, ...]
    index_bounds: tuple[int, int]
    """Physical offsets between which every record is in the index."""

    def __call__(self, ranges: Sequence[LogRange]) -> ScanTaskResult:
        """Walk some ranges."""
        with self.rules.open_store() as view:
            return _Walk(self, view, ranges[0].start if ranges else 0).run(ranges)


class _Walk:
    """One task at work."""

    def __init__(self, worker: ScanWorker, view: StoreView, start: int) -> None:
        self._view = view
        self._scan = ScanTaskResult()
        findings, rules = self._scan.findings, worker.rules
        self._damages = DamagedRanges()
        self._records = RecordChecker(findings, lambda: rules.now_ms)
        self._queues = QueueChecker(
            view, rules.queues, findings, start=start, damages=self._damages
        )
        self._index = IndexMatcher(view.files, worker.index, worker.index_bounds, findings)
        self._keys: list[QueueKey] = []
        self._reader = make_block_reader(self._number_of)

    def run(self, ranges: Sequence[LogRange]) -> ScanTaskResult:
        scan, view = self._scan, self._view
        for part in ranges:
            for found in blocks_of(view.files, part, view.rules, self._on_damage, self._reader):
                if isinstance(found, RecordBlock):
                    self._on_block(found)
                else:
                    self._on_record(found)
            is_damaged = bool(scan.damages) and scan.damages[-1].end >= part.stop
            if part.stop == part.segment.end and scan.good_end >= 0 and not is_damaged:
                scan.good_end = part.stop
        self._queues.flush()
        self._records.finish()
        if ranges:
            self._index.finish(ranges[0].start, ranges[-1].stop, self._damages)
        scan.queues = self._queues.parts
        scan.wild = self._index.wild
        return scan

    def _number_of(self, topic: str, queue_id: int) -> int:
        """Number a queue; records of a topic with a fault are checked one by one."""
        if not self._records.is_good_topic(topic):
            return -1
        self._keys.append(QueueKey(topic, queue_id))
        return len(self._keys) - 1

    def _on_block(self, found: RecordBlock) -> None:
        """Check many records; what is not as expected is left to the check of single ones."""
        block, scan = found.columns, self._scan
        times_ms = np.frombuffer(block.store_times_ms, dtype=np.int64)
        first_ms, last_ms = int(times_ms[0]), int(times_ms[-1])
        is_rising = bool((times_ms[1:] >= times_ms[:-1]).all())
        if not (is_rising and self._records.allows_times(first_ms, last_ms)):
            for row in range(block.rows):
                self._on_record(self._record_of(found, row))
            return
        last_rows = range(max(block.rows - 2, 0), block.rows)
        last_two = [self._record_of(found, row) for row in last_rows]
        for each in last_two:
            self._records.on_record(each)
        if not scan.records:
            scan.first_ms, scan.first_physical = first_ms, block.physical_offsets[0]
        scan.records += block.rows
        scan.good_end = last_two[-1].record.end_offset
        scan.last_ms = last_ms
        scan.newest_ms = max(scan.newest_ms, last_ms)
        self._index.add_block(block)
        for key, rows, run in runs_by_queue(block, self._keys):
            if run is None or not self._queues.take_run(key, run):
                for row in rows.tolist():
                    self._queues.on_record(self._record_of(found, row).record)

    def _record_of(self, found: RecordBlock, row: int) -> FoundRecord:
        """Read one record of a block by itself."""
        offset = found.columns.physical_offsets[row]
        position = offset - found.base
        record = check_record(
            found.data,
            position,
            position + found.columns.sizes[row],
            physical_offset=offset,
            rules=self._view.rules,
        )
        assert isinstance(record, DispatchRequest), "a block has a record that is not valid"
        return FoundRecord(record, found.data, position)

    def _on_damage(self, damage: DamagedRange) -> None:
        self._scan.damages.append(damage)
        self._damages.add(damage.start, damage.end)

    def _on_record(self, found: FoundRecord) -> None:
        record, scan = found.record, self._scan
        if not scan.records:
            scan.first_ms, scan.first_physical = record.store_timestamp_ms, record.physical_offset
        scan.records += 1
        scan.good_end = record.end_offset
        scan.last_ms = record.store_timestamp_ms
        scan.newest_ms = max(scan.newest_ms, scan.last_ms)
        self._records.on_record(found)
        self._index.add(record, key_hashes(record), tag_hash(record))
        self._queues.on_record(record)


_UNIT = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])


def runs_by_queue(
    block: PlainBlock, keys: Sequence[QueueKey]
) -> Iterator[tuple[QueueKey, Array, RecordRun | None]]:
    """Yield the records of a block by queue.

    Yields:
        A queue, the rows of its records in order, and the records together; ``None`` instead if
        their queue offsets are not consecutive.
    """
    places = np.frombuffer(block.places, dtype=np.int32)
    order = np.argsort(places, kind="stable")
    places, offsets = places[order], np.frombuffer(block.queue_offsets, dtype=np.int64)[order]
    units = np.empty(block.rows, dtype=_UNIT)
    units["physical_offset"] = np.frombuffer(block.physical_offsets, dtype=np.int64)[order]
    units["size"] = np.frombuffer(block.sizes, dtype=np.int32)[order]
    units["tags_code"] = np.frombuffer(block.tags_codes, dtype=np.int64)[order]
    is_first = np.ones(block.rows, dtype=bool)
    is_first[1:] = places[1:] != places[:-1]
    is_broken = np.zeros(block.rows, dtype=bool)
    is_broken[1:] = (offsets[1:] != offsets[:-1] + 1) & ~is_first[1:]
    begins = np.flatnonzero(is_first)
    is_gap = np.logical_or.reduceat(is_broken, begins).tolist()
    ends = [*begins[1:].tolist(), block.rows]
    for begin, end, has_gap in zip(begins.tolist(), ends, is_gap, strict=True):
        run = None
        if not has_gap:
            run = RecordRun(
                int(offsets[begin]),
                int(units["physical_offset"][begin]),
                int(units["physical_offset"][end - 1]),
                units[begin:end].tobytes(),
            )
        yield keys[places[begin]], order[begin:end], run
