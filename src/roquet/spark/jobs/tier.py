"""Old messages in the lake, young ones in the log, all of them in one table.

``tier`` says which segments of a log may go early, because the lake has every message of them,
compared body by body and on disk; the broker deletes them, never this. ``tiered`` reads lake and
log as one table with a clean cut between them.

A segment may go if all of this holds: it lies below the end of the last complete range of the lake,
and no range is missing between it and the log's beginning; the comparison had no finding, and no
bytes in front of its end are damaged; it is not the newest; its youngest message is old enough,
since delayed messages and open transactions are read from the log; and no group has still to
consume from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.fs as pafs

from roquet.errors import SparkError, SparkOptionError
from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.files import Files
from roquet.spark.jobs.lake import (
    MANIFEST,
    Lake,
    RangeManifest,
    nothing_of,
    read_lake_files,
    read_young,
)
from roquet.spark.jobs.store_config import GroupOffsets, read_group_offsets
from roquet.spark.jobs.verify import compare
from roquet.spark.log.splits import store_time_ms
from roquet.spark.log.store_files import LogFiles, open_log
from roquet.spark.log.window import Segment, Window
from roquet.spark.report import Cell, Report, iso_time
from roquet.spark.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Drop", "tier", "tiered"]

KEEP_MS = 24 * 3_600_000

Drop = Callable[[int], Sequence[str]]
"""Has segments deleted that end at or before a physical offset; says what was done."""


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
    """Say which segments the lake has, and have them deleted.

    Args:
        spark: A session that knows the sources.
        store: The store directory.
        lake: Where the lake is.
        broker_name: Whose log it is.
        keep_ms: Segments with messages younger than this stay.
        is_unconsumed_kept: Whether segments stay that a group has still to consume from.
        drop: Deletes them; ``None`` only tells.
        is_dry_run: Only tell how much there is to compare.
        clock: Says how late it is.

    Returns:
        The table ``Segments``, why each goes or stays, and as findings what ``verify`` has; with
        any, all segments stay.

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
    limits = Limits(
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


class Limits(NamedTuple):
    """What a segment is measured against.

    Attributes:
        covered: Physical offset below which the lake has everything.
        damaged: Where the first bytes are that are no message.
        needed: Where the first message is that a group has still to consume.
        until_ms: The store time from which messages stay.
    """

    covered: int
    damaged: int | None
    needed: int
    until_ms: int


def _judge(report: Report, log: LogFiles, limits: Limits) -> list[Segment]:
    """The segments that go, from the oldest on; all are put to the report."""
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
    segment: Segment, following: Segment | None, youngest_ms: int | None, limits: Limits
) -> str:
    """Why a segment stays; empty if it may go.

    Args:
        segment: The segment.
        following: The next one.
        youngest_ms: When the first message behind it was stored; times never go back in a log.
        limits: What it is measured against.
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
        return "a group has still to consume"
    return "too young" if youngest_ms > limits.until_ms else ""


def _first_time_ms(log: LogFiles, segment: Segment | None) -> int | None:
    if segment is None or segment.start >= log.end_offset:
        return None
    with Window(log.files, segment, limit=segment.start) as window:
        return store_time_ms(window, segment.start)


def covered_until(manifests: Iterable[RangeManifest], start_offset: int) -> int:
    """The physical offset up to which complete ranges have everything from an offset on."""
    reached = start_offset
    for each in manifests:
        if each.is_complete and each.start <= reached < each.stop:
            reached = each.stop
    return reached


def first_unconsumed(log: LogFiles, offsets: GroupOffsets) -> int:
    """The physical offset of the oldest message that any group has still to consume."""
    needed = log.end_offset
    for (_, topic), queues in offsets.items():
        for queue_id, offset in queues.items():
            queue = log.queue(topic, queue_id)
            if queue is None or offset >= queue.max_queue_offset:
                continue
            unit = queue.unit(max(offset, queue.min_queue_offset))
            needed = min(needed, log.start_offset if unit is None else unit.physical_offset)
    return needed


def sync_ranges(place: Lake, manifests: Sequence[RangeManifest]) -> None:
    """Have files of a local lake on disk, with the folders that name them.

    Other file systems have a file when it is closed.
    """
    if not isinstance(place.filesystem, pafs.LocalFileSystem):
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
    """Lake and log as one table: below the cut from the lake, from it on from the log.

    The cut is the end of the newest complete range of the lake, whose files nobody changes any
    more; both sides of it are fixed here, so that no message comes twice and none is left out
    while the log grows and the lake follows.

    Args:
        spark: A session that knows the sources.
        store: The store directory; it may be running.
        lake: Where the lake is.
        broker_name: Whose log it is.

    Returns:
        The columns of the sources.

    Raises:
        SparkOptionError: The lake holds nothing of this broker.
        SparkError: The log begins behind the end of the lake.
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
    old = read_lake_files(spark, lake, paths).select(*COLUMNS)
    return old.unionByName(young)


def choose_cut(
    manifests: Sequence[RangeManifest], start_offset: int
) -> tuple[list[RangeManifest], int]:
    """The ranges to read from the lake, and the physical offset from which the log is read.

    Raises:
        SparkError: What is between them is in neither.
    """
    below: list[RangeManifest] = []
    for each in manifests:
        if below and each.start > max(below[-1].stop, start_offset):
            break  # a run that goes on, or was killed, has yet to write what is between
        below.append(each)
    newest = below[-1]
    if not newest.is_complete and newest.start >= start_offset:
        below.pop()
    cut = below[-1].stop if below else newest.start
    if cut < start_offset:
        raise SparkError(
            "Between the lake and the log messages are missing.",
            detail=f"the lake ends at physical offset {cut}, the log begins at {start_offset}",
            hint="They were deleted before they were archived; read lake and log one by one.",
        )
    return below, cut
