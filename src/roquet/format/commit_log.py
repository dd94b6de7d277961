"""A record of the CommitLog and the end of a segment, as bytes.

Writes, reads and checks them by the layout of :mod:`roquet.format.record_layout`. Sans-I/O:
functions take and return buffers.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import NamedTuple

from roquet.errors import CorruptRecord
from roquet.format.record_layout import (
    BORN_HOST_AT,
    CRC_MASK,
    CRC_PROPERTY_BYTES,
    END_OF_SEGMENT_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH_BYTES,
    RECORD,
    RECORD_BYTES_MIN,
    TOPIC_LENGTH_BYTES_V1,
    TOPIC_LENGTH_BYTES_V2,
    body_at,
    store_timestamp_at,
)
from roquet.model import properties as prop
from roquet.model.delay_level import DelayLevels
from roquet.model.host import Host
from roquet.model.java_string import tags_code
from roquet.model.message import StoredMessage
from roquet.model.topic import SCHEDULE_TOPIC, TOPIC_LENGTH_MAX

SECTOR_BYTES = 512  # what a disk writes whole

_START = RECORD.part("totalSize", "magic")
_HEAD = RECORD.part("totalSize", "bornTimestamp")
_STORE_TIMESTAMP = RECORD.part("storeTimestamp", "storeTimestamp")
_BEFORE_BODY = RECORD.part("reconsumeTimes", "bodyLength")
_SYS_FLAG = RECORD.only("sysFlag")
_BODY_LENGTH = RECORD.part("bodyLength", "bodyLength")
_CRC_PROPERTY_NAME = f"{prop.CRC32}\x01".encode()

Buffer = bytes | bytearray | memoryview


class DispatchRequest(NamedTuple):
    """What ConsumeQueue, Index and held pulls need to know about a record."""

    topic: str
    queue_id: int
    physical_offset: int
    size_bytes: int
    tags_code: int
    store_timestamp_ms: int
    queue_offset: int
    keys: str
    unique_key: str | None
    sys_flag: int
    prepared_transaction_offset: int
    properties: dict[str, str]

    @property
    def end_offset(self) -> int:
        """Where the next record starts."""
        return self.physical_offset + self.size_bytes


class Blank(NamedTuple):
    """The end of a segment."""

    size_bytes: int


class RecordFault(NamedTuple):
    """Why bytes are not a valid record: which field, and what is wrong with it."""

    physical_offset: int
    field: str
    detail: str


@dataclass(frozen=True, slots=True)
class RecordRules:
    """What a reader checks beyond the shape of a record."""

    delay_levels: DelayLevels
    check_crc: bool = True
    check_property_crc: bool = True
    force_property_crc: bool = False
    check_torn: bool = False


def crc32_31(data: Buffer) -> int:
    """CRC-32 as RocketMQ stores it, without the sign bit."""
    return zlib.crc32(data) & CRC_MASK


def uses_v2(topic: str) -> bool:
    """Whether a topic needs the record with a 2-byte topic length."""
    return len(topic) > TOPIC_LENGTH_MAX


def record_size(
    *, sys_flag: int, body_bytes: int, topic_bytes: int, properties_bytes: int, v2: bool
) -> int:
    """Length of a record."""
    lengths_bytes = _topic_length_bytes(v2=v2) + PROPERTIES_LENGTH_BYTES
    return body_at(sys_flag) + body_bytes + topic_bytes + properties_bytes + lengths_bytes


def _topic_length_bytes(*, v2: bool) -> int:
    return TOPIC_LENGTH_BYTES_V2 if v2 else TOPIC_LENGTH_BYTES_V1


def with_crc_room(properties: bytes) -> bytes:
    """Return properties that end such that the CRC property can follow.

    Drops the CRC of another record, which a forwarded message may carry.
    """
    if _CRC_PROPERTY_NAME in properties:
        pairs = properties.split(b"\x02")
        properties = b"\x02".join(p for p in pairs if not p.startswith(_CRC_PROPERTY_NAME))
    if properties and not properties.endswith(b"\x02"):
        return properties + b"\x02"
    return properties


def crc_property(crc: int) -> bytes:
    """The 20 bytes of the CRC property: ten digits, lowest first."""
    return _CRC_PROPERTY_NAME + f"{crc:010d}"[::-1].encode() + b"\x02"


def encode_record(
    *,
    topic: bytes,
    body: Buffer,
    properties: Buffer,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_timestamp_ms: int,
    store_host: bytes,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    v2: bool = False,
    append_crc: bool = False,
) -> bytes:
    """The bytes of a record. Hosts are packed; ``sys_flag`` must match their lengths."""
    properties_bytes = len(properties) + (CRC_PROPERTY_BYTES if append_crc else 0)
    size = record_size(
        sys_flag=sys_flag,
        body_bytes=len(body),
        topic_bytes=len(topic),
        properties_bytes=properties_bytes,
        v2=v2,
    )
    record = b"".join(
        (
            _HEAD.pack(
                size,
                MAGIC_V2 if v2 else MAGIC_V1,
                crc32_31(body),
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp_ms,
            ),
            born_host,
            _STORE_TIMESTAMP.pack(store_timestamp_ms),
            store_host,
            _BEFORE_BODY.pack(reconsume_times, prepared_transaction_offset, len(body)),
            body,
            len(topic).to_bytes(_topic_length_bytes(v2=v2), "big"),
            topic,
            properties_bytes.to_bytes(PROPERTIES_LENGTH_BYTES, "big"),
            properties,
        )
    )
    if append_crc:
        record += crc_property(crc32_31(record))
    assert len(record) == size, "a record's length disagrees with its parts"
    return record


def end_of_segment(remaining_bytes: int) -> bytes:
    """The eight bytes that close a segment with ``remaining_bytes`` left."""
    return _START.pack(remaining_bytes, MAGIC_BLANK)


class _Range(NamedTuple):
    """Bytes of a buffer."""

    start: int
    stop: int

    def of(self, view: memoryview) -> memoryview:
        """Those bytes."""
        return view[self.start : self.stop]


class _Layout(NamedTuple):
    """Where the parts of one record are in their buffer."""

    size: int
    head: tuple[int, int, int, int, int, int, int, int, int]
    born_host: _Range
    store_timestamp_ms: int
    store_host: _Range
    reconsume_times: int
    prepared_transaction_offset: int
    body: _Range
    topic: _Range
    properties: _Range


def _lay_out(buffer: Buffer, start: int, limit: int) -> _Layout | Blank | RecordFault:
    """Find the parts of the record at ``start``; every length is checked before it is used."""
    if limit - start < END_OF_SEGMENT_BYTES:
        return RecordFault(start, "totalSize", f"{limit - start} bytes left, 8 needed")
    size, magic = _START.unpack_from(buffer, start)
    if magic == MAGIC_BLANK:
        return Blank(size)
    if magic not in {MAGIC_V1, MAGIC_V2}:
        return RecordFault(start, "magic", f"0x{magic:08X} is not a record")
    if not RECORD_BYTES_MIN <= size <= limit - start:
        return RecordFault(start, "totalSize", f"{size} with {limit - start} bytes left")
    end = start + size
    head = _HEAD.unpack_from(buffer, start)
    sys_flag = head[7]
    born_end = store_timestamp_at(sys_flag)
    store_host_at = born_end + _STORE_TIMESTAMP.size
    body_start = body_at(sys_flag)
    store_host_end = body_start - _BEFORE_BODY.size
    if body_start > size:
        return RecordFault(start, "sysFlag", f"hosts of 0x{sys_flag:X} do not fit {size} bytes")
    (store_timestamp_ms,) = _STORE_TIMESTAMP.unpack_from(buffer, start + born_end)
    reconsume, prepared, body_length = _BEFORE_BODY.unpack_from(buffer, start + store_host_end)
    length_bytes = _topic_length_bytes(v2=magic == MAGIC_V2)
    topic_at = body_start + body_length + length_bytes
    if body_length < 0 or topic_at + PROPERTIES_LENGTH_BYTES > size:
        return RecordFault(start, "bodyLength", f"{body_length} in a record of {size} bytes")
    topic_length = int.from_bytes(buffer[start + topic_at - length_bytes : start + topic_at], "big")
    properties_at = topic_at + topic_length + PROPERTIES_LENGTH_BYTES
    if properties_at > size:
        return RecordFault(start, "topicLength", f"{topic_length} in a record of {size} bytes")
    raw = buffer[start + properties_at - PROPERTIES_LENGTH_BYTES : start + properties_at]
    properties_length = int.from_bytes(raw, "big", signed=True)
    if properties_length < 0 or start + properties_at + properties_length != end:
        return RecordFault(
            start,
            "propertiesLength",
            f"{properties_length} makes {properties_at + properties_length} bytes of {size}",
        )
    return _Layout(
        size,
        head,
        _Range(start + BORN_HOST_AT, start + born_end),
        store_timestamp_ms,
        _Range(start + store_host_at, start + store_host_end),
        reconsume,
        prepared,
        _Range(start + body_start, start + body_start + body_length),
        _Range(start + topic_at, start + topic_at + topic_length),
        _Range(start + properties_at, end),
    )


def body_and_properties(
    data: memoryview, start: int, size_bytes: int
) -> tuple[memoryview, memoryview]:
    """Body and properties of a record that is known to be valid."""
    _, magic = _START.unpack_from(data, start)
    (sys_flag,) = _SYS_FLAG.unpack_from(data, start)
    body_start = start + body_at(sys_flag)
    (body_bytes,) = _BODY_LENGTH.unpack_from(data, body_start - _BODY_LENGTH.size)
    body_end = body_start + body_bytes
    topic_at = body_end + _topic_length_bytes(v2=magic == MAGIC_V2)
    topic_bytes = int.from_bytes(data[body_end:topic_at], "big")
    properties_at = topic_at + topic_bytes + PROPERTIES_LENGTH_BYTES
    return data[body_start:body_end], data[properties_at : start + size_bytes]


def record_properties(record: bytes | memoryview) -> dict[str, str]:
    """The properties of a record that is known to be valid."""
    return prop.decode_properties(body_and_properties(memoryview(record), 0, len(record))[1])


def check_record(
    buffer: Buffer, start: int, limit: int, *, physical_offset: int, rules: RecordRules
) -> DispatchRequest | Blank | RecordFault:
    """Read the record at ``start`` of ``buffer``, which is at ``physical_offset`` of the log.

    Bytes at or past ``limit`` are not read. Bad bytes raise nothing: the result says which field
    is wrong.
    """
    layout = _lay_out(buffer, start, limit)
    if isinstance(layout, RecordFault):
        return layout._replace(physical_offset=physical_offset)
    if isinstance(layout, Blank):
        return layout
    _, _, crc, queue_id, _, queue_offset, stored_offset, sys_flag, _ = layout.head
    if stored_offset != physical_offset:
        return RecordFault(physical_offset, "physicalOffset", f"says {stored_offset}")
    if queue_id < 0 or queue_offset < 0:
        field = "queueId" if queue_id < 0 else "queueOffset"
        return RecordFault(physical_offset, field, f"queue {queue_id}, offset {queue_offset}")
    view = memoryview(buffer)
    if rules.check_crc and crc32_31(layout.body.of(view)) != crc:
        return RecordFault(physical_offset, "bodyCRC", f"stored 0x{crc:08X} does not fit the body")
    if rules.check_torn and _has_lost_sector(view, start, layout, physical_offset):
        return RecordFault(physical_offset, "properties", "a sector of it was never written")
    try:
        topic = str(layout.topic.of(view), "utf-8")
    except UnicodeDecodeError:
        topic = ""
    if not topic or "\0" in topic:
        return RecordFault(physical_offset, "topic", "is empty, not UTF-8, or holds NUL")
    properties = prop.decode_properties(layout.properties.of(view))
    if rules.check_crc and rules.check_property_crc:
        fault = _check_crc_property(view, start, layout, rules)
        if fault:
            return RecordFault(physical_offset, prop.CRC32, fault)
    return DispatchRequest(
        topic,
        queue_id,
        physical_offset,
        layout.size,
        _tags_code(topic, properties, layout.store_timestamp_ms, rules.delay_levels),
        layout.store_timestamp_ms,
        queue_offset,
        properties.get(prop.KEYS, ""),
        properties.get(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
        sys_flag,
        layout.prepared_transaction_offset,
        properties,
    )


def _has_lost_sector(view: memoryview, start: int, layout: _Layout, physical_offset: int) -> bool:
    """Whether a disk sector of the part no CRC covers is all zeros, as a power cut leaves it.

    Topic and properties are text; in a completely written record, no sector of them, nor the rest
    of one, is all NUL.
    """
    end = start + layout.size
    position = layout.body.stop
    while position < end:
        in_sector = (physical_offset + position - start) % SECTOR_BYTES
        stop = min(position + SECTOR_BYTES - in_sector, end)
        if not any(view[position:stop]) and position >= layout.properties.start:
            return True
        position = stop
    return False


def _check_crc_property(
    view: memoryview, start: int, layout: _Layout, rules: RecordRules
) -> str | None:
    """Why the CRC over the whole record fails, or ``None``; a record may have none.

    Only the last twenty bytes count, in the exact form the broker appends: a producer may send a
    property of that name too, and its value must not decide about the log.
    """
    end = start + layout.size
    tail = bytes(view[max(end - CRC_PROPERTY_BYTES, layout.properties.start) : end])
    digits = tail[len(_CRC_PROPERTY_NAME) : -1]
    is_there = (
        len(tail) == CRC_PROPERTY_BYTES
        and tail.startswith(_CRC_PROPERTY_NAME)
        and tail.endswith(b"\x02")
        and digits.isdigit()
    )
    if not is_there:
        return "is missing" if rules.force_property_crc else None
    if crc32_31(view[start : end - CRC_PROPERTY_BYTES]) != int(digits[::-1]):
        return "does not fit the record"
    return None


def _tags_code(
    topic: str, properties: dict[str, str], store_timestamp_ms: int, delay_levels: DelayLevels
) -> int:
    """Third field of the ConsumeQueue entry: tags hash, or the due time of a delayed message."""
    level = properties.get(prop.DELAY_TIME_LEVEL)
    if level is not None and topic == SCHEDULE_TOPIC and level.isdecimal() and int(level) > 0:
        capped = min(int(level), delay_levels.max_level)
        return delay_levels.deliver_timestamp_ms(capped, store_timestamp_ms)
    return tags_code(properties.get(prop.TAGS, ""))


def decode_record(buffer: Buffer, start: int, limit: int) -> StoredMessage:
    """The message at ``start``; raises :class:`CorruptRecord` if the bytes are not a record.

    The body is not checked against its CRC: use :func:`check_record` for that.
    """
    layout = _lay_out(buffer, start, limit)
    if isinstance(layout, Blank):
        layout = RecordFault(start, "magic", "the segment ends here")
    if isinstance(layout, RecordFault):
        raise CorruptRecord(f"no record at byte {start}", detail=f"{layout.field}: {layout.detail}")
    _, _, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms = layout.head
    view = memoryview(buffer)
    return StoredMessage(
        topic=str(layout.topic.of(view), "utf-8", "replace"),
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        store_size=layout.size,
        body=bytes(layout.body.of(view)),
        properties_data=bytes(layout.properties.of(view)),
        flag=flag,
        sys_flag=sys_flag,
        body_crc=crc,
        born_timestamp_ms=born_ms,
        born_host=Host.unpack(layout.born_host.of(view)),
        store_timestamp_ms=layout.store_timestamp_ms,
        store_host=Host.unpack(layout.store_host.of(view)),
        reconsume_times=layout.reconsume_times,
        prepared_transaction_offset=layout.prepared_transaction_offset,
    )


def peek_store_timestamp_ms(buffer: Buffer, start: int, limit: int) -> int | None:
    """Store timestamp of the record at ``start``, ``None`` if no record starts there."""
    if limit - start < RECORD_BYTES_MIN:
        return None
    size, magic = _START.unpack_from(buffer, start)
    if magic not in {MAGIC_V1, MAGIC_V2} or size < RECORD_BYTES_MIN:
        return None
    (sys_flag,) = _SYS_FLAG.unpack_from(buffer, start)
    (timestamp,) = _STORE_TIMESTAMP.unpack_from(buffer, start + store_timestamp_at(sys_flag))
    return int(timestamp)
