"""``roquet spark compact``."""

from __future__ import annotations

import click

from roquet.cli.connection import Connection
from roquet.cli.spark.run import JobRun, job_options, run_job
from roquet.cli.spark.source_target import source_of, source_options, target_of, target_options


@click.command()
@source_options
@click.option(
    "--out", metavar="URI", help="A folder for Parquet files, or s3://…, hdfs://…, gs://…"
)
@click.option("--overwrite", is_flag=True, help="Overwrite existing files.")
@click.option(
    "--to-topic", metavar="NAME", help="Send the values to this topic instead of writing files."
)
@target_options
@job_options
def compact(
    *,
    store: str | None,
    connection: Connection,
    out: str | None,
    overwrite: bool,
    to_topic: str | None,
    to_namesrv: str | None,
    to_context: str | None,
    run: JobRun,
) -> None:
    """Keep the last value of each key of a topic, as Parquet files or as a topic.

    Reads the files of STORE, or without it the cluster of --namesrv. The key is the first word of
    a message's KEYS; an empty body deletes it. Give the topic with --topics.
    """
    from roquet.spark.jobs import compact as job

    source = source_of(store, connection)
    to = None if to_topic is None else target_of(connection, to_namesrv, to_context)
    run_job(
        run,
        "compact",
        lambda spark: job.compact(
            spark,
            source,
            wanted=run.wanted,
            out=out,
            to=to,
            to_topic=to_topic,
            is_overwrite=overwrite,
            is_dry_run=run.is_dry_run,
        ),
        is_short=False,
    )
