"""Lakes that follow what grows: the log of a broker, or the topics of a live cluster.

A log is followed in rounds, each an ``archive``: killed between any two steps, the next round
repairs what is there. Topics are followed by a stream of Spark, whose file sink and checkpoint
have every message in the lake once.

Layout of the lake of a cluster, below its address; it is Spark's own, and another than that of a
log, so neither writes to a lake of the other:

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
"""How much of the log the range has that is written again in every round, about."""

OFFSETS_PER_TRIGGER = 1_000_000
CHECKPOINT = "_checkpoint"
_LOOK_S = 0.5
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
    growing_bytes: int = GROWING_BYTES,
    lake_format: str = "parquet",
) -> Report:
    """Keep the lake up to a log until told to stop.

    The first round catches up as ``archive`` does. From then on a range is closed when it has
    ``growing_bytes``, so that no round writes much more again than that, however long the log is.
    A round in which nothing was stored writes nothing.

    Args:
        spark: A session that knows the sources.
        store: The store directory.
        lake: A folder, or a URI that pyarrow knows.
        stopping: Set by whoever wants it to end; the round that runs is finished first.
        interval_s: From the end of a round to the beginning of the next.
        broker_name: As of ``archive``.
        wanted: As of ``archive``, but without an end.
        decompress: As of ``archive``.
        compression: As of ``archive``.
        growing_bytes: Of the newest range; a table has none that grows.
        lake_format: ``delta`` and ``iceberg`` follow with a table, as of ``archive_table``.

    Returns:
        What all rounds came to; findings of several rounds once. If Spark was ended by the same
        signal, ``roundsGivenUp`` counts the round that ran, which the next run does again.

    Raises:
        SparkOptionError: As of ``archive``, or an end is wanted.
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
                    range_bytes=growing_bytes if rounds.count else RANGE_BYTES,
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
            "What is followed has no end.", hint="Leave out --to, or run archive without --follow."
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
            self.total.outputs.append(lake)
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
    """Bring a lake up to topics of a live cluster, each message once.

    Args:
        spark: A session that knows the sources.
        cluster: How it is reached.
        lake: A folder, or a URI that Spark knows (``s3a://``, ``hdfs://``, …).
        wanted: Which messages: topics, by default all that are users'; ``from_ms`` counts in the
            first run, which else begins with the oldest.
        checkpoint: Where the stream notes how far it is; by default below the lake.
        stopping: If given, goes on until it is set; else ends when all is there that was stored
            when it began.
        interval_s: Between two micro-batches, if it goes on.
        compression: Of the Parquet files.
        options: Further options of ``rocketmq``.
        is_dry_run: Only see that the stream can be planned.

    Returns:
        Numbers of micro-batches and messages.

    Raises:
        SparkOptionError: The lake is one of a log, or an end is wanted.
    """
    _check_endless(wanted)
    if "://" not in lake and Lake(lake).has(MANIFEST):
        raise SparkOptionError(
            f"{lake} is the lake of a log, which a stream cannot add to.",
            hint="Take another lake for the cluster.",
        )
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
    report.outputs.append(lake)
    return report


def stream_options(cluster: ClientOptions, wanted: Wanted) -> dict[str, str]:
    """What is wanted of a cluster, as options of a stream of ``rocketmq``."""
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
    """Messages with the day (UTC) on which they were stored, whatever the session's zone is."""
    day = f"cast(date_from_unix_date(cast(unix_millis(storeTimestamp) div {_DAY_MS} as int))"
    return rows.selectExpr("*", f"{day} as string) as day")


def _watched(query: StreamingQuery, stopping: threading.Event | None) -> dict[int, int]:
    """Wait for a query, and stop it when told to; gives the messages of each batch.

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
        # Whoever ends a job ends its processes too, perhaps before they could be asked to stop.
        if not (stopping is not None and stopping.is_set() and is_of_spark(error)):
            raise
    return batches
