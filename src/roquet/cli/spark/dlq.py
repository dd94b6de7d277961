"""``roquet spark dlq``."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import click

from roquet.cli.connection import Connection
from roquet.cli.spark.run import JobRun, job_options, parse_names, run_job
from roquet.cli.spark.source_target import (
    rate_option,
    source_of,
    source_options,
    target_of,
    target_options,
)

P = ParamSpec("P")
T = TypeVar("T")

_DEFAULT_RETRIES = 16


@click.group()
def dlq() -> None:
    """Inspect messages that groups could not consume, and resend them.

    Reads the files of STORE, or without it the cluster of --namesrv. --topics are those that they
    came from, --from and --to the times at which they became dead letters.
    """


_groups = click.option(
    "--groups", callback=parse_names, metavar="NAMES", help="Only of these groups."
)


def _reasons(command: Callable[P, T]) -> Callable[P, T]:
    command = click.option(
        "--traces", is_flag=True, help="Look up in the trace topic how the handlers ended."
    )(command)
    return click.option(
        "--retries",
        type=click.IntRange(0),
        default=_DEFAULT_RETRIES,
        show_default=True,
        help="Retry limit of groups for which the source has none.",
    )(command)


@dlq.command("list")
@source_options
@_groups
@click.option("--limit", type=click.IntRange(0, 100_000), default=20, show_default=True)
@click.option(
    "--max-letters", type=click.IntRange(0), help="Report a group with more dead letters than this."
)
@_reasons
@job_options
def list_(
    *,
    store: str | None,
    connection: Connection,
    groups: tuple[str, ...],
    limit: int,
    max_letters: int | None,
    retries: int,
    traces: bool,
    run: JobRun,
) -> None:
    """List dead letters by group, topic and reason, and the newest of them (--limit)."""
    from roquet.spark.jobs import dlq as job

    source = source_of(store, connection)
    run_job(
        run,
        "dlq list",
        lambda spark: job.list_letters(
            spark,
            source,
            wanted=run.wanted,
            groups=groups,
            letters_shown=limit,
            letters_max=max_letters,
            default_retries=retries,
            with_traces=traces,
            is_dry_run=run.is_dry_run,
        ),
    )


@dlq.command()
@source_options
@click.option("--id", "names", multiple=True, required=True, metavar="ID", help="An id, or a key.")
@_groups
@_reasons
@job_options
def show(
    *,
    store: str | None,
    connection: Connection,
    names: tuple[str, ...],
    groups: tuple[str, ...],
    retries: int,
    traces: bool,
    run: JobRun,
) -> None:
    """Show dead letters in full: where they come from, properties, body."""
    from roquet.spark.jobs import dlq as job

    source = source_of(store, connection)
    run_job(
        run,
        "dlq show",
        lambda spark: job.show_letters(
            spark,
            source,
            names,
            wanted=run.wanted,
            groups=groups,
            default_retries=retries,
            with_traces=traces,
        ),
    )


@dlq.command()
@source_options
@_groups
@click.option(
    "--id", "names", multiple=True, metavar="ID", help="Only messages with these ids or keys."
)
@click.option("--to-topic", metavar="NAME", help="Send to this topic instead of the original one.")
@click.option(
    "--to-group", is_flag=True, help="Send only to the group that failed, through its retry topic."
)
@target_options
@rate_option
@click.option("--name", default="dlq", show_default=True, help="Prefix of the ids.")
@job_options
def replay(
    *,
    store: str | None,
    connection: Connection,
    groups: tuple[str, ...],
    names: tuple[str, ...],
    to_topic: str | None,
    to_group: bool,
    to_namesrv: str | None,
    to_context: str | None,
    rate: float | None,
    name: str,
    run: JobRun,
) -> None:
    """Resend dead letters, to all groups of the topic or with --to-group to one.

    With STORE, they are read from files and sent to the cluster of --namesrv. At least once: each
    has its id in the property SPARK_ROW_ID, which is the same in every run, so that consumers can
    drop repeats.
    """
    from roquet.spark.jobs import dlq as job

    source = source_of(store, connection)
    to = target_of(connection, to_namesrv, to_context)
    run_job(
        run,
        "dlq replay",
        lambda spark: job.replay_letters(
            spark,
            source,
            to,
            wanted=run.wanted,
            groups=groups,
            names=names,
            to_topic=to_topic,
            to_group=to_group,
            rate=rate,
            name=name,
            is_dry_run=run.is_dry_run,
        ),
    )
