"""``roquet spark replay``."""

from __future__ import annotations

import click

from roquet.cli.connection import Connection
from roquet.cli.spark.run import JobRun, job_options, run_job
from roquet.cli.spark.source_target import (
    rate_option,
    source_of,
    source_options,
    target_of,
    target_options,
)


@click.command()
@source_options
@click.option("--to-topic", metavar="NAME", help="Send to this topic instead of the original one.")
@target_options
@rate_option
@click.option("--name", default="replay", show_default=True, help="Prefix of the ids.")
@click.option(
    "--in-order",
    is_flag=True,
    help="Keep the order within queues, by sending to queues with the same ids.",
)
@job_options
def replay(
    *,
    store: str | None,
    connection: Connection,
    to_topic: str | None,
    to_namesrv: str | None,
    to_context: str | None,
    rate: float | None,
    name: str,
    in_order: bool,
    run: JobRun,
) -> None:
    """Resend messages of a time range, to another topic or another cluster.

    Reads the files of STORE, or without it the cluster of --namesrv. Choose messages with --topics,
    --from and --to. At least once: each has its id in the property SPARK_ROW_ID, which is the same
    in every run, so that consumers can drop repeats.
    """
    from roquet.spark.jobs import replay as job

    if store is not None and to_topic is None and to_namesrv is None and to_context is None:
        raise click.UsageError(
            "Messages of a store go to another topic (--to-topic) or to a cluster that is named "
            "(--to-namesrv, --to-context)."
        )
    source = source_of(store, connection)
    to = target_of(connection, to_namesrv, to_context)
    run_job(
        run,
        "replay",
        lambda spark: job.replay(
            spark,
            source,
            to,
            wanted=run.wanted,
            to_topic=to_topic,
            rate=rate,
            name=name,
            is_in_order=in_order,
            is_dry_run=run.is_dry_run,
        ),
        is_short=False,
    )
