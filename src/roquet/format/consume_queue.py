"""An entry of a ConsumeQueue, as bytes.

Owns the 20-byte unit, :data:`UNIT_LAYOUT`; 300,000 of them make a file of 6,000,000 bytes.
A queue whose first entry is not 0 starts with filler entries (0, 0x7FFFFFFF, 0). A unit of zeros
was never written.
"""

from __future__ import annotations

from typing import NamedTuple

from roquet.format.layout import Field, Layout

UNIT_LAYOUT = Layout(
    Field("physicalOffset", "q", "of the record in the CommitLog"),
    Field("size", "i", "of the record"),
    Field("tagsCode", "q", "tags hash, due time (SCHEDULE_TOPIC_XXXX), or ext address"),
)
UNIT = UNIT_LAYOUT.struct
UNIT_BYTES = UNIT_LAYOUT.bytes
DEFAULT_FILE_BYTES = 300_000 * UNIT_BYTES
FILLER_SIZE = 0x7FFFFFFF
FILLER = UNIT.pack(0, FILLER_SIZE, 0)


class CqUnit(NamedTuple):
    """One entry."""

    physical_offset: int
    size_bytes: int
    tags_code: int

    @property
    def is_filler(self) -> bool:
        """Whether it only pads the head of a queue."""
        return self.physical_offset == 0 and self.size_bytes == FILLER_SIZE

    @property
    def is_written(self) -> bool:
        """Whether it was ever written."""
        return self.physical_offset >= 0 and self.size_bytes > 0

    @property
    def end_offset(self) -> int:
        """Where its record ends in the log; 0 for filler."""
        return 0 if self.is_filler else self.physical_offset + self.size_bytes


def unpack_unit(data: bytes | memoryview, position: int = 0) -> CqUnit:
    """The entry at a byte position."""
    return CqUnit._make(UNIT.unpack_from(data, position))
