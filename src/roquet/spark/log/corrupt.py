"""Bytes of the log that are no good record.

Owns what happens with them: where the next good record starts, and the row that stands for them.

========================= ========================================================================
mode                      damaged bytes
========================= ========================================================================
``PERMISSIVE`` (default)  are one row: ``_corrupt`` says what is wrong, ``physicalOffset`` where and
                          ``storeSize`` how much. A record whose lengths agree has all its columns,
                          but no body unless ``_corrupt`` is there to warn of it.
``DROPMALFORMED``         are left out
``FAILFAST``              are an error
========================= ========================================================================

A record whose lengths agree with each other leads to the next one whatever else is wrong. Where
they do not, the next good record is searched by its magic number; that it names its own offset and
fits its CRC keeps bytes of a body that look like a record from being taken for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from roquet.errors import CorruptRecord
from roquet.format.commit_log import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    Blank,
    DispatchRequest,
    RecordFault,
    RecordRules,
    check_record,
    decode_record,
)
from roquet.model.delay_level import DelayLevels
from roquet.model.message import StoredMessage
from roquet.spark.log.window import Segment, Window
from roquet.spark.schema import CORRUPT_COLUMN, TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS

PERMISSIVE = "PERMISSIVE"
DROPMALFORMED = "DROPMALFORMED"
FAILFAST = "FAILFAST"
MODES = (PERMISSIVE, DROPMALFORMED, FAILFAST)

INT_MAX = 2**31 - 1
_MAGICS = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))
_MAGIC_AT = 4
_SEARCH_BYTES = 1 << 20
RULES = RecordRules(DelayLevels())
SHAPE_RULES = RecordRules(DelayLevels(), check_crc=False)


class Damage(NamedTuple):
    """Bytes from ``start`` to ``end`` of the log that are no good record."""

    start: int
    end: int
    fault: RecordFault
    message: StoredMessage | None
    """The record if its lengths agree."""

    @property
    def text(self) -> str:
        """What ``_corrupt`` says."""
        return f"bytes {self.start} to {self.end}: {self.fault.field}: {self.fault.detail}"

    def error(self, segment: Segment) -> CorruptRecord:
        """What ``FAILFAST`` raises."""
        return CorruptRecord(
            f"The log is damaged at physical offset {self.start}.",
            detail=f"{segment.path}, {self.text}",
            hint="Read it with the option mode=PERMISSIVE and the column _corrupt, or leave damaged"
            " bytes out with mode=DROPMALFORMED.",
        )


def damage_at(
    window: Window, physical_offset: int, stop: int, end: int, *, check_crc: bool
) -> Damage | None:
    """What is wrong with a record, and where the next one starts.

    Args:
        window: The segment.
        physical_offset: Where a record should be.
        stop: A physical offset where a good record or the end of the log is known to be.
        end: Physical offset where the segment, or its confirmed part, ends.
        check_crc: Whether the reader checks CRCs.

    Returns:
        The damage, ``None`` if nothing is wrong: the segment ends here.
    """
    rest = end - physical_offset
    view = _record_bytes(window, physical_offset, rest)
    rules = RULES if check_crc else SHAPE_RULES
    found = check_record(view, 0, rest, physical_offset=physical_offset, rules=rules)
    if isinstance(found, Blank):
        left = window.segment.end - physical_offset
        if found.size_bytes == left:
            return None
        detail = f"the segment's end says {found.size_bytes}, {left} bytes are left"
        found = RecordFault(physical_offset, "totalSize", detail)
    assert isinstance(found, RecordFault), "a lane refused a good record"
    message = shape_of(view, rest)
    if message is not None:
        return Damage(physical_offset, physical_offset + message.store_size, found, message)
    following = next_record(window, physical_offset + 1, stop)
    return Damage(physical_offset, stop if following is None else following, found, None)


def next_record(window: Window, start: int, stop: int) -> int | None:
    """Physical offset of the first good record from ``start`` on and in front of ``stop``."""
    end = window.segment.end
    for at in range(start, stop, _SEARCH_BYTES):
        size = min(_SEARCH_BYTES, stop - at)
        chunk = bytes(window.need(at, min(size + _MAGIC_AT + 3, end - at)))
        for position in _magic_positions(chunk, size):
            offset = at + position
            view = _record_bytes(window, offset, end - offset)
            found = check_record(view, 0, end - offset, physical_offset=offset, rules=RULES)
            if isinstance(found, DispatchRequest):
                return offset
    return None


def _record_bytes(window: Window, physical_offset: int, rest: int) -> memoryview:
    """The bytes of a record as far as its size can be believed."""
    head = window.need(physical_offset, min(RECORD_BYTES_MIN, rest))
    size = int.from_bytes(head[:4], "big", signed=True)
    is_record = bytes(head[4:8]) in _MAGICS and RECORD_BYTES_MIN <= size <= rest
    if not is_record:
        return head
    if not window.has(physical_offset, size):
        size = min(size, _SEARCH_BYTES)
    return window.need(physical_offset, size)


def shape_of(view: memoryview, rest: int) -> StoredMessage | None:
    """The record if all its lengths agree, whatever else is wrong."""
    try:
        message = decode_record(view, 0, rest)
    except CorruptRecord:
        return None
    return message if message.store_size <= len(view) else None


def _magic_positions(chunk: bytes, size: int) -> Iterator[int]:
    """Where records may start in the first ``size`` bytes of a chunk."""
    found: list[int] = []
    for magic in _MAGICS:
        position = chunk.find(magic, _MAGIC_AT)
        while 0 <= position - _MAGIC_AT < size:
            found.append(position - _MAGIC_AT)
            position = chunk.find(magic, position + 1)
    yield from sorted(found)


def message_row(message: StoredMessage) -> dict[str, object]:
    """The columns of one record as plain values, by the reference path; times in microseconds."""
    properties = message.properties
    unique = message.unique_key
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "body": message.body,
        "tags": message.tags,
        "keys": properties.get("KEYS"),
        "properties": list(properties.items()),
        "msgId": message.offset_message_id if unique is None else unique,
        "offsetMsgId": message.offset_message_id,
        "bornTimestamp": _microseconds(message.born_timestamp_ms),
        "storeTimestamp": _microseconds(message.store_timestamp_ms),
        "bornHost": str(message.born_host),
        "storeHost": str(message.store_host),
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCrc": message.body_crc - (1 << 32 if message.body_crc > INT_MAX else 0),
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }


def damage_row(damage: Damage, *, is_told: bool) -> dict[str, object]:
    """The row that stands for damage; ``is_told`` says that it has the column ``_corrupt``."""
    row: dict[str, object] = {}
    if damage.message is not None:
        row = message_row(damage.message)
        if not is_told:
            row["body"] = None
    row["physicalOffset"] = damage.start
    row["storeSize"] = min(damage.end - damage.start, INT_MAX)
    row[CORRUPT_COLUMN] = damage.text
    return row


def _microseconds(time_ms: int) -> int | None:
    return time_ms * 1000 if TIMESTAMP_MIN_MS <= time_ms <= TIMESTAMP_MAX_MS else None
