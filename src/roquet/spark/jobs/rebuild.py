"""ConsumeQueue, its extension and the index made anew from the log, into another directory.

Owns the order of the passes. The log is read twice: first to count what each range gives, then to
write it; ranges are worked on side by side. The files are those a broker would have written, byte
for byte. Index files are named by time, those made here by the store time of their first record.

Invariants:

* The store is never touched.
* Queue offsets are never given out twice: a queue whose records have all expired is carried over.
* Of a topic that was deleted and made anew, only the present life gets entries.
* A bit map that might lack a filter is not made: a message would not be delivered for want of it.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from roquet.errors import SparkOptionError, StoreDamaged, StoreError
from roquet.format.consume_queue import DEFAULT_FILE_BYTES, UNIT_BYTES
from roquet.format.consume_queue_ext import DEFAULT_FILE_BYTES as EXT_FILE_BYTES
from roquet.format.consume_queue_ext import is_ext_address
from roquet.format.derived import QueueKey
from roquet.format.index_file import file_size, name_after
from roquet.format.index_view import DEFAULT_ENTRIES, DEFAULT_SLOTS
from roquet.model.delay_level import DEFAULT_DELAY_LEVELS
from roquet.runtime.clock import stamp_of
from roquet.runtime.files import Files
from roquet.spark.jobs.audit_scan import queues_of
from roquet.spark.jobs.audit_state import INDEX, ROCKSDB_QUEUES, StoreState
from roquet.spark.jobs.inputs import ALL, Wanted
from roquet.spark.jobs.rebuild_ext import ExtRules, sound_filters
from roquet.spark.jobs.rebuild_survey import (
    BAD_RECORD,
    LogRules,
    QueuePlan,
    Survey,
    SurveyWorker,
    plan_queues,
)
from roquet.spark.jobs.rebuild_write import (
    CarryWorker,
    ChainWorker,
    IndexPart,
    IndexShape,
    TimesWorker,
    WriteTask,
    WriteWorker,
)
from roquet.spark.log.index_tables import index_places
from roquet.spark.log.queue_extensions import CONSUME_QUEUE_EXT, extensions_of, read_extension
from roquet.spark.log.queue_files import QueueFiles
from roquet.spark.log.reading import LogRange
from roquet.spark.log.records import plan_whole
from roquet.spark.log.splits import SPLIT_BYTES
from roquet.spark.log.store_files import CONSUME_QUEUE, LogFiles, open_log
from roquet.spark.report import Report
from roquet.spark.tasks import parallelism, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ExtKind", "rebuild"]

ExtKind: TypeAlias = Literal["auto", "none", "units", "bitmaps"]
"""What is made of ConsumeQueueExts."""

LEAP_MAX = 10_000_000
"""Queue offsets that may be left out at once; more are a damaged record, not a gap to fill."""


@dataclass(frozen=True)
class _Plan:
    """What is built, and where."""

    log: LogFiles
    rules: LogRules
    ranges: list[list[LogRange]]
    shape: IndexShape
    queue_file_bytes: int
    out: Path

    @property
    def parts(self) -> list[Path]:
        """The directories that are made."""
        names = [CONSUME_QUEUE, INDEX]
        if self.rules.ext is not None:
            names.insert(1, CONSUME_QUEUE_EXT)
        return [self.out / name for name in names]


def rebuild(
    spark: SparkSession,
    store: str,
    out: str,
    *,
    wanted: Wanted = ALL,
    delay_levels: str = DEFAULT_DELAY_LEVELS,
    index_slots: int | None = None,
    index_entries: int | None = None,
    ext: ExtKind = "auto",
    split_bytes: int = SPLIT_BYTES,
    is_dry_run: bool = False,
) -> Report:
    """Build ConsumeQueues, their extensions and the index of a store into another directory.

    Args:
        spark: A session; its executors write to ``out``, which they must all see.
        store: The store directory.
        out: A new or empty directory, which gets ``consumequeue`` and ``index``, and
            ``consumequeue_ext`` if units are made.
        wanted: Must be all: half of a queue or index would look like a whole one.
        delay_levels: The broker's ``messageDelayLevel``, by which delayed messages are due.
        index_slots: The broker's ``maxHashSlotNum``, where its files do not tell.
        index_entries: The broker's ``maxIndexNum``, where its files do not tell.
        ext: Whether entries lead to units of a ConsumeQueueExt: ``none``; ``units``, without bit
            maps; ``bitmaps``, with those of the filters in the store's config; ``auto`` as the
            store has them.
        split_bytes: About how much of the log a task reads.
        is_dry_run: Only tell what would be built.

    Returns:
        Numbers, and as findings what of the log has no entry now: a ``bad-record``, a ``gap`` or a
        ``duplicate`` of queue offsets, a ``restart`` that nothing confirms.

    Raises:
        SparkOptionError: Only a part is wanted, or bit maps of a store that a broker has open.
        StoreError: The directory cannot be used, or sizes or delay levels cannot be told.
        StoreDamaged: Queue offsets leap so far that to fill the gap would fill the disk.
    """
    if wanted != ALL:
        raise SparkOptionError(
            "rebuild takes a whole store.",
            hint="Leave --topics, --from and --to away.",
        )
    plan = _plan(
        spark,
        (store, out),
        delay_levels,
        (index_slots, index_entries),
        ext,
        split_bytes=split_bytes,
    )
    report = Report(job="rebuild", source=store, is_dry_run=is_dry_run)
    report.numbers |= {
        "tasks": len(plan.ranges),
        "consumeQueueFileBytes": plan.queue_file_bytes,
        "indexSlots": plan.shape.slots,
        "indexEntriesMax": plan.shape.entries,
    }
    rules = plan.rules.ext
    if rules is not None:
        report.numbers |= {"extFileBytes": rules.file_bytes, "filters": len(rules.filters)}
    if is_dry_run:
        return report
    surveys = run_tasks(spark, plan.ranges, SurveyWorker(plan.rules))
    _check_delays(surveys)
    known = queues_of(plan.log)
    queues = plan_queues(surveys, known, ext_file_bytes=0 if rules is None else rules.file_bytes)
    if queues.leap > LEAP_MAX:
        raise StoreDamaged(
            "Queue offsets of the log leap so far that nothing was built.",
            detail=f"{queues.leap} are left out at once",
            hint="Run 'roquet spark audit' to see where; repair the log from a replica.",
        )
    _tell(report, surveys, queues)
    was_there = plan.out.exists()
    try:
        _build(spark, plan, surveys, queues, known, report)
    except BaseException:
        for part in plan.parts:
            shutil.rmtree(part, ignore_errors=True)
        if not was_there:
            shutil.rmtree(plan.out, ignore_errors=True)
        raise
    report.outputs += map(str, plan.parts)
    return report


def _plan(
    spark: SparkSession,
    paths: tuple[str, str],
    delay_levels: str,
    index_shape: tuple[int | None, int | None],
    ext: ExtKind,
    *,
    split_bytes: int,
) -> _Plan:
    files, (store, out) = Files(), paths
    log = open_log(files, [store])
    root = log.root if log.root is not None else Path(store).resolve()
    state = StoreState(files, root)
    if ROCKSDB_QUEUES in state.unchecked():
        raise StoreError(
            "The queues of this store cannot be rebuilt.",
            detail=f"they are kept in RocksDB, in {ROCKSDB_QUEUES}",
            hint="Only ConsumeQueues in files can be rebuilt.",
        )
    return _Plan(
        log,
        LogRules(store, delay_levels, state.batch_topics(), _ext_rules(log, state, ext)),
        plan_whole(
            log,
            start=log.start_offset,
            stop=log.end_offset,
            is_open=not state.is_running,
            split_bytes=split_bytes,
            tasks_min=parallelism(spark),
        ),
        _index_shape(files, root / INDEX, *index_shape),
        _queue_file_bytes(log),
        _target(Path(out).resolve(), root.resolve()),
    )


def _target(out: Path, root: Path) -> Path:
    if out == root or root in out.parents:
        raise StoreError(f"{out} is inside the store.", hint="Name a directory outside of it.")
    if out.exists() and not out.is_dir():
        raise StoreError(f"{out} is not a directory.", hint="Name a new or empty directory.")
    if out.exists() and any(out.iterdir()):
        raise StoreError(f"{out} is not empty.", hint="Name a new or empty directory.")
    return out


def _queue_file_bytes(log: LogFiles) -> int:
    """The length that most ConsumeQueue files have."""
    sizes = Counter(
        size for queue in log.queues for _, size in queue.parts if size and size % UNIT_BYTES == 0
    )
    return max(sizes, key=lambda size: sizes[size], default=DEFAULT_FILE_BYTES)


def _ext_rules(log: LogFiles, state: StoreState, kind: ExtKind) -> ExtRules | None:
    """How units are made; ``None`` to make none."""
    extensions = extensions_of(log.files, state.root)
    if kind == "none" or (kind == "auto" and not extensions):
        return None
    sizes = Counter(size for each in extensions.values() for _, size in each.parts if size)
    file_bytes = max(sizes, key=lambda size: sizes[size], default=EXT_FILE_BYTES)
    if state.is_running:
        # Its broker may have filters that are not in the file yet.
        if kind == "bitmaps":
            raise SparkOptionError(
                "Bit maps of a store that a broker has open cannot be told.",
                hint="Stop the broker, or take --ext units.",
            )
        return ExtRules(file_bytes)
    filters = () if kind == "units" else sound_filters(state.consumer_filters())
    if kind == "auto" and not _has_bitmaps(log, extensions, {each.topic for each in filters}):
        filters = ()
    return ExtRules(file_bytes, filters)


def _has_bitmaps(
    log: LogFiles, extensions: Mapping[QueueKey, QueueFiles], topics: Collection[str]
) -> bool:
    """Whether the newest unit of a queue of some topics has a bit map."""
    for queue in log.queues:
        if queue.topic in topics:
            entry = queue.unit(queue.max_queue_offset - 1)
            if entry is not None and is_ext_address(entry.tags_code):
                key = QueueKey(queue.topic, queue.queue_id)
                unit = read_extension(log.files, extensions.get(key), entry.tags_code)
                if unit is not None and unit.filter_bitmap:
                    return True
    return False


def _index_shape(
    files: Files, directory: Path, slots: int | None, entries: int | None
) -> IndexShape:
    """Slots and entries of an index file: as told, as the files tell, or upstream's."""
    places, _ = index_places(files, directory, slots=slots)
    known = Counter((each.slots, each.entry_capacity) for each in places if each.slots)
    if known:
        found_slots, found_entries = max(known, key=lambda shape: known[shape])
        return IndexShape(slots or found_slots, entries or found_entries)
    sizes = {files.size_bytes(Path(each.path)) for each in places}
    if slots is None and sizes - {file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES)}:
        raise StoreError(
            "The index files do not tell how many slots they have.",
            detail=f"files of {', '.join(f'{size} bytes' for size in sorted(sizes))}",
            hint="Give the broker's maxHashSlotNum and maxIndexNum as --index-slots and"
            " --index-entries.",
        )
    return IndexShape(slots or DEFAULT_SLOTS, entries or DEFAULT_ENTRIES)


def _check_delays(surveys: Sequence[Survey]) -> None:
    differing = sum(each.delays[0] for each in surveys)
    agreeing = sum(each.delays[1] for each in surveys)
    if differing > agreeing:
        raise StoreError(
            "The broker seems to use other delay levels.",
            detail=f"{differing} of {differing + agreeing} delayed messages are due at another"
            " time than these levels give",
            hint="Give the broker's messageDelayLevel as --delay-levels.",
        )


def _tell(report: Report, surveys: Sequence[Survey], queues: QueuePlan) -> None:
    """What of the log gets no entry, or stands where it should not."""
    report.numbers["records"] = sum(each.records for each in surveys)
    log_end = max((each.good_end for each in surveys), default=-1)
    for hurt in (hurt for each in surveys for hurt in each.hurts):
        if hurt.start < log_end:
            where = f"physical offset {hurt.start}"
            report.add_finding(BAD_RECORD, where, f"{hurt.field}: {hurt.detail}")
    report.findings += queues.findings


def _build(  # noqa: PLR0917 - what the survey gave
    spark: SparkSession,
    plan: _Plan,
    surveys: Sequence[Survey],
    queues: QueuePlan,
    known: Mapping[QueueKey, QueueFiles],
    report: Report,
) -> None:
    files = plan.log.files
    for part in plan.parts:
        files.make_dirs(part)
    index = _plan_index(spark, plan, surveys, plan.out / INDEX)
    tasks, index_start = [], 0
    for number, ranges in enumerate(plan.ranges):
        here = surveys[number].queues
        tasks.append(
            WriteTask(
                ranges,
                {key: at for key, at in queues.expected[number].items() if key in here},
                queues.unit_ends[number],
                {key: at for key, at in queues.restarts.items() if key in here},
                index_start,
            )
        )
        index_start += surveys[number].index_entries
    worker = WriteWorker(plan.rules, str(plan.out), plan.queue_file_bytes, plan.shape, tuple(index))
    entries = run_tasks(spark, tasks, worker)
    run_tasks(spark, index, ChainWorker(plan.shape))
    built = {key for survey in surveys for key in survey.queues}
    carried = [
        key
        for key, queue in known.items()
        if key not in built and 0 < queue.end_offset() <= plan.log.start_offset
    ]
    count = min(parallelism(spark), len(carried))
    groups = [carried[part::count] for part in range(count)]
    run_tasks(spark, groups, CarryWorker(plan.rules, str(plan.out)))
    report.numbers |= {
        "queues": len(built),
        "entries": sum(entries),
        "carriedQueues": len(carried),
        "indexFiles": len(index),
        "indexEntries": index_start,
    }


def _plan_index(
    spark: SparkSession, plan: _Plan, surveys: Sequence[Survey], root: Path
) -> list[IndexPart]:
    """The index files to be: how many entries each gets, and between which times."""
    total = sum(each.index_entries for each in surveys)
    each_file = plan.shape.used_entries
    starts = range(0, total, each_file)
    ends = [min(start + each_file, total) - 1 for start in starts]
    times = _times(spark, plan, surveys, sorted({*starts, *ends}))
    parts: list[IndexPart] = []
    name = ""
    for start, end in zip(starts, ends, strict=True):
        made = stamp_of(times[start])
        name = max(made, name_after(name)) if name else made
        before_ms = parts[-1].end_ms if parts else 0
        parts.append(
            IndexPart(str(root / name), end - start + 1, times[start], times[end], before_ms)
        )
    return parts


def _times(
    spark: SparkSession, plan: _Plan, surveys: Sequence[Survey], numbers: Sequence[int]
) -> dict[int, int]:
    """Store times of the records of some index entries, by their numbers in the whole log."""
    times: dict[int, int] = {}
    tasks: list[tuple[list[LogRange], list[int]]] = []
    bases: list[int] = []
    base = 0
    for survey, ranges in zip(surveys, plan.ranges, strict=True):
        end = base + survey.index_entries
        inside = [number for number in numbers if base <= number < end]
        times |= {number: survey.first_ms for number in inside if number == base}
        times |= {number: survey.last_ms for number in inside if number == end - 1}
        unknown = [number - base for number in inside if number not in times]
        if unknown:
            tasks.append((ranges, unknown))
            bases.append(base)
        base = end
    for (_, wanted), at, found in zip(
        tasks, bases, run_tasks(spark, tasks, TimesWorker(plan.rules)), strict=True
    ):
        times |= {at + number: time for number, time in zip(wanted, found, strict=True)}
    return times
