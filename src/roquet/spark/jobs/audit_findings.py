"""What an audit can find.

Owns the fixed set of kinds, and a list of findings that does not grow without bound: a log that is
damaged all over is told by some of its faults and their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from roquet.format.derived import QueueKey
from roquet.model import properties as prop
from roquet.spark.report import Finding

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
REPLICA = "replica"

KINDS = {
    BAD_CRC: "a checksum does not fit its record",
    BAD_SIZE: "the lengths of a record do not agree",
    BAD_MAGIC: "no record starts where one should",
    BAD_RECORD: "another field of a record cannot be",
    BAD_CONTENT: "flags, topic or properties of a record make no sense",
    BAD_TIME: "store times go back, or lie ahead of the clock",
    BAD_TAIL: "a closed log does not end with a whole record",
    GAP: "queue offsets are left out",
    DUPLICATE: "queue offsets are given twice",
    ENTRY_MISSING: "a record has no ConsumeQueue entry",
    ENTRY_WRONG: "a ConsumeQueue entry leads elsewhere or has another size",
    ENTRY_STRAY: "a ConsumeQueue entry has no record",
    TAGS_CODE: "a ConsumeQueue entry has another tags code than its record",
    RECORD_LOST: "entries of a closed store lead behind the end of its log",
    INDEX_MISSING: "keys of a record are not in the index",
    INDEX_WRONG: "an index entry does not fit its record, or has none",
    INDEX_CHAIN: "entries or slots of an index file lead to a wrong entry",
    INDEX_HEADER: "the header of an index file does not fit its entries",
    BAD_FILE: "a file of log, queue or index is missing, cut, or does not belong there",
    CHECKPOINT: "the checkpoint cannot be right",
    CONFIG: "a config file cannot be read",
    REPLICA: "a replica has other bytes, or fewer",
}
"""Every kind of finding, and what it means."""

LISTED_MAX = 200
"""Findings of one kind that a task tells; further ones are counted."""

_OF_FIELD = {
    "bodyCRC": BAD_CRC,
    prop.CRC32: BAD_CRC,
    "totalSize": BAD_SIZE,
    "bodyLength": BAD_SIZE,
    "topicLength": BAD_SIZE,
    "propertiesLength": BAD_SIZE,
    "magic": BAD_MAGIC,
}


def kind_of_field(field: str) -> str:
    """The kind of a record whose field is wrong."""
    return _OF_FIELD.get(field, BAD_RECORD)


def queue_name(key: QueueKey) -> str:
    """A queue in the words of findings."""
    return f"{key.topic} queue {key.queue_id}"


class Findings:
    """Findings of one task.

    Attributes:
        listed: Those that are told.
        counts: How many there were, by kind.
    """

    def __init__(self) -> None:
        self.listed: list[Finding] = []
        self.counts: Counter[str] = Counter()

    def add(self, kind: str, where: str, detail: str) -> None:
        """Add something that should not be."""
        assert kind in KINDS, f"{kind} is no kind of finding"
        self.counts[kind] += 1
        if self.counts[kind] <= LISTED_MAX:
            self.listed.append(Finding(kind, where, detail))

    def merge(self, others: Iterable[Findings]) -> None:
        """Add those of other tasks, all that they list."""
        for other in others:
            self.listed += other.listed
            self.counts.update(other.counts)
