"""Compression and decompression of message bodies.

Owns the three compressors and the bits of a message's system flag that name them. The bytes are
those of Apache RocketMQ's client: a zlib stream, an LZ4 frame or a Zstandard frame. LZ4 and
Zstandard need the packages of ``roquet[codecs]``.

Invariant: decompression stops at a limit, by default :data:`BODY_BYTES_MAX`, so that no message can
exhaust the memory of its consumer.
"""

from __future__ import annotations

import zlib
from enum import Enum
from importlib import import_module
from types import ModuleType

from roquet.errors import BadBody, ConfigError
from roquet.model import sys_flag as flags

__all__ = ["BODY_BYTES_MAX", "Compression", "compress", "decompress"]

BODY_BYTES_MAX = 64 << 20
"""The default limit on decompressed bodies: 16 times what producers send by default."""

_ZSTD_STEP_BYTES = 1 << 10
"""A block of four bytes may expand to 128 KiB, so one step yields at most 32 MiB."""


class Compression(Enum):
    """The compression of a body; the value is its name in settings.

    Example:
        >>> Compression("zlib") is Compression.ZLIB
        True
    """

    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"

    @property
    def sys_flag(self) -> int:
        """The bits of a message's system flag for this compression.

        Example:
            assert Compression.ZLIB.sys_flag != Compression.LZ4.sys_flag
        """
        return flags.COMPRESSED | _BITS[self]


_BITS = {
    Compression.ZLIB: flags.COMPRESSION_ZLIB,
    Compression.LZ4: flags.COMPRESSION_LZ4,
    Compression.ZSTD: flags.COMPRESSION_ZSTD,
}
_BY_BITS = {0: Compression.ZLIB, **{bits: kind for kind, bits in _BITS.items()}}


def compress(body: bytes, kind: Compression = Compression.ZLIB, *, level: int = 5) -> bytes:
    """Compress a body; set ``kind.sys_flag`` in the message's system flag.

    Args:
        body: The body.
        kind: The compression.
        level: The compression level, from 1 to 9; LZ4 ignores it, as upstream's does.

    Raises:
        ConfigError: The package that it needs is not installed.

    Example:
        >>> packed = compress(b"x" * 10_000)
        >>> len(packed) < 100
        True
        >>> decompress(packed, Compression.ZLIB.sys_flag) == b"x" * 10_000
        True
    """
    match kind:
        case Compression.ZLIB:
            return zlib.compress(body, level)
        case Compression.LZ4:
            return bytes(_package("lz4.frame").compress(body))
        case Compression.ZSTD:
            return bytes(_package("zstandard").ZstdCompressor(level=level).compress(body))


def decompress(data: bytes, sys_flag: int, *, max_bytes: int = BODY_BYTES_MAX) -> bytes:
    """Decompress the body of a message with this system flag.

    Args:
        data: The body as it was stored.
        sys_flag: The system flag; if it says "not compressed", the bytes are returned unchanged.
        max_bytes: The maximum size of the result.

    Raises:
        BadBody: The bytes are not what the flag says, or the body would be too long.
        ConfigError: The package that it needs is not installed.
    """
    if not sys_flag & flags.COMPRESSED:
        return data
    kind = _BY_BITS.get(sys_flag & flags.COMPRESSION_MASK)
    if kind is None:
        raise _bad_body(data, f"system flag {sys_flag:#x} names no known compression")
    try:
        body, is_whole = _READERS[kind](data, max_bytes)
    except ConfigError:
        raise
    except Exception as error:  # each library has its own errors
        raise _bad_body(data, f"{kind.value}: {error}") from error
    if len(body) > max_bytes:
        raise _bad_body(data, f"{kind.value}: it expands to more than {max_bytes} bytes")
    if not is_whole:
        raise _bad_body(data, f"{kind.value}: the data ends too early")
    return body


def _read_zlib(data: bytes, max_bytes: int) -> tuple[bytes, bool]:
    stream = zlib.decompressobj()
    return stream.decompress(data, max_bytes + 1), stream.eof


def _read_lz4(data: bytes, max_bytes: int) -> tuple[bytes, bool]:
    stream = _package("lz4.frame").LZ4FrameDecompressor()
    return bytes(stream.decompress(data, max_bytes + 1)), bool(stream.eof)


def _read_zstd(data: bytes, max_bytes: int) -> tuple[bytes, bool]:
    stream = _package("zstandard").ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    total_bytes = 0
    for start in range(0, len(data), _ZSTD_STEP_BYTES):
        parts.append(stream.decompress(data[start : start + _ZSTD_STEP_BYTES]))
        total_bytes += len(parts[-1])
        if stream.eof or total_bytes > max_bytes:
            break
    return b"".join(parts), bool(stream.eof)


_READERS = {
    Compression.ZLIB: _read_zlib,
    Compression.LZ4: _read_lz4,
    Compression.ZSTD: _read_zstd,
}


def _package(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError:
        raise ConfigError(
            f"{name.partition('.')[0]} is not installed",
            hint="Run: pip install 'roquet[codecs]'",
        ) from None


def _bad_body(data: bytes, reason: str) -> BadBody:
    return BadBody(
        "The body cannot be decompressed",
        detail=f"{len(data)} bytes; {reason}",
        hint="The raw_body of the message has the stored bytes.",
    )
