"""``roquet spark archive``."""

from __future__ import annotations

import click

from roquet.cli.spark.run import JobRun, job_options, run_job


@click.command()
@click.argument("store", type=click.Path())
@click.option("--lake", required=True, metavar="URI", help="A folder, or s3://…, hdfs://…, gs://…")
@click.option("--broker-name", default="log", show_default=True, help="Whose log it is.")
@click.option(
    "--as-stored", is_flag=True, help="Leave bodies compressed as their producers sent them."
)
@click.option("--compression", default="zstd", show_default=True, help="Of the Parquet files.")
@job_options
def archive(
    *, store: str, lake: str, broker_name: str, as_stored: bool, compression: str, run: JobRun
) -> None:
    """Write a log to a Parquet lake by topic and day, and keep the lake up to it.

    A run goes on where the last one ended, so cron may call it. A run that was killed is repaired
    by the next.
    """
    from roquet.spark.jobs import archive as job

    run_job(
        run,
        "archive",
        lambda spark: job.archive(
            spark,
            store,
            lake,
            broker_name=broker_name,
            wanted=run.wanted,
            decompress=not as_stored,
            compression=compression,
            is_dry_run=run.is_dry_run,
        ),
        is_short=False,
    )
