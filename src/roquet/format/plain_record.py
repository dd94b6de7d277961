"""The quick judgement of ordinary records.

Owns one question: is this record whole, and the one that a queue entry speaks of? It is asked for
every record that a pull hands out. The answer for an ordinary record (IPv4 hosts, no CRC property,
one TAGS at most) comes from two reads of its fixed fields and one CRC; for any other, and for a
bad one, it is "cannot tell", and :func:`roquet.format.commit_log.check_record` has the word.

==== =================== ===== ====================================================
#    field               bytes used
==== =================== ===== ====================================================
1    totalSize           4     compared
2    magic               4     compared
3    bodyCRC             4     compared with that of the body
4    queueId             4     compared
5    flag                4     no
6    queueOffset         8     compared
7    physicalOffset      8     compared
8    sysFlag             4     must say IPv4
9-14 born … prepared     44    no
15   bodyLength          4     yes
==== =================== ===== ====================================================
"""

from __future__ import annotations

import struct
import zlib

from roquet.model import sys_flag as flags
from roquet.model.java_string import tags_code

__all__ = ["Expected", "plain_tags_code", "topic_field"]

Expected = tuple[int, int, int, int, int]
"""Size, the magic of version 1, queue id, queue offset and physical offset."""

_HEAD = struct.Struct(">iIIi4xqqi44xi")
_BODY_AT = _HEAD.size
_PLAIN_BYTES_MIN = _BODY_AT + 1 + 1 + 2
_PROPERTIES_BYTES_MAX = 0x7FFF
_CRC_MASK = 0x7FFFFFFF
_HOSTS_V6 = flags.BORN_HOST_V6 | flags.STORE_HOST_V6
_TAGS = b"TAGS\x01"
_PAIR_END = b"\x02"


def topic_field(topic: str) -> bytes:
    """A topic as a record has it, its length before it; empty for one that no record can have."""
    encoded = topic.encode()
    return bytes([len(encoded)]) + encoded if len(encoded) < 256 else b""


def plain_tags_code(
    buffer: bytes | memoryview, start: int, expected: Expected, topic: bytes
) -> int | None:
    """The tags code of an ordinary record that is whole and says what it must.

    Args:
        buffer: What holds the record, all of it.
        start: Where it starts.
        expected: What its fixed fields must say.
        topic: What :func:`topic_field` gives.

    Returns:
        The code, or ``None`` when this cannot tell.
    """
    size = expected[0]
    if size < _PLAIN_BYTES_MIN or not topic:
        return None
    found, magic, crc, queue_id, queue_offset, physical_offset, sys_flag, body_bytes = (
        _HEAD.unpack_from(buffer, start)
    )
    if (found, magic, queue_id, queue_offset, physical_offset) != expected:
        return None
    body_at = start + _BODY_AT
    body_end = body_at + body_bytes
    end = start + size
    if sys_flag & _HOSTS_V6 or body_bytes < 0 or body_end > end:
        return None
    if zlib.crc32(buffer[body_at:body_end]) & _CRC_MASK != crc:
        return None
    rest = bytes(buffer[body_end:end])
    properties_at = len(topic) + 2
    properties_bytes = len(rest) - properties_at
    if (
        not 0 <= properties_bytes <= _PROPERTIES_BYTES_MAX
        or not rest.startswith(topic)
        or rest[properties_at - 2] << 8 | rest[properties_at - 1] != properties_bytes
    ):
        return None
    return _tags_code_in(rest, properties_at)


def _tags_code_in(rest: bytes, properties_at: int) -> int | None:
    tags_at = rest.find(_TAGS, properties_at)
    if tags_at < 0:
        return 0
    is_name = tags_at == properties_at or rest[tags_at - 1 : tags_at] == _PAIR_END
    value_at = tags_at + len(_TAGS)
    if not is_name or rest.find(_TAGS, value_at) >= 0:
        return None
    value_end = rest.find(_PAIR_END, value_at)
    value = rest[value_at:] if value_end < 0 else rest[value_at:value_end]
    return tags_code(str(value, "utf-8", "replace"))
