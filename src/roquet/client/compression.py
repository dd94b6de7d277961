"""Compressed bodies: how they are made, and how they are read.

Owns the three compressors and the bits of a message's system flag that name them. The bytes are
those of Apache RocketMQ's client: a zlib stream, an LZ4 frame or a Zstandard frame. LZ4 and
Zstandard need the packages of ``roquet[codecs]``.

Invariant: reading never makes more than :data:`BODY_BYTES_MAX` bytes, so that no message can fill
the memory of its consumer.
"""

from __future__ import annotations

import zlib
from enum import Enum
from importlib import import_module
from types import ModuleType

from roquet.errors import BadBody, ConfigError
from roquet.model import sys_flag as flags

__all__ = ["BODY_BYTES_MAX", "Compression", "compress", "decompress"]

BODY_BYTES_MAX = 256 << 20
"""The longest body that decompressing may make."""

_ZSTD_STEP_BYTES = 1 << 10
"""A block of four bytes may stand for 128 KiB, so that one step makes 32 MiB at most."""


class Compression(Enum):
    """What a body is compressed with; the value is its name in settings.

    Example:
        >>> Compression("zlib") is Compression.ZLIB
        True
    """

    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"

    @property
    def sys_flag(self) -> int:
        """The bits of a message's system flag: compressed, and with this.

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
    """A body, compressed; set ``kind.sys_flag`` in the message's system flag.

    Args:
        body: The body.
        kind: With what.
        level: How hard to try, from 1 to 9; LZ4 tries equally hard always, as upstream's does.

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
    """The body of a message with this system flag.

    Args:
        data: The body as it was stored.
        sys_flag: The system flag; one that says "not compressed" gives the bytes as they are.
        max_bytes: How long the result may be.

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
    except Exception as error:  # each library has its own kinds
        raise _bad_body(data, f"{kind.value}: {error}") from error
    if len(body) > max_bytes:
        raise _bad_body(data, f"{kind.value}: it makes more than {max_bytes} bytes")
    if not is_whole:
        raise _bad_body(data, f"{kind.value}: the bytes end too early")
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
        hint="raw_body of the message has the bytes as they were stored.",
    )
