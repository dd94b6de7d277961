"""``roquet completion``: shell completion, including names from the cluster.

Owns the scripts for shells, which are click's, and the names. A shell waits for them while the user
types, so there is a short timeout, and any failure means no names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import ShellComplete, get_completion_class

from roquet.cli.connection import connection_of_flags
from roquet.errors import RoquetError
from roquet.model.topic import is_dlq_topic, is_retry_topic

if TYPE_CHECKING:
    from roquet.admin import Admin

__all__ = [
    "complete_broker",
    "complete_cluster",
    "complete_group",
    "complete_topic",
    "completion",
]

TIMEOUT_MS = 800
SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_ROQUET_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete commands, flags, topics and groups.

    \b
    bash:  eval "$(roquet completion bash)"          in ~/.bashrc
    zsh:   eval "$(roquet completion zsh)"           in ~/.zshrc
    fish:  roquet completion fish > ~/.config/fish/completions/roquet.fish
    """  # noqa: D301 - click keeps lines behind this mark as they are
    kind = get_completion_class(shell)
    if kind is None:
        raise RoquetError(f"There is no completion for {shell}")
    program = click.get_current_context().find_root().command
    # Not its own method: bash's runs a program to warn about old versions.
    click.echo(ShellComplete.source(kind(program, {}, "roquet", VARIABLE)))


# -- names --------------------------------------------------------------------------------------


def complete_topic(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Topics; those of the system and of groups only if the prefix is typed."""

    async def names(admin: Admin) -> list[str]:
        found = await admin.topics.names()
        if incomplete.startswith("%"):
            return found
        return [each for each in found if not (is_retry_topic(each) or is_dlq_topic(each))]

    return _ask(context, incomplete, names)


def complete_group(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Consumer groups."""

    async def names(admin: Admin) -> list[str]:
        tables = (await admin.groups.configs()).answers.values()
        return [name for table in tables for name in table]

    return _ask(context, incomplete, names)


def complete_broker(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Brokers."""

    async def names(admin: Admin) -> list[str]:
        return [each.name for each in await admin.clusters.brokers()]

    return _ask(context, incomplete, names)


def complete_cluster(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Clusters."""

    async def names(admin: Admin) -> list[str]:
        return list(await admin.clusters.names())

    return _ask(context, incomplete, names)


def _items(names: Iterable[str], incomplete: str) -> list[str]:
    return [each for each in sorted(set(names)) if each.startswith(incomplete)]


def _ask(
    context: click.Context,
    incomplete: str,
    names: Callable[[Admin], Awaitable[list[str]]],
) -> list[str]:
    from roquet.admin import Admin

    async def whole() -> list[str]:
        async with asyncio.timeout(TIMEOUT_MS / 1000), Admin(options) as admin:
            return await names(admin)

    logging.disable()  # log lines would disturb the user's typing
    try:
        connection = connection_of_flags(context)
        options = connection.options(default_timeout_ms=TIMEOUT_MS)
        found = asyncio.run(whole())
    except (RoquetError, OSError, TimeoutError):
        return []
    finally:
        logging.disable(logging.NOTSET)
    return _items((connection.unwrap(each) for each in found), incomplete)
