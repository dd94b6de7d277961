"""Rebuilds queues of both types, extensions and the index from the log, in another directory.

Runs the passes. The log is read twice, its ranges in parallel: first to count the entries of each
range, then to write them. The files are byte for byte those that a broker would have written. Index
files are named after a time, here the store time of their first record.

Invariants:

* The store is never changed.
* Queue offsets are never reused: a queue whose records have all expired is copied.
* If a topic was deleted and recreated, only the records since then get entries.
* A bit map that might lack a filter is not written: its group would miss the message.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from roquet.errors import SparkOptionError, StoreDamaged, StoreError
from roquet.format.batch_consume_queue import BATCH_UNIT_BYTES, DEFAULT_BATCH_FILE_BYTES
from roquet.format.consume_queue import DEFAULT_FILE_BYTES, UNIT_BYTES
from roquet.format.consume_queue_ext import DEFAULT_FILE_BYTES as EXT_FILE_BYTES
from roquet.format.consume_queue_ext import is_ext_address
from roquet.format.derived import QueueKey
from roquet.format.index_file import name_after
from roquet.model.delay_level import DEFAULT_DELAY_LEVELS
from roquet.runtime.clock import stamp_of
from roquet.runtime.files import Files
from roquet.spark.jobs.inputs import ALL, Wanted
from roquet.spark.jobs.rebuild_ext import ExtRules, consumer_filters, sound_filters
from roquet.spark.jobs.rebuild_survey import (
    BAD_RECORD,
    LogRules,
    QueuePlan,
    SurveyTaskResult,
    SurveyWorker,
    plan_queues,
    topics_of_batches,
)
from roquet.spark.jobs.rebuild_write import (
    CopyQueuesWorker,
    IndexChainWorker,
    IndexPart,
    TimesWorker,
    WriteTask,
    WriteWorker,
)
from roquet.spark.log.splits import SPLIT_BYTES, plan_whole
from roquet.spark.log.store_files import LogFiles, open_log
from roquet.spark.report import Report
from roquet.spark.tasks import parallelism, run_tasks
from roquet.storefiles.index_files import IndexShape, usual_shape
from roquet.storefiles.layout import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    ROCKSDB_CONSUME_QUEUE,
)
from roquet.storefiles.queues import ExtView, QueueView, usual_file_bytes
from roquet.storefiles.records import LogRange
from roquet.storefiles.small_files import has_queues_in_rocksdb
from roquet.storefiles.view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ExtKind", "rebuild"]

ExtKind: TypeAlias = Literal["auto", "none", "units", "bitmaps"]
"""What to do with ConsumeQueueExts."""

LEAP_MAX = 10_000_000
"""The longest gap of queue offsets to fill; a longer one means a damaged record."""


@dataclass(frozen=True)
class _Plan:
    """What to build, and where."""

    log: LogFiles
    known: dict[QueueKey, QueueView]
    rules: LogRules
    ranges: list[list[LogRange]]
    shape: IndexShape
    queue_file_bytes: int
    batch_file_bytes: int
    out: Path

    @property
    def parts(self) -> list[Path]:
        """The directories to create."""
        names = [CONSUME_QUEUE]
        names += [CONSUME_QUEUE_EXT] if self.rules.ext is not None else []
        names += [BATCH_CONSUME_QUEUE] if self.rules.batch_topics else []
        names.append(INDEX)
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
        out: A new or empty directory, which gets ``consumequeue`` and ``index``,
            ``consumequeue_ext`` if units are made, and ``batchconsumequeue`` for topics of batches.
        wanted: Must be all: a partial queue or index would look like a complete one.
        delay_levels: The broker's ``messageDelayLevel``, which decides when messages are due.
        index_slots: The broker's ``maxHashSlotNum``, if its files do not show it.
        index_entries: The broker's ``maxIndexNum``, if its files do not show it.
        ext: Whether entries point to units of a ConsumeQueueExt: ``none``; ``units``, without bit
            maps; ``bitmaps``, with those of the filters in the store's config; ``auto``, as in the
            store.
        split_bytes: About how much of the log a task reads.
        is_dry_run: Only report what would be built.

    Returns:
        Numbers, and as findings the parts of the log without an entry: a ``bad-record``, a ``gap``
        or a ``duplicate`` of queue offsets, a ``restart`` that nothing confirms.

    Raises:
        SparkOptionError: The selection is not all, or bit maps of a running store are requested.
        StoreError: The directory cannot be used, or sizes or delay levels are unknown.
        StoreDamaged: Queue offsets jump so far that filling the gap would fill the disk.
    """
    if wanted != ALL:
        raise SparkOptionError(
            "rebuild takes a whole store.",
            hint="Omit --topics, --from and --to.",
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
    plan, surveys = _survey(spark, plan)
    _check_delays(surveys)
    queues = plan_queues(
        surveys,
        plan.known,
        ext_file_bytes=0 if rules is None else rules.file_bytes,
        batch_topics=plan.rules.batch_topics,
    )
    if queues.leap > LEAP_MAX:
        raise StoreDamaged(
            "Queue offsets of the log jump too far, so nothing was built.",
            detail=f"{queues.leap} are skipped at once",
            hint="Run 'roquet spark audit' to see where; repair the log from a replica.",
        )
    _tell(report, surveys, queues)
    was_there = plan.out.exists()
    try:
        _build(spark, plan, surveys, queues, report)
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
    with StoreView(files, log.root if log.root is not None else Path(store)) as view:
        root = view.root
        if has_queues_in_rocksdb(view):
            raise StoreError(
                "The queues of this store cannot be rebuilt.",
                detail=f"they are kept in RocksDB, in {ROCKSDB_CONSUME_QUEUE}",
                hint="Only ConsumeQueues in files can be rebuilt.",
            )
        return _Plan(
            log,
            {queue.key: queue for queue in view.all_queues},
            LogRules(
                str(root), delay_levels, frozenset(view.batch_topics()), _ext_rules(log, view, ext)
            ),
            plan_whole(
                log,
                start=log.start_offset,
                stop=log.end_offset,
                is_open=not view.is_running,
                split_bytes=split_bytes,
                tasks_min=parallelism(spark),
            ),
            usual_shape(view.open_index(slots=index_shape[0])[0], *index_shape),
            usual_file_bytes(
                (queue.segments for queue in log.queues.values()),
                unit_bytes=UNIT_BYTES,
                default=DEFAULT_FILE_BYTES,
            ),
            usual_file_bytes(
                (queue.segments for queue in view.batch_queues.values()),
                unit_bytes=BATCH_UNIT_BYTES,
                default=DEFAULT_BATCH_FILE_BYTES,
            ),
            _target(Path(out).resolve(), root),
        )


def _survey(spark: SparkSession, plan: _Plan) -> tuple[_Plan, list[SurveyTaskResult]]:
    """Count the entries of the log; again, if it shows batch topics that were not known."""
    surveys = run_tasks(spark, plan.ranges, SurveyWorker(plan.rules))
    found = topics_of_batches(surveys)
    if found <= plan.rules.batch_topics:
        return plan, surveys
    rules = replace(plan.rules, batch_topics=plan.rules.batch_topics | found)
    return replace(plan, rules=rules), run_tasks(spark, plan.ranges, SurveyWorker(rules))


def _target(out: Path, root: Path) -> Path:
    if out == root or root in out.parents:
        raise StoreError(f"{out} is inside the store.", hint="Name a directory outside of it.")
    if out.exists() and not out.is_dir():
        raise StoreError(f"{out} is not a directory.", hint="Name a new or empty directory.")
    if out.exists() and any(out.iterdir()):
        raise StoreError(f"{out} is not empty.", hint="Name a new or empty directory.")
    return out


def _ext_rules(log: LogFiles, view: StoreView, kind: ExtKind) -> ExtRules | None:
    """Return how units are made; ``None`` to make none."""
    extensions = view.extensions
    if kind == "none" or (kind == "auto" and not extensions):
        return None
    file_bytes = usual_file_bytes(
        (each.segments for each in extensions.values()), unit_bytes=1, default=EXT_FILE_BYTES
    )
    if view.is_running:
        # The broker may have filters that are not in the file yet.
        if kind == "bitmaps":
            raise SparkOptionError(
                "Bit maps cannot be rebuilt while a broker has the store open.",
                hint="Stop the broker, or use --ext units.",
            )
        return ExtRules(file_bytes)
    filters = () if kind == "units" else sound_filters(consumer_filters(view))
    if kind == "auto" and not _has_bitmaps(log, extensions, {each.topic for each in filters}):
        filters = ()
    return ExtRules(file_bytes, filters)


def _has_bitmaps(
    log: LogFiles, extensions: Mapping[QueueKey, ExtView], topics: Collection[str]
) -> bool:
    """Whether the newest unit of any queue of these topics has a bit map."""
    for key, queue in log.queues.items():
        extension = extensions.get(key)
        if key.topic in topics and extension is not None:
            entry = queue.entry(queue.written_end() - 1)
            if entry is not None and is_ext_address(entry.tags_code):
                unit = extension.unit(entry.tags_code)
                if unit is not None and unit.filter_bitmap:
                    return True
    return False


def _check_delays(surveys: Sequence[SurveyTaskResult]) -> None:
    differing = sum(each.delays[0] for each in surveys)
    agreeing = sum(each.delays[1] for each in surveys)
    if differing > agreeing:
        raise StoreError(
            "The broker seems to use other delay levels.",
            detail=f"{differing} of {differing + agreeing} delayed messages are due at another"
            " time than these levels imply",
            hint="Pass the broker's messageDelayLevel as --delay-levels.",
        )


def _tell(report: Report, surveys: Sequence[SurveyTaskResult], queues: QueuePlan) -> None:
    """Report the parts of the log that get no entry or are out of order."""
    report.numbers["records"] = sum(each.records for each in surveys)
    log_end = max((each.good_end for each in surveys), default=-1)
    for damage in (damage for each in surveys for damage in each.damages):
        if damage.start < log_end:
            where, fault = f"physical offset {damage.start}", damage.fault
            report.add_finding(BAD_RECORD, where, f"{fault.field}: {fault.detail}")
    report.findings += queues.findings


def _build(
    spark: SparkSession,
    plan: _Plan,
    surveys: Sequence[SurveyTaskResult],
    queues: QueuePlan,
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
    worker = WriteWorker(
        plan.rules,
        str(plan.out),
        plan.queue_file_bytes,
        plan.batch_file_bytes,
        plan.shape,
        tuple(index),
    )
    entries = run_tasks(spark, tasks, worker)
    run_tasks(spark, index, IndexChainWorker(plan.shape))
    built = {key for survey in surveys for key in survey.queues}
    carried = [
        key
        for key, queue in plan.known.items()
        if key not in built and 0 < queue.end_offset() <= plan.log.start_offset
    ]
    count = min(parallelism(spark), len(carried))
    groups = [carried[part::count] for part in range(count)]
    run_tasks(spark, groups, CopyQueuesWorker(plan.rules, str(plan.out)))
    report.numbers |= {
        "queues": len(built),
        "entries": sum(entries),
        "carriedQueues": len(carried),
        "indexFiles": len(index),
        "indexEntries": index_start,
    }


def _plan_index(
    spark: SparkSession, plan: _Plan, surveys: Sequence[SurveyTaskResult], root: Path
) -> list[IndexPart]:
    """Plan the index files: the number of entries and the times of each."""
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
    spark: SparkSession, plan: _Plan, surveys: Sequence[SurveyTaskResult], numbers: Sequence[int]
) -> dict[int, int]:
    """Return the store times of the records of some index entries, by entry number."""
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
