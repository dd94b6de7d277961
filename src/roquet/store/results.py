"""Answers of the store: values, not exceptions, on the way of a message.

Owns the statuses and result shapes of put, get and query. Upstream's names are kept because the
broker turns them into response codes and remarks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from msgspec import Struct

from roquet.model.host import Host
from roquet.model.message_id import offset_message_id


class PutMessageStatus(Enum):
    """What became of a put."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


_STORED = {
    PutMessageStatus.PUT_OK,
    PutMessageStatus.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE,
}


class AppendResult(Struct, frozen=True, gc=False):
    """Where an append put its records."""

    wrote_offset: int
    wrote_bytes: int
    store_timestamp_ms: int
    queue_offset: int
    physical_offsets: tuple[int, ...]

    @property
    def end_offset(self) -> int:
        """The byte behind the last record."""
        return self.wrote_offset + self.wrote_bytes

    def message_id(self, store_host: Host) -> str:
        """Offset message ids of the records, joined by commas as a batch answer has them."""
        return ",".join(offset_message_id(store_host, offset) for offset in self.physical_offsets)


class PutMessageResult(Struct, frozen=True, gc=False):
    """Answer to a put; ``detail`` says why it was refused."""

    status: PutMessageStatus
    append: AppendResult | None = None
    detail: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether the message is in the log and was acknowledged without reserve."""
        return self.status is PutMessageStatus.PUT_OK

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the log, flushed or not."""
        return self.status in _STORED


class GetMessageStatus(Enum):
    """What became of a get."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


Bytes = memoryview | bytes


@dataclass(slots=True)
class GetMessageResult:
    """Answer to a get: records in as few slices of the log as possible.

    Attributes:
        behind_bytes: How far the last entry that was looked at is behind the end of the log.
        last_store_timestamp_ms: When the last of the records was stored; 0 if there is none.
        filtered_count: How many records were read and left out by a filter.
    """

    status: GetMessageStatus
    next_begin_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    slices: list[Bytes] = field(default_factory=list)
    queue_offsets: list[int] = field(default_factory=list)
    total_bytes: int = 0
    suggest_pulling_from_slave: bool = False
    behind_bytes: int = 0
    last_store_timestamp_ms: int = 0
    filtered_count: int = 0

    @property
    def message_count(self) -> int:
        """How many records the slices hold."""
        return len(self.queue_offsets)

    def body(self) -> bytes:
        """The records back to back, as a pull answer carries them."""
        return b"".join(self.slices)


@dataclass(slots=True)
class QueryMessageResult:
    """Answer to a query by key."""

    index_last_update_timestamp_ms: int = 0
    index_last_update_physical_offset: int = 0
    records: list[Bytes] = field(default_factory=list)
    total_bytes: int = 0


class BoundaryType(Enum):
    """Which of several messages with one store time an offset by time means."""

    LOWER = "lower"
    UPPER = "upper"
