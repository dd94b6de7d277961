"""Decodes records of the log to Arrow columns, row by row.

The reference for ``_decoder.pyx`` and ``_walk.pyx``: ``format/commit_log.py`` reads and checks each
record, and :mod:`roquet.spark.message_values` makes its row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from roquet.errors import CorruptRecord
from roquet.format.commit_log import DispatchRequest, RecordRules, check_record, decode_record
from roquet.format.record_layout import (
    BEHIND_BODY_BYTES_MAX,
    END_OF_SEGMENT_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RECORD,
    RECORD_BYTES_MIN,
    body_at,
)
from roquet.model import sys_flag as flags
from roquet.model.message import StoredMessage
from roquet.spark.log.selection import Selection
from roquet.spark.message_values import VALUES
from roquet.spark.schema import COLUMNS
from roquet.storefiles.damage import RULES, SHAPE_RULES

ENDED, FULL, BLANK, FAULT, MORE = range(5)
"""Why decoding stops: at the end, at a limit, at the end of the segment, at a bad record, or at a
record that is only partly in memory."""

ROWS_MAX = 32_768
BYTES_MAX = 16 << 20

ARROW_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}

_START = RECORD.part("totalSize", "magic")
_SYS_FLAG = RECORD.only("sysFlag")
_BODY_LENGTH = RECORD.part("bodyLength", "bodyLength")


class DecodedRows(NamedTuple):
    """Rows from one decoding step.

    Attributes:
        rows: How many.
        arrays: By name: the requested columns.
        compressed: Row and system flag of each compressed body.
        reached: Position after the last record that was examined.
        why: Why decoding stopped there.
    """

    rows: int
    arrays: dict[str, pa.Array]
    compressed: list[tuple[int, int]]
    reached: int
    why: int


class RowDecoder:
    """Turns records into columns.

    Args:
        columns: What to decode: columns of :data:`roquet.spark.schema.COLUMNS` that a record has.
        selection: Which rows.
        check_crc: Whether bodies are checked against their CRC.
    """

    def __init__(self, columns: Iterable[str], selection: Selection, *, check_crc: bool) -> None:
        self._columns = tuple(columns)
        self._selection = selection
        self._rules = RULES if check_crc else SHAPE_RULES
        self._rows_max = ROWS_MAX

    def decode(
        self, data: memoryview, position: int, stop: int, end: int, base: int
    ) -> DecodedRows:
        """Decode the records that start at or after ``position`` in ``data`` and before ``stop``.

        Args:
            data: Bytes of a segment.
            position: Where the first record starts.
            stop: Records that start here or later are not read.
            end: Where the segment, or its confirmed part, ends; may be beyond ``data``.
            base: Physical offset of the first byte of ``data``; -1 when the records come from
                several places, as in the response to a pull.
        """
        messages: list[StoredMessage] = []
        taken_bytes, why = 0, ENDED
        while position < min(stop, end):
            if len(messages) == self._rows_max or taken_bytes >= BYTES_MAX:
                why = FULL
                break
            found = _record_at(data, position, end)
            if isinstance(found, int):
                why = found
                break
            offset = base + position if base >= 0 else found.physical_offset
            record = data[position : position + found.store_size]
            if not is_good(record, offset, self._rules):
                why = FAULT
                break
            if self._takes(found):
                messages.append(found)
                taken_bytes += found.store_size
            position += found.store_size
        arrays, compressed = self._arrays(messages), self._compressed(messages)
        return DecodedRows(len(messages), arrays, compressed, position, why)

    def _takes(self, message: StoredMessage) -> bool:
        return self._selection == Selection() or (
            self._selection.takes(
                message.topic, message.queue_id, message.store_timestamp_ms, message.properties
            )
            and self._selection.takes_values(lambda column: VALUES[column](message))
        )

    def _arrays(self, messages: list[StoredMessage]) -> dict[str, pa.Array]:
        if not messages:
            return {}
        return {name: _array(name, messages) for name in self._columns}

    def _compressed(self, messages: list[StoredMessage]) -> list[tuple[int, int]]:
        if "body" not in self._columns:
            return []
        return [
            (row, message.sys_flag)
            for row, message in enumerate(messages)
            if message.sys_flag & flags.COMPRESSED
        ]


def walk(
    data: memoryview, position: int, stop: int, end: int, base: int, *, records_max: int
) -> tuple[int, int, int]:
    """Step from record to record by their sizes.

    Args:
        data: Bytes of a segment.
        position: Where the first record starts.
        stop: Records that start here or later are not read.
        end: Where the segment, or its confirmed part, ends; may be beyond ``data``.
        base: Physical offset of the first byte of ``data``.
        records_max: The maximum number of records.

    Returns:
        The number of records, the position reached, and why it stopped there.
    """
    records = 0
    while position < min(stop, end):
        if records == records_max:
            return records, position, FULL
        found = _record_at(data, position, end)
        if isinstance(found, int):
            return records, position, found
        if found.physical_offset != base + position or min(found.queue_id, found.queue_offset) < 0:
            return records, position, FAULT
        records += 1
        position += found.store_size
    return records, position, ENDED


def is_good(record: bytes | memoryview, physical_offset: int, rules: RecordRules = RULES) -> bool:
    """Whether a whole record is valid; a negative offset accepts the one that it states."""
    if physical_offset < 0:
        named = record[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8]
        physical_offset = int.from_bytes(named, "big", signed=True)
    found = check_record(record, 0, len(record), physical_offset=physical_offset, rules=rules)
    return isinstance(found, DispatchRequest)


def _record_at(data: memoryview, position: int, end: int) -> StoredMessage | int:
    """Return the record at a position if its lengths agree, otherwise why there is none."""
    rest, room = end - position, len(data) - position
    if rest < END_OF_SEGMENT_BYTES:
        return FAULT
    if room < END_OF_SEGMENT_BYTES:
        return MORE
    size, magic = _START.unpack_from(data, position)
    if magic == MAGIC_BLANK:
        return BLANK
    if magic in {MAGIC_V1, MAGIC_V2} and room < size <= rest:
        return MORE if _may_be_long(data[position:], size) else FAULT
    try:
        return decode_record(data, position, min(end, len(data)))
    except CorruptRecord:
        return FAULT


def _may_be_long(start: memoryview, size: int) -> bool:
    """Whether the size of a partly loaded record fits the length of its body.

    Avoids loading a gigabyte because of four damaged bytes.
    """
    if len(start) < RECORD_BYTES_MIN:
        return True
    (sys_flag,) = _SYS_FLAG.unpack_from(start)
    body_start = body_at(sys_flag)
    if len(start) < body_start:
        return body_start <= size
    (body_bytes,) = _BODY_LENGTH.unpack_from(start, body_start - _BODY_LENGTH.size)
    return bool(0 <= body_bytes <= size - body_start <= body_bytes + BEHIND_BODY_BYTES_MAX)


def _array(name: str, messages: list[StoredMessage]) -> pa.Array:
    kind = ARROW_TYPES[COLUMNS[name]]
    if name == "body":
        return pa.array([message.body for message in messages], kind)
    values = [VALUES[name](message) for message in messages]
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)
