"""Keeps a lake up to date with the log of a broker, or with the topics of a live cluster.

A log is followed in rounds, each an ``archive``: after a kill at any point, the next round repairs
the lake. Topics are followed by a Spark stream, whose file sink and checkpoint put every message
into the lake once.

A cluster's lake has Spark's own layout, below its address. It differs from that of a log, so
neither writes to a lake of the other:

.. code-block:: text

    topic=Orders/day=2026-11-15/part-….parquet
    _spark_metadata                                    which files are whole
    _checkpoint                                        which messages are in them
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from roquet.client.options import ClientOptions
from roquet.errors import SparkOptionError
from roquet.runtime.files import Files
from roquet.spark.broker.connect import connect_options
from roquet.spark.jobs.archive import RANGE_BYTES, archive
from roquet.spark.jobs.inputs import ALL, Wanted
from roquet.spark.jobs.lake import MANIFEST, Lake
from roquet.spark.jobs.lake_files import public_address
from roquet.spark.jobs.spark_files import check_spark_writes
from roquet.spark.jobs.table_archive import archive_table
from roquet.spark.jobs.tables import open_table
from roquet.spark.log.store_files import open_log
from roquet.spark.report import Report
from roquet.spark.session import is_of_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["archive_topics", "follow"]

INTERVAL_S = 30.0
GROWING_BYTES = 16 << 20
"""The approximate size of the range that is rewritten in every round."""

OFFSETS_PER_TRIGGER = 1_000_000
CHECKPOINT = "_checkpoint"
_LOOK_S = 1
_DAY_MS = 86_400_000


def follow(
    spark: SparkSession,
    store: str,
    lake: str,
    *,
    stopping: threading.Event,
    interval_s: float = INTERVAL_S,
    broker_name: str = "log",
    wanted: Wanted = ALL,
    decompress: bool = True,
    compression: str = "zstd",
    range_bytes: int = RANGE_BYTES,
    growing_bytes: int = GROWING_BYTES,
    is_sorted: bool = False,
    lake_format: str = "parquet",
) -> Report:
    """Keep the lake up to date with a log until ``stopping`` is set.

    The first round catches up like ``archive``. From then on a range is closed when it reaches
    ``growing_bytes``, so no round rewrites much more than that, however long the log is. A round
    without new messages writes nothing.

    Args:
        spark: A session that knows the sources.
        store: The store directory.
        lake: A folder, or a URI that pyarrow supports.
        stopping: Set it to stop; the current round is finished first.
        interval_s: The pause between two rounds.
        broker_name: As for ``archive``.
        wanted: As for ``archive``, but without an end.
        decompress: As for ``archive``.
        compression: As for ``archive``.
        range_bytes: As for ``archive``, in the first round.
        growing_bytes: The size at which the newest range is closed; in a table no range grows.
        is_sorted: As for ``archive``.
        lake_format: ``delta`` or ``iceberg`` for a table, as for ``archive_table``.

    Returns:
        The totals of all rounds; repeated findings are listed once. If the same signal ended
        Spark, ``roundsGivenUp`` counts the interrupted round, which the next run repeats.

    Raises:
        SparkOptionError: As for ``archive``, or an end is given.
    """
    _check_endless(wanted)
    rounds = _Rounds(Report(job="archive", source=store))
    bring, is_behind = archive, _is_behind
    if lake_format != "parquet":
        bring = partial(archive_table, lake_format=lake_format)
        is_behind = partial(_is_table_behind, lake_format=lake_format)
    while True:
        if is_behind(lake, broker_name, store):
            try:
                done = bring(
                    spark,
                    store,
                    lake,
                    broker_name=broker_name,
                    wanted=wanted,
                    decompress=decompress,
                    compression=compression,
                    range_bytes=growing_bytes if rounds.count else range_bytes,
                    is_sorted=is_sorted,
                )
            except Exception as error:
                if not (stopping.is_set() and is_of_spark(error)):
                    raise
                return rounds.report(lake, is_given_up=True)
            rounds.add(done)
        if stopping.wait(interval_s):
            return rounds.report(lake)


def _is_behind(lake: str, broker_name: str, store: str) -> bool:
    place = Lake(lake)
    _, newest = place.newest(broker_name)
    if newest is None or place.plan(broker_name) is not None:
        return True
    return open_log(Files(), [store]).end_offset > newest.stop


def _is_table_behind(lake: str, broker_name: str, store: str, *, lake_format: str) -> bool:
    table = open_table(lake_format, lake)
    reached = table.stop(broker_name) if table.exists() else None
    return reached is None or open_log(Files(), [store]).end_offset > reached


def _check_endless(wanted: Wanted) -> None:
    if wanted.to_ms is not None:
        raise SparkOptionError(
            "A followed source has no end.", hint="Omit --to, or run archive without --follow."
        )


@dataclass
class _Rounds:
    """Adds up rounds."""

    total: Report
    count: int = 0
    messages: int = 0

    def add(self, report: Report) -> None:
        self.count += 1
        written = report.numbers["newMessages"]
        assert isinstance(written, int)
        self.messages += written
        if "rangesBefore" in report.numbers:
            self.total.numbers.setdefault("rangesBefore", report.numbers["rangesBefore"])
        self.total.findings += [each for each in report.findings if each not in self.total.findings]

    def report(self, lake: str, *, is_given_up: bool = False) -> Report:
        self.total.numbers |= {"rounds": self.count, "newMessages": self.messages}
        if is_given_up:
            self.total.numbers["roundsGivenUp"] = 1
        if self.count:
            self.total.outputs.append(public_address(lake))
        return self.total


# ------------------------------------------------------------------------------------- clusters


def archive_topics(
    spark: SparkSession,
    cluster: ClientOptions,
    lake: str,
    *,
    wanted: Wanted = ALL,
    checkpoint: str | None = None,
    stopping: threading.Event | None = None,
    interval_s: float = INTERVAL_S,
    compression: str = "zstd",
    options: Mapping[str, str] | None = None,
    is_dry_run: bool = False,
) -> Report:
    """Bring a lake up to date with topics of a live cluster, each message once.

    Args:
        spark: A session that knows the sources.
        cluster: The connection to the cluster.
        lake: A folder, or a URI that Spark supports (``s3a://``, ``hdfs://``, …).
        wanted: Which messages: topics, by default all user topics; ``from_ms`` applies to the
            first run, which otherwise starts with the oldest message.
        checkpoint: The stream's checkpoint folder; by default below the lake.
        stopping: If given, runs until it is set; otherwise stops at the messages stored when it
            started.
        interval_s: The time between two micro-batches, if it keeps running.
        compression: The compression of the Parquet files.
        options: Further options of ``rocketmq``.
        is_dry_run: Only check that the stream can be planned.

    Returns:
        Numbers of micro-batches and messages.

    Raises:
        SparkOptionError: The lake is one of a log, or an end is given.
    """
    _check_endless(wanted)
    if "://" not in lake and Lake(lake).has(MANIFEST):
        raise SparkOptionError(
            f"{public_address(lake)} is the lake of a log, which a stream cannot add to.",
            hint="Use another lake for the cluster.",
        )
    check_spark_writes(spark, lake, "a stream of topics")
    source = ";".join(cluster.namesrv_addresses)
    report = Report(job="archive", source=source, is_dry_run=is_dry_run)
    given = {**stream_options(cluster, wanted), **(options or {})}
    rows = by_day(spark.readStream.format("rocketmq").options(**given).load())
    if is_dry_run:
        return report
    writer = (
        rows.writeStream.format("parquet")
        .partitionBy("topic", "day")
        .option("path", lake)
        .option("checkpointLocation", checkpoint or f"{lake.rstrip('/')}/{CHECKPOINT}")
        .option("compression", compression)
        .queryName(f"roquet archive {source}")
    )
    if stopping is None:
        query = writer.trigger(availableNow=True).start()
    else:
        query = writer.trigger(processingTime=f"{max(round(interval_s * 1000), 1)} milliseconds")
        query = query.start()
    batches = _watched(query, stopping)
    report.numbers |= {"batches": len(batches), "messages": sum(batches.values())}
    report.outputs.append(public_address(lake))
    return report


def stream_options(cluster: ClientOptions, wanted: Wanted) -> dict[str, str]:
    """Return the selection as options of a ``rocketmq`` stream."""
    options = connect_options(cluster) | {"maxOffsetsPerTrigger": str(OFFSETS_PER_TRIGGER)}
    if wanted.topics:
        options["subscribe"] = ",".join(wanted.topics)
    else:
        options["subscribePattern"] = ".*"
    if wanted.from_ms is None:
        options["startingOffsets"] = "earliest"
    else:
        options["startingTimestamp"] = str(wanted.from_ms)
    return options


def by_day(rows: DataFrame) -> DataFrame:
    """Add the day (UTC) on which messages were stored, whatever the session's time zone."""
    day = f"cast(date_from_unix_date(cast(unix_millis(storeTimestamp) div {_DAY_MS} as int))"
    return rows.selectExpr("*", f"{day} as string) as day")


def _watched(query: StreamingQuery, stopping: threading.Event | None) -> dict[int, int]:
    """Wait for a query, and stop it when ``stopping`` is set; return the messages of each batch.

    Raises:
        StreamingQueryException: It failed.
    """
    batches: dict[int, int] = {}

    def note(progress: Sequence[Mapping[str, object]]) -> None:
        for each in progress:
            rows = each["numInputRows"]
            if isinstance(rows, int) and rows:
                batches[int(str(each["batchId"]))] = rows

    try:
        try:
            while not query.awaitTermination(_LOOK_S):
                note(query.recentProgress)
                if stopping is not None and stopping.is_set():
                    query.stop()
        finally:
            if query.isActive:
                query.stop()
            note(query.recentProgress)
    except Exception as error:
        # A signal that ends the job may end Spark's processes before they can be stopped.
        if not (stopping is not None and stopping.is_set() and is_of_spark(error)):
            raise
    return batches
