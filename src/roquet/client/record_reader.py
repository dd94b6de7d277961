"""Decodes the records in a response body into messages.

The layout is that of ``format/record_layout.py``. ``_records.pyx`` decodes plain records, many at
once, and skips all others: those with an IPv6 address, a topic of more than 255 bytes or a batch
inside, and every record whose lengths are inconsistent.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from msgspec import structs

from roquet.client.compression import BODY_BYTES_MAX
from roquet.client.message import ReceivedMessage
from roquet.errors import BadBody, CorruptRecord, ProtocolError
from roquet.format.batch import decode_batch
from roquet.format.commit_log import decode_record
from roquet.model import sys_flag as flags
from roquet.model.message_queue import MessageQueue
from roquet.runtime import compiled

if compiled.is_built("roquet.client._records"):
    from roquet.client import _records

__all__ = ["decode_messages", "decode_on_loop", "read_message"]

_WRAPPED = flags.INNER_BATCH | flags.NEED_UNWRAP
_COMPRESSION = flags.COMPRESSED | flags.COMPRESSION_MASK

BATCH_ON_LOOP_BYTES_MAX = 64 << 10
"""A batch of this size has a few thousand messages at most, which take some milliseconds."""


class _Decoded(NamedTuple):
    """The messages in a body.

    Attributes:
        messages: One for each record.
        wrapped: Which of them are batches, by index.
        is_whole: Whether the whole body was decoded.
    """

    messages: list[ReceivedMessage]
    wrapped: list[int]
    is_whole: bool


def read_message(buffer: bytes | memoryview, start: int, broker_name: str = "") -> ReceivedMessage:
    """Decode the record at ``start``.

    Args:
        buffer: Records, one after the other.
        start: Where it begins.
        broker_name: The broker it came from.

    Raises:
        CorruptRecord: There is no valid record.
    """
    return ReceivedMessage.of(decode_record(buffer, start, len(buffer)), broker_name)


def decode_messages(
    body: bytes | memoryview,
    queue: MessageQueue,
    *,
    offset_delta: int = 0,
    max_body_bytes: int = BODY_BYTES_MAX,
) -> tuple[list[ReceivedMessage], bool]:
    """Decode the messages in the body of a response; also returns whether that was all of it.

    Args:
        body: Records, one after the other.
        queue: Their queue.
        offset_delta: What a static topic adds to the offsets in the records.
        max_body_bytes: The maximum size of a decompressed body.

    Raises:
        ProtocolError: The body does not begin with a message.
    """
    messages, wrapped, is_whole = _decode(
        body, queue, offset_delta=offset_delta, max_body_bytes=max_body_bytes
    )
    return _replaced(messages, {each: _unwrapped(messages[each]) for each in wrapped}), is_whole


async def decode_on_loop(
    body: bytes | memoryview,
    queue: MessageQueue,
    *,
    offset_delta: int = 0,
    max_body_bytes: int = BODY_BYTES_MAX,
) -> tuple[list[ReceivedMessage], bool]:
    """As :func:`decode_messages`, but long batches are decoded in a thread.

    A batch of a few kilobytes may be compressed, and expand to a million messages.
    """
    messages, wrapped, is_whole = _decode(
        body, queue, offset_delta=offset_delta, max_body_bytes=max_body_bytes
    )
    batches: dict[int, list[ReceivedMessage]] = {}
    for each in wrapped:
        outer = messages[each]
        is_short = len(outer.raw_body) <= BATCH_ON_LOOP_BYTES_MAX
        if is_short and outer.unpack_short(BATCH_ON_LOOP_BYTES_MAX):
            batches[each] = _unwrapped(outer)
        else:
            batches[each] = await asyncio.to_thread(_unwrapped, outer)
    return _replaced(messages, batches), is_whole


def _decode(
    body: bytes | memoryview, queue: MessageQueue, *, offset_delta: int, max_body_bytes: int
) -> _Decoded:
    found: list[ReceivedMessage] = []
    wrapped: list[int] = []
    is_whole = True
    position = 0
    is_compiled = compiled.is_used("roquet.client._records")
    while position < len(body):
        if is_compiled and isinstance(body, bytes):
            position = _records.read_plain(
                body, position, found, queue.broker_name, queue.queue_id, offset_delta
            )
            if position == len(body):
                break
        try:
            message = read_message(body, position, queue.broker_name)
        except CorruptRecord as error:
            if found:
                is_whole = False
                break
            raise ProtocolError(
                f"A response of {queue.broker_name} contains bytes that are not a message",
                code="bad_message_bytes",
                detail=f"byte {position} of {len(body)}: {error.detail}",
                hint="The broker's log may be damaged there; see roquet store check.",
            ) from error
        position += message.store_size
        message.queue_id = queue.queue_id
        message.queue_offset += offset_delta
        message.max_body_bytes = max_body_bytes
        if message.sys_flag & _WRAPPED == _WRAPPED:
            wrapped.append(len(found))
        found.append(message)
    if max_body_bytes != BODY_BYTES_MAX:
        for message in found:
            message.max_body_bytes = max_body_bytes
    return _Decoded(found, wrapped, is_whole)


def _replaced(
    messages: list[ReceivedMessage], batches: dict[int, list[ReceivedMessage]]
) -> list[ReceivedMessage]:
    """Return the messages, with each batch replaced by its messages."""
    if not batches:
        return messages
    return [
        message for index, outer in enumerate(messages) for message in batches.get(index, (outer,))
    ]


def _unwrapped(outer: ReceivedMessage) -> list[ReceivedMessage]:
    """Return the messages of a batch record; the record itself if it cannot be decoded."""
    try:
        entries = list(decode_batch(outer.body))
    except (BadBody, ProtocolError):
        return [outer]
    return [
        structs.replace(
            outer,
            queue_offset=outer.queue_offset + index,
            flag=entry.flag,
            sys_flag=outer.sys_flag & ~_COMPRESSION,
            raw_body=bytes(entry.body),
            properties_data=bytes(entry.properties),
            _body=None,
            _properties=None,
        )
        for index, entry in enumerate(entries)
    ]
