"""Archives the log to a Parquet lake, by topic and day.

Workers decode ranges of the log and write Parquet files themselves; only manifests come back. A run
continues where the last one ended and replaces files that may have grown, so it can be run by cron,
killed at any time, and run again: see :mod:`roquet.spark.jobs.lake`.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roquet.errors import SparkOptionError
from roquet.runtime.files import Files
from roquet.spark.jobs.archive_plan import ArchiveTask, make_plan
from roquet.spark.jobs.inputs import ALL, Wanted
from roquet.spark.jobs.lake import (
    DELTA_LOG,
    NO_DAY,
    STREAM_METADATA,
    ArchiveRules,
    FileEntry,
    FileTotals,
    Lake,
    RangeManifest,
    RunPlan,
    file_name,
    partition_path,
)
from roquet.spark.jobs.lake_files import NewFile, Place, publish_all
from roquet.spark.jobs.parquet_options import (
    ONE_WORD,
    SORTED_GROUP_ROWS,
    WORDS,
    by_key,
    file_options,
    has_one_word,
)
from roquet.spark.log.reading import LogReader, ReadRules
from roquet.spark.log.selection import Selection
from roquet.spark.log.store_files import open_log
from roquet.spark.report import Report
from roquet.spark.schema import COLUMNS, CORRUPT_COLUMN, arrow_schema, struct_type
from roquet.spark.tasks import run_tasks
from roquet.storefiles.records import LogRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DAMAGED",
    "RANGE_BYTES",
    "ArchiveTaskResult",
    "Damage",
    "FileLayout",
    "FileWriters",
    "add_written",
    "archive",
    "check_compression",
    "check_rules",
    "log_batches",
    "split_by_day",
    "without_damage",
]

RANGE_BYTES = 128 << 20
"""The approximate size of a range of the log."""

HELD_BYTES = 64 << 20
"""How much a worker buffers before it writes a row group."""

DAMAGED = "damaged"

_COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")
_TOPIC, _DAY = "topic", "day"


@dataclass(frozen=True)
class Damage:
    """Bytes of the log that are not a message."""

    physical_offset: int
    detail: str


@dataclass
class ArchiveTaskResult:
    """What a worker reports when it is done."""

    manifest: RangeManifest
    damages: list[Damage] = field(default_factory=list)


def archive(
    spark: SparkSession,
    store: str,
    lake: str,
    *,
    broker_name: str = "log",
    wanted: Wanted = ALL,
    decompress: bool = True,
    compression: str = "zstd",
    range_bytes: int = RANGE_BYTES,
    is_sorted: bool = False,
    is_dry_run: bool = False,
) -> Report:
    """Bring the lake up to date with the log.

    Args:
        spark: A session that knows the sources.
        store: The store directory.
        lake: A folder, or a URI that pyarrow supports.
        broker_name: Whose log it is; a lake may hold several.
        wanted: Which messages. The first run fixes the topics; ``from_ms`` applies to it only.
        decompress: Whether bodies are decompressed.
        compression: The compression of the Parquet files.
        range_bytes: How much of the log one worker takes at a time.
        is_sorted: Whether the rows of a file are sorted by key, in small row groups.
        is_dry_run: Only report what would be written.

    Returns:
        Numbers of ranges, messages and files. Parts of the log that were deleted before they were
        archived (``lost``) and damaged bytes (``damaged``) are findings.

    Raises:
        SparkOptionError: The lake holds other topics of this broker, or files of a stream, or the
            compression is unknown.
    """
    check_compression(compression)
    report = Report(job="archive", source=store, is_dry_run=is_dry_run)
    place = Lake(lake)
    rules = ArchiveRules(topics=sorted(wanted.topics), decompress=decompress)
    if place.has(STREAM_METADATA):
        raise SparkOptionError(
            f"{place.name} is the lake of a live cluster: Spark would not see what is added to it.",
            hint="Use another lake for the log.",
        )
    if place.has(DELTA_LOG):
        raise SparkOptionError(
            f"{place.name} is a Delta table, to which plain files must not be added.",
            hint="Add --format delta, or use another lake.",
        )
    check_rules(place.rules(broker_name), rules, broker_name)
    log = open_log(Files(), [store])
    plan = make_plan(report, place, log, broker_name, wanted=wanted, range_bytes=range_bytes)
    report.numbers |= {
        "rangesBefore": plan.known,
        "ranges": len(plan.tasks),
        "bytesToRead": sum(each.stop - each.start for each in plan.tasks),
    }
    if is_dry_run:
        return report
    place.write_rules(broker_name, rules)
    run = RunPlan(run_id=uuid.uuid4().hex, ranges=[each.planned for each in plan.tasks])
    plan.tidy(place, broker_name)
    place.write_plan(broker_name, run)
    worker = ArchiveWorker(lake, broker_name, rules, compression, run.run_id, is_sorted)
    done = run_tasks(spark, plan.tasks, worker)
    place.end_plan(broker_name, run.run_id)
    manifests = [each.manifest for each in done]
    report.numbers |= {
        "messages": sum(each.rows for each in manifests),
        "newMessages": sum(each.rows for each in manifests) - plan.rows_before,
        "files": sum(len(each.files) for each in manifests),
    }
    add_written(report, done)
    report.outputs.append(place.name)
    return report


def check_compression(compression: str) -> None:
    """Check that a compression is supported.

    Raises:
        SparkOptionError: It is not.
    """
    if compression not in _COMPRESSIONS:
        raise SparkOptionError(
            f"{compression!r} is not a supported compression.",
            hint=f"Use one of: {', '.join(_COMPRESSIONS)}.",
        )


def check_rules(found: ArchiveRules | None, rules: ArchiveRules, broker_name: str) -> None:
    """Check that a lake was made with the same rules.

    Raises:
        SparkOptionError: It was made with other rules.
    """
    if found is None or found == rules:
        return
    raise SparkOptionError(
        f"The lake holds other messages of {broker_name!r} than requested.",
        detail=f"it has {_told(found)}, requested are {_told(rules)}",
        hint="Request the same, or use another lake.",
    )


def _told(rules: ArchiveRules) -> str:
    topics = ", ".join(rules.topics) or "all topics"
    return f"{topics} with bodies {'decompressed' if rules.decompress else 'as stored'}"


def add_written(report: Report, done: Sequence[ArchiveTaskResult]) -> None:
    """Add to a report what was written and what was damaged."""
    totals: dict[tuple[str, str], tuple[int, int]] = {}
    for part in done:
        for damage in part.damages:
            report.add_finding(DAMAGED, f"physical offset {damage.physical_offset}", damage.detail)
        for each in part.manifest.files:
            rows, files = totals.get((each.topic, each.day), (0, 0))
            totals[each.topic, each.day] = (rows + each.rows, files + 1)
    report.add_table(
        "Written",
        ["topic", "day", "messages", "files"],
        [[*key, *total] for key, total in sorted(totals.items())],
    )


@dataclass(frozen=True)
class ArchiveWorker:
    """Sent to executors: writes one range, then its manifest."""

    lake: str
    broker_name: str
    rules: ArchiveRules
    compression: str
    run_id: str
    is_sorted: bool = False

    def __call__(self, task: ArchiveTask) -> ArchiveTaskResult:
        """Write a range."""
        place = Lake(self.lake)
        damages: list[Damage] = []
        with ExitStack() as stack:
            layout = FileLayout(
                name=file_name(self.broker_name, task.start),
                made=self.run_id,
                compression=self.compression,
                is_sorted=self.is_sorted,
            )
            writers = FileWriters(place, layout, stack)
            for batch in log_batches(task.ranges, self.rules, self.broker_name):
                writers.add(without_damage(batch, damages))
            writers.close()
            # A worker may outlive its driver for a while, and the next run may have started.
            place.check_run(self.broker_name, self.run_id)
            files = writers.publish()
        manifest = RangeManifest(
            broker_name=self.broker_name,
            start=task.start,
            stop=task.stop,
            is_complete=task.is_complete,
            files=files,
        )
        place.write_manifest(manifest)
        return ArchiveTaskResult(manifest, damages)


def log_batches(
    ranges: Sequence[LogRange], rules: ArchiveRules, broker_name: str
) -> Iterator[pa.RecordBatch]:
    """Return the messages for a lake, and damaged bytes as rows with ``_corrupt``."""
    schema = arrow_schema(struct_type([*COLUMNS, CORRUPT_COLUMN]))
    read = ReadRules(
        selection=Selection(topics=frozenset(rules.topics)),
        decompress=rules.decompress,
        broker_name=broker_name,
    )
    return LogReader(schema, read).batches(ranges)


def without_damage(batch: pa.RecordBatch, damages: list[Damage]) -> pa.RecordBatch:
    """Return the messages of a batch; damaged bytes go to ``damages``."""
    told = batch.column(CORRUPT_COLUMN)
    if told.null_count < batch.num_rows:
        bad = batch.filter(pc.is_valid(told))
        damages += [
            Damage(row["physicalOffset"] or 0, row[CORRUPT_COLUMN]) for row in bad.to_pylist()
        ]
        batch = batch.filter(pc.is_null(told))
    return batch.drop_columns([CORRUPT_COLUMN])


@dataclass(frozen=True)
class FileLayout:
    """Names, folders and columns of the files of a range.

    Attributes:
        name: The file name, with ``{}`` for a number.
        made: The writer's id, part of the names of unfinished files.
        compression: The compression of the files.
        folder: Their folder below the lake's address.
        is_flat: Whether all are in one folder, so that they need columns for topic and day.
        is_sorted: Whether rows are sorted by key, in small row groups.
    """

    name: str
    made: str
    compression: str
    folder: str = ""
    is_flat: bool = False
    is_sorted: bool = False

    def path(self, topic: str, day: str, number: int) -> str:
        """Return the path of a file below the lake's address."""
        below = "" if self.is_flat else partition_path(topic, day)
        return posixpath.join(self.folder, below, self.name.replace("{}", str(number)))

    def columns(self, table: pa.Table, day: str) -> pa.Table:
        """Return the columns of a file."""
        if self.is_sorted:
            table = by_key(table)
        if not self.is_flat:
            return table.drop_columns([_TOPIC])
        days = pa.repeat(pa.scalar(None if day == NO_DAY else day, pa.string()), len(table))
        return table.append_column(_DAY, days)


class FileWriters:
    """Writes the files of one range, by topic and day, which nobody sees until all are whole."""

    def __init__(self, place: Place, layout: FileLayout, stack: ExitStack) -> None:
        self._place = place
        self._layout = layout
        self._stack = stack
        self._held: dict[tuple[str, str], list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._open: dict[tuple[str, str], tuple[NewFile, pq.ParquetWriter]] = {}
        self._totals: dict[tuple[str, str], FileTotals] = {}
        self._many_words: set[tuple[str, str]] = set()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, and write a row group when too much is buffered."""
        for key, part in split_by_day(batch):
            self._held.setdefault(key, []).append(part)
            self._totals.setdefault(key, FileTotals()).add(part)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        for key, parts in self._held.items():
            table = self._layout.columns(pa.Table.from_batches(parts), key[1])
            with self._place.told():
                size = SORTED_GROUP_ROWS if self._layout.is_sorted else None
                self._writer(key, table.schema, len(table)).write_table(table, size)
            if not has_one_word(table.column("keys")):
                self._many_words.add(key)
        self._held.clear()
        self._held_bytes = 0

    def _writer(self, key: tuple[str, str], schema: pa.Schema, rows: int) -> pq.ParquetWriter:
        if key not in self._open:
            path = self._layout.path(*key, len(self._open))
            file = self._place.new_file(path, self._layout.made)
            self._stack.callback(file.discard)
            options = file_options(rows, self._layout.compression, is_sorted=self._layout.is_sorted)
            writer = pq.ParquetWriter(file.hidden, schema, filesystem=file.filesystem, **options)
            self._open[key] = (file, self._stack.enter_context(writer))
        return self._open[key][1]

    def close(self) -> None:
        """Finish all files, which still nobody sees."""
        self._flush()
        with self._place.told():
            for key, (_, writer) in self._open.items():
                if key not in self._many_words:
                    writer.add_key_value_metadata({WORDS: ONE_WORD})
                writer.close()

    def publish(self) -> list[FileEntry]:
        """Give all files their names."""
        files = [file for file, _ in self._open.values()]
        sizes = {file.path: file.size_bytes for file in files}
        publish_all(files)
        return [
            self._totals[key].entry(file.path, *key, sizes[file.path])
            for key, (file, _) in sorted(self._open.items(), key=lambda each: each[0])
        ]


def split_by_day(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, str], pa.RecordBatch]]:
    """Split rows by topic and day (UTC, by store time), keeping their order."""
    if not batch.num_rows:
        return
    topics = batch.column(_TOPIC).dictionary_encode()
    days = pc.fill_null(
        pc.strftime(batch.column("storeTimestamp"), format="%Y-%m-%d"), NO_DAY
    ).dictionary_encode()
    count = len(days.dictionary)
    keys = pc.add(
        pc.multiply(topics.indices.cast(pa.int64()), count), days.indices.cast(pa.int64())
    )
    distinct = pc.unique(keys).to_pylist()
    for number in distinct:
        part = batch if len(distinct) == 1 else batch.filter(pc.equal(keys, number))
        topic, day = topics.dictionary[number // count], days.dictionary[number % count]
        yield (topic.as_py(), day.as_py()), part
