"""Plain records of the log, many at a time.

Most records of most logs are plain and without faults. Compiled code reads, checks and summarizes
them as columns, far faster than one by one; it leaves all others to
:func:`roquet.storefiles.records.records_of`. Without it there are no blocks, and the result is the
same.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple, Protocol

from roquet.runtime import compiled

if compiled.is_built("roquet.storefiles._plain_blocks"):
    from roquet.storefiles import _plain_blocks

__all__ = ["ROWS_MAX", "BlockReader", "PlainBlock", "RecordBlock", "make_block_reader"]

ROWS_MAX = 1 << 13
"""How many records a block has at most."""


class PlainBlock(Protocol):
    """Columns of consecutive records; each is an ``array`` with one value per record.

    Attributes:
        rows: The number of records.
        reached: Position after the last of them.
        physical_offsets: Their physical offsets.
        sizes: Their sizes in bytes.
        store_times_ms: Their store times.
        places: The numbers of their queues.
        queue_offsets: Their queue offsets.
        tags_codes: Their tags codes.
        owed_keys: Row, shifted left by 32 bits, and hash of each key that must be indexed.
        tag_keys: The same of the keys for tags, which not every broker indexes.
    """

    rows: int
    reached: int
    physical_offsets: array[int]
    sizes: array[int]
    store_times_ms: array[int]
    places: array[int]
    queue_offsets: array[int]
    tags_codes: array[int]
    owed_keys: array[int]
    tag_keys: array[int]


class BlockReader(Protocol):
    """Reads blocks of records."""

    def read(
        self, view: memoryview, position: int, stop: int, limit: int, base: int
    ) -> PlainBlock | None:
        """Read plain records without faults; ``None`` if the first is not one of them.

        Args:
            view: Bytes of a segment.
            position: Where the first record starts.
            stop: Records that start here or later are not read.
            limit: Bytes from here on are not read.
            base: Physical offset of the first byte of ``view``.
        """
        ...


class RecordBlock(NamedTuple):
    """A block, and the bytes it was read from, which are usable until the next read."""

    columns: PlainBlock
    data: memoryview
    base: int


def make_block_reader(number_of: Callable[[str, int], int]) -> BlockReader | None:
    """Return a reader, or ``None`` without compiled code.

    Args:
        number_of: Numbers a queue, by topic and id; called once for each. Records of a queue with
            a negative number are left out of blocks.
    """
    if not compiled.is_used("roquet.storefiles._plain_blocks"):
        return None
    return _plain_blocks.PlainBlockReader(number_of, ROWS_MAX)
