"""The flags for where pipelines read and write: a store or a cluster, and another cluster.

Without STORE, a pipeline reads through the brokers of the cluster of ``--namesrv``, or of the
current context; ``--to-namesrv`` or ``--to-context`` name another cluster to send to.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from roquet.cli.connection import (
    Connection,
    complete_context,
    connection_of,
    connection_options,
    settings_of_flags,
)
from roquet.cli.context_file import ClusterSettings

if TYPE_CHECKING:
    from roquet.client import ClientOptions
    from roquet.spark.jobs.message_feeds import Source

__all__ = [
    "check_one_source",
    "format_option",
    "rate_option",
    "source_of",
    "source_options",
    "target_of",
    "target_options",
]

P = ParamSpec("P")
T = TypeVar("T")

format_option = click.option(
    "--format",
    "lake_format",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="The format of the lake: plain files or a table.",
)

rate_option = click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="Messages per second, over all workers."
)


def source_options(command: Callable[P, T]) -> Callable[P, T]:
    """Add STORE and the flags of a cluster to a command: ``store`` and ``connection``."""
    return click.argument("store", required=False, type=click.Path())(connection_options(command))


def target_options(command: Callable[P, T]) -> Callable[P, T]:
    """Add the flags of another cluster to a command: ``to_namesrv`` and ``to_context``."""
    command = click.option(
        "--to-context",
        metavar="NAME",
        help="Send to the cluster of this context.",
        shell_complete=complete_context,
    )(command)
    return click.option(
        "--to-namesrv", metavar="ADDRESSES", help="Send to the cluster of these name servers."
    )(command)


def check_one_source(store: str | None) -> None:
    """Check that only one of store and cluster is named.

    Raises:
        click.UsageError: Both are.
    """
    named = settings_of_flags(click.get_current_context()).namesrv
    if store is not None and named is not None:
        raise click.UsageError("Pass STORE or --namesrv, not both.")


def source_of(store: str | None, connection: Connection) -> Source:
    """The source of a pipeline."""
    return connection.options() if store is None else store


def target_of(
    connection: Connection, to_namesrv: str | None, to_context: str | None
) -> ClientOptions:
    """Where a pipeline sends to: another cluster, or that of ``--namesrv``.

    Raises:
        NotFound: There is no such context.
        ConfigError: A setting cannot be used.
    """
    if to_namesrv is None and to_context is None:
        return connection.options()
    said = ClusterSettings(namesrv=to_namesrv)
    return connection_of(said, context=to_context, environment=os.environ).options()
