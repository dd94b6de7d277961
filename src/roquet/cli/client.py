"""What the commands that are clients of a cluster share: name servers, the loop, times and spans.

Exit codes, which scripts may rely on:

==== =======================================================================================
code meaning
==== =======================================================================================
0    done
1    failed, for example because a broker refused
2    bad flag, name, expression or message
3    a server cannot be reached or did not answer, or no broker has the topic
4    the permission is missing
130  interrupted by SIGINT before all was done
==== =======================================================================================
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import ParamSpec, TypeVar

import click

from roquet.admin import Admin
from roquet.cli.output import print_error
from roquet.errors import RoquetError
from roquet.runtime.log import LineFormatter

__all__ = [
    "EXIT_INTERRUPTED",
    "administer",
    "confirm",
    "namesrv_option",
    "parse_span_ms",
    "run_client",
    "warn",
    "warn_failures",
    "yes_option",
]

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_NAMESRV = "127.0.0.1:9876"
EXIT_INTERRUPTED = 130

_SPAN = re.compile(r"(?a)(\d+)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def namesrv_option(command: Callable[P, T]) -> Callable[P, T]:
    """Give a command the flag ``--namesrv``."""
    return click.option(
        "-n",
        "--namesrv",
        metavar="ADDRESSES",
        envvar="NAMESRV_ADDR",
        default=DEFAULT_NAMESRV,
        show_default=True,
        help="Name servers, with semicolons between; or the variable NAMESRV_ADDR.",
    )(command)


def yes_option(command: Callable[P, T]) -> Callable[P, T]:
    """Give a command that cannot be undone the flag ``--yes``, which it receives as ``is_sure``."""
    return click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")(command)


def confirm(question: str, *, is_sure: bool) -> None:
    """Ask once before something that cannot be undone, unless the answer was given already.

    Raises:
        click.Abort: The answer is no, or there is nobody to answer.
    """
    if not is_sure:
        click.confirm(question, abort=True, err=True)


def run_client(work: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run a client until it is done; what it logs goes to standard error.

    Raises:
        RoquetError: It failed.
        KeyboardInterrupt: SIGINT came; everything is closed.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(levelname)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        return asyncio.run(work())
    finally:
        root.removeHandler(handler)


def administer(namesrv: str, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Do something as an administrator of a cluster.

    Raises:
        RoquetError: It failed.
        click.exceptions.Exit: SIGINT came.
    """

    async def whole() -> T:
        async with Admin(namesrv) as admin:
            return await work(admin)

    try:
        return run_client(whole)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


def warn_failures(failures: Mapping[str, RoquetError], *, as_json: bool) -> None:
    """Say which servers are missing in what was found."""
    for error in failures.values():
        warn(error, as_json=as_json)


def warn(error: RoquetError, *, as_json: bool) -> None:
    """Say what went wrong with a part, where the command goes on."""
    if as_json:
        print_error(error, as_json=True)
    else:
        click.echo(f"Warning: {error}", err=True)


def parse_span_ms(text: str) -> int | None:
    """A span such as ``90s`` in milliseconds; ``None`` if the text is none.

    Example:
        >>> parse_span_ms("90s"), parse_span_ms("2h"), parse_span_ms("250ms"), parse_span_ms("7")
        (90000, 7200000, 250, None)
    """
    match = _SPAN.fullmatch(text)
    return None if match is None else int(match[1]) * _UNIT_MS[match[2]]
