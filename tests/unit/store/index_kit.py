"""An index in a directory, and records for it."""

from __future__ import annotations

from pathlib import Path

from roquet.format import index_file as layout
from roquet.format.commit_log import DispatchRequest
from roquet.format.index_file import IndexEntry
from roquet.model.java_string import index_key_hash
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.index import IndexFile, IndexService

SLOTS = 7
ENTRIES = 6  # five can be used
FILE_BYTES = layout.file_size(SLOTS, ENTRIES)
T0 = 1_700_000_000_000
FOREVER_MS = 1 << 62


def record(
    physical_offset: int,
    *,
    unique_key: str | None = None,
    keys: str = "",
    tags: str | None = None,
    topic: str = "T",
    store_timestamp_ms: int = T0,
    sys_flag: int = 0,
) -> DispatchRequest:
    return DispatchRequest(
        topic=topic,
        queue_id=0,
        physical_offset=physical_offset,
        size_bytes=100,
        tags_code=0,
        store_timestamp_ms=store_timestamp_ms,
        queue_offset=0,
        keys=keys,
        unique_key=unique_key,
        sys_flag=sys_flag,
        prepared_transaction_offset=0,
        properties={} if tags is None else {"TAGS": tags},
    )


class Bench:
    """An index in a directory, opened as often as a test likes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock(T0)

    def service(self, files: Files | None = None) -> IndexService:
        return IndexService(
            files or Files(), self.root, slots=SLOTS, entries=ENTRIES, clock=self.clock
        )

    def reopen(self, *, clean: bool = True, checkpoint_ms: int = 0) -> IndexService:
        index = self.service()
        index.load(last_exit_ok=clean, index_msg_timestamp_ms=checkpoint_ms)
        return index

    def contents(self) -> dict[str, bytes]:
        if not self.root.exists():
            return {}
        return {path.name: path.read_bytes() for path in sorted(self.root.iterdir())}

    def fill(self, index: IndexService, numbers: range) -> None:
        """One entry a record; record n lies at 100 n and was stored at T0 + n seconds."""
        for number in numbers:
            index.build(
                record(
                    number * 100,
                    unique_key=f"k{number}",
                    store_timestamp_ms=T0 + number * 1000,
                )
            )


def find(index: IndexService, key: str, topic: str = "T") -> list[int]:
    return index.query(topic, key, 64, 0, FOREVER_MS).physical_offsets


def new_file(*, slots: int = SLOTS, entries: int = ENTRIES) -> IndexFile:
    files, path = Files(), Path("20240101000000000")
    mapping = files.map_anonymous(layout.file_size(slots, entries))
    return IndexFile(files, path, mapping, slots=slots, entries=entries, fd=-1)


def entry(file: IndexFile, number: int) -> IndexEntry:
    position = layout.entry_position(file.slots, number)
    return IndexEntry._make(layout.ENTRY.unpack_from(file.mapping, position))


def full_file(*, last: int) -> bytes:
    """A full file whose newest record is number ``last``."""
    file = new_file()
    for number in range(last - ENTRIES + 2, last + 1):
        key_hash = index_key_hash("T", f"k{number}")
        assert file.put_key(key_hash, number * 100, T0 + number * 1000)
    return bytes(file.mapping[:])
