"""Audits a store: every record must be intact, and every other file must match the log.

Runs the passes and combines their results. The first compares headers of index files with their
first and last entries, one task per file. The second walks the log, one task per range, and
compares each record with its entries. The third checks entries that no record was compared with,
several queues per task, and follows the chains of the index, one task per file. Tasks return their
findings and whatever depends on other ranges, which is joined here. Nothing is written.

The store may be running or have crashed: what a broker has yet to write, or what a crash leaves
behind, is not a finding. The rules are those of ``roquet store verify``.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from roquet.errors import SparkOptionError, StoreDamaged
from roquet.format.derived import QueueKey
from roquet.model.delay_level import DEFAULT_DELAY_LEVELS
from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.files import Files
from roquet.spark.jobs.audit_findings import Findings, queue_name
from roquet.spark.jobs.audit_index import (
    OFFSET_MAX,
    ChainTask,
    ChainWorker,
    IndexSpan,
    IndexTask,
    IndexTaskResult,
    IndexWorker,
)
from roquet.spark.jobs.audit_queues import QueueTask, QueueTaskResult, QueueWorker
from roquet.spark.jobs.audit_replica import ReplicaWorker, plan_stripes
from roquet.spark.jobs.audit_scan import AuditRules, ScanTaskResult, ScanWorker
from roquet.spark.jobs.audit_state import check_state, judge_strangers
from roquet.spark.jobs.inputs import ALL, Wanted
from roquet.spark.log.index_tables import index_places
from roquet.spark.log.splits import SPLIT_BYTES, plan_whole, time_bounds
from roquet.spark.log.store_files import LogFiles, open_log
from roquet.spark.report import Report
from roquet.spark.tasks import parallelism, run_tasks
from roquet.storefiles import faults as kinds
from roquet.storefiles.damage import DamagedRange, DamagedRanges
from roquet.storefiles.index_checks import first_seconds
from roquet.storefiles.layout import CONSUME_QUEUE, MANIFEST_FILE, ROCKSDB_CONSUME_QUEUE
from roquet.storefiles.manifest_checks import LogSpan, manifest_faults
from roquet.storefiles.queue_checks import QueueRangeState, QueueRules
from roquet.storefiles.queue_leftovers import (
    UncheckedEntries,
    check_joints,
    judge_missing,
    lacks_all_queues,
    settled_runs,
)
from roquet.storefiles.queues import BatchQueueView
from roquet.storefiles.records import LogRange
from roquet.storefiles.small_files import has_queues_in_rocksdb
from roquet.storefiles.view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["audit"]

_INDEX_TASKS_A_CORE = 8
T = TypeVar("T")


@dataclass(frozen=True)
class _Plan:
    """What to check."""

    log: LogFiles
    view: StoreView
    rules: AuditRules
    ranges: list[list[LogRange]]
    is_whole: bool
    sample: float = 1.0


def audit(
    spark: SparkSession,
    store: str,
    *,
    wanted: Wanted = ALL,
    replica: str | None = None,
    delay_levels: str = DEFAULT_DELAY_LEVELS,
    index_slots: int | None = None,
    split_bytes: int = SPLIT_BYTES,
    sample: float = 1.0,
    is_dry_run: bool = False,
    clock: Clock | None = None,
) -> Report:
    """Check a store: log, ConsumeQueues, index, checkpoint and config.

    Args:
        spark: A session.
        store: The store directory.
        wanted: Topics whose queues are checked, and a range of store times.
        replica: The store directory of a replica to compare the log with.
        delay_levels: The broker's ``messageDelayLevel``, which decides when messages are due.
        index_slots: The slots of an index file, if the files do not show it.
        split_bytes: About how much of the log a task reads.
        sample: How much of the log is checked, in evenly spaced parts: more than 0, 1 for all.
        is_dry_run: Only report what would be read.
        clock: Decides which store times are in the future.

    Returns:
        Numbers, a table of findings by kind, and findings of the kinds in
        :data:`roquet.storefiles.faults.KINDS`.
    """
    report = Report(job="audit", source=store, is_dry_run=is_dry_run)
    plan = _plan(
        spark,
        store,
        wanted,
        delay_levels=delay_levels,
        split_bytes=split_bytes,
        sample=sample,
        now_ms=(clock or SystemClock()).now_ms(),
    )
    log = plan.log
    report.numbers |= {
        "segments": len(log.segments),
        "queues": len(plan.view.all_queues),
        "tasks": len(plan.ranges),
    }
    if not is_dry_run:
        with plan.view:
            _audit(spark, plan, report, replica, index_slots, split_bytes=split_bytes)
    return report


def _audit(
    spark: SparkSession,
    plan: _Plan,
    report: Report,
    replica: str | None,
    index_slots: int | None,
    *,
    split_bytes: int,
) -> None:
    """Check everything, one kind of file after another."""
    findings = Findings()
    check_state(plan.view, findings, now_ms=plan.rules.now_ms)
    spans, bounds = _look_at_index(spark, plan, index_slots, findings)
    scans: list[ScanTaskResult] = []
    log_end, left, size_bytes = plan.rules.start, 0, 0
    # One job for all parts of a sample: each of them is just one task.
    scanned = iter(run_tasks(spark, plan.ranges, ScanWorker(plan.rules, tuple(spans), bounds)))
    for part in _parts(plan):
        seen = list(islice(scanned, len(part.ranges)))
        log_end = _judge_log(part, seen, findings)
        damages = tuple(damage for scan in seen for damage in scan.damages)
        left += _look_at_queues(spark, part, seen, log_end, damages, findings)
        size_bytes += log_end - part.rules.start
        scans += seen
    followed = [span for at, span in enumerate(spans) if _is_sampled(at, plan.sample)]
    findings.merge(_follow_chains(spark, plan, followed, scans, log_end))
    if plan.is_whole:
        _judge_vanished(plan, scans, log_end, findings)
    if replica is not None:
        _compare_replica(spark, plan, replica, log_end, split_bytes, report, findings)
    report.numbers |= {
        "records": sum(scan.records for scan in scans),
        "bytes": size_bytes,
        "entries": left
        + sum(
            run.count for scan in scans for part in scan.queues.values() for run in part.compared
        ),
        "indexFiles": len(spans),
        "indexEntries": sum(span.count for span in spans),
        "state": _state(plan.rules.queues),
    }
    if has_queues_in_rocksdb(plan.view):
        report.numbers["unchecked"] = ROCKSDB_CONSUME_QUEUE
    _tell(report, findings)


def _state(rules: QueueRules) -> str:
    return "running" if rules.is_running else "crashed" if rules.has_crashed else "closed"


def _plan(
    spark: SparkSession,
    store: str,
    wanted: Wanted,
    *,
    delay_levels: str,
    split_bytes: int,
    sample: float,
    now_ms: int,
) -> _Plan:
    if not 0 < sample <= 1:
        raise SparkOptionError(
            f"A sample of {sample} is not a part of the log.", hint="Use more than 0, up to 1."
        )
    files = Files()
    log = open_log(files, [store])
    view = StoreView(files, log.root if log.root is not None else Path(store))
    start, stop = log.start_offset, log.end_offset
    has_times = wanted.from_ms is not None or wanted.to_ms is not None
    is_whole = not has_times and sample == 1
    if has_times:
        start, stop = time_bounds(log, start, stop, wanted.from_ms, wanted.to_ms)
    rules = AuditRules(
        root=str(view.root),
        start=start,
        queues=QueueRules.of(view, wanted.topics),
        delay_levels=delay_levels,
        now_ms=now_ms,
    )
    ranges = plan_whole(
        log,
        start=start,
        stop=stop,
        is_open=is_whole and not view.is_running,
        split_bytes=split_bytes,
        tasks_min=parallelism(spark),
    )
    ranges = [each for at, each in enumerate(ranges) if _is_sampled(at, sample)]
    return _Plan(log, view, rules, ranges, is_whole, sample)


def _is_sampled(number: int, sample: float) -> bool:
    """Whether one of many parts belongs to a sample of them; the first does."""
    return math.ceil((number + 1) * sample) > math.ceil(number * sample)


def _parts(plan: _Plan) -> Iterator[_Plan]:
    """Yield the plan, or one for each run of adjoining ranges of a sample."""
    if plan.sample == 1:
        yield plan
        return
    held: list[list[LogRange]] = []
    for ranges in plan.ranges:
        if held and held[-1][-1].stop != ranges[0].start:
            yield _part(plan, held)
            held = []
        held.append(ranges)
    yield _part(plan, held)


def _part(plan: _Plan, ranges: list[list[LogRange]]) -> _Plan:
    start = ranges[0][0].start if ranges else plan.rules.start
    return replace(plan, rules=replace(plan.rules, start=start), ranges=ranges)


# -- index -------------------------------------------------------------------------------------


def _look_at_index(
    spark: SparkSession, plan: _Plan, slots: int | None, findings: Findings
) -> tuple[list[IndexSpan], tuple[int, int]]:
    """Check index files on their own; return them, and the range that they must cover."""
    places, strangers = index_places(plan.log.files, plan.view.index_directory, slots=slots)
    is_complete = not judge_strangers(plan.view, strangers, findings)
    tasks = [
        IndexTask(place, is_growing=plan.view.is_running and place is places[-1])
        for place in places
    ]
    looked = run_tasks(spark, _by_core(spark, tasks), IndexWorker(plan.rules.root))
    seen: list[IndexTaskResult] = [each for group in looked for each in group]
    findings.merge(each.findings for each in seen)
    spans: list[IndexSpan] = []
    for each in seen:
        if each.span is None:
            is_complete = False
        else:
            spans.append(_with_first_seconds(each.span, spans, plan.log.start_offset))
    used = [span for span in spans if span.count]
    if not (is_complete and used):
        return spans, (0, 0)
    low = max(used[0].header.begin_physical_offset, used[0].first_physical)
    high = max(min(each.header.end_physical_offset, each.last_physical) for each in used)
    return spans, (low, high)


def _with_first_seconds(span: IndexSpan, before: Sequence[IndexSpan], log_start: int) -> IndexSpan:
    """Set the times that a first entry may have: a new file counts from the previous one."""
    if span.first_ms is None:
        return span
    last = before[-1].header if before else None
    return replace(span, first_seconds=first_seconds(last, span.first_ms, log_start))


def _follow_chains(
    spark: SparkSession,
    plan: _Plan,
    spans: Sequence[IndexSpan],
    scans: Sequence[ScanTaskResult],
    log_end: int,
) -> list[Findings]:
    """Follow the chains of index files; in a closed store none may point past the log's end."""
    wild = {span.place.path: array("i") for span in spans}
    for scan in scans:
        for path, numbers in scan.wild.items():
            if path in wild:  # of a sample, not all files are checked
                wild[path].extend(numbers)
    tasks = [
        ChainTask(
            span, is_growing=plan.view.is_running and span is spans[-1], wild=wild[span.place.path]
        )
        for span in spans
    ]
    worker = ChainWorker(
        log_end if plan.is_whole else OFFSET_MAX,
        is_end_known=plan.rules.is_closed and plan.is_whole,
        is_running=plan.view.is_running,
    )
    return run_tasks(spark, _by_core(spark, tasks), worker)


def _by_core(spark: SparkSession, tasks: Sequence[T]) -> list[Sequence[T]]:
    """Group the tasks for index files, a few groups per core."""
    step = max(len(tasks) // (_INDEX_TASKS_A_CORE * parallelism(spark)), 1)
    return [tasks[at : at + step] for at in range(0, len(tasks), step)]


# -- log ---------------------------------------------------------------------------------------


def _judge_log(plan: _Plan, scans: Sequence[ScanTaskResult], findings: Findings) -> int:
    """Join the results of all ranges; return where the log ends."""
    findings.merge(scan.findings for scan in scans)
    log_end = max([plan.rules.start, *(scan.good_end for scan in scans)])
    if not plan.is_whole or plan.view.is_running:
        log_end = max([log_end, *(part.stop for ranges in plan.ranges for part in ranges)])
    is_tail_told = False
    for damage in (damage for scan in scans for damage in scan.damages):
        where, fault = f"physical offset {damage.start}", damage.fault
        if damage.start < log_end:
            detail = f"{fault.field}: {fault.detail} ({damage.end - damage.start} bytes)"
            findings.tell(kinds.kind_of_field(fault.field), where, detail)
        elif not (damage.is_zero or plan.view.crashed or is_tail_told):
            detail = f"behind the last record: {fault.field}: {fault.detail}"
            findings.tell(kinds.BAD_TAIL, where, detail)
            is_tail_told = True
    _judge_times(scans, findings)
    return log_end


def _judge_times(scans: Sequence[ScanTaskResult], findings: Findings) -> None:
    """Check that store times do not decrease from one range to the next."""
    last_ms = 0
    for scan in scans:
        if not scan.records:
            continue
        if scan.first_ms < last_ms:
            detail = f"{scan.first_ms} is earlier than {last_ms} of the record before it"
            findings.tell(kinds.BAD_TIME, f"physical offset {scan.first_physical}", detail)
        last_ms = scan.last_ms


# -- queues ------------------------------------------------------------------------------------


def _look_at_queues(  # noqa: PLR0917 - the results of the walk
    spark: SparkSession,
    plan: _Plan,
    scans: Sequence[ScanTaskResult],
    log_end: int,
    damages: tuple[DamagedRange, ...],
    findings: Findings,
) -> int:
    """Check records without entries and entries without records; return how many are left."""
    view, rules = plan.view, plan.rules.queues
    parts: dict[QueueKey, list[QueueRangeState]] = {}
    for scan in scans:
        for key, part in scan.queues.items():
            if rules.takes(key.topic):
                parts.setdefault(key, []).append(part)
    if has_queues_in_rocksdb(view):
        return 0
    if lacks_all_queues(view, rules, parts):
        findings.tell(kinds.BAD_FILE, CONSUME_QUEUE, "there is no ConsumeQueue at all")
        return 0
    hurt = DamagedRanges(damages)
    for key, those in parts.items():
        check_joints(view, rules, findings, key, those, hurt)
        for run in (run for part in those for run in part.missing):
            judge_missing(view, rules, findings, key, run)
    tasks = [
        QueueTask(
            queue.key,
            settled_runs(parts.get(queue.key, ()), is_batch=isinstance(queue, BatchQueueView)),
        )
        for queue in view.all_queues
        if rules.takes(queue.key.topic)
    ]
    count = min(max(parallelism(spark), len(plan.ranges)), len(tasks))
    seen: list[QueueTaskResult] = run_tasks(
        spark,
        [tasks[part::count] for part in range(count)],
        QueueWorker(plan.rules, log_end, damages),
    )
    findings.merge(each.findings for each in seen)
    left = {key: what for each in seen for key, what in each.left.items()}
    _judge_lost(plan, left, log_end, findings)
    return sum(what.entries for what in left.values())


def _judge_lost(
    plan: _Plan, left: Mapping[QueueKey, UncheckedEntries], log_end: int, findings: Findings
) -> None:
    """Check entries that point past the end of the log.

    A Java broker that truncated its log leaves old entries. If one points exactly at the end of a
    log that was closed, a record was there.
    """
    lost = {key: what for key, what in left.items() if what.behind}
    is_closed = plan.is_whole and plan.rules.is_closed
    if not is_closed or all(what.behind_from != log_end for what in lost.values()):
        return
    for key, what in sorted(lost.items()):
        detail = (
            f"{what.behind} entries lead to {what.behind_from} and further, the log ends at"
            f" {log_end}"
        )
        findings.tell(kinds.RECORD_LOST, f"ConsumeQueue of {queue_name(key)}", detail)


# -- manifest ----------------------------------------------------------------------------------


def _judge_vanished(
    plan: _Plan, scans: Sequence[ScanTaskResult], log_end: int, findings: Findings
) -> None:
    """Report what the store had when it was closed and lacks now."""
    span = LogSpan(
        log_end,
        max((scan.newest_ms for scan in scans), default=0),
        has_records=any(scan.records for scan in scans),
    )
    try:
        for fault in manifest_faults(plan.view, span, plan.rules.now_ms):
            if fault.key is None or plan.rules.queues.takes(fault.key.topic):
                findings.add(fault)
    except StoreDamaged as error:
        detail = "; ".join(text for text in (error.message, error.detail) if text)
        findings.tell(kinds.BAD_FILE, MANIFEST_FILE, detail)


# -- replica and report ------------------------------------------------------------------------


def _compare_replica(  # noqa: PLR0917 - the two logs
    spark: SparkSession,
    plan: _Plan,
    replica: str,
    log_end: int,
    stripe_bytes: int,
    report: Report,
    findings: Findings,
) -> None:
    """Compare the log with a replica, as far as both go."""
    other = open_log(Files(), [replica])
    start = max(plan.rules.start, other.start_offset)
    other_end = other.end_offset
    stripes = plan_stripes(start, min(log_end, other_end), stripe_bytes)
    stripes = [each for at, each in enumerate(stripes) if _is_sampled(at, plan.sample)]
    seen = run_tasks(spark, stripes, ReplicaWorker(plan.rules.root, replica))
    findings.merge(each.findings for each in seen)
    report.numbers |= {
        "replicaBytes": sum(stripe.stop - stripe.start for stripe in stripes),
        "replicaBehindBytes": log_end - other_end if plan.is_whole else 0,
    }
    report.add_table(
        "Replica",
        ["from", "to", "digest"],
        [
            [stripe.start, stripe.stop, each.digest or "differs"]
            for stripe, each in zip(stripes, seen, strict=True)
        ],
    )
    if plan.is_whole and other_end != log_end and not plan.view.is_running:
        findings.tell(kinds.REPLICA, replica, f"ends at {other_end}, the log at {log_end}")


def _tell(report: Report, findings: Findings) -> None:
    """Add the findings and their numbers to the report."""
    report.findings += findings.listed
    report.numbers["findings"] = findings.counts.total()
    if not findings.counts:
        return
    report.add_table(
        "Findings by kind",
        ["kind", "count", "meaning"],
        [
            [kind, findings.counts[kind], meaning]
            for kind, meaning in kinds.KINDS.items()
            if findings.counts[kind]
        ],
    )
