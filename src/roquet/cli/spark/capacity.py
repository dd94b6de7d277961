"""``roquet spark capacity``."""

from __future__ import annotations

import click

from roquet.cli.spark.run import JobRun, job_options, run_job


@click.command()
@click.argument("store", type=click.Path())
@click.option(
    "--days",
    type=click.IntRange(1),
    default=7,
    show_default=True,
    help="How many of the latest days to use.",
)
@click.option(
    "--reserved-hours",
    type=click.FloatRange(0, min_open=True),
    default=72.0,
    show_default=True,
    help="The broker's fileReservedTime.",
)
@click.option(
    "--min-days",
    type=click.FloatRange(0),
    default=7.0,
    show_default=True,
    help="Report a finding if the disk will fill sooner.",
)
@job_options
def capacity(*, store: str, days: int, reserved_hours: float, min_days: float, run: JobRun) -> None:
    """Estimate how a store grows, and when its disk will be full."""
    from roquet.spark.jobs import capacity as job

    run_job(
        run,
        "capacity",
        lambda spark: job.capacity(
            spark,
            store,
            wanted=run.wanted,
            days=days,
            reserved_hours=reserved_hours,
            days_min=min_days,
            is_dry_run=run.is_dry_run,
        ),
    )
