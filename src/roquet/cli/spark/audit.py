"""``roquet spark audit``."""

from __future__ import annotations

import click

from roquet.cli.spark.run import JobRun, job_options, run_job
from roquet.model.delay_level import DEFAULT_DELAY_LEVELS


@click.command()
@click.argument("store", type=click.Path())
@click.option("--replica", type=click.Path(), metavar="DIR", help="A copy of the log, to compare.")
@click.option(
    "--delay-levels",
    default=DEFAULT_DELAY_LEVELS,
    metavar="LEVELS",
    help="The broker's messageDelayLevel, by which delayed messages are due.",
)
@click.option(
    "--index-slots",
    type=click.IntRange(min=1),
    help="Slots of an index file, if the file does not say.",
)
@click.option(
    "--sample",
    type=click.FloatRange(min=0, min_open=True, max=1),
    default=1.0,
    metavar="PART",
    help="Check only this part of the log, such as 0.05, in evenly spaced ranges.",
)
@job_options
def audit(
    *,
    store: str,
    replica: str | None,
    delay_levels: str,
    index_slots: int | None,
    sample: float,
    run: JobRun,
) -> None:
    """Check every record, and compare all other files with the log."""
    from roquet.spark.jobs import audit as job

    run_job(
        run,
        "audit",
        lambda spark: job.audit(
            spark,
            store,
            wanted=run.wanted,
            replica=replica,
            delay_levels=delay_levels,
            index_slots=index_slots,
            sample=sample,
            is_dry_run=run.is_dry_run,
        ),
        is_short=False,
    )
