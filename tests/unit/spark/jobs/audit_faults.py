"""Faults to plant into a store, each with the kinds of findings that it must give."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from roquet.format.consume_queue import UNIT_BYTES
from roquet.format.index_file import entry_position, slot_position
from roquet.runtime.clock import ManualClock
from roquet.spark.jobs.audit import audit
from roquet.spark.report import Report
from roquet.storefiles.layout import MANIFEST_FILE, OUR_MARK
from tests.unit.spark.jobs.kit import HERE
from tests.unit.store.synthetic import NOW_MS, Placed, SyntheticStore

RECORDS = 64
SEGMENT_BYTES = 2048
SPLIT_BYTES = 3000
HURT = 25
"""Number of the record that is damaged."""


def filled(root: Path, count: int = RECORDS) -> SyntheticStore:
    """A store of several segments, queue files and index files, closed cleanly."""
    store = SyntheticStore(root, segment_bytes=SEGMENT_BYTES)
    for number in range(count):
        store.put(
            "Orders" if number % 3 else "Parts",
            number % 2,
            f"body {number}".encode(),
            tags=f"Tag{number % 4}",
            keys=f"k{number} group{number % 5}",
            unique_key=f"7F0000010001{number:020X}",
        )
    store.write()
    return store


def check(
    store: Path,
    *,
    split_bytes: int = SPLIT_BYTES,
    replica: Path | None = None,
    sample: float = 1.0,
) -> Report:
    """Audit a store in this process."""
    return audit(
        HERE,
        str(store),
        replica=None if replica is None else str(replica),
        split_bytes=split_bytes,
        sample=sample,
        clock=ManualClock(NOW_MS),
    )


def kinds_of(report: Report) -> set[str]:
    return {finding.kind for finding in report.findings}


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


class Planter:
    """Changes files of a store."""

    def __init__(self, store: SyntheticStore) -> None:
        self.store = store
        self.root = store.root
        self.record = store.placed[HURT]

    def log(self, at: int, data: bytes, record: Placed | None = None) -> None:
        """Bytes of a record."""
        offset = (record or self.record).physical_offset + at
        start = offset - offset % SEGMENT_BYTES
        patch(self.root / "commitlog" / f"{start:020d}", offset - start, data)

    def long(self, at: int, value: int) -> None:
        self.log(at, struct.pack(">q", value))

    def queue(self, at: int, data: bytes, record: Placed | None = None) -> None:
        """Bytes of a record's ConsumeQueue entry."""
        placed = record or self.record
        position = placed.queue_offset * UNIT_BYTES
        start = position - position % self.store.queue_file_bytes
        path = self.queue_directory(placed) / f"{start:020d}"
        patch(path, position - start + at, data)

    def queue_directory(self, placed: Placed | None = None) -> Path:
        record = placed or self.record
        return self.root / "consumequeue" / record.topic / str(record.queue_id)

    def index_files(self) -> list[Path]:
        return sorted((self.root / "index").iterdir())

    def index(self, position: int, data: bytes) -> None:
        """Bytes of the second index file."""
        patch(self.index_files()[1], position, data)

    def index_entry(self, number: int, at: int, data: bytes) -> None:
        self.index(entry_position(self.store.slots, number) + at, data)

    def segments(self) -> list[Path]:
        return sorted((self.root / "commitlog").iterdir())

    def add_stray_entry(self) -> None:
        """A second entry of a record, behind the last one of its queue."""
        last = [each for each in self.store.placed if each[:2] == self.record[:2]][-1]
        stray = last._replace(queue_offset=last.queue_offset + 1)
        self.queue(0, struct.pack(">qiq", last.physical_offset, last.size_bytes, 0), stray)

    def lose_last_record(self) -> None:
        last = self.store.placed[-1]
        self.log(0, bytes(last.size_bytes), last)

    def vouch(self, contents: dict[str, object]) -> None:
        """A manifest, as if Roquet had closed the store."""
        (self.root / MANIFEST_FILE).write_text(json.dumps({"schema": 1, **contents}))
        (self.root / "lock").write_bytes(OUR_MARK)

    def cut(self, path: Path, size_bytes: int) -> None:
        with path.open("r+b") as file:
            file.truncate(size_bytes)


class Fault(NamedTuple):
    """What is done, and the kinds of findings that it gives."""

    plant: Callable[[Planter], object]
    kinds: set[str]


TIME_KINDS = {"bad-time", "index-wrong", "index-header"}
"""Index entries tell the time of a record, too."""

FAULTS: dict[str, Fault] = {
    "a body has another byte": Fault(lambda p: p.log(90, b"\xff"), {"bad-crc"}),
    "the checksum is another": Fault(lambda p: p.log(8, b"\1\2\3\4"), {"bad-crc"}),
    "a record says that it is longer": Fault(
        lambda p: p.log(0, struct.pack(">i", p.record.size_bytes + 4)), {"bad-size"}
    ),
    "a body says that it is longer": Fault(
        lambda p: p.log(84, struct.pack(">i", 5000)), {"bad-size"}
    ),
    "a magic number is another": Fault(lambda p: p.log(4, b"\0\0\0\0"), {"bad-magic"}),
    "a record says that it is elsewhere": Fault(lambda p: p.long(28, 77), {"bad-record"}),
    "a queue offset is too great": Fault(
        lambda p: p.long(20, p.record.queue_offset + 5), {"gap", "bad-content"}
    ),
    "a queue offset is given twice": Fault(
        lambda p: p.long(20, p.record.queue_offset - 1), {"duplicate", "bad-content"}
    ),
    "a store time goes back": Fault(lambda p: p.long(56, 1_600_000_000_000), TIME_KINDS),
    "a store time is in the future": Fault(lambda p: p.long(56, NOW_MS + 1), TIME_KINDS),
    "a flag has no meaning": Fault(lambda p: p.log(36, b"\x40"), {"bad-content"}),
    "properties are no text": Fault(
        lambda p: p.log(p.record.size_bytes - 4, b"\xff"), {"bad-content", "tags-code"}
    ),
    "an entry leads elsewhere": Fault(lambda p: p.queue(0, bytes(8)), {"entry-wrong"}),
    "an entry has another size": Fault(lambda p: p.queue(8, b"\0\0\0\x7f"), {"entry-wrong"}),
    "an entry has another tags code": Fault(lambda p: p.queue(12, b"\1"), {"tags-code"}),
    "an entry is empty": Fault(lambda p: p.queue(0, bytes(UNIT_BYTES)), {"entry-missing"}),
    "the last entry is empty": Fault(
        lambda p: p.queue(0, bytes(UNIT_BYTES), p.store.placed[-1]), {"entry-missing"}
    ),
    "an entry has no record": Fault(Planter.add_stray_entry, {"entry-stray"}),
    "a queue is gone": Fault(lambda p: shutil.rmtree(p.queue_directory()), {"entry-missing"}),
    "all queues are gone": Fault(lambda p: shutil.rmtree(p.root / "consumequeue"), {"bad-file"}),
    "a queue file is cut": Fault(
        lambda p: p.cut(min(p.queue_directory().iterdir()), 100), {"bad-file", "entry-missing"}
    ),
    "an index entry has another hash": Fault(
        lambda p: p.index_entry(5, 0, b"\0\0\0\7"), {"index-wrong", "index-missing"}
    ),
    "an index entry leads into a record": Fault(
        lambda p: p.index_entry(5, 4, struct.pack(">q", p.store.placed[3].physical_offset + 1)),
        {"index-wrong", "index-missing"},
    ),
    "an index entry leads behind the log": Fault(
        lambda p: p.index_entry(5, 4, struct.pack(">q", 1 << 40)), {"index-wrong", "index-missing"}
    ),
    "an index entry has another time": Fault(
        lambda p: p.index_entry(5, 12, struct.pack(">i", 9999)), {"index-wrong"}
    ),
    "an index entry follows another one": Fault(
        lambda p: p.index_entry(30, 16, struct.pack(">i", 29)), {"index-chain"}
    ),
    "a slot leads to another entry": Fault(
        lambda p: p.index(slot_position(3), struct.pack(">i", 1)), {"index-chain"}
    ),
    "an index file ends at another time": Fault(
        lambda p: p.index(8, struct.pack(">q", NOW_MS)), {"index-header"}
    ),
    "an index file begins elsewhere": Fault(
        lambda p: p.index(16, struct.pack(">q", 1)), {"index-header"}
    ),
    "an index file has fewer entries": Fault(
        lambda p: p.index(36, struct.pack(">i", 30)), {"index-header", "index-missing"}
    ),
    "an index file counts other slots": Fault(
        lambda p: p.index(32, struct.pack(">i", 3)), {"index-header"}
    ),
    "an index file is gone": Fault(lambda p: p.index_files()[1].unlink(), {"index-missing"}),
    "an index file is cut": Fault(lambda p: p.cut(p.index_files()[1], 99), {"bad-file"}),
    "a segment is gone": Fault(lambda p: p.segments()[2].unlink(), {"bad-file", "entry-stray"}),
    "a segment is cut": Fault(
        lambda p: p.cut(p.segments()[2], 1024), {"bad-file", "bad-size", "entry-stray"}
    ),
    "a file does not belong to the log": Fault(
        lambda p: (p.root / "commitlog" / "note.txt").write_text("x"), {"bad-file"}
    ),
    "bytes follow the last record": Fault(
        lambda p: patch(p.segments()[-1], p.store.log_end % SEGMENT_BYTES, b"garbage"),
        {"bad-tail"},
    ),
    "the last record is gone": Fault(
        Planter.lose_last_record, {"record-lost", "index-wrong", "vanished"}
    ),
    "the checkpoint is cut": Fault(lambda p: p.cut(p.root / "checkpoint", 100), {"checkpoint"}),
    "the checkpoint is ahead of the clock": Fault(
        lambda p: patch(p.root / "checkpoint", 0, struct.pack(">q", NOW_MS + 1)), {"checkpoint"}
    ),
    "the log was longer": Fault(
        lambda p: p.vouch({"logEnd": p.store.log_end + 1, "queues": {}}), {"vanished"}
    ),
    "a queue had more entries": Fault(
        lambda p: p.vouch(
            {"logEnd": p.store.log_end, "queues": {"Orders": {"0": [0, RECORDS]}}},
        ),
        {"vanished"},
    ),
    "a config file is no JSON": Fault(
        lambda p: (p.root / "config" / "topics.json").write_text("{"), {"config"}
    ),
}
