"""A second, independent reader of CommitLog and ConsumeQueue files, to check both brokers against.

It shares no code with `roquet.format`, so that a shared mistake cannot hide.
"""

from __future__ import annotations

import hashlib
import ipaddress
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
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    body_sha1: str
    properties: dict[str, str]

    @property
    def end_offset(self) -> int:
        return self.physical_offset + self.size


def walk_commit_log(store: Path) -> Iterator[LogRecord]:
    """Every record of the store in order, up to the first bytes that are no whole record."""
    for path in sorted((store / "commitlog").iterdir()):
        segment = path.read_bytes()
        position = 0
        while True:
            size, magic = struct.unpack_from(">iI", segment, position)
            if magic == MAGIC_BLANK:
                break
            if size <= 0 or magic not in {MAGIC_V1, MAGIC_V2}:
                return
            if _is_half_written(segment, position + size):
                return
            record = _unpack(segment[position : position + size], magic)
            assert record.physical_offset == int(path.name) + position
            yield record
            position += size


def _is_half_written(segment: bytes, end: int) -> bool:
    """Whether a broker was killed while it copied the record that should end there.

    Such a record has zeros from some byte on, and so has everything after it; a whole one ends with
    its properties, which do not end with a zero.
    """
    return segment[end - 1] == 0 and not any(segment[end:])


def walk_consume_queue(store: Path, topic: str, queue_id: int) -> Iterator[tuple[int, int, int]]:
    """Physical offset, size and tags code of a queue's entries, up to the first empty one."""
    for path in sorted((store / "consumequeue" / topic / str(queue_id)).iterdir()):
        for entry in struct.iter_unpack(">qiq", path.read_bytes()):
            if entry[1] == 0:
                return
            yield entry


def tags_code(tags: str | None) -> int:
    """Java's hash of a string: over UTF-16 units, wrapped to 32 bits, signed; 0 without tags."""
    value = 0
    for (unit,) in struct.iter_unpack(">H", (tags or "").encode("utf-16-be")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _unpack(data: bytes, magic: int) -> LogRecord:
    (
        size,
        _,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp_ms,
    ) = struct.unpack_from(">iIIiiqqiq", data)
    born_host, position = _host(data, 48, 16 if sys_flag & SYS_FLAG_BORN_HOST_V6 else 4)
    (store_timestamp_ms,) = struct.unpack_from(">q", data, position)
    store_host, position = _host(data, position + 8, 16 if sys_flag & SYS_FLAG_STORE_HOST_V6 else 4)
    position += 12
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
        born_timestamp_ms=born_timestamp_ms,
        born_host=born_host,
        store_timestamp_ms=store_timestamp_ms,
        store_host=store_host,
        body_sha1=hashlib.sha1(body, usedforsecurity=False).hexdigest(),
        properties=dict(
            pair.split("\x01", 1) for pair in properties.split("\x02") if "\x01" in pair
        ),
    )


def _host(data: bytes, position: int, address_bytes: int) -> tuple[str, int]:
    """`ip:port` at a position, and the position after it."""
    end = position + address_bytes
    (port,) = struct.unpack_from(">i", data, end)
    return f"{ipaddress.ip_address(data[position:end])}:{port}", end + 4
