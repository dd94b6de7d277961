"""Checks of one record against itself and its neighbours in the log.

Owns the checks that need neither ConsumeQueue nor index: text is text, flags fit the body, the CRC
property is whole, and store timestamps neither go back nor lie ahead of the clock.
:func:`roquet.format.commit_log.check_record` has checked shape, offsets and CRC before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from roquet.format.commit_log import (
    DispatchRequest,
    RecordFault,
    body_and_properties,
    crc_property,
)
from roquet.format.record_layout import CRC_PROPERTY_BYTES
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.topic import LMQ_PREFIX, topic_fault

_INNER_NAMES = (prop.INNER_NUM, prop.INNER_BASE)
KNOWN_FLAGS = (
    flags.COMPRESSED
    | flags.MULTI_TAGS
    | flags.TRANSACTION_MASK
    | flags.BORN_HOST_V6
    | flags.STORE_HOST_V6
    | flags.NEED_UNWRAP
    | flags.INNER_BATCH
    | flags.COMPRESSION_LZ4
    | flags.COMPRESSION_ZSTD
    | flags.COMPRESSION_ZLIB
)
_LZ4_START = b"\x04\x22\x4d\x18"
_ZSTD_START = b"\x28\xb5\x2f\xfd"
_CRC_SHAPE = crc_property(0)
_CRC_FIXED = [*range(9), CRC_PROPERTY_BYTES - 1]  # bytes of the shape that are not digits
_CRC_DIGITS = 10
_CRC_FIXED_ALIKE_MIN = 7
_CRC_DIGITS_MIN = 8


def content_faults(record: DispatchRequest, data: memoryview, start: int) -> Iterator[RecordFault]:
    """Yield what is wrong with flags and properties of a record that starts at ``start``."""
    body, properties = body_and_properties(data, start, record.size_bytes)
    yield from _flag_faults(record, body)
    yield from _property_faults(record, properties)
    yield from _crc_property_faults(record, properties)


def stored_topic_fault(topic: str) -> str | None:
    """What is wrong with the topic of a record; ``None`` if nothing is."""
    return None if topic.startswith(LMQ_PREFIX) else topic_fault(topic)


def _flag_faults(record: DispatchRequest, body: memoryview) -> Iterator[RecordFault]:
    sys_flag = record.sys_flag
    detail = None
    if sys_flag & ~KNOWN_FLAGS:
        detail = f"0x{sys_flag & 0xFFFFFFFF:X} has bits without a meaning"
    elif sys_flag & flags.COMPRESSED and not _looks_compressed(sys_flag, body):
        detail = f"0x{sys_flag:X} says compressed, the body is not"
    elif sys_flag & flags.INNER_BATCH and record.properties.keys().isdisjoint(_INNER_NAMES):
        detail = f"0x{sys_flag:X} says inner batch, {' and '.join(_INNER_NAMES)} are missing"
    elif not flags.takes_queue_offset(sys_flag) and record.queue_offset != 0:
        detail = f"0x{sys_flag:X} says prepared or rolled back, but it has a queue offset"
    if detail is not None:
        yield RecordFault(record.physical_offset, "sysFlag", detail)


def _property_faults(record: DispatchRequest, raw: memoryview) -> Iterator[RecordFault]:
    try:
        text = str(raw, "utf-8")
    except UnicodeDecodeError as error:
        detail = f"byte {error.start} of the properties is not UTF-8"
        yield RecordFault(record.physical_offset, "properties", detail)
        return
    if text.count(prop.PROPERTY_SEPARATOR) == len(record.properties) and text[-1:] == "\x02":
        return
    for pair in text.split(prop.PROPERTY_SEPARATOR):
        if pair and pair.find(prop.NAME_VALUE_SEPARATOR) <= 0:
            detail = f"{pair[:80]!r} is not a name and value"
            yield RecordFault(record.physical_offset, "properties", detail)


def _crc_property_faults(record: DispatchRequest, properties: memoryview) -> Iterator[RecordFault]:
    """Check where the CRC property should be: readers do not recognize a damaged one."""
    last = bytes(properties[-CRC_PROPERTY_BYTES:])
    if len(last) < CRC_PROPERTY_BYTES or not (
        last.startswith(_CRC_SHAPE[:5]) or last.startswith(_CRC_SHAPE[5:9], 5)
    ):
        return
    alike = sum(last[at] == _CRC_SHAPE[at] for at in _CRC_FIXED)
    digits = sum(0x30 <= byte <= 0x39 for byte in last[9:-1])
    if alike == len(_CRC_FIXED) and digits == _CRC_DIGITS:
        return  # intact, so it was already compared with the record
    if alike >= _CRC_FIXED_ALIKE_MIN and digits >= _CRC_DIGITS_MIN:
        yield RecordFault(record.physical_offset, prop.CRC32, "is damaged itself")


class StoreTimes:
    """Store timestamps: never back, never ahead of the clock.

    When the time falls from one record to the next, either may be wrong. If the later one still
    fits the record before both, the earlier one jumped ahead and is blamed. When two in a row
    are early, the broker's clock was set back, which is reported once.
    """

    def __init__(
        self, now_ms: Callable[[], int], tell: Callable[[DispatchRequest, str], None]
    ) -> None:
        """Take a clock, and a callback for each wrong record and its fault."""
        self._clock_ms = now_ms
        self._tell = tell
        self._now_ms = now_ms()
        self._before_ms = 0
        self._last: DispatchRequest | None = None
        self._stepped_back: DispatchRequest | None = None
        self._ahead: DispatchRequest | None = None
        self._ahead_count = 0

    def on_record(self, record: DispatchRequest) -> None:
        """Check the next record of the log."""
        time_ms = record.store_timestamp_ms
        if time_ms > self._now_ms:
            self._now_ms = self._clock_ms()
            if time_ms > self._now_ms:
                self._ahead = self._ahead or record
                self._ahead_count += 1
                return
        if self._ahead is not None:
            self._report_ahead()
        last = self._last
        if last is None or time_ms >= last.store_timestamp_ms:
            self._before_ms = 0 if last is None else last.store_timestamp_ms
        elif self._stepped_back is not None:
            self._before_ms = self._stepped_back.store_timestamp_ms
        elif time_ms >= self._before_ms:
            self._blame(last, "later", record, "after")
        else:
            self._blame(record, "earlier", last, "before")
            self._stepped_back = record
            return
        self._stepped_back = None
        self._last = record

    def _blame(
        self, record: DispatchRequest, relation: str, other: DispatchRequest, place: str
    ) -> None:
        detail = (
            f"{record.store_timestamp_ms} is {relation} than {other.store_timestamp_ms} of the "
            f"record {place} it, at {other.physical_offset}"
        )
        self._tell(record, detail)

    def allows(self, first_ms: int, last_ms: int) -> bool:
        """Whether nothing is wrong with the next records.

        Args:
            first_ms: The store time of the first of them; none of the others is earlier than the
                one before it.
            last_ms: That of the last.
        """
        return (
            self._ahead is None
            and self._stepped_back is None
            and (self._last is None or first_ms >= self._last.store_timestamp_ms)
            and last_ms <= self._now_ms
        )

    def finish(self) -> None:
        """Report the faults that waited for a following record."""
        if self._ahead is not None:
            self._report_ahead()

    def _report_ahead(self) -> None:
        first = self._ahead
        assert first is not None
        detail = f"{first.store_timestamp_ms} is later than now, {self._now_ms}"
        if self._ahead_count > 1:
            detail += f"; so are the {self._ahead_count - 1} records after it"
        self._tell(first, detail)
        self._ahead = None
        self._ahead_count = 0


def _looks_compressed(sys_flag: int, body: memoryview) -> bool:
    """Whether a body starts like its compression format."""
    kind = sys_flag & flags.COMPRESSION_MASK
    if kind == flags.COMPRESSION_LZ4:
        return bytes(body[:4]) == _LZ4_START
    if kind == flags.COMPRESSION_ZSTD:
        return bytes(body[:4]) == _ZSTD_START
    if len(body) < 2:
        return False
    return body[0] & 0xF == 8 and int.from_bytes(body[:2], "big") % 31 == 0
