"""An entry of a batch consume queue, as bytes.

Owns the 46-byte unit, :data:`BATCH_UNIT_LAYOUT`, which starts with the fields of a ConsumeQueue's
unit; 300,000 of them make a file of 13,800,000 bytes.

Queue offsets count the messages inside the batches, so an entry's position does not follow from
its offset: it is found by bisection over msgBaseOffset. A unit without a size was never written;
its msgBaseOffset, if any, is the offset at which an emptied queue continues.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from roquet.format.commit_log import DispatchRequest
from roquet.format.consume_queue import UNIT_LAYOUT, CqUnit
from roquet.format.layout import Field, Layout
from roquet.model import properties as prop
from roquet.model import sys_flag as flags

BATCH_UNIT_LAYOUT = Layout(
    *UNIT_LAYOUT.fields,
    Field("storeTimestamp", "q", "of the record, milliseconds"),
    Field("msgBaseOffset", "q", "queue offset of the first message of the batch"),
    Field("batchSize", "h", "how many messages it holds; 1 for a single message"),
    Field("compactedOffset", "i", "always -1"),
    Field("reserved", "i", "0"),
)
BATCH_UNIT = BATCH_UNIT_LAYOUT.struct
BATCH_UNIT_BYTES = BATCH_UNIT_LAYOUT.bytes
DEFAULT_BATCH_FILE_BYTES = 300_000 * BATCH_UNIT_BYTES
BATCH_SIZE_MAX = 0x7FFF
COMPACTED_OFFSET = -1

_SHORT = re.compile(r"[+-]?[0-9]{1,9}")


class BatchCqUnit(NamedTuple):
    """One entry."""

    physical_offset: int
    size_bytes: int
    tags_code: int
    store_timestamp_ms: int
    base_offset: int
    batch_size: int
    compacted_offset: int = COMPACTED_OFFSET
    reserved: int = 0

    @property
    def is_written(self) -> bool:
        """Whether it was ever written."""
        return (
            self.physical_offset >= 0
            and self.size_bytes > 0
            and self.base_offset >= 0
            and self.batch_size > 0
        )

    @property
    def end_offset(self) -> int:
        """Where its record ends in the log."""
        return self.physical_offset + self.size_bytes

    @property
    def next_offset(self) -> int:
        """The queue offset after its last message."""
        return self.base_offset + self.batch_size

    @property
    def plain(self) -> CqUnit:
        """The fields it shares with a ConsumeQueue entry."""
        return CqUnit(self.physical_offset, self.size_bytes, self.tags_code)

    def pack(self) -> bytes:
        """The entry as bytes."""
        return BATCH_UNIT.pack(*self)


def unpack_batch_unit(data: bytes | bytearray | memoryview, position: int = 0) -> BatchCqUnit:
    """The entry at a byte position."""
    return BatchCqUnit._make(BATCH_UNIT.unpack_from(data, position))


def unpack_batch_units(data: bytes) -> Iterator[BatchCqUnit]:
    """Yield consecutive entries."""
    return map(BatchCqUnit._make, BATCH_UNIT.iter_unpack(data))


def batch_unit_of(record: DispatchRequest) -> BatchCqUnit:
    """The entry that a record gets."""
    return BatchCqUnit(
        record.physical_offset,
        record.size_bytes,
        record.tags_code,
        record.store_timestamp_ms,
        record.queue_offset,
        batch_size_of(record),
    )


def batch_size_of(record: DispatchRequest) -> int:
    """How many messages a record adds to its queue.

    INNER_NUM counts for inner batches only, and only with INNER_BASE, which the store adds.
    """
    if not record.sys_flag & flags.INNER_BATCH or prop.INNER_BASE not in record.properties:
        return 1
    return inner_number(record.properties.get(prop.INNER_NUM)) or 1


def inner_number(text: str | None) -> int | None:
    """INNER_NUM as a number, ``None`` unless an entry can hold it.

    Example:
        >>> inner_number("3"), inner_number("+3"), inner_number("0"), inner_number("40000")
        (3, 3, None, None)
    """
    if text is None or not _SHORT.fullmatch(text):
        return None
    number = int(text)
    return number if 1 <= number <= BATCH_SIZE_MAX else None
