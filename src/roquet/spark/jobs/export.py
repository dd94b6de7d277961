"""Exports messages as JSON lines, CSV or Parquet, with masking rules.

Workers decode ranges of the log, apply the rules and write one file per range; the manifest lists
the rules, never the salt. Files are named after their range and published by renaming, the manifest
last, so a folder with a manifest is complete.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from roquet.errors import SparkOptionError
from roquet.runtime.files import Files
from roquet.spark.jobs.inputs import ALL, Wanted
from roquet.spark.jobs.lake import Lake
from roquet.spark.jobs.mask_rules import Masker, Row, Rule
from roquet.spark.log.corrupt import DROPMALFORMED
from roquet.spark.log.reading import LogReader, ReadRules
from roquet.spark.log.selection import Selection
from roquet.spark.log.splits import RecordStartFinder, plan
from roquet.spark.log.store_files import LogFiles, open_log
from roquet.spark.report import Report
from roquet.spark.schema import arrow_schema, choose_columns, struct_type
from roquet.spark.tasks import run_tasks
from roquet.storefiles.records import LogRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DEFAULT_COLUMNS", "FORMATS", "export"]

FORMATS = ("json", "csv", "parquet")
DEFAULT_COLUMNS = (
    *("topic", "queueId", "queueOffset", "storeTimestamp", "msgId", "tags", "keys"),
    *("properties", "body"),
)
MANIFEST = "_manifest.json"
UNREADABLE = "unreadable"
_RUN = "export"


@dataclass(frozen=True)
class _Part:
    """A worker's result for its file."""

    path: str
    rows: int
    hidden: int
    unreadable: int


def export(
    spark: SparkSession,
    store: str,
    out: str,
    *,
    file_format: str = "json",
    wanted: Wanted = ALL,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    rules: Sequence[Rule] = (),
    salt: bytes = b"",
    is_dry_run: bool = False,
) -> Report:
    """Write messages to files.

    Args:
        spark: A session.
        store: The store directory.
        out: A folder, or a URI that pyarrow supports; must not hold an export.
        file_format: One of :data:`FORMATS`.
        wanted: Which messages.
        columns: Which columns.
        rules: What to hide.
        salt: The key of hashes; required if a rule hashes.
        is_dry_run: Only report what would be read.

    Returns:
        Numbers. Bodies that a rule removed because they are not JSON are a finding.

    Raises:
        SparkOptionError: The format or a column is unknown, the salt is missing, or the folder is
            taken.
    """
    if file_format not in FORMATS:
        raise SparkOptionError(
            f"Messages cannot be exported as {file_format!r}.",
            hint=f"Use one of: {', '.join(FORMATS)}.",
        )
    if not salt and any(rule.action == "hash" for rule in rules):
        raise SparkOptionError(
            "Rules that hash need a salt.", hint="Set the variable ROQUET_EXPORT_SALT to a secret."
        )
    chosen = choose_columns(columns)
    place = Lake(out)
    if place.has(MANIFEST):
        raise SparkOptionError(
            f"{place.name} holds an export already.", hint="Name another folder."
        )
    report = Report(job="export", source=store, is_dry_run=is_dry_run)
    log = open_log(Files(), [store])
    tasks = plan(log, *_bounds(log, wanted))
    report.numbers |= {
        "files": len(tasks),
        "bytesToRead": sum(each.size_bytes for task in tasks for each in task),
    }
    if is_dry_run:
        return report
    place.sweep(_RUN)
    worker = ExportWorker(out, file_format, chosen, tuple(wanted.topics), tuple(rules), salt)
    parts = run_tasks(spark, tasks, worker)
    report.numbers |= {
        "messages": sum(each.rows for each in parts),
        "hidden": sum(each.hidden for each in parts),
        "unreadableBodies": sum(each.unreadable for each in parts),
    }
    if report.numbers["unreadableBodies"]:
        report.add_finding(
            UNREADABLE,
            place.name,
            f"{report.numbers['unreadableBodies']} bodies are not JSON and were removed",
        )
    manifest = {"store": store, "format": file_format, "rules": list(rules), "files": parts}
    place.publish(msgspec.json.format(msgspec.json.encode(manifest)), MANIFEST)
    report.outputs.append(place.name)
    return report


def _bounds(log: LogFiles, wanted: Wanted) -> tuple[int, int]:
    start, stop, cutter = log.start_offset, log.end_offset, RecordStartFinder(log)
    if wanted.from_ms is not None:
        start = cutter.time_from(wanted.from_ms, start, stop)
    if wanted.to_ms is not None:
        stop = cutter.time_from(wanted.to_ms, start, stop)
    return start, stop


@dataclass(frozen=True)
class ExportWorker:
    """Sent to executors: writes the file of one task."""

    out: str
    file_format: str
    columns: tuple[str, ...]
    topics: tuple[str, ...]
    rules: tuple[Rule, ...]
    salt: bytes = field(repr=False)

    def __call__(self, ranges: list[LogRange]) -> _Part:
        """Write a file."""
        place, masker = Lake(self.out), Masker(self.rules, self.salt)
        name = f"part-{ranges[0].start:020d}.{self.file_format}"
        write = {"json": self._json, "csv": self._csv, "parquet": self._parquet}
        file = place.new_file(name, _RUN)
        try:
            with place.told(), file.filesystem.open_output_stream(file.hidden) as stream:
                rows = write[self.file_format](stream, ranges, masker)
            file.publish()
        finally:
            file.discard()
        return _Part(name, rows, masker.hidden, masker.unreadable)

    def _batches(self, ranges: Sequence[LogRange], masker: Masker) -> Iterator[list[Row]]:
        # Rules select topics, so the topic of each row is needed.
        columns = [*self.columns, *(() if "topic" in self.columns else ("topic",))]
        selection = Selection(topics=frozenset(self.topics))
        rules = ReadRules(selection=selection, mode=DROPMALFORMED)
        for batch in LogReader(arrow_schema(struct_type(columns)), rules).batches(ranges):
            yield [masker.apply(_row(each)) for each in batch.to_pylist()]

    def _json(self, stream: pa.NativeFile, ranges: Sequence[LogRange], masker: Masker) -> int:
        count = 0
        for rows in self._batches(ranges, masker):
            lines = [
                json.dumps(dict(_texts(self.columns, row)), ensure_ascii=False) for row in rows
            ]
            stream.write(("\n".join(lines) + "\n").encode() if lines else b"")
            count += len(rows)
        return count

    def _csv(self, stream: pa.NativeFile, ranges: Sequence[LogRange], masker: Masker) -> int:
        count = 0
        head = [name for column in self.columns for name in _names(column)]
        stream.write((",".join(head) + "\r\n").encode())
        for rows in self._batches(ranges, masker):
            text = io.StringIO(newline="")
            writer = csv.DictWriter(text, head)
            for row in rows:
                cells = dict(_texts(self.columns, row))
                properties = cells.get("properties")
                if isinstance(properties, dict):
                    cells["properties"] = json.dumps(properties, ensure_ascii=False)
                writer.writerow(cells)
            stream.write(text.getvalue().encode())
            count += len(rows)
        return count

    def _parquet(self, stream: pa.NativeFile, ranges: Sequence[LogRange], masker: Masker) -> int:
        count = 0
        schema = arrow_schema(struct_type(self.columns))
        with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
            for rows in self._batches(ranges, masker):
                arrays = [pa.array([row[each.name] for row in rows], each.type) for each in schema]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
                count += len(rows)
        return count


def _row(values: dict[str, object]) -> Row:
    properties = values.get("properties")
    if isinstance(properties, list):
        values["properties"] = dict(properties)
    return values


def _names(column: str) -> Sequence[str]:
    return ("body", "bodyBase64") if column == "body" else (column,)


def _texts(columns: Sequence[str], row: Row) -> Iterator[tuple[str, object]]:
    """Yield a row's values for JSON; a body that is not text is base64 under another name."""
    for column in columns:
        value = row[column]
        if isinstance(value, bytes):
            text = _decoded(value)
            if text is None:
                yield "bodyBase64", base64.b64encode(value).decode()
                continue
            value = text
        elif isinstance(value, datetime):
            value = value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        yield column, value


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
