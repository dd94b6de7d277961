"""Messages as text: a table of many, everything about one, a body as text, bytes or JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import msgspec

from roquet.cli.client import warn
from roquet.cli.message_line import body_of, own_properties
from roquet.cli.output import format_bytes, format_time, plural, print_table, printable
from roquet.client import ReceivedMessage
from roquet.errors import BadBody

__all__ = ["BODY_FORMS", "print_body", "print_message", "print_messages"]

BODY_FORMS = ("text", "hex", "json", "none")
EXCERPT = 40
HEX_STEP = 16


def print_messages(messages: Sequence[ReceivedMessage]) -> None:
    """Print a table of messages, with the beginning of their bodies."""
    print_table(
        plural(len(messages), "message"),
        ("stored", "broker", "queue", "offset", "message id", "tag", "keys", "bytes", "body"),
        [
            (
                format_time(each.store_timestamp_ms),
                each.broker_name,
                str(each.queue_id),
                str(each.queue_offset),
                each.message_id,
                printable(each.tags or "-"),
                printable(" ".join(each.keys) or "-"),
                str(len(body_of(each)[0])),
                _excerpt(body_of(each)[0]),
            )
            for each in messages
        ],
        numbers=("queue", "offset", "bytes"),
    )


def _excerpt(body: bytes) -> str:
    text = printable(body[: EXCERPT * 4].decode(errors="backslashreplace"))
    return text if len(text) <= EXCERPT else f"{text[: EXCERPT - 1]}…"


def print_message(message: ReceivedMessage, *, form: str) -> None:
    """Print all of a message."""
    body, error = body_of(message)
    own = own_properties(message)
    rows = {
        "Message": message.message_id,
        "Stored as": message.offset_message_id,
        "Topic": message.topic,
        "Place": f"{message.broker_name}, queue {message.queue_id}, offset {message.queue_offset}",
        "Stored": format_time(message.store_timestamp_ms),
        "Born": f"{format_time(message.born_timestamp_ms)} on {message.born_host}",
        "Tag": message.tags or "-",
        "Keys": " ".join(message.keys) or "-",
        "Delivered": f"{plural(message.reconsume_times, 'time')} again",
        "Body": format_bytes(len(body)),
    }
    for name, value in rows.items():
        click.echo(f"{name:<12}{printable(value)}")
    for title, part in (
        ("Properties", own),
        ("Of RocketMQ", {k: v for k, v in message.properties.items() if k not in own}),
    ):
        for at, (name, value) in enumerate(part.items()):
            head = title if at == 0 else ""
            click.echo(f"{head:<12}{printable(name)}={printable(value)}")
    click.echo()
    if error is not None:
        warn(error, as_json=False)
    if form != "none":
        print_body(body, form=form)
        click.echo()


def print_body(body: bytes, *, form: str) -> None:
    """Print a body.

    Raises:
        BadBody: It is to be shown as JSON, but is not JSON.
    """
    if form == "hex":
        click.echo("\n".join(_hex_lines(body)))
    elif form == "json":
        try:
            click.echo(msgspec.json.format(body, indent=2))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadBody(
                "The body is not JSON", detail=str(error), hint="Show it with --body text or hex."
            ) from error
    elif sys.stdout.isatty():
        lines = body.decode(errors="backslashreplace").split("\n")
        click.echo("\n".join(printable(line) for line in lines))
    else:
        click.echo(body)


def _hex_lines(body: bytes) -> list[str]:
    lines = []
    for at in range(0, len(body), HEX_STEP):
        part = body[at : at + HEX_STEP]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{HEX_STEP * 3 - 1}}  {shown}")
    return lines
