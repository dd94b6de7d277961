"""An IndexFile, as bytes.

Owns the layout, big-endian:

================ ====== ====================================================================
part             bytes  fields
================ ====== ====================================================================
header           40     :data:`HEADER_LAYOUT`
slots            4 * S  number of the newest entry of the chain, 0 for an empty slot
entries          20 * N :data:`ENTRY_LAYOUT`
================ ====== ====================================================================

indexCount starts at 1: entry 0 is never used, and a file is full when indexCount reaches N.
keyHash is :func:`roquet.model.java_string.index_key_hash` of ``topic#key``; slot = keyHash mod S.
A file's name is the time of its creation, ``yyyyMMddHHmmssSSS`` in the machine's zone.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from roquet.format.layout import Field, Layout

HEADER_LAYOUT = Layout(
    Field("beginTimestamp", "q"),
    Field("endTimestamp", "q"),
    Field("beginPhyOffset", "q"),
    Field("endPhyOffset", "q"),
    Field("hashSlotCount", "i", "slots in use"),
    Field("indexCount", "i", "number of the next entry"),
)
ENTRY_LAYOUT = Layout(
    Field("keyHash", "i"),
    Field("phyOffset", "q"),
    Field("timeDiff", "i", "seconds since beginTimestamp"),
    Field("prevIndex", "i", "number of the previous entry of the chain"),
)
HEADER = HEADER_LAYOUT.struct
HEADER_BYTES = HEADER_LAYOUT.bytes
COUNT = HEADER_LAYOUT.part("indexCount", "indexCount")
COUNT_AT = HEADER_LAYOUT.at("indexCount")
SLOT = struct.Struct(">i")
SLOT_BYTES = SLOT.size
ENTRY = ENTRY_LAYOUT.struct
ENTRY_BYTES = ENTRY_LAYOUT.bytes
FILE_NAME_DIGITS = 17
SECONDS_MAX = 0x7FFFFFFF
_ONE_MILLISECOND = timedelta(milliseconds=1)


class IndexHeader(NamedTuple):
    """The first 40 bytes."""

    begin_timestamp_ms: int = 0
    end_timestamp_ms: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> IndexHeader:
        """Read the header; an indexCount of 0 means that the file was never written."""
        header = cls._make(HEADER.unpack_from(data))
        return header if header.index_count > 0 else header._replace(index_count=1)

    def pack(self) -> bytes:
        """The 40 bytes."""
        return HEADER.pack(*self)


class IndexEntry(NamedTuple):
    """One entry."""

    key_hash: int
    physical_offset: int
    seconds: int
    previous: int


def file_size(slots: int, entries: int) -> int:
    """Length of a file."""
    return HEADER_BYTES + slots * SLOT_BYTES + entries * ENTRY_BYTES


def slot_position(slot: int) -> int:
    """Byte position of a slot."""
    return HEADER_BYTES + slot * SLOT_BYTES


def entry_position(slots: int, number: int) -> int:
    """Byte position of an entry in a file of ``slots`` slots."""
    return HEADER_BYTES + slots * SLOT_BYTES + number * ENTRY_BYTES


def seconds_since(begin_timestamp_ms: int, timestamp_ms: int) -> int:
    """The time field of an entry: whole seconds, clamped to 0 and the largest int."""
    if begin_timestamp_ms <= 0:
        return 0
    return min(max((timestamp_ms - begin_timestamp_ms) // 1000, 0), SECONDS_MAX)


def name_after(name: str) -> str:
    """The name of a file created one millisecond later; the zone is nominal, for arithmetic only.

    Raises:
        ValueError: It is not the name of an index file.

    Example:
        >>> name_after("20261231235959999")
        '20270101000000000'
    """
    made = datetime.strptime(f"{name}000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    later = made + _ONE_MILLISECOND
    return f"{later:%Y%m%d%H%M%S}{later.microsecond // 1000:03d}"
