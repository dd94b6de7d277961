"""The records of a range of the log, with the damage between them.

Owns the walk shared by everything that reads whole records: a Spark task over its range,
``roquet store`` over one segment after another.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

from roquet.format.commit_log import Blank, DispatchRequest, RecordRules, check_record
from roquet.format.record_layout import RECORD_BYTES_MIN
from roquet.format.segment_files import Segment
from roquet.runtime.files import Files
from roquet.storefiles.damage import DamagedRange, damage_at, is_zero
from roquet.storefiles.plain_blocks import BlockReader, RecordBlock
from roquet.storefiles.window import Window

_SIZE = struct.Struct(">i")


class LogRange(NamedTuple):
    """Records of one segment that start from ``start`` on and before ``stop``."""

    segment: Segment
    start: int
    stop: int
    end: int
    """Physical offset where the segment, or its confirmed part, ends."""

    @property
    def size_bytes(self) -> int:
        """How much there is to read."""
        return self.stop - self.start


class FoundRecord(NamedTuple):
    """A valid record, and its bytes, which are usable until the next read."""

    record: DispatchRequest
    data: memoryview
    start: int


def records_of(
    files: Files, part: LogRange, rules: RecordRules, on_damage: Callable[[DamagedRange], None]
) -> Iterator[FoundRecord]:
    """Yield the valid records of a part of one segment.

    Args:
        files: Access to the disk.
        part: The part; its last bytes may never have been written.
        rules: What is checked.
        on_damage: Called with damaged bytes, before the record after them is yielded.

    Raises:
        DataLost: The segment is gone, or shorter than it was.
    """
    return cast("Iterator[FoundRecord]", blocks_of(files, part, rules, on_damage, None))


def blocks_of(
    files: Files,
    part: LogRange,
    rules: RecordRules,
    on_damage: Callable[[DamagedRange], None],
    reader: BlockReader | None,
) -> Iterator[FoundRecord | RecordBlock]:
    """Yield the valid records of a part of one segment, in blocks where a reader can.

    The arguments are those of :func:`records_of`, and a reader of blocks.
    """
    segment, offset, stop, end = part.segment, part.start, part.stop, part.end
    with Window(files, segment, limit=stop) as window:
        while offset < stop:
            view, base = window.view, window.base
            position, in_view = offset - base, len(view)
            if in_view - position < RECORD_BYTES_MIN:
                window.load(offset, min(RECORD_BYTES_MIN, end - offset))
                view, base, position, in_view = window.view, offset, 0, len(window.view)
            size = _SIZE.unpack_from(view, position)[0] if in_view - position >= _SIZE.size else 0
            if in_view - position < size <= end - offset:
                window.load(offset, size)
                view, base, position, in_view = window.view, offset, 0, len(window.view)
            limit = min(in_view, end - base)
            block = reader.read(view, position, stop - base, limit, base) if reader else None
            if block is not None:
                offset = base + block.reached
                yield RecordBlock(block, view, base)
                continue
            found = check_record(view, position, limit, physical_offset=offset, rules=rules)
            if isinstance(found, DispatchRequest):
                offset += found.size_bytes
                yield FoundRecord(found, view, position)
                continue
            if isinstance(found, Blank) and found.size_bytes == segment.end - offset:
                return
            damage = damage_at(window, offset, stop, end, check_crc=True)
            if damage is None:
                return
            nothing = damage.message is None and is_zero(window, damage.start, damage.end)
            on_damage(damage._replace(message=None, is_zero=nothing))
            offset = damage.end
