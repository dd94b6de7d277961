"""What the client commands share: the event loop, the admin client, confirmation prompts.

Exit codes, which scripts may rely on:

==== =======================================================================================
code meaning
==== =======================================================================================
0    done
1    failed, for example because a broker refused
2    bad flag, name, expression or message
3    a server is unreachable or did not respond, or no broker has the topic
4    the permission is missing
130  interrupted by SIGINT
==== =======================================================================================
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from typing import TypeVar

import click

from roquet.admin import Admin
from roquet.cli.connection import Connection
from roquet.cli.context_file import nearest
from roquet.cli.output import print_error
from roquet.errors import NoRoute, RoquetError
from roquet.runtime.log import LineFormatter

__all__ = [
    "EXIT_INTERRUPTED",
    "administer",
    "nearest_topic",
    "run_client",
    "warn",
    "warn_failures",
]

T = TypeVar("T")

ADMIN_TIMEOUT_MS = 5_000
EXIT_INTERRUPTED = 130


def run_client(connection: Connection, work: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run a client of a cluster until it is done; it logs to standard error.

    Raises:
        RoquetError: It failed.
        KeyboardInterrupt: Interrupted by SIGINT; everything is closed.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(levelname)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        return asyncio.run(work())
    except RoquetError as error:
        raise connection.explained(error) from error
    finally:
        root.removeHandler(handler)


def administer(connection: Connection, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Run something with an admin client of a cluster.

    Raises:
        RoquetError: It failed.
        click.exceptions.Exit: Interrupted by SIGINT.
    """
    options = connection.options(default_timeout_ms=ADMIN_TIMEOUT_MS)

    async def whole() -> T:
        async with Admin(options) as admin:
            return await work(admin)

    try:
        return run_client(connection, whole)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


@contextmanager
def nearest_topic(connection: Connection, topic: str) -> Iterator[None]:
    """Add the most similar topic to an error about an unknown topic.

    Raises:
        NoRoute: No broker has it.
    """
    try:
        yield
    except NoRoute as error:
        names: list[str] = []
        with suppress(RoquetError):  # a failed search keeps the old hint
            names = administer(connection, lambda admin: admin.topics.names())
        found = copy(error)
        found.hint = nearest(topic, names) or error.hint
        raise found from error


def warn_failures(failures: Mapping[str, RoquetError], *, as_json: bool) -> None:
    """Warn about servers that are missing in a result."""
    for error in failures.values():
        warn(error, as_json=as_json)


def warn(error: RoquetError, *, as_json: bool) -> None:
    """Print the failure of a part, after which the command continues."""
    if as_json:
        print_error(error, as_json=True)
    else:
        click.echo(f"Warning: {error}", err=True)
