"""A store made byte by byte from the format tables, without the writers of ``roquet.store``.

So that a check of a store and its writers cannot share a mistake, and so that any shape of store
can be made: segments of a few kilobytes, an expired head, records with a CRC property.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from roquet.format.checkpoint import FILE_BYTES, Checkpoint
from roquet.format.commit_log import (
    Blank,
    DispatchRequest,
    RecordRules,
    check_record,
    encode_record,
    end_of_segment,
    with_crc_room,
)
from roquet.format.consume_queue import FILLER, UNIT
from roquet.format.index_file import (
    ENTRY,
    HEADER_BYTES,
    SLOT,
    IndexHeader,
    entry_position,
    file_size,
    seconds_since,
    slot_position,
)
from roquet.format.record_layout import END_OF_SEGMENT_BYTES
from roquet.model.delay_level import DelayLevels
from roquet.model.host import LOOPBACK
from roquet.model.java_string import index_key_hash
from roquet.model.properties import encode_properties
from roquet.model.sys_flag import takes_queue_offset

FIRST_MS = 1_700_000_000_000
STEP_MS = 700
NOW_MS = FIRST_MS + 10_000_000


class Placed(NamedTuple):
    """The position of a record."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size_bytes: int
    store_timestamp_ms: int

    @property
    def end_offset(self) -> int:
        return self.physical_offset + self.size_bytes


class SyntheticStore:
    """Collects records; :meth:`write` makes the directory."""

    def __init__(
        self,
        root: Path,
        *,
        segment_bytes: int = 4096,
        queue_file_bytes: int = 200,
        slots: int = 11,
        entries: int = 40,
        append_crc: bool = False,
        start_offset: int = 0,
    ) -> None:
        self.root = root
        self.segment_bytes = segment_bytes
        self.queue_file_bytes = queue_file_bytes
        self.slots = slots
        self.entries = entries
        self.append_crc = append_crc
        self.start_offset = start_offset
        self.log = bytearray()
        self.placed: list[Placed] = []
        self.next_queue_offsets: dict[tuple[str, int], int] = {}
        self.time_ms = FIRST_MS

    @property
    def log_end(self) -> int:
        return self.start_offset + len(self.log)

    def put(
        self,
        topic: str = "Orders",
        queue_id: int = 0,
        body: bytes = b"a body",
        *,
        tags: str | None = None,
        keys: str | None = None,
        unique_key: str | None = None,
        sys_flag: int = 0,
        more: dict[str, str] | None = None,
        v2: bool = False,
    ) -> Placed:
        """Append a record."""
        names = {"UNIQ_KEY": unique_key, "KEYS": keys, "TAGS": tags, **(more or {})}
        properties = encode_properties({name: text for name, text in names.items() if text})
        if self.append_crc:
            properties = with_crc_room(properties)
        queue_offset = 0
        if takes_queue_offset(sys_flag):
            queue_offset = self.next_queue_offsets.get((topic, queue_id), 0)
            self.next_queue_offsets[topic, queue_id] = queue_offset + 1
        self.time_ms += STEP_MS

        def encoded() -> bytes:
            return encode_record(
                topic=topic.encode(),
                body=body,
                properties=properties,
                queue_id=queue_id,
                flag=0,
                queue_offset=queue_offset,
                physical_offset=self.log_end,
                sys_flag=sys_flag,
                born_timestamp_ms=self.time_ms - 5,
                born_host=LOOPBACK.pack(),
                store_timestamp_ms=self.time_ms,
                store_host=LOOPBACK.pack(),
                v2=v2,
                append_crc=self.append_crc,
            )

        record = encoded()
        room = self.segment_bytes - len(self.log) % self.segment_bytes
        if len(record) + END_OF_SEGMENT_BYTES > room:
            self.log += end_of_segment(room).ljust(room, b"\0")
            record = encoded()
        placed = Placed(topic, queue_id, queue_offset, self.log_end, len(record), self.time_ms)
        self.log += record
        self.placed.append(placed)
        return placed

    def write(self, *, with_queues: bool = True, with_index: bool = True) -> Path:
        """Make the directory of a store that was closed cleanly."""
        self.root.mkdir(parents=True, exist_ok=True)
        self._write_log()
        requests = self.requests()
        if with_queues:
            self._write_queues(requests)
        if with_index:
            self._write_index(requests)
        marks = Checkpoint(self.time_ms, self.time_ms, self.time_ms)
        (self.root / "checkpoint").write_bytes(marks.pack().ljust(FILE_BYTES, b"\0"))
        (self.root / "lock").write_bytes(b"lock")
        (self.root / "config").mkdir()
        table = ",".join(f'"{topic}":{{}}' for topic in sorted({p.topic for p in self.placed}))
        text = f'{{"topicConfigTable":{{{table}}}}}'
        (self.root / "config" / "topics.json").write_text(text)
        return self.root

    def requests(self) -> list[DispatchRequest]:
        """Every record as a dispatcher sees it."""
        found: list[DispatchRequest] = []
        rules = RecordRules(DelayLevels())
        for placed in self.placed:
            record = check_record(
                self.log,
                placed.physical_offset - self.start_offset,
                len(self.log),
                physical_offset=placed.physical_offset,
                rules=rules,
            )
            assert not isinstance(record, Blank), placed
            assert isinstance(record, DispatchRequest), record
            found.append(record)
        return found

    def _write_log(self) -> None:
        directory = self.root / "commitlog"
        directory.mkdir()
        for position in range(0, max(len(self.log), 1), self.segment_bytes):
            data = bytes(self.log[position : position + self.segment_bytes])
            path = directory / f"{self.start_offset + position:020d}"
            path.write_bytes(data.ljust(self.segment_bytes, b"\0"))

    def _write_queues(self, requests: list[DispatchRequest]) -> None:
        queues: dict[tuple[str, int], dict[int, bytes]] = {}
        for request in requests:
            if takes_queue_offset(request.sys_flag):
                entry = UNIT.pack(request.physical_offset, request.size_bytes, request.tags_code)
                queue = queues.setdefault((request.topic, request.queue_id), {})
                queue[request.queue_offset] = entry
        units_a_file = self.queue_file_bytes // UNIT.size
        for (topic, queue_id), entries in queues.items():
            directory = self.root / "consumequeue" / topic / str(queue_id)
            directory.mkdir(parents=True)
            first = min(entries) - min(entries) % units_a_file
            end = max(entries) + 1
            data = b"".join(entries.get(number, FILLER) for number in range(first, end))
            for position in range(0, len(data), self.queue_file_bytes):
                path = directory / f"{first * UNIT.size + position:020d}"
                part = data[position : position + self.queue_file_bytes]
                path.write_bytes(part.ljust(self.queue_file_bytes, b"\0"))

    def _write_index(self, requests: list[DispatchRequest]) -> None:
        directory = self.root / "index"
        directory.mkdir()
        writer: _IndexWriter | None = None
        count = 0
        for request in requests:
            words = [request.unique_key or "", *request.keys.split(" ")]
            for word in filter(None, words):
                if writer is None or writer.is_full:
                    before = IndexHeader() if writer is None else writer.header
                    if writer is not None:
                        writer.save()
                    writer = _IndexWriter(directory / f"{20231114221320000 + count}", self, before)
                    count += 1
                writer.put(index_key_hash(request.topic, word), request)
        if writer is not None:
            writer.save()


class _IndexWriter:
    def __init__(self, path: Path, store: SyntheticStore, before: IndexHeader) -> None:
        self.path = path
        self.slots = store.slots
        self.entries = store.entries
        self.data = bytearray(file_size(store.slots, store.entries))
        self.header = IndexHeader(
            before.end_timestamp_ms,
            before.end_timestamp_ms,
            before.end_physical_offset,
            before.end_physical_offset,
        )

    @property
    def is_full(self) -> bool:
        return self.header.index_count >= self.entries

    def put(self, key_hash: int, request: DispatchRequest) -> None:
        header = self.header
        number = header.index_count
        slot_at = slot_position(key_hash % self.slots)
        (previous,) = SLOT.unpack_from(self.data, slot_at)
        ENTRY.pack_into(
            self.data,
            entry_position(self.slots, number),
            key_hash,
            request.physical_offset,
            seconds_since(header.begin_timestamp_ms, request.store_timestamp_ms),
            previous,
        )
        SLOT.pack_into(self.data, slot_at, number)
        if number == 1:
            header = header._replace(
                begin_timestamp_ms=request.store_timestamp_ms,
                begin_physical_offset=request.physical_offset,
            )
        self.header = header._replace(
            end_timestamp_ms=request.store_timestamp_ms,
            end_physical_offset=request.physical_offset,
            hash_slot_count=header.hash_slot_count + (previous == 0),
            index_count=number + 1,
        )

    def save(self) -> None:
        self.data[:HEADER_BYTES] = self.header.pack()
        self.path.write_bytes(bytes(self.data))


def flip_bit(path: Path, byte: int, bit: int) -> None:
    """Turn one bit of a file; the same call turns it back."""
    with path.open("r+b") as file:
        file.seek(byte)
        (value,) = struct.unpack("B", file.read(1))
        file.seek(byte)
        file.write(bytes([value ^ (1 << bit)]))
