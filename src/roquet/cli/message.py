"""``roquet message``: find messages by id, key and time, and show them.

Owns the options and the text; ``roquet.admin`` does the work. Nothing is consumed.
"""

from __future__ import annotations

import click
from msgspec import Struct

from roquet.admin import Admin, MessagesFound
from roquet.cli.client import administer, nearest_topic, warn_failures
from roquet.cli.completion import complete_topic
from roquet.cli.connection import Connection, connection_options
from roquet.cli.message_line import MessageLine, body_of, line_of
from roquet.cli.message_view import BODY_FORMS, print_message, print_messages
from roquet.cli.output import json_option, plural, print_json, print_table
from roquet.cli.start_offsets import StartKind, start_of
from roquet.client import ReceivedMessage
from roquet.errors import ConfigError, NotFound, ProtocolError
from roquet.runtime.clock import SystemClock

__all__ = ["ShownMessage", "TrackFacts", "message"]

DEFAULT_SPAN = "1h"
DEFAULT_MAX = 64
END_MS = 0x7FFF_FFFF_FFFF_FFFF

_max_option = click.option(
    "--max",
    "max_messages",
    type=click.IntRange(min=1),
    default=DEFAULT_MAX,
    show_default=True,
    help="At most this many.",
)
_until_option = click.option(
    "--until",
    "until_text",
    metavar="TIME",
    help="Stored at this time or earlier: a time or an age (5m).",
)


class TrackFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """The track of a message in a group, for programs; ``type`` is RocketMQ's."""

    group: str
    type: str
    error: str | None


class ShownMessage(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message and who consumed it, for programs; ``tracks`` is ``None`` if not requested."""

    message: MessageLine
    tracks: list[TrackFacts] | None


@click.group()
def message() -> None:
    """Find and show messages. Nothing is consumed."""


# -- one ----------------------------------------------------------------------------------------


@message.command()
@click.argument("message_id", metavar="ID")
@connection_options
@click.option(
    "-t", "--topic", shell_complete=complete_topic, help="Its topic; required for a producer's id."
)
@click.option(
    "--body",
    "form",
    type=click.Choice(BODY_FORMS),
    default="text",
    show_default=True,
    help="How to show the body.",
)
@click.option("--raw", is_flag=True, help="Write only the bytes of the body.")
@click.option("--no-tracks", is_flag=True, help="Do not look up which groups consumed it.")
@json_option
def show(
    message_id: str,
    *,
    connection: Connection,
    topic: str | None,
    form: str,
    raw: bool,
    no_tracks: bool,
    as_json: bool,
) -> None:
    """Show the message with this ID, and which groups consumed it.

    ID is the producer's message id (with --topic), or the offsetMsgId.

    \b
    roquet message show 7F0000010E5C2A139A550D2F3C5A0000 --topic Orders
    roquet message show 7F00000100002A9F0000000000000000 --raw > body
    """  # noqa: D301 - click keeps lines behind this mark as they are
    wire_topic = None if topic is None else connection.wrap(topic)
    is_tracked = not (no_tracks or raw)

    async def work(admin: Admin) -> tuple[ReceivedMessage, list[TrackFacts] | None]:
        found = await _by_id(admin, wire_topic, message_id)
        tracks = await _tracks(admin, found) if is_tracked else None
        return found, tracks

    with nearest_topic(connection, wire_topic or ""):
        found, tracks = administer(connection, work)
    found.topic = connection.unwrap(found.topic)
    if raw:
        click.echo(body_of(found)[0], nl=False)
    elif as_json:
        print_json(ShownMessage(message=line_of(found), tracks=tracks))
    else:
        print_message(found, form=form)
        if tracks is not None:
            print_table(
                f"{plural(len(tracks), 'group')} of the topic",
                ("group", "state", "error"),
                [(each.group, each.type, each.error or "-") for each in tracks],
            )


async def _by_id(admin: Admin, topic: str | None, message_id: str) -> ReceivedMessage:
    if topic is not None:
        return await admin.messages.by_id(topic, message_id)
    hint = "If this is a producer's message id, give the topic with --topic."
    try:
        return await admin.messages.by_offset_id(message_id)
    except ProtocolError as error:
        raise ConfigError(
            f"{message_id!r} does not say where the message is", detail=error.detail, hint=hint
        ) from error
    except NotFound as error:
        raise NotFound(
            f"There is no message where {message_id} points", detail=error.message, hint=hint
        ) from error


async def _tracks(admin: Admin, found: ReceivedMessage) -> list[TrackFacts]:
    return [
        TrackFacts(
            group=each.group,
            type=each.type.value,
            error=None if each.failure is None else each.failure.message,
        )
        for each in await admin.messages.tracks(found)
    ]


# -- many ---------------------------------------------------------------------------------------


@message.command("ls")
@click.argument("topic", shell_complete=complete_topic)
@connection_options
@click.option(
    "--from",
    "from_text",
    metavar="TIME",
    default=DEFAULT_SPAN,
    show_default=True,
    help="Stored at this time or later: a time, an age (15m) or earliest.",
)
@_until_option
@_max_option
@json_option
def list_messages(
    topic: str,
    *,
    connection: Connection,
    from_text: str,
    until_text: str | None,
    max_messages: int,
    as_json: bool,
) -> None:
    """List the messages of TOPIC stored in a time range, oldest first."""
    begin_ms, end_ms = _span(from_text, until_text)
    wire_topic = connection.wrap(topic)
    with nearest_topic(connection, wire_topic):
        found = administer(
            connection,
            lambda admin: admin.messages.by_time(
                wire_topic, begin_ms, end_ms, max_messages=max_messages
            ),
        )
    _report(connection, found, as_json=as_json)


@message.command()
@click.argument("topic", shell_complete=complete_topic)
@connection_options
@click.option("-k", "--key", help="One of the message keys.")
@click.option("-u", "--unique-key", help="The id that its producer gave the message.")
@click.option(
    "--from",
    "from_text",
    metavar="TIME",
    help="Stored at this time or later: a time or an age (15m).",
)
@_until_option
@_max_option
@json_option
def query(
    topic: str,
    *,
    connection: Connection,
    key: str | None,
    unique_key: str | None,
    from_text: str | None,
    until_text: str | None,
    max_messages: int,
    as_json: bool,
) -> None:
    """Find messages of TOPIC by key, or by the producer's message id."""
    if (key is None) == (unique_key is None):
        text = "Give either --key or --unique-key."
        raise click.UsageError(text)
    begin_ms, end_ms = _span(from_text or "earliest", until_text)
    wire_topic = connection.wrap(topic)

    async def work(admin: Admin) -> MessagesFound:
        if unique_key is not None:
            return MessagesFound(messages=[await admin.messages.by_id(wire_topic, unique_key)])
        return await admin.messages.by_key(
            wire_topic, key or "", max_messages=max_messages, begin_ms=begin_ms, end_ms=end_ms
        )

    with nearest_topic(connection, wire_topic):
        found = administer(connection, work)
    _report(connection, found, as_json=as_json)


def _span(from_text: str, until_text: str | None) -> tuple[int, int]:
    now_ms = SystemClock().now_ms()
    begin = start_of(from_text, now_ms)
    end = None if until_text is None else start_of(until_text, now_ms, flag="--until")
    for flag, text, start in (("--from", from_text, begin), ("--until", until_text, end)):
        if start is not None and start.kind is not StartKind.TIME and not start.is_earliest:
            raise ConfigError(
                f"{flag} is {text!r}, which is not a time",
                hint="Write 2026-01-31T12:00:00, or @ and milliseconds since 1970, or 15m.",
            )
    return begin.number, END_MS if end is None else end.number


def _report(connection: Connection, found: MessagesFound, *, as_json: bool) -> None:
    warn_failures(found.failures, as_json=as_json)
    for each in found.messages:
        each.topic = connection.unwrap(each.topic)
    if as_json:
        for each in found.messages:
            print_json(line_of(each))
    else:
        print_messages(found.messages)
    if found.is_cut:
        click.echo("Warning: there are more; raise --max or narrow the time range.", err=True)
