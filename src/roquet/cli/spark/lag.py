"""``roquet spark lag``."""

from __future__ import annotations

import click

from roquet.cli.connection import Connection
from roquet.cli.spark.run import JobRun, job_options, parse_names, run_job
from roquet.cli.spark.source_target import check_one_source, source_of, source_options


@click.command()
@source_options
@click.option(
    "--groups", callback=parse_names, metavar="NAMES", help="Only these, comma-separated."
)
@click.option(
    "--max-messages",
    type=click.IntRange(0),
    help="Report a group that is further behind than this.",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(0),
    help="Report a group whose next message is older than this.",
)
@job_options
def lag(
    *,
    store: str | None,
    connection: Connection,
    groups: tuple[str, ...],
    max_messages: int | None,
    max_seconds: float | None,
    run: JobRun,
) -> None:
    """Compare consumer groups with the heads of their queues, in messages and seconds.

    Reads the files of STORE, or without it asks the brokers of the cluster of --namesrv. Ages are
    measured from the newest message of a store, from now for a cluster, or from the time of --to.
    """
    from roquet.spark.jobs import lag as job

    check_one_source(store)
    source = source_of(store, connection)
    run_job(
        run,
        "lag",
        lambda spark: job.lag(
            spark,
            source,
            wanted=run.wanted,
            groups=groups,
            messages_max=max_messages,
            seconds_max=max_seconds,
            is_dry_run=run.is_dry_run,
        ),
    )
