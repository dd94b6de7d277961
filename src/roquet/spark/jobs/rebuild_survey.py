"""Surveys which queue and index entries a log yields, before anything is written.

The first pass of a rebuild. Each task counts the entries of its range. Joined in the order of the
log, the counts determine where the entries of each range go: queue offsets are in the records, and
the number of an index entry is the count of those before it.

A topic may have been deleted and recreated: then its queue offsets start at 0 again, and only the
records of its current life get entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from roquet.format.batch_consume_queue import batch_size_of
from roquet.format.commit_log import DispatchRequest, RecordRules
from roquet.format.consume_queue_ext import end_after, is_ext_address
from roquet.format.derived import QueueKey, key_hashes, light_places, tag_hash
from roquet.model import sys_flag as flags
from roquet.model.delay_level import DelayLevels
from roquet.model.topic import LMQ_PREFIX, SCHEDULE_TOPIC
from roquet.runtime.files import Files
from roquet.spark.jobs.rebuild_ext import ExtRules, UnitMaker
from roquet.spark.report import Finding
from roquet.storefiles.damage import DamagedRange
from roquet.storefiles.queue_checks import first_entry
from roquet.storefiles.queues import QueueView
from roquet.storefiles.records import LogRange, records_of
from roquet.storefiles.view import StoreView

BAD_RECORD = "bad-record"
GAP = "gap"
DUPLICATE = "duplicate"
RESTART = "restart"

_COMPARED_DELAYS_MAX = 100


@dataclass
class UnitRun:
    """Consecutive queue offsets whose units have the same size.

    Attributes:
        first_offset: The first.
        end_offset: After the last.
        size: Length of a unit in a ConsumeQueueExt; in a batch consume queue, messages of an entry.
    """

    first_offset: int
    end_offset: int
    size: int


@dataclass
class OffsetRun:
    """Consecutive queue offsets within a range.

    Attributes:
        first_offset: The first.
        end_offset: After the last.
        first_physical: The physical offset of the first record.
        units: Their units, if the queue has a ConsumeQueueExt or is a batch queue.
    """

    first_offset: int
    end_offset: int
    first_physical: int
    units: list[UnitRun] = field(default_factory=list)

    def add_unit(self, queue_offset: int, size: int, messages: int = 1) -> None:
        """Count the unit of the last queue offsets."""
        run = self.units[-1] if self.units else None
        if run is not None and (run.end_offset, run.size) == (queue_offset, size):
            run.end_offset += messages
        else:
            self.units.append(UnitRun(queue_offset, queue_offset + messages, size))


@dataclass
class SurveyTaskResult:
    """The result of surveying a range.

    Attributes:
        records: The number of records.
        good_end: Where the last of them ends; -1 if there is none.
        index_entries: The number of their index entries.
        first_ms: Store time of the first record with an index entry.
        last_ms: Store time of the last record with an index entry.
        queues: By queue: its lives.
        delays: How many delayed messages are due at another time than their entries say, and how
            many at the same time.
        damages: Damaged bytes.
        findings: Queue offsets out of sequence.
        leap: The longest gap of queue offsets to fill.
        begins_inner: By topic: whether its first record is an inner batch.
    """

    records: int = 0
    good_end: int = -1
    index_entries: int = 0
    first_ms: int = 0
    last_ms: int = 0
    queues: dict[QueueKey, list[OffsetRun]] = field(default_factory=dict)
    delays: list[int] = field(default_factory=lambda: [0, 0])
    damages: list[DamagedRange] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    leap: int = 0
    begins_inner: dict[str, bool] = field(default_factory=dict)


class RecordPlace(NamedTuple):
    """The place of a record: its queue, its offset there, and its number of messages."""

    key: QueueKey
    queue_offset: int
    messages: int = 1
    is_batch: bool = False


@dataclass(frozen=True)
class LogRules:
    """How entries are made from the log.

    Attributes:
        root: The store directory.
        delay_levels: The broker's ``messageDelayLevel``.
        batch_topics: Topics with batch queues.
        ext: How units of ConsumeQueueExts are made; ``None`` to make none.
    """

    root: str
    delay_levels: str
    batch_topics: frozenset[str]
    ext: ExtRules | None = None

    @property
    def record_rules(self) -> RecordRules:
        """How records are checked."""
        return RecordRules(DelayLevels(self.delay_levels))

    def open_store(self) -> StoreView:
        """Open the store on the executor."""
        return StoreView(Files(), Path(self.root), delay_levels=DelayLevels(self.delay_levels))

    def places(self, record: DispatchRequest) -> Iterator[RecordPlace]:
        """Yield the places of a record: in its queue, if it has one there, and in light queues."""
        if flags.takes_queue_offset(record.sys_flag):
            key, is_batch = QueueKey(record.topic, record.queue_id), self.is_batch(record.topic)
            yield RecordPlace(
                key, record.queue_offset, batch_size_of(record) if is_batch else 1, is_batch
            )
        for key, queue_offset in light_places(record):
            yield RecordPlace(key, queue_offset)

    def is_batch(self, topic: str) -> bool:
        """Whether a topic has batch queues."""
        return topic in self.batch_topics


def index_hashes(record: DispatchRequest) -> list[int]:
    """Return the hashes of a record in the order in which they are indexed."""
    hashes = key_hashes(record)
    tag = tag_hash(record)
    return hashes if tag is None else [*hashes, tag]


@dataclass(frozen=True)
class SurveyWorker:
    """Sent to executors: counts the entries of a range."""

    rules: LogRules

    def __call__(self, ranges: Sequence[LogRange]) -> SurveyTaskResult:
        """Walk some ranges."""
        survey, units = SurveyTaskResult(), UnitMaker.of(self.rules.ext)
        with self.rules.open_store() as view:
            for part in ranges:
                for found in records_of(view.files, part, view.rules, survey.damages.append):
                    record = found.record
                    survey.records += 1
                    survey.good_end = record.end_offset
                    self._count_index(survey, record)
                    self._count_places(survey, record, units)
                    if record.topic == SCHEDULE_TOPIC and sum(survey.delays) < _COMPARED_DELAYS_MAX:
                        self._compare_delay(survey, view, record)
        return survey

    def _count_places(
        self, survey: SurveyTaskResult, record: DispatchRequest, units: UnitMaker | None
    ) -> None:
        if record.topic not in survey.begins_inner and flags.takes_queue_offset(record.sys_flag):
            is_inner = bool(record.sys_flag & flags.INNER_BATCH)
            survey.begins_inner[record.topic] = is_inner
        for place in self.rules.places(record):
            life = _add(survey, place, record.physical_offset)
            if life is not None and place.is_batch:
                life.add_unit(place.queue_offset, place.messages, place.messages)
            elif life is not None and units is not None:
                unit = units.unit(place.key, record)
                life.add_unit(place.queue_offset, 0 if unit is None else unit.size_bytes)

    @staticmethod
    def _compare_delay(survey: SurveyTaskResult, view: StoreView, record: DispatchRequest) -> None:
        """Count whether a delayed message is due when its existing entry says."""
        key = QueueKey(record.topic, record.queue_id)
        queue = view.queues.get(key)
        entry = None if queue is None else queue.entry(record.queue_offset)
        if entry is None or entry.physical_offset != record.physical_offset:
            return
        due_ms = entry.tags_code
        if is_ext_address(due_ms):
            extension = view.extensions.get(key)
            unit = None if extension is None else extension.unit(due_ms)
            due_ms = 0 if unit is None else unit.tags_code
        survey.delays[due_ms == record.tags_code] += due_ms > 0

    @staticmethod
    def _count_index(survey: SurveyTaskResult, record: DispatchRequest) -> None:
        count = len(index_hashes(record))
        if count:
            if not survey.index_entries:
                survey.first_ms = record.store_timestamp_ms
            survey.index_entries += count
            survey.last_ms = record.store_timestamp_ms


def _add(survey: SurveyTaskResult, place: RecordPlace, physical_offset: int) -> OffsetRun | None:
    """Count a place in a queue; return the life it belongs to, ``None`` if it is taken."""
    key, queue_offset = place.key, place.queue_offset
    lives, end_offset = survey.queues.setdefault(key, []), queue_offset + place.messages
    life = lives[-1] if lives else None
    may_restart = queue_offset == 0 and not key.topic.startswith(LMQ_PREFIX)
    if life is None or (may_restart and life.end_offset > 0):
        life = OffsetRun(queue_offset, end_offset, physical_offset)
        lives.append(life)
        return life
    if queue_offset != life.end_offset:
        survey.findings.append(_out_of_order(key, queue_offset, life.end_offset, physical_offset))
        if queue_offset < life.end_offset:
            return None
        if not place.is_batch:
            survey.leap = max(survey.leap, queue_offset - life.end_offset)
    life.end_offset = end_offset
    return life


def _out_of_order(key: QueueKey, queue_offset: int, expected: int, physical_offset: int) -> Finding:
    where = f"physical offset {physical_offset}, {key.topic} queue {key.queue_id}"
    kind = GAP if queue_offset > expected else DUPLICATE
    return Finding(kind, where, f"queue offset {queue_offset}, expected {expected}")


def topics_of_batches(surveys: Sequence[SurveyTaskResult]) -> frozenset[str]:
    """Return the topics whose first record is an inner batch; a store gives them batch queues."""
    first: dict[str, bool] = {}
    for survey in surveys:
        for topic, is_inner in survey.begins_inner.items():
            first.setdefault(topic, is_inner)
    return frozenset(topic for topic, is_inner in first.items() if is_inner)


@dataclass
class QueuePlan:
    """Where queues continue in each range, and from which record on they count.

    Attributes:
        expected: For each range, by queue: the offset at which its entries continue; a queue that
            is missing starts in the range.
        unit_ends: For each range, by queue: the real offset at which its units continue; for a
            batch consume queue, the number of the entry.
        restarts: By queue: physical offset of the first record of its current life.
        findings: What does not fit.
        leap: The longest gap of queue offsets to fill.
    """

    expected: list[dict[QueueKey, int]]
    unit_ends: list[dict[QueueKey, int]]
    restarts: dict[QueueKey, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    leap: int = 0


def plan_queues(
    surveys: Sequence[SurveyTaskResult],
    known: Mapping[QueueKey, QueueView],
    *,
    ext_file_bytes: int = 0,
    batch_topics: frozenset[str] = frozenset(),
) -> QueuePlan:
    """Join the lives of queues over all ranges.

    Args:
        surveys: The results of the ranges, in the order of the log.
        known: The existing queues, which show whether a topic was recreated.
        ext_file_bytes: Length of a file of a ConsumeQueueExt, if units are made.
        batch_topics: Topics with batch queues.
    """
    plan = QueuePlan(
        [{} for _ in surveys],
        [{} for _ in surveys],
        leap=max((each.leap for each in surveys), default=0),
    )
    for survey in surveys:
        plan.findings += survey.findings
    for key in {key for survey in surveys for key in survey.queues}:
        ranges = [survey.queues.get(key, []) for survey in surveys]
        is_batch = key.topic in batch_topics
        _plan_queue(plan, key, ranges, known.get(key), is_batch=is_batch)
        if is_batch or ext_file_bytes:
            _plan_units(plan, key, ranges, 0 if is_batch else ext_file_bytes)
    return plan


def _plan_queue(
    plan: QueuePlan,
    key: QueueKey,
    ranges: Sequence[list[OffsetRun]],
    queue: QueueView | None,
    *,
    is_batch: bool,
) -> None:
    end: int | None = None
    flat = [(number, life) for number, lives in enumerate(ranges) for life in lives]
    ends: dict[int, int] = {}
    for at, (number, life) in enumerate(flat):
        following = flat[at + 1][1] if at + 1 < len(flat) else None
        if end is not None and life.first_offset == 0 and end > 0:
            if _is_restart(life, following, queue, is_batch=is_batch):
                plan.restarts[key] = life.first_physical
                ends.clear()
                end = None
            else:
                where = f"physical offset {life.first_physical}, {key.topic} queue {key.queue_id}"
                detail = f"seems to start again at queue offset 0, expected {end}"
                plan.findings.append(Finding(RESTART, where, detail))
        elif end is not None and life.first_offset != end:
            plan.findings.append(_out_of_order(key, life.first_offset, end, life.first_physical))
            if not is_batch:
                plan.leap = max(plan.leap, life.first_offset - end)
        end = life.end_offset if end is None else max(end, life.end_offset)
        ends[number] = end
    reached: int | None = None
    for number in range(len(ranges)):
        if reached is not None:
            plan.expected[number][key] = reached
        reached = ends.get(number, reached)


def _plan_units(
    plan: QueuePlan, key: QueueKey, ranges: Sequence[list[OffsetRun]], file_bytes: int
) -> None:
    """Set where the units of each range go; only those of entries that will be written count.

    In a batch consume queue, which has no ``file_bytes``, the units are the entries themselves.
    """
    start, end, reached = plan.restarts.get(key, 0), 0, -1
    for number, lives in enumerate(ranges):
        for life in lives:
            if life.first_physical < start:
                continue
            plan.unit_ends[number].setdefault(key, end)
            for run in life.units:
                count = run.end_offset - max(run.first_offset, reached)
                if count > 0 and not file_bytes:
                    end += count // run.size
                elif count > 0 and run.size:
                    end = end_after(end, run.size, count, file_bytes)
                reached = max(reached, run.end_offset)


def _is_restart(
    life: OffsetRun, following: OffsetRun | None, queue: QueueView | None, *, is_batch: bool
) -> bool:
    """Whether a topic starts a new life, by the existing entry or else the next record."""
    first = None if queue is None else first_entry(queue)
    if first is not None:
        return first.physical_offset >= life.first_physical
    second = life.units[0].size if is_batch else 1
    return life.end_offset > second or (following is not None and following.first_offset == second)
