"""Plans which ranges of a log a run of ``archive`` writes.

Compares the lake with the log and plans the tasks. Workers finish in any order, so a killed run may
leave gaps between manifests, and files that no manifest names. Its plan is still in the lake then:
its ranges without a manifest are written again with the same bounds, which replaces all their
files, before new ranges of the log are archived.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.lake import FileEntry, FileTotals, Lake, PlannedRange, RangeManifest
from roquet.spark.log.splits import RecordStartFinder, plan_at
from roquet.spark.log.store_files import LogFiles
from roquet.spark.report import Report
from roquet.storefiles.records import LogRange

__all__ = [
    "LOST",
    "ArchiveTask",
    "Plan",
    "choose_start",
    "choose_stop",
    "make_plan",
    "plan_tasks",
]

LOST = "lost"


@dataclass(frozen=True)
class ArchiveTask:
    """A range that one worker writes."""

    ranges: list[LogRange]
    is_complete: bool

    @property
    def start(self) -> int:
        """The physical offset of its first record."""
        return self.ranges[0].start

    @property
    def stop(self) -> int:
        """The physical offset after its last record."""
        return self.ranges[-1].stop

    @property
    def planned(self) -> PlannedRange:
        """The range as recorded in the lake's plan."""
        return PlannedRange(start=self.start, stop=self.stop, is_complete=self.is_complete)


class _Bounds(Protocol):
    """A range that was written or planned."""

    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...
    @property
    def is_complete(self) -> bool: ...


@dataclass
class Plan:
    """The plan of a run.

    Attributes:
        known: How many ranges the lake has.
        tasks: The ranges for workers to write.
        rows_before: How many messages of these ranges the lake already has, by its manifests.
        stale_run: The id of a killed run, if there is one.
        remains: Ranges it left unfinished whose beginning the log has deleted since: messages in
            the lake below the second number stay.
    """

    known: int
    tasks: list[ArchiveTask] = field(default_factory=list)
    rows_before: int = 0
    stale_run: str | None = None
    remains: list[tuple[PlannedRange, int]] = field(default_factory=list)

    def tidy(self, place: Lake, broker_name: str) -> None:
        """Clean up what the killed run left and no task replaces."""
        if self.stale_run is None:
            return
        place.sweep(self.stale_run)
        for left, until in self.remains:
            files = list(_salvage(place, broker_name, left.start, until, self.stale_run))
            place.write_manifest(
                RangeManifest(
                    broker_name=broker_name,
                    start=left.start,
                    stop=until,
                    is_complete=True,
                    files=files,
                )
            )


def make_plan(
    report: Report,
    place: Lake,
    log: LogFiles,
    broker_name: str,
    *,
    wanted: Wanted,
    range_bytes: int,
) -> Plan:
    """Plan what to write, and report what the log has lost. Writes nothing."""
    known, newest = place.newest(broker_name)
    plan = Plan(known)
    ends: list[_Bounds] = [] if newest is None else [newest]
    stale = place.plan(broker_name)
    if stale is not None:
        plan.stale_run = stale.run_id
        ends += stale.ranges
        for each in stale.ranges:
            if not _is_written(place, broker_name, each):
                _write_again(report, log, plan, each)
    tail = max(ends, key=lambda each: each.start, default=None)
    start = choose_start(report, log, tail, wanted)
    covered = start
    if tail is not None and tail.start == start:
        covered = tail.stop
    stop = max(choose_stop(log, start, wanted), min(covered, log.end_offset))
    plan.tasks += plan_tasks(log, start, stop, range_bytes, covered=covered)
    for task in plan.tasks[: len(plan.tasks) if stale else 1]:
        found = place.manifest(broker_name, task.start)
        plan.rows_before += 0 if found is None else found.rows
    return plan


def _is_written(place: Lake, broker_name: str, planned: PlannedRange) -> bool:
    found = place.manifest(broker_name, planned.start)
    return found is not None and (found.stop, found.is_complete) == (
        planned.stop,
        planned.is_complete,
    )


def _write_again(report: Report, log: LogFiles, plan: Plan, left: PlannedRange) -> None:
    """Plan a range that a killed run left unfinished."""
    start = max(left.start, log.start_offset)
    if start > left.start:
        until = min(start, left.stop)
        plan.remains.append((left, until))
        report.add_finding(
            LOST,
            f"physical offsets {left.start} to {until}",
            "a run was killed here, and the log has deleted it since: the lake may not have all",
        )
    elif not left.is_complete:
        return  # it is the newest and may have grown
    for ranges in plan_at(log, start, left.stop, []):
        plan.tasks.append(ArchiveTask(ranges, is_complete=True))


def choose_start(report: Report, log: LogFiles, tail: _Bounds | None, wanted: Wanted) -> int:
    """Return where to continue: after the last range that will not grow.

    A range whose beginning was deleted from the log cannot be rewritten, so it will not grow.
    """
    if tail is None:
        start = log.start_offset
        if wanted.from_ms is not None:
            start = RecordStartFinder(log).time_from(wanted.from_ms, start, log.end_offset)
        return start
    if not tail.is_complete and tail.start >= log.start_offset:
        return tail.start
    if tail.stop < log.start_offset:
        report.add_finding(
            LOST,
            f"physical offsets {tail.stop} to {log.start_offset}",
            f"{log.start_offset - tail.stop} bytes of the log are gone, and not in the lake",
        )
    return max(tail.stop, log.start_offset)


def choose_stop(log: LogFiles, start: int, wanted: Wanted) -> int:
    """Return where to stop: before the end time, or at the end of the log."""
    if wanted.to_ms is None:
        return log.end_offset
    return RecordStartFinder(log).time_from(wanted.to_ms, start, log.end_offset)


def plan_tasks(
    log: LogFiles, start: int, stop: int, range_bytes: int, *, covered: int = 0
) -> list[ArchiveTask]:
    """Return the ranges to write. All but the last are complete and at least ``range_bytes`` long.

    The first reaches at least to ``covered``, where an earlier run ended it, so that every file
    of that run is replaced.
    """
    cuts = range(max(start + range_bytes, covered), max(stop, start), range_bytes)
    tasks = plan_at(log, start, stop, cuts)
    return [ArchiveTask(ranges, number < len(tasks)) for number, ranges in enumerate(tasks, 1)]


def _salvage(
    place: Lake, broker_name: str, start: int, until: int, run_id: str
) -> Iterator[FileEntry]:
    """Drop messages at or above an offset from the files of a range; yield the files left."""
    for topic, day, path in list(place.files_of_range(broker_name, start)):
        with place.parquet(path) as file:
            table = file.read()
            compression = file.metadata.row_group(0).column(0).compression
        kept = table.filter(pc.less(table.column("physicalOffset"), until))
        if not kept.num_rows:
            place.delete(path)
            continue
        if kept.num_rows < table.num_rows:
            size_bytes = _replace(place, path, kept, compression, run_id)
        else:
            size_bytes = place.size_bytes(path)
        totals = FileTotals()
        totals.add(kept)
        yield totals.entry(path, topic, day, size_bytes)


def _replace(place: Lake, path: str, table: pa.Table, compression: str, run_id: str) -> int:
    file = place.new_file(path, run_id)  # if this is killed, the same run is tidied up again
    try:
        with file.filesystem.open_output_stream(file.hidden) as stream:
            pq.write_table(table, stream, compression=compression.lower())
        size_bytes = file.size_bytes
        file.publish()
    finally:
        file.discard()
    return size_bytes
