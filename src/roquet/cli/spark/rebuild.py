"""``roquet spark rebuild``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from roquet.cli.spark.run import JobRun, job_options, run_job
from roquet.model.delay_level import DEFAULT_DELAY_LEVELS

if TYPE_CHECKING:
    from roquet.spark.jobs.rebuild import ExtKind


@click.command()
@click.argument("store", type=click.Path())
@click.option(
    "--out", required=True, type=click.Path(), metavar="DIR", help="A new or empty directory."
)
@click.option(
    "--delay-levels",
    default=DEFAULT_DELAY_LEVELS,
    metavar="LEVELS",
    help="The broker's messageDelayLevel, by which delayed messages are due.",
)
@click.option("--index-slots", type=click.IntRange(min=1), help="The broker's maxHashSlotNum.")
@click.option("--index-entries", type=click.IntRange(min=2), help="The broker's maxIndexNum.")
@click.option(
    "--ext",
    type=click.Choice(["auto", "none", "units", "bitmaps"]),
    default="auto",
    show_default=True,
    help="Build a ConsumeQueueExt: as in the store, none, without or with filter bitmaps.",
)
@job_options
def rebuild(
    *,
    store: str,
    out: str,
    delay_levels: str,
    index_slots: int | None,
    index_entries: int | None,
    ext: ExtKind,
    run: JobRun,
) -> None:
    """Rebuild ConsumeQueue, its extension and the index from the log, into another directory."""
    from roquet.spark.jobs import rebuild as job

    run_job(
        run,
        "rebuild",
        lambda spark: job.rebuild(
            spark,
            store,
            out,
            wanted=run.wanted,
            delay_levels=delay_levels,
            index_slots=index_slots,
            index_entries=index_entries,
            ext=ext,
            is_dry_run=run.is_dry_run,
        ),
        is_short=False,
    )
