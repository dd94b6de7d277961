"""What a log will make of queues and index, seen before anything is written.

Owns the first pass of a rebuild. Each task counts what its range gives; joined in the order of the
log, that tells each range where its entries belong: queue offsets are in the records, the number of
an index entry is the count of those before it.

A topic may have been deleted and made anew: then its queue offsets start at 0 again, and only the
records of its present life get entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from roquet.format.commit_log import DispatchRequest, RecordRules
from roquet.format.consume_queue_ext import end_after, is_ext_address
from roquet.format.derived import QueueKey, key_hashes, light_places, tag_hash
from roquet.model import sys_flag as flags
from roquet.model.delay_level import DelayLevels
from roquet.model.topic import LMQ_PREFIX, SCHEDULE_TOPIC
from roquet.runtime.files import Files
from roquet.spark.jobs.rebuild_ext import ExtRules, UnitMaker
from roquet.spark.log.queue_extensions import extensions_of, read_extension
from roquet.spark.log.queue_files import QueueFiles
from roquet.spark.log.reading import LogRange
from roquet.spark.log.records import Hurt, records_of
from roquet.spark.log.store_files import LogFiles, open_log
from roquet.spark.report import Finding

BAD_RECORD = "bad-record"
GAP = "gap"
DUPLICATE = "duplicate"
RESTART = "restart"

_COMPARED_DELAYS_MAX = 100


@dataclass
class UnitRun:
    """Queue offsets that follow each other, whose units in a ConsumeQueueExt have one length.

    Attributes:
        first_offset: The first.
        end_offset: Behind the last.
        unit_bytes: Length of a unit.
    """

    first_offset: int
    end_offset: int
    unit_bytes: int


@dataclass
class Life:
    """Queue offsets that follow each other, as far as a range has them.

    Attributes:
        first_offset: The first.
        end_offset: Behind the last.
        first_physical: Where the first record is.
        units: Which units they get, if the queue has a ConsumeQueueExt.
    """

    first_offset: int
    end_offset: int
    first_physical: int
    units: list[UnitRun] = field(default_factory=list)

    def add_unit(self, queue_offset: int, unit_bytes: int) -> None:
        """Count the unit of the last queue offset."""
        run = self.units[-1] if self.units else None
        if run is not None and (run.end_offset, run.unit_bytes) == (queue_offset, unit_bytes):
            run.end_offset += 1
        else:
            self.units.append(UnitRun(queue_offset, queue_offset + 1, unit_bytes))


@dataclass
class Survey:
    """What a task says of its range.

    Attributes:
        records: How many records there are.
        good_end: Where the last of them ends; -1 without any.
        index_entries: How many index entries they make.
        first_ms: Store time of the first record that makes one.
        last_ms: Store time of the last record that makes one.
        queues: By queue: its lives.
        delays: How many delayed messages are due at another time than their entries say, and how
            many at the same.
        hurts: Damaged bytes.
        findings: Queue offsets that do not follow each other.
        leap: The longest run of queue offsets that are left out.
    """

    records: int = 0
    good_end: int = -1
    index_entries: int = 0
    first_ms: int = 0
    last_ms: int = 0
    queues: dict[QueueKey, list[Life]] = field(default_factory=dict)
    delays: list[int] = field(default_factory=lambda: [0, 0])
    hurts: list[Hurt] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    leap: int = 0


@dataclass(frozen=True)
class LogRules:
    """How the log becomes entries.

    Attributes:
        store: The store directory.
        delay_levels: The broker's ``messageDelayLevel``.
        batch_topics: Topics whose queues are of the batch kind, which are not built.
        ext: How units of ConsumeQueueExts are made; ``None`` to make none.
    """

    store: str
    delay_levels: str
    batch_topics: frozenset[str]
    ext: ExtRules | None = None

    @property
    def record_rules(self) -> RecordRules:
        """How records are checked."""
        return RecordRules(DelayLevels(self.delay_levels))

    def places(self, record: DispatchRequest) -> Iterator[tuple[QueueKey, int]]:
        """Where a record stands: its queue, if it takes a place in it, and light queues."""
        if flags.takes_queue_offset(record.sys_flag) and record.topic not in self.batch_topics:
            yield QueueKey(record.topic, record.queue_id), record.queue_offset
        yield from light_places(record)


def index_hashes(record: DispatchRequest) -> list[int]:
    """Hashes of a record in the order in which it is put into the index."""
    hashes = key_hashes(record)
    tag = tag_hash(record)
    return hashes if tag is None else [*hashes, tag]


@dataclass(frozen=True)
class SurveyWorker:
    """Sent to executors: counts what a range gives."""

    rules: LogRules

    def __call__(self, ranges: Sequence[LogRange]) -> Survey:
        """Walk some ranges."""
        files, survey = Files(), Survey()
        log = open_log(files, [self.rules.store])
        rules, units = self.rules.record_rules, UnitMaker.of(self.rules.ext)
        root = None if units is None else log.root
        extensions = {} if root is None else extensions_of(files, root)
        for part in ranges:
            for record, _, _ in records_of(files, part, rules, survey.hurts.append):
                survey.records += 1
                survey.good_end = record.end_offset
                self._count_index(survey, record)
                for key, queue_offset in self.rules.places(record):
                    life = _add(survey, key, queue_offset, record.physical_offset)
                    if life is not None and units is not None:
                        unit = units.unit(key, record)
                        life.add_unit(queue_offset, 0 if unit is None else unit.size_bytes)
                if record.topic == SCHEDULE_TOPIC and sum(survey.delays) < _COMPARED_DELAYS_MAX:
                    self._compare_delay(survey, log, extensions, record)
        return survey

    @staticmethod
    def _compare_delay(
        survey: Survey,
        log: LogFiles,
        extensions: Mapping[QueueKey, QueueFiles],
        record: DispatchRequest,
    ) -> None:
        """Count whether a delayed message is due when the entry that is there says."""
        queue = log.queue(record.topic, record.queue_id)
        entry = None if queue is None else queue.unit(record.queue_offset)
        if entry is None or entry.physical_offset != record.physical_offset:
            return
        due_ms = entry.tags_code
        if is_ext_address(due_ms):
            key = QueueKey(record.topic, record.queue_id)
            unit = read_extension(log.files, extensions.get(key), due_ms)
            due_ms = 0 if unit is None else unit.tags_code
        survey.delays[due_ms == record.tags_code] += due_ms > 0

    @staticmethod
    def _count_index(survey: Survey, record: DispatchRequest) -> None:
        count = len(index_hashes(record))
        if count:
            if not survey.index_entries:
                survey.first_ms = record.store_timestamp_ms
            survey.index_entries += count
            survey.last_ms = record.store_timestamp_ms


def _add(survey: Survey, key: QueueKey, queue_offset: int, physical_offset: int) -> Life | None:
    """Count a place in a queue; gives the life it belongs to, nothing if the place is taken."""
    lives = survey.queues.setdefault(key, [])
    life = lives[-1] if lives else None
    may_restart = queue_offset == 0 and not key.topic.startswith(LMQ_PREFIX)
    if life is None or (may_restart and life.end_offset > 0):
        life = Life(queue_offset, queue_offset + 1, physical_offset)
        lives.append(life)
        return life
    if queue_offset != life.end_offset:
        survey.findings.append(_out_of_order(key, queue_offset, life.end_offset, physical_offset))
        if queue_offset < life.end_offset:
            return None
        survey.leap = max(survey.leap, queue_offset - life.end_offset)
    life.end_offset = queue_offset + 1
    return life


def _out_of_order(key: QueueKey, queue_offset: int, expected: int, physical_offset: int) -> Finding:
    where = f"physical offset {physical_offset}, {key.topic} queue {key.queue_id}"
    kind = GAP if queue_offset > expected else DUPLICATE
    return Finding(kind, where, f"queue offset {queue_offset}, expected {expected}")


@dataclass
class QueuePlan:
    """Where queues go on in each range, and from where on records count.

    Attributes:
        expected: For each range, by queue: the offset at which its entries go on; a queue that is
            not there begins in the range.
        unit_ends: For each range, by queue: the real offset at which its units go on.
        restarts: By queue: physical offset of the first record of its present life.
        findings: What does not fit.
        leap: The longest run of queue offsets that are left out.
    """

    expected: list[dict[QueueKey, int]]
    unit_ends: list[dict[QueueKey, int]]
    restarts: dict[QueueKey, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    leap: int = 0


def plan_queues(
    surveys: Sequence[Survey],
    known: Mapping[QueueKey, QueueFiles],
    *,
    ext_file_bytes: int = 0,
) -> QueuePlan:
    """Join the lives of queues over all ranges.

    Args:
        surveys: What the ranges said, in the order of the log.
        known: The ConsumeQueues that are there, which tell whether a topic was made anew.
        ext_file_bytes: Length of a file of a ConsumeQueueExt, if units are made.
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
        _plan_queue(plan, key, ranges, known.get(key))
        if ext_file_bytes:
            _plan_units(plan, key, ranges, ext_file_bytes)
    return plan


def _plan_queue(
    plan: QueuePlan, key: QueueKey, ranges: Sequence[list[Life]], queue: QueueFiles | None
) -> None:
    end: int | None = None
    flat = [(number, life) for number, lives in enumerate(ranges) for life in lives]
    ends: dict[int, int] = {}
    for at, (number, life) in enumerate(flat):
        following = flat[at + 1][1] if at + 1 < len(flat) else None
        if end is not None and life.first_offset == 0 and end > 0:
            if _is_restart(life, following, queue):
                plan.restarts[key] = life.first_physical
                ends.clear()
                end = None
            else:
                where = f"physical offset {life.first_physical}, {key.topic} queue {key.queue_id}"
                detail = f"seems to start anew at queue offset 0, expected {end}"
                plan.findings.append(Finding(RESTART, where, detail))
        elif end is not None and life.first_offset != end:
            plan.findings.append(_out_of_order(key, life.first_offset, end, life.first_physical))
            plan.leap = max(plan.leap, life.first_offset - end)
        end = life.end_offset if end is None else max(end, life.end_offset)
        ends[number] = end
    reached: int | None = None
    for number in range(len(ranges)):
        if reached is not None:
            plan.expected[number][key] = reached
        reached = ends.get(number, reached)


def _plan_units(
    plan: QueuePlan, key: QueueKey, ranges: Sequence[list[Life]], file_bytes: int
) -> None:
    """Where the units of each range go; only those of entries that will be written count."""
    start, end, reached = plan.restarts.get(key, 0), 0, -1
    for number, lives in enumerate(ranges):
        for life in lives:
            if life.first_physical < start:
                continue
            plan.unit_ends[number].setdefault(key, end)
            for run in life.units:
                count = run.end_offset - max(run.first_offset, reached)
                if count > 0 and run.unit_bytes:
                    end = end_after(end, run.unit_bytes, count, file_bytes)
                reached = max(reached, run.end_offset)


def _is_restart(life: Life, following: Life | None, queue: QueueFiles | None) -> bool:
    """Whether a life of a topic begins; the entry that is there tells, else the next record."""
    first = None if queue is None else queue.unit(0)
    if first is not None:
        return first.physical_offset >= life.first_physical
    return life.end_offset > 1 or (following is not None and following.first_offset == 1)
