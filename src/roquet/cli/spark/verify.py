"""``roquet spark verify``."""

from __future__ import annotations

from functools import partial

import click

from roquet.cli.spark.run import JobRun, job_options, run_job
from roquet.cli.spark.source_target import format_option


@click.command()
@click.argument("store", type=click.Path(), required=False)
@click.option("--lake", required=True, metavar="URI", help="A folder, or s3://…, hdfs://…, gs://…")
@format_option
@click.option(
    "--broker-name", help="The broker that the log belongs to.  [default: the lake's only one]"
)
@click.option("--bodies", is_flag=True, help="Also compute the checksum of every body.")
@job_options
def verify(
    *,
    store: str | None,
    lake: str,
    lake_format: str,
    broker_name: str | None,
    bodies: bool,
    run: JobRun,
) -> None:
    """Compare a lake with the log it came from.

    Without STORE the files of the lake are compared with their manifests only; those of a table are
    read.
    """
    from roquet.spark.jobs.lake_broker import DEFAULT_BROKER, only_broker
    from roquet.spark.jobs.table_verify import verify_table
    from roquet.spark.jobs.verify import verify as verify_lake

    compare = verify_lake
    name = broker_name or DEFAULT_BROKER
    if lake_format != "parquet":
        compare = partial(verify_table, lake_format=lake_format)
    elif broker_name is None:
        name = only_broker(lake)
    run_job(
        run,
        "verify",
        lambda spark: compare(
            spark,
            store,
            lake,
            broker_name=name,
            check_bodies=bodies,
            is_dry_run=run.is_dry_run,
        ),
        is_short=False,
    )
