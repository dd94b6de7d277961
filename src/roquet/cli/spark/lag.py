"""``roquet spark lag``."""

from __future__ import annotations

import click

from roquet.cli.spark.run import JobRun, job_options, parse_names, run_job


@click.command()
@click.argument("store", type=click.Path())
@click.option("--groups", callback=parse_names, metavar="NAMES", help="Only these, comma between.")
@click.option("--max-messages", type=click.IntRange(0), help="More messages behind are a finding.")
@click.option("--max-seconds", type=click.FloatRange(0), help="An older next message is a finding.")
@job_options
def lag(
    *,
    store: str,
    groups: tuple[str, ...],
    max_messages: int | None,
    max_seconds: float | None,
    run: JobRun,
) -> None:
    """Compare consumer groups with the heads of their queues, in messages and seconds.

    Ages are measured from the newest message of the store, or from the time of --to. For groups of
    a live cluster: roquet group show, roquet offset show.
    """
    from roquet.spark.jobs import lag as job

    run_job(
        run,
        "lag",
        lambda spark: job.lag(
            spark,
            store,
            wanted=run.wanted,
            groups=groups,
            messages_max=max_messages,
            seconds_max=max_seconds,
            is_dry_run=run.is_dry_run,
        ),
    )
