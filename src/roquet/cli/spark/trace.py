"""``roquet spark trace``."""

from __future__ import annotations

import click

from roquet.cli.spark.run import JobRun, job_options, run_job
from roquet.model.topic import TRACE_TOPIC


@click.command()
@click.argument("store", type=click.Path())
@click.option("--msg-id", metavar="ID", help="Only this message, by its unique id.")
@click.option("--key", metavar="KEY", help="Only messages with this key.")
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True, help="The trace topic.")
@job_options
def trace(
    *, store: str, msg_id: str | None, key: str | None, trace_topic: str, run: JobRun
) -> None:
    """Show where messages spend their time: send, wait, consume, with percentiles."""
    from roquet.spark.jobs import trace as job

    run_job(
        run,
        "trace",
        lambda spark: job.trace(
            spark,
            store,
            wanted=run.wanted,
            trace_topic=trace_topic,
            msg_id=msg_id,
            key=key,
            is_dry_run=run.is_dry_run,
        ),
    )
