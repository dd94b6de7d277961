"""A store against itself: is every record whole, and does everything else fit the log.

Owns the order of the looks and what joins them. Index files are compared with themselves, a task
each; the log is walked, a task a range, and each record compared with its entries; then what no
record was compared with is judged, a task for some queues. Tasks send back what they found and what
depends on other ranges, which is joined here. Nothing is written.

A store may be running or have crashed: what a broker has yet to write, or what a crash leaves
behind, is no finding. The rules are those of ``roquet store verify``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.format.derived import QueueKey
from roquet.format.index_file import seconds_since
from roquet.model.delay_level import DEFAULT_DELAY_LEVELS
from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.files import Files
from roquet.spark.jobs import audit_findings as kinds
from roquet.spark.jobs.audit_findings import Findings, queue_name
from roquet.spark.jobs.audit_index import IndexSeen, IndexSpan, IndexTask, IndexWorker
from roquet.spark.jobs.audit_queues import QueueSeen, QueueTask, QueueWorker
from roquet.spark.jobs.audit_replica import ReplicaWorker, plan_stripes
from roquet.spark.jobs.audit_scan import (
    AuditRules,
    QueuePart,
    Scan,
    ScanWorker,
    is_deleted,
    is_explained,
    judge_missing,
    queues_of,
)
from roquet.spark.jobs.audit_state import INDEX, StoreState
from roquet.spark.jobs.inputs import ALL, Wanted
from roquet.spark.log.index_tables import index_places
from roquet.spark.log.queue_files import QueueFiles
from roquet.spark.log.reading import LogRange
from roquet.spark.log.records import Hurt, plan_whole, time_bounds
from roquet.spark.log.splits import SPLIT_BYTES
from roquet.spark.log.store_files import LogFiles, open_log
from roquet.spark.report import Report
from roquet.spark.tasks import parallelism, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["audit"]


@dataclass(frozen=True)
class _Plan:
    """What is looked at."""

    log: LogFiles
    state: StoreState
    rules: AuditRules
    ranges: list[list[LogRange]]
    is_whole: bool


def audit(
    spark: SparkSession,
    store: str,
    *,
    wanted: Wanted = ALL,
    replica: str | None = None,
    delay_levels: str = DEFAULT_DELAY_LEVELS,
    index_slots: int | None = None,
    split_bytes: int = SPLIT_BYTES,
    is_dry_run: bool = False,
    clock: Clock | None = None,
) -> Report:
    """Check a store: log, ConsumeQueues, index, checkpoint and config.

    Args:
        spark: A session.
        store: The store directory.
        wanted: Topics whose queues are looked at, and a range of store times.
        replica: The store directory of a replica, whose log is compared, too.
        delay_levels: The broker's ``messageDelayLevel``, by which delayed messages are due.
        index_slots: Slots of an index file, where the files themselves do not tell.
        split_bytes: About how much of the log a task reads.
        is_dry_run: Only tell what would be read.
        clock: Tells which store times lie in the future.

    Returns:
        Numbers, a table of what was found by kind, and findings of the kinds of
        :data:`roquet.spark.jobs.audit_findings.KINDS`.
    """
    report = Report(job="audit", source=store, is_dry_run=is_dry_run)
    plan = _plan(
        spark,
        store,
        wanted,
        delay_levels=delay_levels,
        split_bytes=split_bytes,
        now_ms=(clock or SystemClock()).now_ms(),
    )
    log = plan.log
    report.numbers |= {
        "segments": len(log.segments),
        "queues": len(log.queues),
        "tasks": len(plan.ranges),
    }
    if is_dry_run:
        return report
    findings = Findings()
    plan.state.check(findings, now_ms=plan.rules.now_ms)
    spans, bounds = _look_at_index(spark, plan, index_slots, findings)
    scans = run_tasks(spark, plan.ranges, ScanWorker(plan.rules, tuple(spans), bounds))
    log_end = _judge_log(plan, scans, findings)
    hurts = tuple(hurt for scan in scans for hurt in scan.hurts)
    left = _look_at_queues(spark, plan, scans, log_end, hurts, findings)
    _judge_index_ends(plan, spans, log_end, findings)
    if replica is not None:
        _compare_replica(spark, plan, replica, log_end, split_bytes, report, findings)
    report.numbers |= {
        "records": sum(scan.records for scan in scans),
        "bytes": log_end - plan.rules.start,
        "entries": left
        + sum(
            run.end - run.start
            for scan in scans
            for part in scan.queues.values()
            for run in part.compared
        ),
        "indexFiles": len(spans),
        "indexEntries": sum(span.count for span in spans),
        "state": "running" if plan.rules.is_running else _left_as(plan.rules),
    }
    unchecked = plan.state.unchecked()
    if unchecked:
        report.numbers["unchecked"] = ", ".join(unchecked)
    _tell(report, findings)
    return report


def _left_as(rules: AuditRules) -> str:
    return "crashed" if rules.has_crashed else "closed"


def _plan(
    spark: SparkSession,
    store: str,
    wanted: Wanted,
    *,
    delay_levels: str,
    split_bytes: int,
    now_ms: int,
) -> _Plan:
    files = Files()
    log = open_log(files, [store])
    state = StoreState(files, log.root if log.root is not None else Path(store))
    start, stop = log.start_offset, log.end_offset
    is_whole = wanted.from_ms is None and wanted.to_ms is None
    if not is_whole:
        start, stop = time_bounds(log, start, stop, wanted.from_ms, wanted.to_ms)
    rules = AuditRules(
        store=store,
        start=start,
        topics=frozenset(wanted.topics),
        known_topics=state.known_topics(),
        batch_topics=state.batch_topics(),
        delay_levels=delay_levels,
        now_ms=now_ms,
        is_running=state.is_running,
        has_crashed=state.has_crashed,
    )
    ranges = plan_whole(
        log,
        start=start,
        stop=stop,
        is_open=is_whole and not state.is_running,
        split_bytes=split_bytes,
        tasks_min=parallelism(spark),
    )
    return _Plan(log, state, rules, ranges, is_whole)


# -- index -------------------------------------------------------------------------------------


def _look_at_index(
    spark: SparkSession, plan: _Plan, slots: int | None, findings: Findings
) -> tuple[list[IndexSpan], tuple[int, int]]:
    """Compare index files with themselves; gives them, and where every record must be in them."""
    places, strangers = index_places(plan.log.files, plan.state.root / INDEX, slots=slots)
    is_complete = not plan.state.judge_strangers(strangers, findings)
    tasks = [
        IndexTask(place, is_growing=plan.rules.is_running and place is places[-1])
        for place in places
    ]
    seen: list[IndexSeen] = run_tasks(spark, tasks, IndexWorker(plan.rules.store))
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
    """A span that knows what its first entry may say: a new file counts from the one before it."""
    if span.first_ms is None:
        return span
    if before:
        since = seconds_since(before[-1].header.end_timestamp_ms, span.first_ms)
        return replace(span, first_seconds=(0, since))
    return replace(span, first_seconds=(0,)) if log_start == 0 else span


def _judge_index_ends(
    plan: _Plan, spans: Sequence[IndexSpan], log_end: int, findings: Findings
) -> None:
    """Entries of a closed store must not lead behind the end of its log."""
    if plan.rules.is_running or plan.rules.has_crashed or not plan.is_whole:
        return
    for span in spans:
        if span.count and span.max_physical >= log_end:
            where = f"index file {Path(span.place.path).name}"
            detail = f"an entry leads to {span.max_physical}, the log ends at {log_end}"
            findings.add(kinds.INDEX_WRONG, where, detail)
        if span.count and span.min_physical < 0:
            where = f"index file {Path(span.place.path).name}"
            findings.add(kinds.INDEX_WRONG, where, f"an entry leads to {span.min_physical}")


# -- log ---------------------------------------------------------------------------------------


def _judge_log(plan: _Plan, scans: Sequence[Scan], findings: Findings) -> int:
    """Join what ranges say of the log; gives where it ends."""
    findings.merge(scan.findings for scan in scans)
    log_end = max([plan.rules.start, *(scan.good_end for scan in scans)])
    if not plan.is_whole or plan.rules.is_running:
        log_end = max([log_end, *(part.stop for ranges in plan.ranges for part in ranges)])
    is_tail_told = False
    for hurt in (hurt for scan in scans for hurt in scan.hurts):
        where = f"physical offset {hurt.start}"
        if hurt.start < log_end:
            detail = f"{hurt.field}: {hurt.detail} ({hurt.end - hurt.start} bytes)"
            findings.add(kinds.kind_of_field(hurt.field), where, detail)
        elif not (hurt.is_zero or plan.rules.has_crashed or is_tail_told):
            detail = f"behind the last record: {hurt.field}: {hurt.detail}"
            findings.add(kinds.BAD_TAIL, where, detail)
            is_tail_told = True
    _judge_times(scans, findings)
    return log_end


def _judge_times(scans: Sequence[Scan], findings: Findings) -> None:
    """Store times must not go back from one range to the next."""
    last_ms = 0
    for scan in scans:
        if not scan.records:
            continue
        if scan.first_ms < last_ms:
            detail = f"{scan.first_ms} is earlier than {last_ms} of the record before it"
            findings.add(kinds.BAD_TIME, f"physical offset {scan.first_physical}", detail)
        last_ms = scan.last_ms


# -- queues ------------------------------------------------------------------------------------


def _look_at_queues(  # noqa: PLR0917 - what the walk of the log gave
    spark: SparkSession,
    plan: _Plan,
    scans: Sequence[Scan],
    log_end: int,
    hurts: tuple[Hurt, ...],
    findings: Findings,
) -> int:
    """Judge records without entries and entries without records; gives how many are left over."""
    queues = queues_of(plan.log)
    parts: dict[QueueKey, list[QueuePart]] = {}
    for scan in scans:
        for key, part in scan.queues.items():
            parts.setdefault(key, []).append(part)
    if not plan.state.has_queues:
        if parts and not plan.state.unchecked():
            findings.add(kinds.BAD_FILE, "consumequeue", "no ConsumeQueue is there at all")
        return 0
    for key, those in parts.items():
        if plan.rules.takes(key.topic):
            _join(plan.rules, queues, key, those, hurts, findings)
            for run in (run for part in those for run in part.missing):
                detail = judge_missing(plan.rules, queues, key, run)
                if detail is not None:
                    findings.add(kinds.ENTRY_MISSING, f"ConsumeQueue of {queue_name(key)}", detail)
    tasks = [
        QueueTask(key, _settled(parts.get(key, ())))
        for key in queues
        if plan.rules.takes(key.topic)
    ]
    count = min(max(parallelism(spark), len(plan.ranges)), len(tasks))
    seen: list[QueueSeen] = run_tasks(
        spark,
        [tasks[part::count] for part in range(count)],
        QueueWorker(plan.rules, log_end, hurts),
    )
    findings.merge(each.findings for each in seen)
    _judge_lost(plan, seen, log_end, findings)
    return sum(each.entries for each in seen)


def _join(  # noqa: PLR0917 - one queue over all ranges
    rules: AuditRules,
    queues: Mapping[QueueKey, QueueFiles],
    key: QueueKey,
    parts: Sequence[QueuePart],
    hurts: Sequence[Hurt],
    findings: Findings,
) -> None:
    """Queue offsets must go on from one range to the next."""
    before: QueuePart | None = None
    for part in parts:
        if before is not None and part.first_offset not in {before.expected, before.alternative}:
            is_good = is_explained(
                queues.get(key),
                queue_offset=part.first_offset,
                expected=before.expected,
                low=before.last_physical,
                high=part.first_physical,
                hurts=hurts,
                is_deleted=is_deleted(rules, dict(queues), key.topic),
            )
            if not is_good:
                kind = kinds.GAP if part.first_offset > before.expected else kinds.DUPLICATE
                where = f"physical offset {part.first_physical}, {queue_name(key)}"
                detail = f"expected queue offset {before.expected}"
                findings.add(kind, f"{where} offset {part.first_offset}", detail)
        before = part


def _settled(parts: Sequence[QueuePart]) -> tuple[tuple[int, int], ...]:
    """Runs of entries that need no further look, in order."""
    runs = sorted((run.start, run.end) for part in parts for run in (*part.compared, *part.missing))
    merged: list[tuple[int, int]] = []
    for start, end in runs:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def _judge_lost(plan: _Plan, seen: Sequence[QueueSeen], log_end: int, findings: Findings) -> None:
    """Entries behind the end of the log.

    A Java broker that cut its log leaves old entries. If one leads right to the end of a log that
    was closed, a record was there.
    """
    lost = {key: what for each in seen for key, what in each.lost.items()}
    is_closed = plan.is_whole and not (plan.rules.is_running or plan.rules.has_crashed)
    if not is_closed or all(least != log_end for _, least in lost.values()):
        return
    for key, (count, least) in sorted(lost.items()):
        detail = f"{count} entries lead to {least} and further, the log ends at {log_end}"
        findings.add(kinds.RECORD_LOST, f"ConsumeQueue of {queue_name(key)}", detail)


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
    """Compare the log with a copy of it, as far as both go."""
    other = open_log(Files(), [replica])
    start = max(plan.rules.start, other.start_offset)
    other_end = other.end_offset
    stripes = plan_stripes(start, min(log_end, other_end), stripe_bytes)
    seen = run_tasks(spark, stripes, ReplicaWorker(plan.rules.store, replica))
    findings.merge(each.findings for each in seen)
    report.numbers |= {
        "replicaBytes": max(min(log_end, other_end) - start, 0),
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
    if plan.is_whole and other_end != log_end and not plan.rules.is_running:
        findings.add(kinds.REPLICA, replica, f"ends at {other_end}, the log at {log_end}")


def _tell(report: Report, findings: Findings) -> None:
    """Findings and their numbers into the report."""
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
