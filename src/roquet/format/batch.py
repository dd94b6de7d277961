"""The body of a batch send.

Owns the layout, repeated for each message: the fields of :data:`ENTRY`, the body, a two-byte
length, and the properties.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from roquet.errors import ProtocolError
from roquet.format.layout import Field, Layout

ENTRY = Layout(
    Field("totalSize", "i"),
    Field("magic", "i", "unused"),
    Field("bodyCRC", "i", "unused"),
    Field("flag", "i"),
    Field("bodyLength", "i"),
)
_PROPERTIES_LENGTH = struct.Struct(">h")
BATCH_ENTRY_BYTES_MIN = ENTRY.bytes + _PROPERTIES_LENGTH.size


class BatchEntry(NamedTuple):
    """One message of a batch."""

    flag: int
    body: memoryview
    properties: memoryview


def encode_batch(entries: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """The body of a batch of (flag, body, properties)."""
    parts: list[bytes] = []
    for flag, body, properties in entries:
        size = BATCH_ENTRY_BYTES_MIN + len(body) + len(properties)
        parts += (
            ENTRY.struct.pack(size, 0, 0, flag, len(body)),
            body,
            _PROPERTIES_LENGTH.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch(data: bytes | memoryview) -> Iterator[BatchEntry]:
    """Yield the messages of a batch; raise :class:`ProtocolError` if a length does not fit."""
    view = memoryview(data)
    position = 0
    while position < len(view):
        left = len(view) - position
        if left < BATCH_ENTRY_BYTES_MIN:
            raise _misfit(position, f"{left} bytes left, {BATCH_ENTRY_BYTES_MIN} needed")
        _, _, _, flag, body_length = ENTRY.struct.unpack_from(view, position)
        if not 0 <= body_length <= left - BATCH_ENTRY_BYTES_MIN:
            raise _misfit(position, f"body of {body_length} bytes with {left} left")
        body_at = position + ENTRY.bytes
        properties_at = body_at + body_length + _PROPERTIES_LENGTH.size
        (properties_length,) = _PROPERTIES_LENGTH.unpack_from(view, body_at + body_length)
        if not 0 <= properties_length <= len(view) - properties_at:
            raise _misfit(position, f"properties of {properties_length} bytes")
        position = properties_at + properties_length
        yield BatchEntry(flag, view[body_at : body_at + body_length], view[properties_at:position])


def _misfit(position: int, detail: str) -> ProtocolError:
    return ProtocolError(
        "the batch body is not well formed",
        detail=f"message at byte {position}: {detail}",
        hint="each message is size, magic, crc, flag, body length, body, props length, props",
    )
