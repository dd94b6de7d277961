"""Results of the store: values, not exceptions, on the message path.

Owns the statuses and results of put, get and query, and the report of recovery. Upstream's names
are kept because the broker turns them into response codes and remarks.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from msgspec import Struct

from roquet.model.host import Host
from roquet.model.message_id import offset_message_id


class PutMessageStatus(Enum):
    """The outcome of a put."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


_STORED = {
    PutMessageStatus.PUT_OK,
    PutMessageStatus.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE,
}


class AppendResult(Struct, frozen=True, gc=False):
    """Where an append put its records.

    Attributes:
        inner_messages: How many messages its one record holds, if that is an inner batch.
    """

    wrote_offset: int
    wrote_bytes: int
    store_timestamp_ms: int
    queue_offset: int
    physical_offsets: tuple[int, ...]
    inner_messages: int = 0

    @property
    def message_count(self) -> int:
        """How many messages were appended."""
        return self.inner_messages or len(self.physical_offsets)

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.wrote_offset + self.wrote_bytes

    def message_id(self, store_host: Host) -> str:
        """Offset message ids of the records, joined by commas as in the response to a batch."""
        return ",".join(offset_message_id(store_host, offset) for offset in self.physical_offsets)


class PutMessageResult(Struct, frozen=True, gc=False):
    """The result of a put; ``detail`` says why it was refused."""

    status: PutMessageStatus
    append: AppendResult | None = None
    detail: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether the message is in the log and as safe as required."""
        return self.status is PutMessageStatus.PUT_OK

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the log, flushed or not."""
        return self.status in _STORED


@dataclass(slots=True)
class BurstResult:
    """The result of a burst: offsets by message, -1 for one that was refused."""

    queue_offsets: array[int]
    physical_offsets: array[int]
    end_offset: int = 0
    refused: dict[int, PutMessageResult] = field(default_factory=dict)

    @classmethod
    def of(cls, count: int) -> Self:
        """The result of ``count`` messages, none of which is appended yet."""
        return cls(array("q", [-1]) * count, array("q", [-1]) * count)

    def note(self, number: int, result: PutMessageResult) -> None:
        """Record the outcome of one message."""
        if result.append is None:
            self.refused[number] = result
        else:
            self.queue_offsets[number] = result.append.queue_offset
            self.physical_offsets[number] = result.append.wrote_offset


class GetMessageStatus(Enum):
    """The outcome of a get."""

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
    """The result of a get: records in as few slices of the log as possible.

    Attributes:
        behind_bytes: How far the last entry that was read is behind the end of the log.
        last_store_timestamp_ms: When the last of the records was stored; 0 if there is none.
        filtered_count: How many records were read and dropped by a filter.
        inner_messages: How many messages the records hold; with batches, more than records.
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
    inner_messages: int = 0

    @property
    def message_count(self) -> int:
        """How many messages the slices hold."""
        return self.inner_messages or len(self.queue_offsets)

    def body(self) -> bytes:
        """The concatenated records, as in a pull response."""
        return b"".join(self.slices)


@dataclass(slots=True)
class QueryMessageResult:
    """The result of a query by key."""

    index_last_update_timestamp_ms: int = 0
    index_last_update_physical_offset: int = 0
    records: list[Bytes] = field(default_factory=list)
    total_bytes: int = 0


class BoundaryType(Enum):
    """Which message a lookup by time returns if several have the same store time."""

    LOWER = "lower"
    UPPER = "upper"


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What recovery found and did.

    Attributes:
        clean_exit: Whether the last process closed the store.
        start_offset: From where queues and index were filled.
        end_offset: Where the log ends.
        records: Records that were checked.
        cut_reason: Why the log ends there, if bytes after it were erased.
        read_bytes: How much of the log was read.
    """

    clean_exit: bool
    start_offset: int
    end_offset: int
    records: int
    cut_reason: str
    read_bytes: int
