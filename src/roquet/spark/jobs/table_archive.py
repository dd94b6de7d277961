"""Archives the log to a Delta or Iceberg table, by topic and day.

Works like ``archive``, with a table instead of a lake: see :mod:`roquet.spark.jobs.tables`.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roquet.errors import SparkError, SparkOptionError
from roquet.runtime.files import Files
from roquet.spark.jobs.archive import (
    RANGE_BYTES,
    ArchiveTaskResult,
    Damage,
    FileLayout,
    FileWriters,
    add_written,
    check_compression,
    check_rules,
    log_batches,
    without_damage,
)
from roquet.spark.jobs.archive_plan import ArchiveTask, choose_start, choose_stop, plan_tasks
from roquet.spark.jobs.inputs import ALL, Wanted
from roquet.spark.jobs.lake import (
    ArchiveRules,
    Lake,
    RangeManifest,
    is_read_by_spark,
    lake_schema,
    read_lake_files,
    read_young,
    table_file_name,
)
from roquet.spark.jobs.lake_files import public_address
from roquet.spark.jobs.tables import LakeTable, TableNote, open_table
from roquet.spark.log.store_files import open_log
from roquet.spark.report import Report
from roquet.spark.schema import COLUMNS
from roquet.spark.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["archive_table", "known_note", "read_table", "tiered_table"]

RANGES_PER_COMMIT = 64


def archive_table(
    spark: SparkSession,
    store: str,
    lake: str,
    lake_format: str,
    *,
    broker_name: str = "log",
    wanted: Wanted = ALL,
    decompress: bool = True,
    compression: str = "zstd",
    range_bytes: int = RANGE_BYTES,
    is_sorted: bool = False,
    is_dry_run: bool = False,
) -> Report:
    """Bring a table up to date with the log; what it already has is not read again.

    Args:
        spark: A session that knows the sources.
        store: The store directory.
        lake: A folder or URI for Delta, ``CATALOG.NAMESPACE.TABLE`` for Iceberg.
        lake_format: ``delta`` or ``iceberg``.
        broker_name: Whose log it is; a table may hold several.
        wanted: Which messages. The first run fixes the topics; ``from_ms`` applies to it only.
        decompress: Whether bodies are decompressed.
        compression: The compression of the Parquet files.
        range_bytes: How much of the log one worker takes at a time.
        is_sorted: As for ``archive``.
        is_dry_run: Only report what would be written.

    Returns:
        As for ``archive``.

    Raises:
        SparkOptionError: The table holds other topics of this broker, or its address is invalid.
        SparkMissing: The format's package is not installed.
        SparkError: Another run for the same broker committed first.
    """
    check_compression(compression)
    report = Report(job="archive", source=store, is_dry_run=is_dry_run)
    table = open_table(lake_format, lake)
    rules = ArchiveRules(topics=sorted(wanted.topics), decompress=decompress)
    note, reached = None, None
    if table.exists():
        note, reached = table.note(broker_name), table.stop(broker_name)
    check_rules(note.rules if note else None, rules, broker_name)
    log = open_log(Files(), [store])
    start = choose_start(report, log, _last(broker_name, reached), wanted)
    stop = max(choose_stop(log, start, wanted), start)
    tasks = plan_tasks(log, start, stop, range_bytes)
    report.numbers |= {"ranges": len(tasks), "bytesToRead": stop - start}
    if is_dry_run:
        return report
    table.create()
    if note is None:
        table.write_note(broker_name, TableNote(rules=rules, start=start))
    worker = TableFileWorker(
        table.place.address,
        broker_name,
        rules,
        compression,
        folder=table.folder,
        is_flat=table.has_partition_columns,
        is_sorted=is_sorted,
    )
    done: list[ArchiveTaskResult] = []
    for at in range(0, len(tasks), RANGES_PER_COMMIT):
        part = run_tasks(spark, tasks[at : at + RANGES_PER_COMMIT], worker)
        files = [file for each in part for file in each.manifest.files]
        stop = part[-1].manifest.stop
        table.commit(broker_name, reached, stop, files)
        reached = stop
        done += part
    rows = sum(each.manifest.rows for each in done)
    report.numbers |= {
        "messages": rows,
        "newMessages": rows,
        "files": sum(len(each.manifest.files) for each in done),
    }
    add_written(report, done)
    report.outputs.append(public_address(lake))
    return report


@dataclass(frozen=True)
class TableFileWorker:
    """Sent to executors: writes the files of one range, to be committed to the table later."""

    place: str
    broker_name: str
    rules: ArchiveRules
    compression: str
    folder: str
    is_flat: bool
    is_sorted: bool

    def __call__(self, task: ArchiveTask) -> ArchiveTaskResult:
        """Write a range."""
        damages: list[Damage] = []
        made = uuid.uuid4().hex
        layout = FileLayout(
            name=table_file_name(self.broker_name, task.start, task.stop, made),
            made=made,
            compression=self.compression,
            folder=self.folder,
            is_flat=self.is_flat,
            is_sorted=self.is_sorted,
        )
        with ExitStack() as stack:
            writers = FileWriters(Lake(self.place), layout, stack)
            for batch in log_batches(task.ranges, self.rules, self.broker_name):
                writers.add(without_damage(batch, damages))
            writers.close()
            files = writers.publish()
        manifest = RangeManifest(
            broker_name=self.broker_name,
            start=task.start,
            stop=task.stop,
            is_complete=True,
            files=files,
        )
        return ArchiveTaskResult(manifest, damages)


def _last(broker_name: str, reached: int | None) -> RangeManifest | None:
    if reached is None:
        return None
    return RangeManifest(broker_name=broker_name, start=reached, stop=reached, is_complete=True)


def known_note(table: LakeTable, lake: str, broker_name: str) -> tuple[TableNote, int]:
    """Return the note on a broker's archive, and the offset up to which the table has its log.

    Raises:
        SparkOptionError: It holds nothing of this broker.
    """
    note = table.note(broker_name)
    reached = table.stop(broker_name)
    if note is None or reached is None:
        raise SparkOptionError(
            f"{public_address(lake)} holds nothing of {broker_name!r}.",
            hint="Check that --broker-name is the one given to archive.",
        )
    return note, reached


def read_table(spark: SparkSession, lake: str, lake_format: str) -> DataFrame:
    """Read the messages of a table, with the columns of the sources and ``day``.

    Reads the Parquet files of the newest version. Spark's own ``delta`` and ``iceberg`` formats
    can read the table, too, if their packages fit the version of Spark.

    Args:
        spark: The session.
        lake: As for :func:`archive_table`.
        lake_format: ``delta`` or ``iceberg``.

    Raises:
        SparkError: The files alone do not determine its rows.
    """
    table = open_table(lake_format, lake)
    files = table.files()
    if not files:
        return spark.createDataFrame([], lake_schema())
    if not is_read_by_spark(table.place.address):
        return spark.read.format("rocketmq-lake").option("lakeFormat", lake_format).load(lake)
    if not table.has_partition_columns:
        wrong = [each.path for each in files if not each.path.startswith("topic=")]
        if wrong:
            raise SparkError(
                f"{public_address(lake)} has files that are not in folders of topics and days.",
                detail=wrong[0],
                hint="Read it with Spark's own format delta.",
            )
        return read_lake_files(spark, lake, [each.path for each in files])
    reader = spark.read.schema(lake_schema()).option("recursiveFileLookup", "true")
    base = table.place.address.rstrip("/")
    return reader.parquet(*(f"{base}/{each.path}" for each in files))


def tiered_table(
    spark: SparkSession, store: str, lake: str, lake_format: str, *, broker_name: str = "log"
) -> DataFrame:
    """Read table and log as one: the table up to the cut, the log from there on.

    The cut is the end of the table at the time of the call.

    Args:
        spark: A session that knows the sources.
        store: The store directory; it may be running.
        lake: As for :func:`archive_table`.
        lake_format: ``delta`` or ``iceberg``.
        broker_name: Whose log it is.

    Returns:
        The columns of the sources.

    Raises:
        SparkOptionError: The table holds nothing of this broker.
        SparkError: The log starts after the end of the table.
    """
    table = open_table(lake_format, lake)
    note, cut = known_note(table, lake, broker_name)
    log = open_log(Files(), [store])
    if cut < log.start_offset:
        raise SparkError(
            "Some messages are missing between the table and the log.",
            detail=f"the table ends at physical offset {cut}, the log begins at {log.start_offset}",
            hint="They were deleted before they were archived; read table and log separately.",
        )
    young = read_young(spark, store, note.rules, cut, broker_name)
    messages = read_table(spark, lake, lake_format)
    is_old = (messages["brokerName"] == broker_name) & (messages["physicalOffset"] < cut)
    return messages.where(is_old).select(*COLUMNS).unionByName(young)
