"""``roquet spark verify``."""

from __future__ import annotations

import click

from roquet.cli.spark.run import JobRun, job_options, run_job


@click.command()
@click.argument("store", type=click.Path(), required=False)
@click.option("--lake", required=True, metavar="URI", help="A folder, or s3://…, hdfs://…, gs://…")
@click.option("--broker-name", default="log", show_default=True, help="Whose log it is.")
@click.option("--bodies", is_flag=True, help="Compute the checksum of every body, too.")
@job_options
def verify(*, store: str | None, lake: str, broker_name: str, bodies: bool, run: JobRun) -> None:
    """Compare a lake with the log it came from.

    Without STORE the files of the lake are compared with their manifests only.
    """
    from roquet.spark.jobs import verify as job

    run_job(
        run,
        "verify",
        lambda spark: job.verify(
            spark,
            store,
            lake,
            broker_name=broker_name,
            check_bodies=bodies,
            is_dry_run=run.is_dry_run,
        ),
        is_short=False,
    )
