"""A unit of a ConsumeQueueExt, as bytes, and the addresses of units.

Owns the layout, big-endian:

==== ============== ===== ===================================================================
#    field          bytes note
==== ============== ===== ===================================================================
1    size           2     of the whole unit, 20 to 32767; 0 was never written, -1 ends a file
2    tagsCode       8     what the ConsumeQueue entry would hold without a unit
3    storeTimestamp 8     of the record, ms
4    bitmapSize     2
5    bitmap         n     bloom filter of the SQL92 groups that want the record; may be missing
==== ============== ===== ===================================================================

Units follow each other without padding and stay in one file, 48 MiB by default. The last 4 bytes
of a file take no unit: where the next one would not fit before them, the file ends with size -1
and the unit goes to the next file.

A unit's real offset is its position across all files. Its address, the third field of a
ConsumeQueue entry, is the real offset plus the smallest 64-bit number, so addresses lie below
every tags code, which is a 32-bit hash or a time.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

HEAD = struct.Struct(">hqqh")
UNIT_BYTES_MIN = HEAD.size
UNIT_BYTES_MAX = 0x7FFF
END_MARK = struct.pack(">h", -1)
END_RESERVED_BYTES = 4
DEFAULT_FILE_BYTES = 48 << 20

_LONG_MIN = -(1 << 63)
ADDRESS_MAX = -(1 << 31) - 1
REAL_OFFSET_MAX = ADDRESS_MAX - _LONG_MIN
NO_ADDRESS = 1


class CqExtUnit(NamedTuple):
    """What a ConsumeQueue entry holds beyond its 20 bytes."""

    tags_code: int
    store_timestamp_ms: int
    filter_bitmap: bytes = b""

    @property
    def size_bytes(self) -> int:
        """Length of the unit; one beyond :data:`UNIT_BYTES_MAX` cannot be stored."""
        return UNIT_BYTES_MIN + len(self.filter_bitmap)


def is_ext_address(tags_code: int) -> bool:
    """Whether the third field of a ConsumeQueue entry is the address of a unit.

    Example:
        >>> is_ext_address(address_of(0)), is_ext_address(-(1 << 31))
        (True, False)
    """
    return tags_code <= ADDRESS_MAX


def address_of(real_offset: int) -> int:
    """The address of the unit at a real offset."""
    return real_offset + _LONG_MIN


def real_offset_of(address: int) -> int:
    """The real offset of the unit with an address."""
    return address - _LONG_MIN


def fits(size_bytes: int, file_bytes: int) -> bool:
    """Whether a unit fits into files of this length."""
    return size_bytes <= min(UNIT_BYTES_MAX, file_bytes - END_RESERVED_BYTES)


def place_after(end: int, size_bytes: int, file_bytes: int) -> int:
    """Real offset of the unit that follows those that end at ``end``.

    Example:
        >>> place_after(60, 20, 100), place_after(80, 20, 100)
        (60, 100)
    """
    rest = file_bytes - end % file_bytes
    return end if size_bytes <= rest - END_RESERVED_BYTES else end + rest


def end_after(end: int, size_bytes: int, count: int, file_bytes: int) -> int:
    """Real offset after ``count`` units of one length that follow those that end at ``end``.

    Example:
        >>> end_after(60, 20, 1, 100), end_after(60, 20, 6, 100)
        (80, 220)
    """
    usable = file_bytes - END_RESERVED_BYTES
    room = (usable - end % file_bytes) // size_bytes
    if count <= room:
        return end + count * size_bytes
    full_files, last = divmod(count - room - 1, usable // size_bytes)
    next_file = end - end % file_bytes + file_bytes
    return next_file + full_files * file_bytes + (last + 1) * size_bytes


def pack_unit(unit: CqExtUnit) -> bytes:
    """The bytes of a unit."""
    return (
        HEAD.pack(unit.size_bytes, unit.tags_code, unit.store_timestamp_ms, len(unit.filter_bitmap))
        + unit.filter_bitmap
    )


def peek_size(data: bytes | memoryview, position: int = 0) -> int:
    """Length of the unit whose head is at a byte position, 0 where no unit starts."""
    if len(data) - position < UNIT_BYTES_MIN:
        return 0
    size, _, _, bitmap_bytes = HEAD.unpack_from(data, position)
    return size if size == UNIT_BYTES_MIN + bitmap_bytes and bitmap_bytes >= 0 else 0


def unpack_unit(data: bytes | memoryview, position: int = 0) -> CqExtUnit | None:
    """The unit at a byte position, ``None`` if there is no whole unit."""
    size = peek_size(data, position)
    if size == 0 or len(data) - position < size:
        return None
    _, tags_code, store_timestamp_ms, _ = HEAD.unpack_from(data, position)
    bitmap = bytes(data[position + UNIT_BYTES_MIN : position + size])
    return CqExtUnit(tags_code, store_timestamp_ms, bitmap)
