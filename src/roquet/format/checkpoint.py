"""The file ``checkpoint``, as bytes.

Owns the layout: 4096 bytes, of which five big-endian 8-byte integers are used.

==== ====================== =================================================================
#    field                  meaning
==== ====================== =================================================================
1    physicMsgTimestamp     store time of the newest record known to be on disk
2    logicsMsgTimestamp     store time up to which every ConsumeQueue is on disk
3    indexMsgTimestamp      store time up to which every full index file is on disk
4    masterFlushedOffset    a slave's note of its master
5    confirmPhyOffset       confirmed end of the log when replicas must agree
==== ====================== =================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

FILE_BYTES = 4096
_FIELDS = struct.Struct(">qqqqq")


class Checkpoint(NamedTuple):
    """The five marks."""

    physic_msg_timestamp_ms: int = 0
    logics_msg_timestamp_ms: int = 0
    index_msg_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0

    def pack(self) -> bytes:
        """The used bytes at the head of the file."""
        return _FIELDS.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> Checkpoint:
        """Parse a file; one that is too short has no marks."""
        if len(data) < _FIELDS.size:
            return cls()
        return cls._make(_FIELDS.unpack_from(data))


def checkpoint_faults(data: bytes, now_ms: int) -> Iterator[tuple[str, str]]:
    """Yield what cannot be right in a checkpoint file: the field, and why.

    No checksum protects the values, so only impossible ones are reported.
    """
    if len(data) < FILE_BYTES:
        yield "file", f"{len(data)} bytes, expected {FILE_BYTES}"
        return
    marks = Checkpoint.unpack(data)
    for name, time_ms in (
        ("physicMsgTimestamp", marks.physic_msg_timestamp_ms),
        ("logicsMsgTimestamp", marks.logics_msg_timestamp_ms),
        ("indexMsgTimestamp", marks.index_msg_timestamp_ms),
    ):
        if not 0 <= time_ms <= now_ms:
            yield name, f"{time_ms} is not a time before now, {now_ms}"
    for name, offset in (
        ("masterFlushedOffset", marks.master_flushed_offset),
        ("confirmPhyOffset", marks.confirm_physical_offset),
    ):
        if offset < 0:
            yield name, f"{offset} is negative"
