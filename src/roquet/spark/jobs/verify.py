"""Verifies the lake against the log it came from.

Compares three counts of every range of the lake: its manifest, its Parquet files, and the log, as
far as the log still has it. A difference is a finding. Nothing is written.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from roquet.model.sys_flag import COMPRESSED
from roquet.runtime.files import Files
from roquet.spark.jobs.archive import Damage, split_by_day, without_damage
from roquet.spark.jobs.lake import (
    ArchiveRules,
    FileEntry,
    Lake,
    RangeManifest,
    crc_sum,
    is_file_of,
    nothing_of,
)
from roquet.spark.log.reading import LogReader, ReadRules
from roquet.spark.log.selection import Selection
from roquet.spark.log.splits import plan_at
from roquet.spark.log.store_files import open_log
from roquet.spark.report import Finding, Report
from roquet.spark.schema import CORRUPT_COLUMN, arrow_schema, struct_type
from roquet.spark.tasks import run_tasks
from roquet.storefiles.records import LogRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "BAD_BODY",
    "DIFFERENT",
    "MISSING",
    "Sums",
    "bad_bodies",
    "compare",
    "log_sums",
    "verify",
]

MISSING = "missing"
DIFFERENT = "different"
UNKNOWN = "unknown"
GAP = "gap"
BAD_BODY = "bad-body"

_BODY = "body"
_CRC_MASK = 0x7FFFFFFF
_BODIES_TOLD_MAX = 10


class Sums(NamedTuple):
    """Sums that are equal for equal sets of messages."""

    rows: int = 0
    crc_sum: int = 0
    offset_sum: int = 0
    body_sum: int = 0

    def plus(self, part: pa.RecordBatch | pa.Table) -> Sums:
        """Return the sums with a batch added, including its bodies if it has that column."""
        bodies = part.column(_BODY).to_pylist() if _BODY in part.schema.names else ()
        return Sums(
            self.rows + part.num_rows,
            self.crc_sum + crc_sum(part),
            self.offset_sum + (pc.sum(part.column("physicalOffset")).as_py() or 0),
            self.body_sum + sum(zlib.crc32(body or b"") for body in bodies),
        )


@dataclass(frozen=True)
class _Task:
    """A range, and where it is in the log; ``None`` if the log no longer has it."""

    manifest: RangeManifest
    ranges: list[LogRange] | None


@dataclass
class _Seen:
    """A worker's result for a range."""

    rows: int = 0
    findings: list[Finding] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)


@dataclass
class Comparison:
    """The result of comparing a lake with a log.

    Attributes:
        report: The report.
        manifests: The ranges of the lake, in order.
        damaged: Physical offsets of damaged bytes of the log, which are not in the lake.
    """

    report: Report
    manifests: list[RangeManifest]
    damaged: list[int] = field(default_factory=list)


def verify(
    spark: SparkSession,
    store: str | None,
    lake: str,
    *,
    broker_name: str = "log",
    check_bodies: bool = False,
    is_dry_run: bool = False,
) -> Report:
    """Compare a lake with a log.

    Args:
        spark: A session that knows the sources.
        store: The store directory; ``None`` compares files and manifests only.
        lake: The lake's address.
        broker_name: Whose log it is.
        check_bodies: Whether to compare every body with its checksum and with the log.
        is_dry_run: Only report how many ranges there are.

    Returns:
        Numbers, and as findings: a file that is ``missing`` or ``different``, one that no manifest
        names (``unknown``), a ``gap`` between ranges, a ``bad-body``.

    Raises:
        SparkOptionError: The lake holds nothing of this broker.
    """
    return compare(
        spark,
        store,
        lake,
        broker_name=broker_name,
        check_bodies=check_bodies,
        is_dry_run=is_dry_run,
    ).report


def compare(
    spark: SparkSession,
    store: str | None,
    lake: str,
    *,
    broker_name: str,
    check_bodies: bool,
    is_dry_run: bool = False,
) -> Comparison:
    """Like :func:`verify`, but return the whole comparison."""
    place = Lake(lake)
    manifests, rules = place.manifests(broker_name), place.rules(broker_name)
    if rules is None or not manifests:
        raise nothing_of(place, broker_name)
    report = Report(job="verify", source=store or place.name, is_dry_run=is_dry_run)
    tasks = _tasks(store, manifests)
    report.numbers |= {
        "ranges": len(tasks),
        "rangesInLog": len([each for each in tasks if each.ranges is not None]),
    }
    if is_dry_run:
        return Comparison(report, manifests)
    for before, after in pairwise(manifests):
        if before.stop != after.start:
            where = f"physical offsets {before.stop} to {after.start}"
            report.add_finding(GAP, where, "no range of the lake has them")
    seen = run_tasks(spark, tasks, VerifyWorker(lake, rules, check_bodies=check_bodies))
    report.numbers["messages"] = sum(each.rows for each in seen)
    report.findings += [finding for each in seen for finding in each.findings]
    report.findings += _unknown_files(place, broker_name, manifests)
    damaged = sorted(offset for each in seen for offset in each.damaged)
    report.numbers["damagedInLog"] = len(damaged)
    return Comparison(report, manifests, damaged)


def _tasks(store: str | None, manifests: Sequence[RangeManifest]) -> list[_Task]:
    if store is None:
        return [_Task(each, None) for each in manifests]
    log = open_log(Files(), [store])
    tasks = []
    for each in manifests:
        ranges = None
        if log.start_offset <= each.start and each.stop <= log.end_offset:
            planned = plan_at(log, each.start, each.stop, [])
            ranges = planned[0] if planned else []
        tasks.append(_Task(each, ranges))
    return tasks


def _unknown_files(
    place: Lake, broker_name: str, manifests: Sequence[RangeManifest]
) -> Iterator[Finding]:
    known = {place.path(each.path) for manifest in manifests for each in manifest.files}
    for info in place.below(is_deep=True):
        is_mine = info.is_file and is_file_of(broker_name, info.base_name)
        if is_mine and info.path not in known:
            yield Finding(UNKNOWN, info.path, f"no manifest of {broker_name} names it")


@dataclass(frozen=True)
class VerifyWorker:
    """Sent to executors: compares one range."""

    lake: str
    rules: ArchiveRules
    check_bodies: bool

    def __call__(self, task: _Task) -> _Seen:
        """Compare a range."""
        place, seen = Lake(self.lake), _Seen()
        expected = None
        if task.ranges is not None:
            expected = log_sums(
                self.rules, task.ranges, seen.damaged, check_bodies=self.check_bodies
            )
        files = {(each.topic, each.day): each for each in task.manifest.files}
        for key, entry in files.items():
            told_before = len(seen.findings)
            found = self._file_sums(place, entry, seen)
            if found is None:
                continue
            seen.rows += found.rows
            logged = None if expected is None else expected.get(key, Sums())
            if logged is not None and len(seen.findings) > told_before:
                found = found._replace(body_sum=logged.body_sum)  # bad bodies are already reported
            if (found.rows, found.crc_sum) != (entry.rows, entry.crc_sum):
                told = f"has {found.rows} messages, its manifest says {entry.rows}"
                seen.findings.append(
                    Finding(DIFFERENT, entry.path, _or_content(told, found, entry))
                )
            elif logged is not None and found != logged:
                told = f"has {found.rows} messages, the log has {logged.rows}"
                if logged.rows == found.rows:
                    told = f"has other messages than the log, {logged.rows} both"
                seen.findings.append(Finding(DIFFERENT, entry.path, told))
        self._add_missing(seen, task, expected or {}, files)
        return seen

    def _add_missing(
        self,
        seen: _Seen,
        task: _Task,
        expected: Mapping[tuple[str, str], Sums],
        files: Mapping[tuple[str, str], FileEntry],
    ) -> None:
        for (topic, day), sums in expected.items():
            if (topic, day) not in files:
                where = f"range {task.manifest.start}, {topic} {day}"
                seen.findings.append(
                    Finding(MISSING, where, f"{sums.rows} messages of the log are in no file")
                )

    def _file_sums(self, place: Lake, entry: FileEntry, seen: _Seen) -> Sums | None:
        columns = ["bodyCrc", "physicalOffset"]
        columns += ["body", "sysFlag"] if self.check_bodies else []
        sums = Sums()
        try:
            with place.parquet(entry.path) as file:
                for batch in file.iter_batches(columns=columns):
                    sums = sums.plus(batch)
                    if self.check_bodies:
                        seen.findings += bad_bodies(batch, entry.path, self.rules)
        except FileNotFoundError:
            told = f"{entry.rows} messages are gone with it"
            seen.findings.append(Finding(MISSING, entry.path, told))
            return None
        except (OSError, pa.ArrowInvalid) as error:
            seen.findings.append(Finding(DIFFERENT, entry.path, f"cannot be read: {error}"))
            return None
        return sums


def log_sums(
    rules: ArchiveRules, ranges: Sequence[LogRange], damaged: list[int], *, check_bodies: bool
) -> dict[tuple[str, str], Sums]:
    """Sum up a log by topic and day.

    Args:
        rules: Which messages.
        ranges: The ranges of the log.
        damaged: Receives the physical offsets of damaged bytes.
        check_bodies: Whether to read bodies, too.
    """
    columns = ["topic", "storeTimestamp", "bodyCrc", "physicalOffset", CORRUPT_COLUMN]
    columns += [_BODY] if check_bodies else []
    read = ReadRules(
        selection=Selection(topics=frozenset(rules.topics)), decompress=rules.decompress
    )
    sums: dict[tuple[str, str], Sums] = {}
    for batch in LogReader(arrow_schema(struct_type(columns)), read).batches(ranges):
        damages: list[Damage] = []
        good = without_damage(batch, damages)
        damaged += [each.physical_offset for each in damages]
        for key, part in split_by_day(good):
            sums[key] = sums.get(key, Sums()).plus(part)
    return sums


def bad_bodies(batch: pa.RecordBatch, path: str, rules: ArchiveRules) -> Iterator[Finding]:
    """Yield findings for messages of a file with wrong body checksums; at most a few."""
    told = 0
    for row in batch.select([_BODY, "sysFlag", "bodyCrc", "physicalOffset"]).to_pylist():
        if rules.decompress and row["sysFlag"] & COMPRESSED:
            continue  # its checksum is that of the compressed body
        crc = zlib.crc32(row[_BODY] or b"") & _CRC_MASK
        if crc != row["bodyCrc"] & _CRC_MASK and told < _BODIES_TOLD_MAX:
            told += 1
            where = f"{path}, physical offset {row['physicalOffset']}"
            yield Finding(BAD_BODY, where, "the body has another checksum")


def _or_content(told: str, found: Sums, entry: FileEntry) -> str:
    return told if found.rows != entry.rows else "has other messages than its manifest says"
