"""One index file: a hash table in a mapping, whose entries are chained from new to old.

Upstream's IndexFile. The bytes are those of :mod:`roquet.format.index_file`. All state lives in
the mapping, because compiled code writes the same mapping. A put writes the entry, then the
slot, then the header, so a header that says "full" is right. A search may see a slot before the
header counts its entry, which is already written by then.
"""

from __future__ import annotations

from pathlib import Path

from roquet.format import index_file as layout
from roquet.format.index_file import IndexHeader
from roquet.runtime import memory
from roquet.runtime.files import Files, Mapping
from roquet.store.residency import make_resident


class IndexFile:
    """A mapped file.

    Attributes:
        path: Where it is.
        mapping: Its bytes; header, slots and entries are read and written here.
        slots: Number of hash slots.
        entries: How many entries fit; entry 0 is never used.
        fd: Its descriptor.
        has_blocks: Whether every block is reserved, so that the mapping may be written.
        is_durable: Whether it was full when it was synced; it never changes after that.
    """

    __slots__ = ("_files", "entries", "fd", "has_blocks", "is_durable", "mapping", "path", "slots")

    def __init__(
        self, files: Files, path: Path, mapping: Mapping, *, slots: int, entries: int, fd: int
    ) -> None:
        self._files = files
        self.path = path
        self.mapping = mapping
        self.slots = slots
        self.entries = entries
        self.fd = fd
        self.has_blocks = False
        self.is_durable = False

    @property
    def header(self) -> IndexHeader:
        """The header as it is now."""
        return IndexHeader.unpack(self.mapping[: layout.HEADER_BYTES])

    @property
    def is_full(self) -> bool:
        """Whether no further entry fits."""
        (count,) = layout.COUNT.unpack_from(self.mapping, layout.COUNT_AT)
        return bool(count >= self.entries)

    def put_key(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> bool:
        """Add an entry; false if the file is full."""
        mapping = self.mapping
        begin_ms, _, begin_offset, _, slot_count, count = layout.HEADER.unpack_from(mapping)
        number = max(count, 1)
        if number >= self.entries:
            return False
        slot_at = layout.slot_position(key_hash % self.slots)
        (previous,) = layout.SLOT.unpack_from(mapping, slot_at)
        if not 0 < previous <= number:
            previous = 0
        layout.ENTRY.pack_into(
            mapping,
            layout.entry_position(self.slots, number),
            key_hash,
            physical_offset,
            layout.seconds_since(begin_ms, store_timestamp_ms),
            previous,
        )
        layout.SLOT.pack_into(mapping, slot_at, number)
        if number == 1:
            begin_ms, begin_offset = store_timestamp_ms, physical_offset
        layout.HEADER.pack_into(
            mapping,
            0,
            begin_ms,
            store_timestamp_ms,
            begin_offset,
            physical_offset,
            slot_count + (previous == 0),
            number + 1,
        )
        return True

    def select(
        self, offsets: list[int], key_hash: int, max_num: int, begin_ms: int, end_ms: int
    ) -> None:
        """Append the offsets of a key in a range of time, newest first, up to ``max_num`` in all.

        A chain ends at the first entry older than ``begin_ms``. Its numbers must decrease; one
        that does not is damaged and ends there, so that no search runs forever.

        Raises:
            StoreError: A part of the file cannot be read.
        """
        mapping = self.mapping
        address = memory.address_of(mapping)
        header = self.header
        slot_at = layout.slot_position(key_hash % self.slots)
        self._bring(address, slot_at, layout.SLOT.size)
        (number,) = layout.SLOT.unpack_from(mapping, slot_at)
        below = self.entries
        while 0 < number < below and len(offsets) < max_num:
            below = number
            entry_at = layout.entry_position(self.slots, number)
            self._bring(address, entry_at, layout.ENTRY.size)
            found_hash, physical_offset, seconds, number = layout.ENTRY.unpack_from(
                mapping, entry_at
            )
            if seconds < 0:
                return
            timestamp_ms = header.begin_timestamp_ms + seconds * 1000
            if found_hash == key_hash and begin_ms <= timestamp_ms <= end_ms:
                offsets.append(physical_offset)
            if timestamp_ms < begin_ms:
                return

    def _bring(self, address: int, position: int, size_bytes: int) -> None:
        make_resident(self._files, self.path, self.fd, address, position, size_bytes)

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether its time range overlaps the given one."""
        first_ms, last_ms, *_ = self.header
        return (
            (begin_ms < first_ms and end_ms > last_ms)
            or first_ms <= begin_ms <= last_ms
            or first_ms <= end_ms <= last_ms
        )
