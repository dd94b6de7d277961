"""How commands speak to people and to programs.

Results go to standard output and errors to standard error, as text or, where the command was given
``--json``, as JSON. Sub-commands take ``json_option`` from here, so that an error that ends the
command comes out in the form that was asked for.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import click
import msgspec

from roquet.errors import RoquetError

P = ParamSpec("P")
T = TypeVar("T")

_META_KEY = "roquet.json"


def _remember(context: click.Context, _parameter: click.Parameter, value: bool) -> bool:  # noqa: FBT001 - click's callback signature
    context.meta[_META_KEY] = value
    return value


def json_option(command: Callable[P, T]) -> Callable[P, T]:
    """Give a command the flag ``--json``, which it receives as ``as_json``."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        callback=_remember,
        help="Print JSON for programs instead of text for people.",
    )(command)


def wants_json(context: click.Context) -> bool:
    """Tell whether the running command was given ``--json``."""
    return bool(context.meta.get(_META_KEY, False))


def print_error(error: RoquetError, *, as_json: bool) -> None:
    """Print an error to standard error: message, DETAIL and HINT, or one JSON object."""
    if not as_json:
        click.echo(f"Error: {error}", err=True)
        return
    fields = {
        "type": type(error).__name__,
        "code": error.code,
        "message": error.message,
        "detail": error.detail,
        "hint": error.hint,
        "retriable": error.retriable,
    }
    click.echo(msgspec.json.encode({"error": fields}).decode(), err=True)
