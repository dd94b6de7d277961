"""``roquet spark stats``."""

from __future__ import annotations

import click

from roquet.cli.spark.run import JobRun, job_options, parse_names, run_job


@click.command()
@click.argument("store", type=click.Path())
@click.option(
    "--by",
    default="topic",
    show_default=True,
    callback=parse_names,
    help="Group by some of: topic,queue,hour,day.",
)
@click.option("--hot-keys", type=click.IntRange(0, 10_000), default=10, show_default=True)
@job_options
def stats(*, store: str, by: tuple[str, ...], hot_keys: int, run: JobRun) -> None:
    """Summarize a log: messages, bytes, rates, queue skew, hot keys, latency.

    STORE is the directory of a broker's store.
    """
    from roquet.spark.jobs import stats as job

    run_job(
        run,
        "stats",
        lambda spark: job.stats(
            spark,
            store,
            wanted=run.wanted,
            by=by,
            hot_keys=hot_keys,
            is_dry_run=run.is_dry_run,
        ),
    )
