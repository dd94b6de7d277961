"""Tiering: old messages in the lake, recent ones in the log, all of them in one table.

``tier`` finds which segments of a log may be deleted early, because the lake has all their
messages, compared body by body and synced to disk; only the broker deletes them. ``tiered`` reads
lake and log as one table with a clean cut between them.

A segment may be deleted if all of these hold: it ends before the last complete range of the lake
does, and no range is missing between the log's beginning and it; the comparison had no finding, and
no bytes before its end are damaged; it is not the newest; its youngest message is old enough, since
delayed messages and open transactions are read from the log; and no group has yet to consume it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from roquet.errors import SparkError, SparkOptionError
from roquet.format.derived import QueueKey
from roquet.format.segment_files import Segment
from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.files import Files
from roquet.spark.jobs.lake import (
    MANIFEST,
    Lake,
    RangeManifest,
    is_read_by_spark,
    nothing_of,
    read_lake_files,
    read_young,
)
from roquet.spark.jobs.lake_files import is_local
from roquet.spark.jobs.store_config import GroupOffsets, read_group_offsets
from roquet.spark.jobs.verify import compare
from roquet.spark.log.splits import store_time_ms
from roquet.spark.log.store_files import LogFiles, open_log
from roquet.spark.report import Cell, Report, iso_time
from roquet.spark.schema import COLUMNS
from roquet.storefiles.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Drop", "tier", "tiered"]

KEEP_MS = 24 * 3_600_000

Drop = Callable[[int], Sequence[str]]
"""Deletes segments that end at or before a physical offset; returns what was done."""


def tier(
    spark: SparkSession,
    store: str,
    lake: str,
    *,
    broker_name: str = "log",
    keep_ms: int = KEEP_MS,
    is_unconsumed_kept: bool = True,
    drop: Drop | None = None,
    is_dry_run: bool = False,
    clock: Clock | None = None,
) -> Report:
    """Find which segments the lake has, and have them deleted.

    Args:
        spark: A session that knows the sources.
        store: The store directory.
        lake: The lake's address.
        broker_name: Whose log it is.
        keep_ms: Keeps segments with messages younger than this.
        is_unconsumed_kept: Whether to keep segments that a group has yet to consume.
        drop: Deletes segments; ``None`` to only report them.
        is_dry_run: Only report how much there is to compare.
        clock: The time.

    Returns:
        The table ``Segments`` with the reason for each, and the findings of ``verify``; if there
        is one, no segment is deleted.

    Raises:
        SparkOptionError: The lake holds nothing of this broker, or not all topics.
    """
    place = Lake(lake)
    rules = place.rules(broker_name)
    if rules is not None and rules.topics:
        raise SparkOptionError(
            "The lake does not have all topics of the log, so no segment may go.",
            detail=f"it has {', '.join(rules.topics)}",
            hint="Archive all topics, to another lake.",
        )
    found = compare(
        spark, store, lake, broker_name=broker_name, check_bodies=True, is_dry_run=is_dry_run
    )
    report = Report(job="tier", source=store, is_dry_run=is_dry_run, numbers=found.report.numbers)
    if is_dry_run:
        return report
    report.findings += found.report.findings
    log = open_log(Files(), [store])
    needed = log.end_offset
    if is_unconsumed_kept:
        needed = first_unconsumed(log, read_group_offsets(Path(store)))
    limits = TierLimits(
        covered=0 if report.findings else covered_until(found.manifests, log.start_offset),
        damaged=min(found.damaged, default=None),
        needed=needed,
        until_ms=(clock or SystemClock()).now_ms() - keep_ms,
    )
    going = _judge(report, log, limits)
    cut = going[-1].end if going else log.start_offset
    report.numbers |= {
        "cutOffset": cut,
        "segments": len(log.segments),
        "segmentsToDrop": len(going),
        "bytesToDrop": sum(each.size_bytes for each in going),
    }
    if going:
        sync_ranges(place, [each for each in found.manifests if each.start < cut])
        if drop is not None:
            report.outputs += drop(cut)
    return report


class TierLimits(NamedTuple):
    """The limits for deleting segments.

    Attributes:
        covered: The physical offset below which the lake has everything.
        damaged: The physical offset of the first damaged bytes.
        needed: The physical offset of the first message that a group has yet to consume.
        until_ms: The store time from which on messages are kept.
    """

    covered: int
    damaged: int | None
    needed: int
    until_ms: int


def _judge(report: Report, log: LogFiles, limits: TierLimits) -> list[Segment]:
    """Return the segments to delete, oldest first; add all segments to the report."""
    going: list[Segment] = []
    rows: list[list[Cell]] = []
    for segment, following in zip(log.segments, [*log.segments[1:], None], strict=True):
        youngest_ms = _first_time_ms(log, following)
        why = why_kept(segment, following, youngest_ms, limits)
        if not why and len(going) < len(rows):
            why = "an older one stays"
        if not why:
            going.append(segment)
        name = Path(segment.path).name
        rows.append([name, segment.size_bytes, iso_time(youngest_ms), why or "goes"])
    report.add_table("Segments", ["segment", "bytes", "stored before", "what"], rows)
    return going


def why_kept(
    segment: Segment, following: Segment | None, youngest_ms: int | None, limits: TierLimits
) -> str:
    """Return why a segment stays; empty if it may be deleted.

    Args:
        segment: The segment.
        following: The next one.
        youngest_ms: Store time of the first message after it; store times never decrease.
        limits: The limits.
    """
    if following is None or youngest_ms is None:
        return "the newest"
    if following.start != segment.end:
        return "the next one is missing"
    if segment.end > limits.covered:
        return "not wholly in the lake"
    if limits.damaged is not None and limits.damaged < segment.end:
        return "damaged, here or before"
    if limits.needed < segment.end:
        return "a group has yet to consume it"
    return "too young" if youngest_ms > limits.until_ms else ""


def _first_time_ms(log: LogFiles, segment: Segment | None) -> int | None:
    if segment is None or segment.start >= log.end_offset:
        return None
    with Window(log.files, segment, limit=segment.start) as window:
        return store_time_ms(window, segment.start)


def covered_until(manifests: Iterable[RangeManifest], start_offset: int) -> int:
    """Return the physical offset up to which complete ranges cover the log from an offset on."""
    reached = start_offset
    for each in manifests:
        if each.is_complete and each.start <= reached < each.stop:
            reached = each.stop
    return reached


def first_unconsumed(log: LogFiles, offsets: GroupOffsets) -> int:
    """Return the physical offset of the oldest message that any group has yet to consume."""
    needed = log.end_offset
    for (_, topic), queues in offsets.items():
        for queue_id, offset in queues.items():
            queue = log.queues.get(QueueKey(topic, queue_id))
            if queue is None or offset >= queue.written_end():
                continue
            unit = queue.entry(max(offset, queue.first_entry()))
            needed = min(needed, log.start_offset if unit is None else unit.physical_offset)
    return needed


def sync_ranges(place: Lake, manifests: Sequence[RangeManifest]) -> None:
    """Sync the files of a local lake, and their folders, to disk.

    On other file systems a file is durable once it is closed.
    """
    if not is_local(place.address):
        return
    files, base = Files(), Path(place.base)
    folders = {base, base.parent}
    for manifest in manifests:
        for path in (place.manifest_path(manifest), *(each.path for each in manifest.files)):
            handle = files.open(base / path)
            try:
                files.data_sync(handle)
            finally:
                files.close(handle)
            folders |= {base / each for each in Path(path).parents}
    folders.add(base / MANIFEST)
    for folder in sorted(folders):
        files.sync_dir(folder)


# ------------------------------------------------------------------------------------ one table


def tiered(spark: SparkSession, store: str, lake: str, *, broker_name: str = "log") -> DataFrame:
    """Read lake and log as one table: the lake up to the cut, the log from there on.

    The cut is the end of the newest complete range of the lake, whose files no longer change.
    Both sides are fixed here, so no message is duplicated or missing while the log grows and the
    lake follows.

    Args:
        spark: A session that knows the sources.
        store: The store directory; it may be running.
        lake: The lake's address.
        broker_name: Whose log it is.

    Returns:
        The columns of the sources.

    Raises:
        SparkOptionError: The lake holds nothing of this broker.
        SparkError: The log starts after the end of the lake.
    """
    place = Lake(lake)
    manifests, rules = place.manifests(broker_name), place.rules(broker_name)
    if rules is None or not manifests:
        raise nothing_of(place, broker_name)
    log = open_log(Files(), [store])
    below, cut = choose_cut(manifests, log.start_offset)
    paths = [file.path for each in below for file in each.files]
    young = read_young(spark, store, rules, cut, broker_name)
    if not paths:
        return young
    if is_read_by_spark(lake):
        old = read_lake_files(spark, lake, paths).select(*COLUMNS)
    else:
        options = {"brokerName": broker_name, "endingOffsets": str(cut)}
        reader = spark.read.format("rocketmq-lake").options(**options)
        old = reader.option("columns", ",".join(COLUMNS)).load(lake)
    return old.unionByName(young)


def choose_cut(
    manifests: Sequence[RangeManifest], start_offset: int
) -> tuple[list[RangeManifest], int]:
    """Return the ranges to read from the lake, and the physical offset to read the log from.

    Raises:
        SparkError: There is a gap between them.
    """
    below: list[RangeManifest] = []
    for each in manifests:
        if below and each.start > max(below[-1].stop, start_offset):
            break  # a run that is in progress or was killed has yet to write the range between
        below.append(each)
    newest = below[-1]
    if not newest.is_complete and newest.start >= start_offset:
        below.pop()
    cut = below[-1].stop if below else newest.start
    if cut < start_offset:
        raise SparkError(
            "Some messages are missing between the lake and the log.",
            detail=f"the lake ends at physical offset {cut}, the log begins at {start_offset}",
            hint="They were deleted before they were archived; read lake and log separately.",
        )
    return below, cut
