"""A message as one line of JSON: what ``roquet tail --json`` writes and ``roquet send`` reads.

Owns the format, which is the same both ways, so that one command's output is the other's input:

================== ==========================================================================
field              meaning
================== ==========================================================================
body               the body as text, if it is UTF-8
bodyBase64         the body otherwise
keys, tags         as the sender gave them
properties         the sender's own properties
everything else    where the message was found, and what RocketMQ added; not read by ``send``
================== ==========================================================================

An unknown field is refused: a misspelt one would be silently lost.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode

import msgspec
from msgspec import Struct

from roquet.client import Message, ReceivedMessage
from roquet.client.message import RESERVED_PROPERTIES
from roquet.errors import BadBody, BadMessage

__all__ = ["MessageLine", "body_of", "line_of", "message_of", "own_properties"]

_FIELDS_HINT = (
    'A line is an object such as {"body":"paid","keys":["17"],"tags":"eu","properties":{"a":"b"}}; '
    "bytes that are not text go into bodyBase64."
)


class MessageLine(
    Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A message for programs.

    Attributes:
        body: The body, if it is text.
        body_base64: The body, if it is not.
        body_error: Why the body could not be decompressed, and is given as stored.
        keys: The keys; a single one may be a string.
        tags: The tag.
        properties: The sender's own properties.
        sharding_key: Messages with the same key go to one queue, in order.
        delay_level: The delay level of the message.
        system_properties: The properties that RocketMQ itself uses.
    """

    topic: str = ""
    broker_name: str = ""
    queue_id: int = -1
    queue_offset: int = -1
    physical_offset: int = -1
    message_id: str = ""
    offset_message_id: str = ""
    born_timestamp: int = 0
    born_host: str = ""
    store_timestamp: int = 0
    reconsume_times: int = 0
    keys: list[str] | str = []
    tags: str | None = None
    properties: dict[str, str] = {}
    system_properties: dict[str, str] = {}
    sharding_key: str | None = None
    delay_level: int = 0
    body: str | None = None
    body_base64: str | None = None
    body_error: str | None = None


def body_of(message: ReceivedMessage) -> tuple[bytes, BadBody | None]:
    """The body; if it cannot be decompressed, the stored bytes with the reason."""
    try:
        return message.body, None
    except BadBody as error:
        return message.raw_body, error


def own_properties(message: ReceivedMessage) -> dict[str, str]:
    """The properties that RocketMQ does not use itself."""
    found = message.properties.items()
    return {name: value for name, value in found if name not in RESERVED_PROPERTIES}


def line_of(message: ReceivedMessage) -> MessageLine:
    """The line of a received message."""
    body, error = body_of(message)
    text: str | None
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = None
    own = own_properties(message)
    return MessageLine(
        topic=message.topic,
        broker_name=message.broker_name,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        message_id=message.message_id,
        offset_message_id=message.offset_message_id,
        born_timestamp=message.born_timestamp_ms,
        born_host=str(message.born_host),
        store_timestamp=message.store_timestamp_ms,
        reconsume_times=message.reconsume_times,
        keys=message.keys,
        tags=message.tags,
        properties=own,
        system_properties={
            name: value for name, value in message.properties.items() if name not in own
        },
        body=text,
        body_base64=b64encode(body).decode() if text is None else None,
        body_error=None if error is None else str(error.message),
    )


def message_of(topic: str, line: bytes) -> Message:
    """The message to send of a line.

    Raises:
        BadMessage: It is invalid, or has no body or two.

    Example:
        >>> message_of("Orders", b'{"body":"paid","keys":"17","tags":"eu"}').wire_properties()
        {'KEYS': '17', 'TAGS': 'eu', 'WAIT': 'true'}
    """
    try:
        found = msgspec.json.decode(line, type=MessageLine)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadMessage(
            "A line is not a message in JSON", detail=str(error), hint=_FIELDS_HINT
        ) from error
    if (found.body is None) == (found.body_base64 is None):
        raise BadMessage("A message has either body or bodyBase64", hint=_FIELDS_HINT)
    if found.body_error is not None:
        raise BadMessage(
            "The body of this message could not be read at its source",
            detail=found.body_error,
            hint="Skip the message, or remove bodyError to send the bytes as they are.",
        )
    return Message(
        topic,
        _decoded(found),
        tags=found.tags,
        keys=found.keys,
        properties=dict(found.properties),
        sharding_key=found.sharding_key,
        delay_level=found.delay_level,
    )


def _decoded(line: MessageLine) -> bytes:
    if line.body is not None:
        return line.body.encode()
    try:
        return b64decode(line.body_base64 or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadMessage(
            "bodyBase64 is not base64", detail=str(error), hint=_FIELDS_HINT
        ) from error
