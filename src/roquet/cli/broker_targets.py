"""Which brokers a command applies to, and the changes it makes on each of them.

Owns the flags ``--cluster`` and ``--broker`` of commands that change or create something.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import ParamSpec, TypeVar

import click

from roquet.admin import ServerResults
from roquet.cli.completion import complete_broker, complete_cluster
from roquet.cli.output import print_json
from roquet.errors import RoquetError

__all__ = ["Changes", "fields_of", "on_each", "place_options", "report_changes", "words_of"]

P = ParamSpec("P")
T = TypeVar("T")

Changes = dict[str, tuple[object, object]]
"""By name of a setting: the old and the new value."""


def place_options(command: Callable[P, T]) -> Callable[P, T]:
    """Give a command the flags ``--cluster`` and ``--broker``."""
    cluster = click.option(
        "--cluster",
        metavar="NAME",
        help="Only brokers of this cluster.",
        shell_complete=complete_cluster,
    )
    broker = click.option(
        "--broker",
        metavar="NAME",
        help="Only this broker, or host:port.",
        shell_complete=complete_broker,
    )
    return cluster(broker(command))


async def on_each(
    configs: Mapping[str, T], change: Callable[[str, T], Awaitable[object]], what: str
) -> list[str]:
    """Change something on one broker after the other; return the changed brokers.

    Args:
        configs: The current settings of each broker.
        change: Called with the broker and its settings.
        what: The action, for error messages.

    Raises:
        RoquetError: There is only one broker, and it failed.
        BrokersFailed: Some failed.
    """
    failures: dict[str, RoquetError] = {}
    did: dict[str, None] = {}
    for name, config in configs.items():
        try:
            await change(name, config)
        except RoquetError as error:
            failures[name] = error
        else:
            did[name] = None
    return list(ServerResults(answers=did, failures=failures).complete(what))


def words_of(changes: Mapping[str, Changes]) -> list[str]:
    """The changes, a line for each broker."""
    return [
        f"{broker}: " + ", ".join(f"{name} {old} → {new}" for name, (old, new) in parts.items())
        for broker, parts in changes.items()
    ]


def fields_of(changes: Mapping[str, Changes]) -> dict[str, dict[str, dict[str, object]]]:
    """The changes, for programs."""
    return {
        broker: {name: {"from": old, "to": new} for name, (old, new) in parts.items()}
        for broker, parts in changes.items()
    }


def report_changes(
    kind: str, name: str, brokers: list[str], changes: Mapping[str, Changes], *, as_json: bool
) -> None:
    """Print what was set.

    Args:
        kind: ``topic`` or ``group``, for programs.
        name: Its name.
        brokers: The changed brokers.
        changes: The changes on each of them.
        as_json: Whether to print JSON.
    """
    if as_json:
        print_json({kind: name, "brokers": brokers, "changes": fields_of(changes)})
    elif brokers:
        click.echo(f"Set {name}\n  " + "\n  ".join(words_of(changes)))
    else:
        click.echo(f"{name} has these settings already")
