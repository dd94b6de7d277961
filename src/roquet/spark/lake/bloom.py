"""Asks the Bloom filters of a Parquet file whether a text may be in a column.

Arrow writes the filters but does not read them. Layout of one, as Parquet defines it:

.. code-block:: text

    header   Thrift, compact: the number of bytes below, then three unions, each with one choice:
             split blocks, xxHash, uncompressed
    blocks   32 bytes each: 8 little-endian words of 32 bits

The upper half of a value's hash chooses the block, the lower half one bit in each of its words.
A filter of another kind is taken to have every value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

__all__ = ["may_have", "xxhash64"]

_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_SALT = (
    *(0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D),
    *(0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
)
_BLOCK_BYTES = 32
_HEADER_BYTES_MAX = 32
_BYTES_TAG = 0x15
"""Field 1, a number."""

_CHOICES = bytes.fromhex("1c1c0000 1c1c0000 1c1c0000 00")
"""Fields 2 to 4: unions whose first choice, an empty struct, is taken; then the end."""


def may_have(read: Callable[[int, int], bytes], offset: int, value: str) -> bool:
    """Whether a column may have a value; a definite no is certain.

    Args:
        read: Returns some bytes of the file: from where, how many.
        offset: Where the column's filter begins.
        value: The text.
    """
    head = read(offset, _HEADER_BYTES_MAX)
    parsed = _header(head)
    if parsed is None:
        return True
    header_bytes, filter_bytes = parsed
    hashed = xxhash64(value.encode())
    block = (hashed >> 32) * (filter_bytes // _BLOCK_BYTES) >> 32
    data = read(offset + header_bytes + block * _BLOCK_BYTES, _BLOCK_BYTES)
    if len(data) != _BLOCK_BYTES:
        return True
    low = hashed & 0xFFFFFFFF
    words = struct.unpack("<8I", data)
    return all(
        word >> ((low * salt & 0xFFFFFFFF) >> 27) & 1
        for word, salt in zip(words, _SALT, strict=True)
    )


def _header(head: bytes) -> tuple[int, int] | None:
    """Return the lengths of the header and of the filter; ``None`` for an unknown kind."""
    if not head or head[0] != _BYTES_TAG:
        return None
    zigzag = at = 0
    for at, byte in enumerate(head[1:6], 1):
        zigzag |= (byte & 0x7F) << 7 * (at - 1)
        if byte < 0x80:
            break
    end = at + 1 + len(_CHOICES)
    filter_bytes = zigzag >> 1
    is_known = not zigzag & 1 and filter_bytes >= _BLOCK_BYTES and not filter_bytes % _BLOCK_BYTES
    return (end, filter_bytes) if is_known and head[at + 1 : end] == _CHOICES else None


def xxhash64(data: bytes) -> int:
    """Return the hash of bytes by XXH64 with the seed 0.

    Example:
        >>> hex(xxhash64(b"")), hex(xxhash64(b"a"))
        ('0xef46db3751d8e999', '0xd24ec4f1a98c6e5b')
    """
    size, at = len(data), 0
    if size >= 32:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at + 32 <= size:
            words = struct.unpack_from("<4Q", data, at)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        value = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        value = _P5
    value = value + size & _MASK
    while at + 8 <= size:
        (word,) = struct.unpack_from("<Q", data, at)
        value = (_rotated(value ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= size:
        (word,) = struct.unpack_from("<I", data, at)
        value = (_rotated(value ^ (word * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        value = _rotated(value ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32


def _round(lane: int, word: int) -> int:
    return _rotated(lane + word * _P2 & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, by: int) -> int:
    value &= _MASK
    return (value << by | value >> (64 - by)) & _MASK
