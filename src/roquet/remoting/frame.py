"""Frames: how a byte stream is split into commands.

Owns the outermost layout of the protocol. Integers are big-endian.

.. code-block:: text

    offset   bytes     field
    0        4         length of everything that follows: 4 + header + body
    4        1         serialize type of the header: 0 JSON, 1 ROCKETMQ (binary)
    5        3         length of the header
    8        h         header
    8 + h    the rest  body

Invariants:

* A length is checked before it is used, and a frame is refused as soon as its first bytes are
  wrong, so a peer cannot make us wait, or reserve memory, for bytes that it never sends.
* A decoder holds only bytes that it was fed and has not handed out: between two reads, less than
  one frame, so at most :data:`MAX_FRAME_BYTES`. It holds lent bytes only until
  :meth:`FrameDecoder.keep`.
* Frames own their bytes; nothing points into a receive buffer.
* Bad bytes raise :class:`~roquet.errors.ProtocolError` and nothing else. After that the stream is
  useless, because where the next frame starts is unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple

from roquet.errors import ProtocolError

__all__ = [
    "MAX_FRAME_BYTES",
    "MAX_HEADER_BYTES",
    "PART_BYTES",
    "Frame",
    "FrameDecoder",
    "Received",
    "SerializeType",
    "encode_frame",
    "encode_frame_head",
]

MAX_FRAME_BYTES = 16_777_216
"""The longest frame, its length field included; upstream's ``frameMaxLength``."""

MAX_HEADER_BYTES = 1 << 20
"""The longest header. Real ones stay far below: message properties have at most 32 KiB."""

HEAD_BYTES = 8
"""The two length fields."""

Received = bytes | bytearray | memoryview
"""Bytes of a stream; the receiver copies what it keeps."""

PART_BYTES = 256 << 10
"""Longer frames are collected in chunks of about this size. One block that grows with every read
fragments the heap, and with many peers the holes take more memory than the data."""

_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">iI")
_HEADER_LENGTH_MASK = 0xFFFFFF

_TLS_HANDSHAKE = 0x16
_HTTP_STARTS = frozenset({b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"PRI "})


class SerializeType(IntEnum):
    """How the header of a frame is encoded."""

    JSON = 0
    ROCKETMQ = 1


_SERIALIZE_TYPES = {int(member): member for member in SerializeType}


class Frame(NamedTuple):
    """One frame, not yet decoded."""

    serialize_type: SerializeType
    header: bytes
    body: bytes


class FrameDecoder:
    """Splits one connection's bytes into frames.

    Feed what a read brought, then take frames until there are none.

    Args:
        max_frame_bytes: The longest frame to accept.

    Example:
        >>> decoder = FrameDecoder()
        >>> data = encode_frame(SerializeType.JSON, b"{}", b"hello")
        >>> decoder.feed(data[:7])
        >>> decoder.next_frame() is None
        True
        >>> decoder.feed(data[7:])
        >>> list(decoder)
        [Frame(serialize_type=<SerializeType.JSON: 0>, header=b'{}', body=b'hello')]
    """

    __slots__ = (
        "_buffer",
        "_error",
        "_max_frame_bytes",
        "_parts",
        "_parts_bytes",
        "_position",
        "_wanted_bytes",
    )

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer: Received = b""
        self._position = 0
        self._parts: list[bytearray] = []
        self._parts_bytes = 0
        self._wanted_bytes = 0
        self._max_frame_bytes = max_frame_bytes
        self._error: ProtocolError | None = None

    @property
    def buffered_bytes(self) -> int:
        """How many bytes were fed and not yet handed out."""
        return len(self._buffer) - self._position + self._parts_bytes

    @property
    def waiting(self) -> memoryview:
        """The bytes that were fed and not yet handed out."""
        self._join()
        return memoryview(self._buffer)[self._position :]

    def lend(self, data: memoryview, position: int = 0) -> None:
        """Use bytes that begin with those of :attr:`waiting`, without copying them.

        Args:
            data: The bytes.
            position: Where the first remaining frame starts.

        Raises:
            ProtocolError: An earlier frame was bad.
        """
        if self._error is not None:
            raise self._error
        self._buffer = data
        self._position = position
        self._drop_parts()

    def clear(self) -> None:
        """Drop all bytes; no more frames will be taken."""
        self._buffer = b""
        self._position = self._wanted_bytes = 0
        self._drop_parts()

    def keep(self) -> None:
        """Copy what is left of the lent bytes, which are about to change."""
        if type(self._buffer) is memoryview:
            self._drop(self._position)

    def feed(self, data: Received) -> None:
        """Add the bytes of a read; they are copied unless they are ``bytes``.

        Raises:
            ProtocolError: An earlier frame was bad.
            BufferError: More than a whole frame is buffered; take frames first.
        """
        if self._error is not None:
            raise self._error
        if self.buffered_bytes >= self._max_frame_bytes:
            raise BufferError(f"{self.buffered_bytes} bytes wait to be taken as frames")
        buffer = self._buffer
        if self._position == len(buffer):
            self._buffer = data if type(data) is bytes else bytearray(data)
            self._position = 0
        elif self._wanted_bytes and len(buffer) >= PART_BYTES:
            self._collect(data)
        elif type(buffer) is bytearray:
            buffer += data
        else:
            self._buffer = bytearray(buffer[self._position :]) + data
            self._position = 0

    def _collect(self, data: Received) -> None:
        """Add a chunk of a long frame."""
        parts = self._parts
        if parts and len(parts[-1]) + len(data) <= PART_BYTES:
            parts[-1] += data
        else:
            parts.append(bytearray(data))
        self._parts_bytes += len(data)

    def _join(self) -> None:
        """Join the collected chunks."""
        if self._parts:
            self._buffer = b"".join((self._buffer, *self._parts))
            self._drop_parts()

    def _drop_parts(self) -> None:
        if self._parts:
            self._parts = []
            self._parts_bytes = 0

    def next_frame(self) -> Frame | None:
        """Take the next frame; ``None`` while it is incomplete.

        Raises:
            ProtocolError: The bytes are not a frame; raised by every later call too.
        """
        if self._error is not None:
            raise self._error
        if self._position == len(self._buffer):
            self._buffer = b""
            self._position = 0
            return None
        if self._parts:
            if self.buffered_bytes < self._wanted_bytes:
                return None
            self._join()
        try:
            return self._cut()
        except ProtocolError as error:
            self._error = error
            self._drop(len(self._buffer))
            raise

    def take_with(self, take: Callable[[Received, int], int]) -> None:
        """Let a function take frames directly from the buffer.

        ``take`` gets the buffer and where the next frame starts, and returns where the first frame
        that it did not take starts.
        """
        available = self.buffered_bytes
        if available > HEAD_BYTES and available >= self._wanted_bytes:
            self._join()
            self._wanted_bytes = 0
            self._position = take(self._buffer, self._position)

    def __iter__(self) -> Iterator[Frame]:
        while (frame := self.next_frame()) is not None:
            yield frame

    def _cut(self) -> Frame | None:
        buffer = self._buffer
        start = self._position
        available = len(buffer) - start
        if available >= HEAD_BYTES:
            length, mark = _HEAD.unpack_from(buffer, start)
            self._check_length(length, start)
            header_bytes = mark & _HEADER_LENGTH_MASK
            serialize_type = _SERIALIZE_TYPES.get(mark >> 24)
            if serialize_type is None:
                raise ProtocolError(
                    f"Frame with unknown serialize type {mark >> 24}",
                    detail=f"frame of {length} bytes, header of {header_bytes}",
                    hint="Serialize types are 0 (JSON) and 1 (ROCKETMQ).",
                )
            if header_bytes > length - 4 or header_bytes > MAX_HEADER_BYTES:
                raise ProtocolError(
                    f"Frame with a bad header length of {header_bytes} bytes",
                    detail=f"frame of {length} bytes; headers have at most {MAX_HEADER_BYTES}",
                )
            self._wanted_bytes = 4 + length
            if available >= 4 + length:
                self._wanted_bytes = 0
                end = self._position = start + 4 + length
                body_start = start + HEAD_BYTES + header_bytes
                if type(buffer) is bytes:
                    header, body = buffer[start + HEAD_BYTES : body_start], buffer[body_start:end]
                else:
                    with memoryview(buffer) as view:
                        header = bytes(view[start + HEAD_BYTES : body_start])
                        body = bytes(view[body_start:end])
                return Frame(serialize_type, header, body)
        elif available >= 4:
            self._check_length(_LENGTH.unpack_from(buffer, start)[0], start)
        if start:
            self._drop(start)
        return None

    def _drop(self, count: int) -> None:
        """Drop the first bytes, which were handed out."""
        buffer = self._buffer
        if count == len(buffer):
            self._buffer = b""
        elif type(buffer) is bytearray:
            del buffer[:count]
        else:
            self._buffer = bytearray(buffer[count:])
        self._position = 0

    def _check_length(self, length: int, start: int) -> None:
        if 4 <= length <= self._max_frame_bytes - 4:
            return
        raise ProtocolError(
            f"Frame with a bad length of {length} bytes",
            detail=f"a frame has 4 to {self._max_frame_bytes - 4} bytes after its length",
            hint=_stranger_hint(bytes(self._buffer[start : start + 4])),
        )


def _stranger_hint(first: bytes) -> str | None:
    if first[0] == _TLS_HANDSHAKE:
        return "The peer starts a TLS handshake; this connection speaks plain text."
    if first in _HTTP_STARTS:
        return "The peer speaks HTTP; this port speaks RocketMQ's remoting protocol."
    return None


def encode_frame_head(
    serialize_type: SerializeType, *, header_bytes: int, body_bytes: int
) -> bytes:
    """The eight bytes before a header, for a frame that is written piece by piece.

    Raises:
        ProtocolError: A peer would refuse the frame as too long.
    """
    frame_bytes = HEAD_BYTES + header_bytes + body_bytes
    if header_bytes > MAX_HEADER_BYTES or frame_bytes > MAX_FRAME_BYTES:
        raise _too_long(header_bytes, frame_bytes)
    return _HEAD.pack(frame_bytes - 4, serialize_type << 24 | header_bytes)


def _too_long(header_bytes: int, frame_bytes: int) -> ProtocolError:
    return ProtocolError(
        f"Frame of {frame_bytes} bytes is too long",
        detail=(
            f"header {header_bytes} of at most {MAX_HEADER_BYTES} bytes, "
            f"whole frame of at most {MAX_FRAME_BYTES}"
        ),
        hint="Send or ask for less at once.",
    )


def encode_frame(
    serialize_type: SerializeType, header: bytes, body: bytes | memoryview = b""
) -> bytes:
    """Encode a whole frame.

    Raises:
        ProtocolError: A peer would refuse the frame as too long.

    Example:
        >>> encode_frame(SerializeType.JSON, b"{}", b"hello").hex(" ", -4)
        '0000000b 00000002 7b7d6865 6c6c6f'
    """
    header_bytes = len(header)
    frame_bytes = HEAD_BYTES + header_bytes + len(body)
    if header_bytes > MAX_HEADER_BYTES or frame_bytes > MAX_FRAME_BYTES:
        raise _too_long(header_bytes, frame_bytes)
    head = _HEAD.pack(frame_bytes - 4, serialize_type << 24 | header_bytes)
    return b"".join((head, header, body))
