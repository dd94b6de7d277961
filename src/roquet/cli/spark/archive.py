"""``roquet spark archive``."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from roquet.cli.connection import Connection, connection_options
from roquet.cli.spark.run import (
    JobRun,
    job_options,
    parse_size,
    parse_span,
    run_job,
    stop_signals,
)
from roquet.cli.spark.source_target import check_one_source, format_option

if TYPE_CHECKING:
    from roquet.spark.report import Report
    from roquet.spark.session import Session


class _Asked(Struct, frozen=True, kw_only=True):
    """The values of the flags."""

    lake: str
    lake_format: str
    broker_name: str
    decompress: bool
    compression: str
    range_bytes: int
    is_sorted: bool
    checkpoint: str | None
    is_following: bool
    interval_s: float


@click.command()
@click.argument("store", type=click.Path(), required=False)
@click.option("--lake", required=True, metavar="URI", help="A folder, or s3://…, hdfs://…, gs://…")
@format_option
@click.option(
    "--broker-name", default="log", show_default=True, help="The broker that the log belongs to."
)
@click.option("--as-stored", is_flag=True, help="Do not decompress bodies.")
@click.option(
    "--compression", default="zstd", show_default=True, help="Compression of the Parquet files."
)
@click.option(
    "--range",
    "range_bytes",
    default="128m",
    show_default=True,
    callback=parse_size,
    metavar="SIZE",
    help="How much of the log a worker takes at a time: no file has more.",
)
@click.option("--sort-keys", is_flag=True, help="Sort the rows of a file by key.")
@click.option("--follow", is_flag=True, help="Keep running until Ctrl-C or SIGTERM.")
@click.option(
    "--interval",
    "interval_ms",
    default="30s",
    show_default=True,
    callback=parse_span,
    metavar="SPAN",
    help="Pause between two rounds of --follow.",
)
@click.option(
    "--checkpoint",
    metavar="URI",
    help="Where to keep the progress of a live cluster; the lake by default.",
)
@connection_options
@job_options
def archive(
    *,
    store: str | None,
    lake: str,
    lake_format: str,
    broker_name: str,
    as_stored: bool,
    compression: str,
    range_bytes: int,
    sort_keys: bool,
    follow: bool,
    interval_ms: int,
    checkpoint: str | None,
    connection: Connection,
    run: JobRun,
) -> None:
    """Write a log to a lake by topic and day, and keep the lake up to date.

    Reads the files of STORE, or without it the topics of the cluster of --namesrv. A run continues
    where the last one ended, so cron can call it. The next run repairs one that was killed.

    With --format delta or iceberg the lake is a table; that of iceberg is named
    CATALOG.NAMESPACE.TABLE.
    """
    asked = _Asked(
        lake=lake,
        lake_format=lake_format,
        broker_name=broker_name,
        decompress=not as_stored,
        compression=compression,
        range_bytes=range_bytes,
        is_sorted=sort_keys,
        checkpoint=checkpoint,
        is_following=follow and not run.is_dry_run,
        interval_s=interval_ms / 1000,
    )
    if store is not None:
        check_one_source(store)
        if checkpoint is not None:
            raise click.UsageError(
                "--checkpoint is for live clusters: the lake of a log has its own."
            )
        run_job(run, "archive", lambda spark: _of_log(spark, store, asked, run), is_short=False)
    else:
        if lake_format != "parquet":
            raise click.UsageError(
                f"--format {lake_format} needs STORE: live clusters are archived as Parquet."
            )
        run_job(
            run, "archive", lambda spark: _of_cluster(spark, connection, asked, run), is_short=False
        )


def _of_log(spark: Session, store: str, asked: _Asked, run: JobRun) -> Report:
    from roquet.spark.jobs.archive import archive as archive_log
    from roquet.spark.jobs.follow import follow
    from roquet.spark.jobs.table_archive import archive_table

    if not asked.is_following:
        bring = archive_log
        if asked.lake_format != "parquet":
            bring = partial(archive_table, lake_format=asked.lake_format)
        return bring(
            spark,
            store,
            asked.lake,
            broker_name=asked.broker_name,
            wanted=run.wanted,
            decompress=asked.decompress,
            compression=asked.compression,
            range_bytes=asked.range_bytes,
            is_sorted=asked.is_sorted,
            is_dry_run=run.is_dry_run,
        )
    with stop_signals() as stopping:
        return follow(
            spark,
            store,
            asked.lake,
            stopping=stopping,
            interval_s=asked.interval_s,
            broker_name=asked.broker_name,
            wanted=run.wanted,
            decompress=asked.decompress,
            compression=asked.compression,
            range_bytes=asked.range_bytes,
            is_sorted=asked.is_sorted,
            lake_format=asked.lake_format,
        )


def _of_cluster(spark: Session, connection: Connection, asked: _Asked, run: JobRun) -> Report:
    from roquet.spark.jobs.follow import archive_topics

    with ExitStack() as stack:
        stopping = stack.enter_context(stop_signals()) if asked.is_following else None
        return archive_topics(
            spark,
            connection.options(),
            asked.lake,
            wanted=run.wanted,
            checkpoint=asked.checkpoint,
            stopping=stopping,
            interval_s=asked.interval_s,
            compression=asked.compression,
            options={} if asked.decompress else {"decompress": "false"},
            is_dry_run=run.is_dry_run,
        )
