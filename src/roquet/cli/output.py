"""The output of commands, as text and as JSON.

Results go to standard output and errors to standard error, as text or, where the command was given
``--json``, as JSON. Sub-commands take ``json_option`` from here, so that an error that ends the
command is printed in the requested form. Tables, times and sizes look the same in every command;
``rich`` is imported only for a terminal.
"""

import errno
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import ParamSpec, TypeVar

import click
import msgspec

from roquet.errors import RoquetError
from roquet.runtime.process import silence_output

P = ParamSpec("P")
T = TypeVar("T")

_META_KEY = "roquet.json"
_SPAN = re.compile(r"(?a)(\d+)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _remember(context: click.Context, _parameter: click.Parameter, value: bool) -> bool:  # noqa: FBT001 - click's callback signature
    found: bool = context.meta.get(_META_KEY, False) or value
    context.meta[_META_KEY] = found
    return found


def json_option(command: Callable[P, T]) -> Callable[P, T]:
    """Give a command the flag ``--json``, which it receives as ``as_json``."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,
        callback=_remember,
        help="Print JSON instead of text.",
    )(command)


def wants_json(context: click.Context) -> bool:
    """Tell whether the running command was given ``--json``."""
    return bool(context.meta.get(_META_KEY, False))


def yes_option(command: Callable[P, T]) -> Callable[P, T]:
    """Give a command that cannot be undone the flag ``--yes``, which it receives as ``is_sure``."""
    return click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")(
        command
    )


def confirm(question: str, *, is_sure: bool) -> None:
    """Prompt before something that cannot be undone, unless ``is_sure``.

    Raises:
        click.Abort: The answer is no, or there is no terminal.
    """
    if not is_sure:
        click.confirm(question, abort=True, err=True)


@contextmanager
def even_if_nobody_reads() -> Iterator[None]:
    """Continue if the reader of standard output has closed it: the work matters more."""
    try:
        yield
    except OSError as error:
        # A pipe breaks; a terminal that hung up fails its writes.
        if error.errno not in {errno.EPIPE, errno.EIO}:
            raise
        silence_output()


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


def print_json(value: object) -> None:
    """Print one value as one line of JSON on standard output."""
    click.echo(msgspec.json.encode(value).decode())


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
) -> None:
    """Print a table: drawn on a terminal, aligned plain text elsewhere.

    Args:
        title: Heading of the table.
        columns: Heading of each column.
        rows: The cells.
        numbers: Columns that are aligned to the right.
    """
    if sys.stdout.isatty():
        _print_rich_table(title, columns, rows, numbers)
        return
    widths = [
        max(len(column), *(len(row[at]) for row in rows)) if rows else len(column)
        for at, column in enumerate(columns)
    ]
    click.echo(title)
    for row in (columns, *rows):
        cells = (
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, cell, width in zip(columns, row, widths, strict=True)
        )
        click.echo(f"  {'  '.join(cells)}".rstrip())
    click.echo()


def _print_rich_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]
) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    Console().print(table)


def format_time(time_ms: int | None) -> str:
    """A time in the local zone, to the millisecond; a dash for none."""
    if not time_ms:
        return "-"
    try:
        time = datetime.fromtimestamp(time_ms / 1000, tz=UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    return time.isoformat(sep=" ", timespec="milliseconds")


def format_number(value: int | None) -> str:
    """A whole number; a dash for none."""
    return "-" if value is None else str(value)


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """A number of things.

    Example:
        >>> plural(1, "message"), plural(0, "message"), plural(2, "body", "bodies")
        ('1 message', '0 messages', '2 bodies')
    """
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def format_bytes(size_bytes: int) -> str:
    """A size in plain units, exact below a kibibyte."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def printable(text: str) -> str:
    """Text from a message, safe for a terminal: control characters are written as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def parse_time(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> int | None:
    """Parse an option that is a time: milliseconds since the epoch, or ISO 8601.

    A time without a zone is in the local one.
    """
    if value is None:
        return None
    if value.isascii() and value.isdecimal():
        return int(value)
    try:
        moment = datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError):
        message = (
            f"{value!r} is neither milliseconds since 1970 nor a time such as "
            "2026-01-31T12:00:00 or 2026-01-31T12:00:00Z."
        )
        raise click.BadParameter(message) from None
    return round(moment.timestamp() * 1000)


def parse_pairs(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Parse a repeated option of the form NAME=VALUE."""
    found = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not (name and equals):
            message = f"{text!r} is not NAME=VALUE."
            raise click.BadParameter(message)
        found[name] = value
    return found


def parse_span_ms(text: str) -> int | None:
    """A duration such as ``90s`` in milliseconds; ``None`` if the text is not one.

    Example:
        >>> parse_span_ms("90s"), parse_span_ms("2h"), parse_span_ms("250ms"), parse_span_ms("7")
        (90000, 7200000, 250, None)
        >>> parse_span_ms("0")
        0
    """
    if text == "0":
        return 0  # the only number that means the same in every unit
    match = _SPAN.fullmatch(text)
    return None if match is None else int(match[1]) * _UNIT_MS[match[2]]
