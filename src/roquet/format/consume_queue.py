"""An entry of a ConsumeQueue, as bytes.

Owns the 20-byte unit, big-endian; 300,000 of them make a file of 6,000,000 bytes:

==== ============== ===== ==========================================================
#    field          bytes note
==== ============== ===== ==========================================================
1    physicalOffset 8     of the record in the CommitLog
2    size           4     of the record
3    tagsCode       8     tags hash, due time (SCHEDULE_TOPIC_XXXX), or ext address
==== ============== ===== ==========================================================

A queue whose first entry is not 0 starts with filler entries (0, 0x7FFFFFFF, 0). A unit of zeros
was never written.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

UNIT = struct.Struct(">qiq")
UNIT_BYTES = UNIT.size
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
        """Whether it is an entry at all."""
        return self.physical_offset >= 0 and self.size_bytes > 0

    @property
    def end_offset(self) -> int:
        """Where its record ends in the log; 0 for filler."""
        return 0 if self.is_filler else self.physical_offset + self.size_bytes


def unpack_unit(data: bytes | memoryview, position: int = 0) -> CqUnit:
    """The entry at a byte position."""
    return CqUnit._make(UNIT.unpack_from(data, position))
