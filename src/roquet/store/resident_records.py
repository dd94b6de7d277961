"""Records of mapped segments, read only once their pages are in memory.

Owns no state. A page of a mapping that the disk cannot read ends the process with SIGBUS when it is
touched, so whatever may be on disk only is first brought in by a call that reports an error
instead: :meth:`~roquet.store.mapped_file.MappedFile.make_resident`. No more than the record itself
is brought in: pages behind it may be unreadable, and never were part of the log.
"""

from __future__ import annotations

from roquet.format import commit_log as fmt
from roquet.format.record_layout import END_OF_SEGMENT_BYTES, MAGIC_BLANK, RECORD_BYTES_MIN
from roquet.runtime.memory import PAGE_BYTES
from roquet.store.mapped_file import MappedFile


def bring_record(segment: MappedFile, position: int, limit: int) -> None:
    """Wait until the record that may begin at a position is in memory, as far as ``limit``.

    Raises:
        StoreError: It cannot be read.
    """
    readable_bytes = limit - position
    head_bytes = min(RECORD_BYTES_MIN, readable_bytes)
    if head_bytes <= 0:
        return
    segment.make_resident(position, head_bytes)
    head = segment.view[position : position + head_bytes]
    is_end = head[4:END_OF_SEGMENT_BYTES] == MAGIC_BLANK.to_bytes(4, "big")
    record_bytes = int.from_bytes(head[:4], "big")
    page_rest_bytes = -(position + head_bytes) % PAGE_BYTES
    if not is_end and head_bytes + page_rest_bytes < record_bytes <= readable_bytes:
        segment.make_resident(position, record_bytes)


def check_in(
    segment: MappedFile, position: int, limit: int, *, rules: fmt.RecordRules
) -> fmt.DispatchRequest | fmt.Blank | fmt.RecordFault:
    """:func:`~roquet.format.commit_log.check_record` of a segment; waits for the record."""
    bring_record(segment, position, limit)
    return fmt.check_record(
        segment.view,
        position,
        limit,
        physical_offset=segment.start_offset + position,
        rules=rules,
    )


def first_store_timestamp_ms(segment: MappedFile) -> int | None:
    """Store time of a segment's first record, ``None`` if it has none; waits for its page."""
    segment.make_resident(0, min(RECORD_BYTES_MIN, segment.size_bytes))
    return fmt.peek_store_timestamp_ms(segment.view, 0, segment.read_limit)
