"""An audit's walk over a range of the log.

Owns the work of one task: every record is checked, and compared with its ConsumeQueue entry and
with its index entries. What depends on other ranges is handed back: where each queue starts and
ends in the range, which entries were compared, which records have none.

What looks wrong and is not is explained in ``docs/guides/spark-jobs.md``; the rules are those of
``roquet store verify``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from roquet.format import consume_queue_ext as ext
from roquet.format.commit_log import DispatchRequest, RecordRules
from roquet.format.consume_queue import CqUnit
from roquet.format.derived import QueueKey, key_hashes, light_places, tag_hash
from roquet.format.record_checks import StoreTimes, content_faults, topic_faults
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.delay_level import DelayLevels
from roquet.runtime.files import Files
from roquet.spark.jobs import audit_findings as kinds
from roquet.spark.jobs.audit_findings import Findings, queue_name
from roquet.spark.jobs.audit_index import IndexMatcher, IndexSpan
from roquet.spark.log.queue_extensions import extensions_of, read_extension
from roquet.spark.log.queue_files import QueueFiles
from roquet.spark.log.reading import LogRange
from roquet.spark.log.records import Found, Hurt, record_at, records_of
from roquet.spark.log.store_files import LogFiles, open_log

UNIT_TYPE = np.dtype([("physical_offset", ">i8"), ("size_bytes", ">i4"), ("tags_code", ">i8")])
HELD_RECORDS_MAX = 1 << 13
"""Records that are collected before they are compared with entries."""


@dataclass(frozen=True, kw_only=True)
class AuditRules:
    """What every task of an audit knows.

    Attributes:
        store: The store directory.
        start: Physical offset from which the log is looked at.
        topics: Topics whose queues are looked at; empty for all.
        known_topics: Topics that the broker has; ``None`` if that is not known.
        batch_topics: Topics whose queues are of the batch kind.
        delay_levels: The broker's ``messageDelayLevel``.
        now_ms: The time behind which no store time may lie.
        is_running: Whether a broker has the store open.
        has_crashed: Whether its last broker did not close it.
    """

    store: str
    start: int
    topics: frozenset[str]
    known_topics: frozenset[str] | None
    batch_topics: frozenset[str]
    delay_levels: str
    now_ms: int
    is_running: bool
    has_crashed: bool

    @property
    def record_rules(self) -> RecordRules:
        """How records are checked."""
        return RecordRules(DelayLevels(self.delay_levels))

    def takes(self, topic: str) -> bool:
        """Whether the queues of a topic are looked at."""
        return not self.topics or topic in self.topics


@dataclass
class Run:
    """Neighbouring queue offsets with one fate, and the records of its ends."""

    start: int
    end: int
    first_physical: int
    last_physical: int


@dataclass
class QueuePart:
    """What a range has of one queue.

    Attributes:
        first_offset: Queue offset of the first record.
        first_physical: Where that record is.
        last_physical: Where the last record is.
        expected: Queue offset that has to follow.
        alternative: Another one that may, after a wrong one; -1 for none.
        compared: Entries that were compared.
        missing: Records whose entries are not there.
    """

    first_offset: int
    first_physical: int
    last_physical: int
    expected: int
    alternative: int = -1
    compared: list[Run] = field(default_factory=list)
    missing: list[Run] = field(default_factory=list)


@dataclass
class Scan:
    """What a task says of its range.

    Attributes:
        records: How many good records there are.
        good_end: Where the last of them ends; -1 without any.
        first_ms: Store time of the first.
        first_physical: Where it is.
        last_ms: Store time of the last.
        hurts: Damaged bytes.
        queues: By queue.
        findings: What should not be.
    """

    records: int = 0
    good_end: int = -1
    first_ms: int = 0
    first_physical: int = -1
    last_ms: int = 0
    hurts: list[Hurt] = field(default_factory=list)
    queues: dict[QueueKey, QueuePart] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)


_Held = tuple[int, DispatchRequest]


@dataclass(frozen=True)
class ScanWorker:
    """Sent to executors: walks the ranges of one task."""

    rules: AuditRules
    index: tuple[IndexSpan, ...]
    index_bounds: tuple[int, int]
    """Physical offsets between which every record is in the index."""

    def __call__(self, ranges: Sequence[LogRange]) -> Scan:
        """Walk some ranges."""
        return _Walk(self).run(ranges)


class _Walk:
    """One task at work."""

    def __init__(self, worker: ScanWorker) -> None:
        self._rules = worker.rules
        self._record_rules = worker.rules.record_rules
        self._files = Files()
        self._log = open_log(self._files, [worker.rules.store])
        self._queues = queues_of(self._log)
        self._extensions: dict[QueueKey, QueueFiles] | None = None
        self._scan = Scan()
        self._findings = self._scan.findings
        self._held: dict[QueueKey, list[_Held]] = {}
        self._held_count = 0
        self._good_topics: set[str] = set()
        self._times = StoreTimes(lambda: worker.rules.now_ms, self._tell_time)
        self._index = IndexMatcher(self._files, worker.index, worker.index_bounds, self._findings)

    def run(self, ranges: Sequence[LogRange]) -> Scan:
        scan = self._scan
        for part in ranges:
            for found in records_of(self._files, part, self._record_rules, scan.hurts.append):
                self._on_record(found)
            if part.stop == part.segment.end and scan.good_end >= 0 and not self._ends_hurt(part):
                scan.good_end = part.stop
        self._flush()
        self._times.finish()
        if ranges:
            self._index.finish(ranges[0].start, ranges[-1].stop, scan.hurts)
        return scan

    def _ends_hurt(self, part: LogRange) -> bool:
        """Whether damage, or what was never written, reaches to the end of a part."""
        return bool(self._scan.hurts) and self._scan.hurts[-1].end >= part.stop

    def _on_record(self, found: Found) -> None:
        record, scan = found.record, self._scan
        if not scan.records:
            scan.first_ms, scan.first_physical = record.store_timestamp_ms, record.physical_offset
        scan.records += 1
        scan.good_end = record.end_offset
        scan.last_ms = record.store_timestamp_ms
        self._times.on_record(record)
        if record.topic not in self._good_topics:
            faults = list(topic_faults(record))
            if not faults:
                self._good_topics.add(record.topic)
        else:
            faults = []
        for fault in (*faults, *content_faults(record, found.data, found.start)):
            self._tell(record, kinds.BAD_CONTENT, f"{fault.field}: {fault.detail}")
        self._index.add(record, key_hashes(record), tag_hash(record))
        for light, queue_offset in light_places(record):
            self._hold(light, queue_offset, record)
        if flags.takes_queue_offset(record.sys_flag):
            key = QueueKey(record.topic, record.queue_id)
            if self._is_dense(key, record) and record.topic not in self._rules.batch_topics:
                self._hold(key, record.queue_offset, record)
        if self._held_count >= HELD_RECORDS_MAX:
            self._flush()

    def _tell(self, record: DispatchRequest, kind: str, detail: str) -> None:
        key = QueueKey(record.topic, record.queue_id)
        where = f"physical offset {record.physical_offset}, {queue_name(key)}"
        self._findings.add(kind, f"{where} offset {record.queue_offset}", detail)

    def _tell_time(self, record: DispatchRequest, detail: str) -> None:
        self._tell(record, kinds.BAD_TIME, detail)

    # -- queue offsets follow each other -----------------------------------------------------

    def _is_dense(self, key: QueueKey, record: DispatchRequest) -> bool:
        """Whether the record's queue offset follows the one before it in its queue."""
        offset, step = record.queue_offset, 1
        if record.sys_flag & flags.INNER_BATCH:
            count = record.properties.get(prop.INNER_NUM, "1")
            step = int(count) if count.isascii() and count.isdecimal() else 1
        part = self._scan.queues.get(key)
        physical_offset = record.physical_offset
        if part is None:
            self._scan.queues[key] = QueuePart(
                offset, physical_offset, physical_offset, offset + step
            )
            return True
        before, part.last_physical = part.last_physical, physical_offset
        if offset in {part.expected, part.alternative} or is_explained(
            self._queues.get(key),
            queue_offset=offset,
            expected=part.expected,
            low=before,
            high=physical_offset,
            hurts=self._scan.hurts,
            is_deleted=is_deleted(self._rules, self._queues, key.topic),
        ):
            part.expected, part.alternative = offset + step, -1
            return True
        if self._rules.takes(key.topic):
            kind = kinds.GAP if offset > part.expected else kinds.DUPLICATE
            self._tell(record, kind, f"expected queue offset {part.expected}")
        part.expected, part.alternative = part.expected + step, offset + step
        return False

    # -- records and entries -----------------------------------------------------------------

    def _hold(self, key: QueueKey, queue_offset: int, record: DispatchRequest) -> None:
        if self._rules.takes(key.topic):
            self._held.setdefault(key, []).append((queue_offset, record))
            self._held_count += 1

    def _flush(self) -> None:
        for key, held in self._held.items():
            part = self._scan.queues.get(key)
            if part is None:  # a light queue
                offset, record = held[0]
                at = record.physical_offset
                part = self._scan.queues[key] = QueuePart(offset, at, at, held[-1][0] + 1)
            part.last_physical = max(part.last_physical, held[-1][1].physical_offset)
            for run in _runs(held):
                self._compare(key, part, run)
        self._held.clear()
        self._held_count = 0

    def _compare(self, key: QueueKey, part: QueuePart, held: list[_Held]) -> None:
        """Compare records of neighbouring queue offsets with their entries."""
        queue, first = self._queues.get(key), held[0][0]
        if queue is None:
            _extend(part.missing, held)
            return
        units = np.frombuffer(queue.read(first, len(held)), dtype=UNIT_TYPE)
        records = [record for _, record in held]
        same = (
            (units["physical_offset"] == [each.physical_offset for each in records])
            & (units["size_bytes"] == [each.size_bytes for each in records])
            & (units["tags_code"] == [each.tags_code for each in records])
        )
        if same.all():
            _extend(part.compared, held)
            return
        for at, one in enumerate(held):
            unit = CqUnit(*units[at].item())
            if same[at]:
                _extend(part.compared, [one])
            elif not unit.is_written:
                _extend(part.missing, [one])
            elif not self._is_superseded(unit, key, one):
                _extend(part.compared, [one])
                self._tell_entry(unit, key, one)

    def _is_superseded(self, unit: CqUnit, key: QueueKey, held: _Held) -> bool:
        """Whether the entry belongs to a later life of the topic."""
        queue_offset, record = held
        if unit.is_filler or unit.physical_offset <= record.physical_offset:
            return False
        found = record_at(self._log, unit.physical_offset, self._record_rules)
        return found is not None and (found.topic, found.queue_id, found.queue_offset) == (
            *key,
            queue_offset,
        )

    def _tell_entry(self, unit: CqUnit, key: QueueKey, held: _Held) -> None:
        queue_offset, record = held
        where = f"ConsumeQueue of {queue_name(key)}, entry {queue_offset}"
        if unit.is_filler:
            self._findings.add(kinds.ENTRY_WRONG, where, "is filler, the log has its record")
        elif unit.physical_offset != record.physical_offset:
            detail = f"says {unit.physical_offset}, its record is at {record.physical_offset}"
            self._findings.add(kinds.ENTRY_WRONG, where, detail)
        elif unit.size_bytes != record.size_bytes:
            detail = f"says {unit.size_bytes} bytes, its record has {record.size_bytes}"
            self._findings.add(kinds.ENTRY_WRONG, where, detail)
        elif not ext.is_ext_address(unit.tags_code):
            detail = f"says {unit.tags_code}, its record {record.tags_code}"
            self._findings.add(kinds.TAGS_CODE, where, detail)
        else:
            detail_of = self._extension_fault(unit.tags_code, key, record)
            if detail_of is not None:
                self._findings.add(kinds.TAGS_CODE, where, detail_of)

    def _extension_fault(self, address: int, key: QueueKey, record: DispatchRequest) -> str | None:
        """What is wrong with the unit that an entry names instead of a tags code."""
        if self._extensions is None:
            self._extensions = extensions_of(self._files, Path(self._rules.store))
        unit = read_extension(self._files, self._extensions.get(key), address)
        if unit is None:
            return f"points at {address}, where no unit is"
        if unit.tags_code != record.tags_code:
            return f"its unit says {unit.tags_code}, its record {record.tags_code}"
        if unit.store_timestamp_ms != record.store_timestamp_ms:
            return (
                f"its unit says {unit.store_timestamp_ms}, its record {record.store_timestamp_ms}"
            )
        return None


def is_deleted(rules: AuditRules, queues: dict[QueueKey, QueueFiles], topic: str) -> bool:
    """Whether a topic is known to exist no more."""
    return (
        rules.known_topics is not None
        and topic not in rules.known_topics
        and not any(key.topic == topic for key in queues)
    )


def is_explained(
    queue: QueueFiles | None,
    *,
    queue_offset: int,
    expected: int,
    low: int,
    high: int,
    hurts: Sequence[Hurt],
    is_deleted: bool,
) -> bool:
    """Whether a queue offset may differ from the expected one.

    It may if the topic was deleted and made anew, or if records are damaged that lay between: those
    are told of themselves.

    Args:
        queue: The ConsumeQueue.
        queue_offset: That of the record.
        expected: The one that should follow.
        low: Physical offset of the record before it in the queue.
        high: Physical offset of the record.
        hurts: Damaged bytes.
        is_deleted: Whether the topic is known to exist no more.
    """
    if queue_offset == 0:
        first = None if queue is None else queue.unit(0)
        if queue is None:
            return is_deleted
        return first is not None and first.physical_offset >= high
    if queue_offset < expected:
        return False
    if any(low < hurt.start < high for hurt in hurts):
        return True
    unit = None if queue is None else queue.unit(expected)
    return unit is not None and low < unit.physical_offset < high


def judge_missing(
    rules: AuditRules, queues: dict[QueueKey, QueueFiles], key: QueueKey, run: Run
) -> str | None:
    """What is wrong with records that have no entry; ``None`` if nothing is.

    Records of a topic that was deleted have none, nor have those of a former life of a topic. A
    broker that runs or crashed may have entries still to write.
    """
    queue = queues.get(key)
    if queue is None and is_deleted(rules, queues, key.topic):
        return None
    first = None if queue is None else queue.unit(0)
    if first is not None and first.physical_offset > run.last_physical:
        return None
    may_lag = rules.is_running or rules.has_crashed
    if may_lag and (queue is None or queue.max_queue_offset <= run.start):
        return None
    name = f"entry {run.start} is missing"
    if run.end - run.start > 1:
        name = f"entries {run.start} to {run.end - 1} are missing"
    return f"{name}; the first record is at {run.first_physical}"


def _runs(held: list[_Held]) -> Iterator[list[_Held]]:
    """Held records cut where queue offsets do not follow each other."""
    begin = 0
    for at in range(1, len(held) + 1):
        if at == len(held) or held[at][0] != held[at - 1][0] + 1:
            yield held[begin:at]
            begin = at


def _extend(runs: list[Run], held: list[_Held]) -> None:
    """Add neighbouring offsets to the last run, or start a new one."""
    (start, first), (last_offset, last) = held[0], held[-1]
    if runs and runs[-1].end == start:
        runs[-1].end = last_offset + 1
        runs[-1].last_physical = last.physical_offset
    else:
        runs.append(Run(start, last_offset + 1, first.physical_offset, last.physical_offset))


def queues_of(log: LogFiles) -> dict[QueueKey, QueueFiles]:
    """The ConsumeQueues of a log by name."""
    return {QueueKey(each.topic, each.queue_id): each for each in log.queues}
