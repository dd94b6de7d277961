"""Verifies a Delta or Iceberg table against the log it came from.

Both are counted by topic and day, as far as the log still has the messages; a difference is a
finding. All files of the table's newest version are read, whoever wrote them, so a table whose
files were rewritten can be compared as well. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from roquet.runtime.files import Files
from roquet.spark.jobs.archive import RANGE_BYTES, split_by_day
from roquet.spark.jobs.lake import NO_DAY, ArchiveRules, Lake
from roquet.spark.jobs.lake_files import public_address
from roquet.spark.jobs.table_archive import known_note
from roquet.spark.jobs.tables import TableFile, open_table
from roquet.spark.jobs.verify import DIFFERENT, MISSING, Sums, bad_bodies, log_sums
from roquet.spark.log.splits import plan_at
from roquet.spark.log.store_files import open_log
from roquet.spark.report import Finding, Report
from roquet.spark.tasks import run_tasks
from roquet.storefiles.records import LogRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["verify_table"]

Key = tuple[str, str]


@dataclass
class _Seen:
    """A worker's result for a part of the log, or for a file."""

    sums: dict[Key, Sums] = field(default_factory=dict)
    rows: int = 0
    findings: list[Finding] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)


def verify_table(
    spark: SparkSession,
    store: str | None,
    lake: str,
    lake_format: str,
    *,
    broker_name: str = "log",
    check_bodies: bool = False,
    is_dry_run: bool = False,
) -> Report:
    """Compare a table with a log.

    Args:
        spark: A session that knows the sources.
        store: The store directory; ``None`` only reads all files of the table.
        lake: As for ``archive_table``.
        lake_format: ``delta`` or ``iceberg``.
        broker_name: Whose log it is.
        check_bodies: Whether to compare every body with its checksum and with the log.
        is_dry_run: Only report how much there is.

    Returns:
        Numbers, and as findings: a file that is ``missing`` or ``different``, a topic's day whose
        messages are ``missing`` or ``different``, a ``bad-body``.

    Raises:
        SparkOptionError: The table holds nothing of this broker.
        SparkError: The files alone do not determine its rows.
    """
    table = open_table(lake_format, lake)
    note, stop = known_note(table, lake, broker_name)
    report = Report(job="verify", source=store or public_address(lake), is_dry_run=is_dry_run)
    files = table.files()
    low, parts = note.start, list[list[LogRange]]()
    if store is not None:
        log = open_log(Files(), [store])
        low = max(low, log.start_offset)
        stop = min(stop, log.end_offset)
        parts = plan_at(log, low, stop, range(low + RANGE_BYTES, stop, RANGE_BYTES))
    report.numbers |= {"files": len(files), "ranges": len(parts)}
    if is_dry_run:
        return report
    span = Span(broker_name, low, stop)
    reader = TableWorker(table.place.address, note.rules, span, check_bodies=check_bodies)
    seen: list[_Seen] = run_tasks(spark, files, reader)
    report.findings += [finding for each in seen for finding in each.findings]
    report.numbers["messages"] = sum(each.rows for each in seen)
    if store is not None:
        logged = run_tasks(spark, parts, LogWorker(note.rules, check_bodies=check_bodies))
        report.numbers["messagesInLog"] = sum(each.rows for each in logged)
        report.numbers["damagedInLog"] = sum(len(each.damaged) for each in logged)
        report.findings += _differences(_total(seen), _total(logged))
    return report


def _total(seen: Sequence[_Seen]) -> dict[Key, Sums]:
    total: dict[Key, Sums] = {}
    for each in seen:
        for key, sums in each.sums.items():
            total[key] = Sums(*map(sum, zip(total.get(key, Sums()), sums, strict=True)))
    return total


def _differences(found: Mapping[Key, Sums], logged: Mapping[Key, Sums]) -> Iterator[Finding]:
    for key in sorted(found.keys() | logged.keys()):
        ours, theirs = found.get(key, Sums()), logged.get(key, Sums())
        if ours == theirs:
            continue
        told = f"the table has {ours.rows} messages, the log has {theirs.rows}"
        if ours.rows == theirs.rows:
            told = f"the table has other messages than the log, {ours.rows} both"
        kind = MISSING if ours.rows < theirs.rows else DIFFERENT
        yield Finding(kind, f"{key[0]} {key[1]}", told)


@dataclass(frozen=True)
class Span:
    """What is compared: a range of a broker's log."""

    broker_name: str
    low: int
    stop: int


@dataclass(frozen=True)
class LogWorker:
    """Sent to executors: counts a part of the log."""

    rules: ArchiveRules
    check_bodies: bool

    def __call__(self, ranges: list[LogRange]) -> _Seen:
        """Count it."""
        seen = _Seen()
        seen.sums = log_sums(self.rules, ranges, seen.damaged, check_bodies=self.check_bodies)
        seen.rows = sum(each.rows for each in seen.sums.values())
        return seen


@dataclass(frozen=True)
class TableWorker:
    """Sent to executors: counts a file of the table."""

    address: str
    rules: ArchiveRules
    span: Span
    check_bodies: bool

    def __call__(self, file: TableFile) -> _Seen:
        """Count it."""
        place, seen = Lake(self.address), _Seen()
        columns = ["brokerName", "physicalOffset", "bodyCrc"]
        columns += ["topic", "storeTimestamp"] if file.topic is None else []
        columns += ["body", "sysFlag"] if self.check_bodies else []
        try:
            with place.parquet(file.path) as opened:
                for batch in opened.iter_batches(columns=columns):
                    self._count(batch, file, seen)
        except FileNotFoundError:
            seen.findings.append(Finding(MISSING, file.path, "the table names it, but it is gone"))
        except (OSError, pa.ArrowInvalid) as error:
            seen.findings.append(Finding(DIFFERENT, file.path, f"cannot be read: {error}"))
        return seen

    def _count(self, batch: pa.RecordBatch, file: TableFile, seen: _Seen) -> None:
        offsets = batch.column("physicalOffset")
        is_in = pc.and_(
            pc.equal(batch.column("brokerName"), self.span.broker_name),
            pc.and_(pc.greater_equal(offsets, self.span.low), pc.less(offsets, self.span.stop)),
        )
        rows = batch.filter(is_in)
        seen.rows += rows.num_rows
        if self.check_bodies:
            seen.findings += bad_bodies(rows, file.path, self.rules)
        parts: Iterator[tuple[Key, pa.RecordBatch]] = (
            split_by_day(rows)
            if file.topic is None
            else iter([((file.topic, file.day or NO_DAY), rows)] if rows.num_rows else [])
        )
        for key, part in parts:
            seen.sums[key] = seen.sums.get(key, Sums()).plus(part)
