"""Logs in memory and settings, for the two sides of a replication."""

from __future__ import annotations

import msgspec

from roquet.errors import StoreError
from roquet.format.ha_frames import TransferDecoder
from roquet.store.config import MessageStoreConfig, replace

SEGMENT_BYTES = 1000
CONFIG = msgspec.structs.replace(
    MessageStoreConfig(), commit_log_file_bytes=SEGMENT_BYTES, ha_transfer_batch_bytes=300
)
MS = 1_000_000
SECOND = 1000 * MS


def settings(**changes: object) -> MessageStoreConfig:
    """The settings of these tests with some changed."""
    return replace(CONFIG, **changes)


class MemoryLog:
    """A log in memory, for either side.

    Attributes:
        flushed_offset: What a slave may report, if it is set.
    """

    def __init__(self, data: bytes = b"", *, min_offset: int = 0) -> None:
        self.data = bytearray(data)
        self.min_offset = min_offset
        self.flushed_offset: int | None = None

    @property
    def max_offset(self) -> int:
        return self.min_offset + len(self.data)

    def data_from(self, physical_offset: int, size_bytes: int) -> memoryview | None:
        if physical_offset < self.min_offset:
            return None
        left = SEGMENT_BYTES - physical_offset % SEGMENT_BYTES
        start = physical_offset - self.min_offset
        part = bytes(self.data[start : start + min(size_bytes, left)])
        return memoryview(part) if part else None

    @property
    def safe_offset(self) -> int:
        return self.max_offset if self.flushed_offset is None else self.flushed_offset

    def append(self, physical_offset: int, data: memoryview) -> None:
        if not self.data:
            self.min_offset = physical_offset
        if physical_offset != self.max_offset:
            raise StoreError("not the end")
        self.data += data

    def tail(self, start: int) -> bytes:
        return bytes(self.data[start - self.min_offset :])


def transfers(buffers: list[bytes | memoryview]) -> list[tuple[int, bytes]]:
    """What frames hold."""
    return [(offset, bytes(part)) for offset, part in TransferDecoder().feed(b"".join(buffers))]
