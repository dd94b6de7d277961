"""The faults that a store check can find.

Owns the kinds, and a fault with its field, its position and its detail. ``roquet store verify`` and
``roquet spark audit`` report the same faults.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

from roquet.format.commit_log import DispatchRequest
from roquet.format.derived import QueueKey
from roquet.model import properties as prop

BAD_CRC = "bad-crc"
BAD_SIZE = "bad-size"
BAD_MAGIC = "bad-magic"
BAD_RECORD = "bad-record"
BAD_CONTENT = "bad-content"
BAD_TIME = "bad-time"
BAD_TAIL = "bad-tail"
GAP = "gap"
DUPLICATE = "duplicate"
ENTRY_MISSING = "entry-missing"
ENTRY_WRONG = "entry-wrong"
ENTRY_STRAY = "entry-stray"
TAGS_CODE = "tags-code"
RECORD_LOST = "record-lost"
INDEX_MISSING = "index-missing"
INDEX_WRONG = "index-wrong"
INDEX_CHAIN = "index-chain"
INDEX_HEADER = "index-header"
BAD_FILE = "bad-file"
CHECKPOINT = "checkpoint"
CONFIG = "config"
VANISHED = "vanished"
REPLICA = "replica"

KINDS = {
    BAD_CRC: "a checksum does not match its record",
    BAD_SIZE: "the lengths of a record do not agree",
    BAD_MAGIC: "no record starts where one should",
    BAD_RECORD: "another field of a record has an impossible value",
    BAD_CONTENT: "flags, topic or properties of a record make no sense",
    BAD_TIME: "store times go back, or lie ahead of the clock",
    BAD_TAIL: "a closed log does not end with a whole record",
    GAP: "queue offsets are missing",
    DUPLICATE: "queue offsets occur twice",
    ENTRY_MISSING: "a record has no ConsumeQueue entry",
    ENTRY_WRONG: "a ConsumeQueue entry points elsewhere or has another size",
    ENTRY_STRAY: "a ConsumeQueue entry has no record",
    TAGS_CODE: "a ConsumeQueue entry has another tags code than its record",
    RECORD_LOST: "entries of a closed store point beyond the end of its log",
    INDEX_MISSING: "keys of a record are not in the index",
    INDEX_WRONG: "an index entry does not match its record, or has none",
    INDEX_CHAIN: "entries or slots of an index file point to a wrong entry",
    INDEX_HEADER: "the header of an index file does not match its entries",
    BAD_FILE: "a file of log, queue or index is missing, cut, or does not belong there",
    CHECKPOINT: "the checkpoint has impossible values",
    CONFIG: "a config file cannot be read",
    VANISHED: "the store lacks what it held when it was closed",
    REPLICA: "a replica has other bytes, or fewer",
}
"""Every kind of fault, and what it means."""

INDEX_KINDS = frozenset({INDEX_WRONG, INDEX_CHAIN, INDEX_HEADER})
"""Kinds that are found in an index file."""

_OF_FIELD = {
    "bodyCRC": BAD_CRC,
    prop.CRC32: BAD_CRC,
    "totalSize": BAD_SIZE,
    "bodyLength": BAD_SIZE,
    "topicLength": BAD_SIZE,
    "propertiesLength": BAD_SIZE,
    "magic": BAD_MAGIC,
}


class StoreFault(NamedTuple):
    """One contradiction.

    Attributes:
        kind: One of :data:`KINDS`.
        path: The file in which it was found; ``None`` for the log.
        field: The field that is wrong, or that reveals a wrong one.
        detail: Expected and found.
        physical_offset: The record it is about.
        key: The queue it is about.
        queue_offset: The offset in that queue.
        entry: Number of the queue or index entry in which it was found.
    """

    kind: str
    path: Path | None
    field: str
    detail: str
    physical_offset: int | None = None
    key: QueueKey | None = None
    queue_offset: int | None = None
    entry: int | None = None


class Listener(Protocol):
    """Receives what a check finds."""

    def add(self, fault: StoreFault, /) -> None:
        """Record a fault."""

    def note(self, kind: str, detail: str, *, physical_offset: int | None = None) -> None:
        """Record something worth knowing that is not a fault."""


def kind_of_field(field: str) -> str:
    """The kind of fault of a record with this field wrong."""
    return _OF_FIELD.get(field, BAD_RECORD)


def record_fault(kind: str, record: DispatchRequest, field: str, detail: str) -> StoreFault:
    """A fault of a record in the log."""
    key = QueueKey(record.topic, record.queue_id)
    return StoreFault(kind, None, field, detail, record.physical_offset, key, record.queue_offset)
