"""A record of the CommitLog and the end of a segment, as bytes.

Owns the layout below; every integer is big-endian. Sans-I/O: functions take and give buffers.

== =========================== ========= ==================================================
#  field                       bytes     note
== =========================== ========= ==================================================
1  totalSize                   4         the whole record
2  magic                       4         V1 0xDAA320A7, V2 0xDAA320AB, BLANK 0xCBD43194
3  bodyCRC                     4         CRC-32 of the stored body, masked to 31 bits
4  queueId                     4
5  flag                        4         the user's
6  queueOffset                 8         place in the queue; 0 for prepared and rolled back
7  physicalOffset              8         place of this record in the whole log
8  sysFlag                     4         model/sys_flag.py
9  bornTimestamp               8         producer's clock, ms
10 bornHost                    8 or 20   address and 4-byte port
11 storeTimestamp              8         broker's clock, ms; never goes back within the log
12 storeHost                   8 or 20
13 reconsumeTimes              4
14 preparedTransactionOffset   8
15 bodyLength, body            4 + n     as sent, still compressed
16 topicLength, topic          1 + n     V1; V2 has 2 + n, for topics longer than 127
17 propertiesLength, props     2 + n     at most 32767
18 CRC property                20        inside 17, last, only with enabledAppendPropCRC:
                                         ``__CRC32#`` 0x01, ten digits, lowest first, 0x02;
                                         CRC-32 (31 bits) of the record without these 20
== =========================== ========= ==================================================

End of a segment: remaining size 4, BLANK magic 4; what follows has no meaning. A record is
written only if 8 bytes stay free behind it, so a segment always has room for its end.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import NamedTuple

from roquet.errors import CorruptRecord
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.delay_level import DelayLevels
from roquet.model.host import IPV4_HOST_BYTES, IPV6_HOST_BYTES, Host
from roquet.model.java_string import tags_code
from roquet.model.message import StoredMessage
from roquet.model.topic import SCHEDULE_TOPIC, TOPIC_LENGTH_MAX

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
CRC_MASK = 0x7FFFFFFF
END_OF_SEGMENT_BYTES = 8
SECTOR_BYTES = 512  # what a disk writes whole
CRC_PROPERTY_BYTES = 20

FIXED_BYTES = 91  # all fixed fields with IPv4 hosts and a V1 topic length
IPV6_EXTRA_BYTES = IPV6_HOST_BYTES - IPV4_HOST_BYTES
RECORD_BYTES_MIN = FIXED_BYTES

QUEUE_OFFSET_AT = 20
PHYSICAL_OFFSET_AT = 28
SYS_FLAG_AT = 36
BORN_HOST_AT = 48

_START = struct.Struct(">iI")  # totalSize, magic
_HEAD = struct.Struct(">iIIiiqqiq")  # fields 1 to 9
_STORE_TIMESTAMP = struct.Struct(">q")
_BEFORE_BODY = struct.Struct(">iqi")  # reconsumeTimes, preparedTransactionOffset, bodyLength
_END = struct.Struct(">iI")
_CRC_PROPERTY_NAME = f"{prop.CRC32}\x01".encode()

Buffer = bytes | bytearray | memoryview


class DispatchRequest(NamedTuple):
    """What ConsumeQueue, Index and waiting pulls need to know of a record."""

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
    """Why bytes are not a good record: which field, and what is wrong with it."""

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
    size = FIXED_BYTES + body_bytes + topic_bytes + properties_bytes + (1 if v2 else 0)
    if sys_flag & flags.BORN_HOST_V6:
        size += IPV6_EXTRA_BYTES
    if sys_flag & flags.STORE_HOST_V6:
        size += IPV6_EXTRA_BYTES
    return size


def with_crc_room(properties: bytes) -> bytes:
    """Properties that end where the CRC property may follow.

    The CRC of another record, which a message that is sent on may carry, is left out.
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
    """The bytes of a record. Hosts come packed; ``sys_flag`` must tell their lengths."""
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
            len(topic).to_bytes(2 if v2 else 1, "big"),
            topic,
            properties_bytes.to_bytes(2, "big"),
            properties,
        )
    )
    if append_crc:
        record += crc_property(crc32_31(record))
    assert len(record) == size, "a record's length disagrees with its parts"
    return record


def end_of_segment(remaining_bytes: int) -> bytes:
    """The eight bytes that close a segment with ``remaining_bytes`` left."""
    return _END.pack(remaining_bytes, MAGIC_BLANK)


class _Range(NamedTuple):
    """Bytes of a buffer."""

    start: int
    stop: int

    def of(self, view: memoryview) -> memoryview:
        """Those bytes."""
        return view[self.start : self.stop]


class _Layout(NamedTuple):
    """Where the parts of one record lie in their buffer."""

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
        return RecordFault(start, "magic", f"0x{magic:08X} is no record")
    if not RECORD_BYTES_MIN <= size <= limit - start:
        return RecordFault(start, "totalSize", f"{size} with {limit - start} bytes left")
    end = start + size
    head = _HEAD.unpack_from(buffer, start)
    born_end = BORN_HOST_AT + (IPV6_HOST_BYTES if head[7] & flags.BORN_HOST_V6 else IPV4_HOST_BYTES)
    store_host_at = born_end + _STORE_TIMESTAMP.size
    store_host_end = store_host_at + (
        IPV6_HOST_BYTES if head[7] & flags.STORE_HOST_V6 else IPV4_HOST_BYTES
    )
    body_at = store_host_end + _BEFORE_BODY.size
    if body_at > size:
        return RecordFault(start, "sysFlag", f"hosts of 0x{head[7]:X} do not fit {size} bytes")
    (store_timestamp_ms,) = _STORE_TIMESTAMP.unpack_from(buffer, start + born_end)
    reconsume, prepared, body_length = _BEFORE_BODY.unpack_from(buffer, start + store_host_end)
    length_bytes = 2 if magic == MAGIC_V2 else 1
    topic_at = body_at + body_length + length_bytes
    if body_length < 0 or topic_at + 2 > size:
        return RecordFault(start, "bodyLength", f"{body_length} in a record of {size} bytes")
    topic_length = int.from_bytes(buffer[start + topic_at - length_bytes : start + topic_at], "big")
    properties_at = topic_at + topic_length + 2
    if properties_at > size:
        return RecordFault(start, "topicLength", f"{topic_length} in a record of {size} bytes")
    raw = buffer[start + properties_at - 2 : start + properties_at]
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
        _Range(start + body_at, start + body_at + body_length),
        _Range(start + topic_at, start + topic_at + topic_length),
        _Range(start + properties_at, end),
    )


def record_properties(record: bytes | memoryview) -> dict[str, str]:
    """The properties of a record that is known to be good."""
    sys_flag = int.from_bytes(record[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
    position = FIXED_BYTES - 3  # without the lengths of topic and properties
    if sys_flag & flags.BORN_HOST_V6:
        position += IPV6_EXTRA_BYTES
    if sys_flag & flags.STORE_HOST_V6:
        position += IPV6_EXTRA_BYTES
    position += int.from_bytes(record[position - 4 : position], "big")
    length_bytes = 2 if record[7] == MAGIC_V2 & 0xFF else 1
    topic_bytes = int.from_bytes(record[position : position + length_bytes], "big")
    properties = record[position + length_bytes + topic_bytes + 2 :]
    return prop.decode_properties(properties)


def check_record(
    buffer: Buffer, start: int, limit: int, *, physical_offset: int, rules: RecordRules
) -> DispatchRequest | Blank | RecordFault:
    """Read the record at ``start`` of ``buffer``, which is at ``physical_offset`` of the log.

    Bytes at or past ``limit`` are not looked at. Nothing is raised for bad bytes: the answer says
    which field is wrong.
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

    Topic and properties are text; within a record that was written whole, no sector of them, nor
    the rest of one, is nothing but NUL.
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
    """Why the CRC over the whole record fails, or ``None``; a record may go without one.

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
    """The message at ``start``; bytes that are no record raise :class:`CorruptRecord`.

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
    (sys_flag,) = struct.unpack_from(">i", buffer, start + SYS_FLAG_AT)
    host_bytes = IPV6_HOST_BYTES if sys_flag & flags.BORN_HOST_V6 else IPV4_HOST_BYTES
    (timestamp,) = _STORE_TIMESTAMP.unpack_from(buffer, start + BORN_HOST_AT + host_bytes)
    return int(timestamp)
