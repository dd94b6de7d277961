"""Bytes of the log that are not a valid record.

Owns how far damage reaches. A record whose lengths agree leads to the next one, whatever else is
wrong. Otherwise the next valid record is searched for by its magic number; its own offset and its
CRC must match, so that bytes of a body that look like a record are not taken for one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from roquet.errors import CorruptRecord
from roquet.format.commit_log import (
    Blank,
    DispatchRequest,
    RecordFault,
    RecordRules,
    check_record,
    decode_record,
)
from roquet.format.record_layout import MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, RECORD_BYTES_MIN
from roquet.model.delay_level import DelayLevels
from roquet.model.message import StoredMessage
from roquet.storefiles.window import Window

RULES = RecordRules(DelayLevels())
SHAPE_RULES = RecordRules(DelayLevels(), check_crc=False)

_MAGICS = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))
_MAGIC_AT = 4
_SEARCH_BYTES = 1 << 20
_ZEROS = bytes(_SEARCH_BYTES + _MAGIC_AT + 3)


class DamagedRange(NamedTuple):
    """Bytes from ``start`` to ``end`` of the log that are not a valid record."""

    start: int
    end: int
    fault: RecordFault
    message: StoredMessage | None = None
    """The record if its lengths agree."""
    is_zero: bool = False
    """Whether nothing was ever written there, as far as it was checked."""


class DamagedRanges:
    """Damaged parts of the log, added in order and looked up by offset."""

    def __init__(self, found: Iterable[DamagedRange] = ()) -> None:
        """Start with these, in order."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        for damage in found:
            self.add(damage.start, damage.end)

    def add(self, start: int, end: int) -> None:
        """Add one after all others."""
        self._starts.append(start)
        self._ends.append(end)

    def covers(self, physical_offset: int) -> bool:
        """Whether an offset is inside one."""
        index = bisect_right(self._starts, physical_offset) - 1
        return index >= 0 and physical_offset < self._ends[index]

    def any_between(self, low: int, high: int) -> bool:
        """Whether one starts after ``low`` and before ``high``."""
        index = bisect_right(self._starts, low)
        return index < len(self._starts) and self._starts[index] < high


def check_at(
    window: Window, physical_offset: int, end: int, rules: RecordRules = RULES
) -> DispatchRequest | Blank | RecordFault:
    """The record at an offset, fully checked.

    Args:
        window: The segment.
        physical_offset: Where a record should be.
        end: Physical offset where the segment, or its confirmed part, ends.
        rules: What is checked.
    """
    rest = end - physical_offset
    data = _record_bytes(window, physical_offset, rest)
    return check_record(data, 0, rest, physical_offset=physical_offset, rules=rules)


def damage_at(
    window: Window, physical_offset: int, stop: int, end: int, *, check_crc: bool
) -> DamagedRange | None:
    """What is wrong with a record, and where the next one starts.

    Args:
        window: The segment.
        physical_offset: Where a record should be.
        stop: A physical offset known to be a valid record or the end of the log.
        end: Physical offset where the segment, or its confirmed part, ends.
        check_crc: Whether the reader checks CRCs.

    Returns:
        The damage, or ``None`` if the segment properly ends here.
    """
    found = check_at(window, physical_offset, end, RULES if check_crc else SHAPE_RULES)
    if isinstance(found, Blank):
        left = window.segment.end - physical_offset
        if found.size_bytes == left:
            return None
        detail = f"the segment's end says {found.size_bytes}, but {left} bytes are left"
        found = RecordFault(physical_offset, "totalSize", detail)
    assert isinstance(found, RecordFault), "a decoder refused a good record"
    rest = end - physical_offset
    message = shape_of(_record_bytes(window, physical_offset, rest), rest)
    if message is not None:
        return DamagedRange(physical_offset, physical_offset + message.store_size, found, message)
    following = next_record(window, physical_offset + 1, stop)
    return DamagedRange(physical_offset, stop if following is None else following, found)


def next_record(window: Window, start: int, stop: int) -> int | None:
    """Physical offset of the first valid record from ``start`` on and before ``stop``."""
    for at in range(start, stop, _SEARCH_BYTES):
        for offset in _starts_in(window, at, min(at + _SEARCH_BYTES, stop)):
            if isinstance(check_at(window, offset, window.segment.end), DispatchRequest):
                return offset
    return None


def last_record(window: Window) -> DispatchRequest | None:
    """The last valid record of a segment; ``None`` if it was allocated but not used yet."""
    segment = window.segment
    if is_zero(window, segment.start, min(segment.start + 2 * _MAGIC_AT, segment.end)):
        return None
    for at in reversed(range(segment.start, segment.end, _SEARCH_BYTES)):
        starts = _starts_in(window, at, min(at + _SEARCH_BYTES, segment.end))
        for offset in reversed(list(starts)):
            found = check_at(window, offset, segment.end)
            if isinstance(found, DispatchRequest):
                return found
    return None


def shape_of(view: memoryview, rest: int) -> StoredMessage | None:
    """The record if all its lengths agree, whatever else is wrong."""
    try:
        message = decode_record(view, 0, rest)
    except CorruptRecord:
        return None
    return message if message.store_size <= len(view) else None


def is_zero(window: Window, start: int, end: int) -> bool:
    """Whether nothing was ever written between two offsets."""
    for at in range(start, end, _SEARCH_BYTES):
        size_bytes = min(_SEARCH_BYTES, end - at)
        # Bytes are compared at once, but a memoryview byte by byte.
        if bytes(window.need(at, size_bytes)) != _ZEROS[:size_bytes]:
            return False
    return True


def _starts_in(window: Window, low: int, high: int) -> Iterator[int]:
    """Offsets in a range where a record may start: it has a magic and states its own offset."""
    end = window.segment.end
    chunk = bytes(window.need(low, min(high + _MAGIC_AT + 3, end) - low))
    if chunk == _ZEROS[: len(chunk)]:
        return
    found: list[int] = []
    for magic in _MAGICS:
        position = chunk.find(magic, _MAGIC_AT)
        while 0 <= position - _MAGIC_AT < high - low:
            found.append(low + position - _MAGIC_AT)
            position = chunk.find(magic, position + 1)
    for offset in sorted(found):
        head = window.need(offset, min(RECORD_BYTES_MIN, end - offset))
        if int.from_bytes(head[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big") == offset:
            yield offset


def _record_bytes(window: Window, physical_offset: int, rest: int) -> memoryview:
    """The bytes of a record, as far as its size is plausible."""
    head = window.need(physical_offset, min(RECORD_BYTES_MIN, rest))
    size = int.from_bytes(head[:4], "big", signed=True)
    is_record = bytes(head[4:8]) in _MAGICS and RECORD_BYTES_MIN <= size <= rest
    return window.need(physical_offset, size) if is_record else head
