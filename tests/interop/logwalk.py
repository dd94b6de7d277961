"""A second, independent reader of CommitLog files, to check both brokers against.

It shares no code with `roquet.format`, so that a shared mistake cannot hide. It knows IPv4 and IPv6
hosts and both magic numbers of a record, and nothing of queues or indexes.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194

SYS_FLAG_COMPRESSED = 0x1
SYS_FLAG_BORN_HOST_V6 = 0x10
SYS_FLAG_STORE_HOST_V6 = 0x20


@dataclass(frozen=True)
class LogRecord:
    """One record; `body_sha1` is of the decompressed body, as a consumer sees it."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    flag: int
    sys_flag: int
    store_timestamp_ms: int
    body_sha1: str
    properties: dict[str, str]

    @property
    def end_offset(self) -> int:
        return self.physical_offset + self.size


def walk_commit_log(store: Path) -> Iterator[LogRecord]:
    """Every record of the store in order, up to the first bytes that are no record."""
    for path in sorted((store / "commitlog").iterdir()):
        segment = path.read_bytes()
        position = 0
        while True:
            size, magic = struct.unpack_from(">iI", segment, position)
            if magic == MAGIC_BLANK:
                break
            if size <= 0 or magic not in {MAGIC_V1, MAGIC_V2}:
                return
            record = _unpack(segment[position : position + size], magic)
            assert record.physical_offset == int(path.name) + position
            yield record
            position += size


def _unpack(data: bytes, magic: int) -> LogRecord:
    size, _, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag = struct.unpack_from(
        ">iIIiiqqi", data
    )
    position = 48 + (20 if sys_flag & SYS_FLAG_BORN_HOST_V6 else 8)
    (store_timestamp_ms,) = struct.unpack_from(">q", data, position)
    position += 8 + (20 if sys_flag & SYS_FLAG_STORE_HOST_V6 else 8) + 12
    (body_length,) = struct.unpack_from(">i", data, position)
    body = data[position + 4 : position + 4 + body_length]
    assert zlib.crc32(body) & 0x7FFFFFFF == body_crc
    position += 4 + body_length
    topic_format = ">B" if magic == MAGIC_V1 else ">H"
    (topic_length,) = struct.unpack_from(topic_format, data, position)
    position += struct.calcsize(topic_format)
    topic = data[position : position + topic_length].decode()
    position += topic_length
    (properties_length,) = struct.unpack_from(">h", data, position)
    properties = data[position + 2 : position + 2 + properties_length].decode()
    assert position + 2 + properties_length == size == len(data)
    if sys_flag & SYS_FLAG_COMPRESSED:
        body = zlib.decompress(body)
    return LogRecord(
        physical_offset=physical_offset,
        size=size,
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        flag=flag,
        sys_flag=sys_flag,
        store_timestamp_ms=store_timestamp_ms,
        body_sha1=hashlib.sha1(body, usedforsecurity=False).hexdigest(),
        properties=dict(
            pair.split("\x01", 1) for pair in properties.split("\x02") if "\x01" in pair
        ),
    )
