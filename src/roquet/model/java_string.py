"""Java's string hash, which RocketMQ writes to disk.

Owns :func:`java_hash` and the two values derived from it: the tags code of a ConsumeQueue entry
and the key hash of an IndexFile entry. Java hashes UTF-16 units in 32-bit wrap-around arithmetic.
"""

from __future__ import annotations

import struct
from functools import lru_cache

INT_MIN = -(1 << 31)


def java_hash(text: str) -> int:
    """``String.hashCode()`` of ``text``, as a signed 32-bit number."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        encoded = text.encode("utf-16-be", "surrogatepass")
        for (unit,) in struct.iter_unpack(">H", encoded):
            value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(maxsize=4096)
def tags_code(tags: str) -> int:
    """Hash of a TAGS property as a ConsumeQueue entry holds it; 0 for no tags."""
    return java_hash(tags) if tags else 0


def index_key_hash(topic: str, key: str) -> int:
    """Hash of ``topic#key`` as an IndexFile entry holds it: never negative."""
    value = java_hash(f"{topic}#{key}")
    return 0 if value == INT_MIN else abs(value)
