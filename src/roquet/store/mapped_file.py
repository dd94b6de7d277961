"""One segment of the CommitLog: a mapped file of fixed size.

Owns the file, its mapping and three positions, all relative to its start:

    flushed <= committed <= wrote <= size

``wrote`` is the end of what was appended, ``committed`` the end of what reached the file (the
same, unless there is a transient buffer), ``flushed`` the end of what is on disk.

Invariants: blocks are allocated before the file is mapped, so a mapped write never hits a full
disk. The first eight bytes of a record are written last: a process killed half-way leaves no
record at all. A view handed out keeps the mapping alive after the file is closed or deleted.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from roquet.runtime import memory
from roquet.runtime.failpoint import failpoint
from roquet.runtime.files import Files, Mapping
from roquet.store.residency import make_resident, read_range

PUBLISH_BYTES = 8


class MappedFile:
    """A segment open for appending and reading."""

    __slots__ = (
        "_address",
        "_fd",
        "_files",
        "committed",
        "data_end",
        "flushed",
        "has_blocks",
        "mapping",
        "path",
        "populated",
        "size_bytes",
        "start_offset",
        "store_timestamp_ms",
        "view",
        "write_buffer",
        "wrote",
    )

    def __init__(
        self, files: Files, path: Path, fd: int, mapping: Mapping, *, start_offset: int
    ) -> None:
        """Take over an open, mapped file; use :meth:`create` or :meth:`load`."""
        self._files = files
        self._fd = fd
        self._address = 0
        self.path = path
        self.mapping = mapping
        self.view = memoryview(mapping)
        self.size_bytes = len(mapping)
        self.start_offset = start_offset
        self.wrote = 0
        self.committed = 0
        self.flushed = 0
        self.populated = 0
        self.data_end = self.size_bytes
        self.store_timestamp_ms = 0
        self.write_buffer: Mapping | None = None
        self.has_blocks = True

    @classmethod
    def create(cls, files: Files, path: Path, *, start_offset: int, size_bytes: int) -> MappedFile:
        """Create the file, allocate all its blocks, map it; on failure nothing remains.

        An old file of that name is removed first: its bytes must never be read.
        """
        files.unlink(path)
        fd = files.open(path, write=True, create=True)
        try:
            files.allocate(fd, size_bytes)
            mapping = files.map(fd, size_bytes, write=True)
            files.data_sync(fd)
            files.sync_dir(path.parent)
        except OSError:
            files.close(fd)
            files.unlink(path)
            raise
        return cls(files, path, fd, mapping, start_offset=start_offset)

    @classmethod
    def load(cls, files: Files, path: Path, *, start_offset: int, size_bytes: int) -> MappedFile:
        """Open an existing file; it counts as full and flushed until recovery knows more.

        It may be sparse, as a Java broker creates them: call :meth:`reserve` before a write.
        """
        fd = files.open(path, write=True)
        try:
            mapping = files.map(fd, size_bytes, write=True)
        except OSError:
            files.close(fd)
            raise
        file = cls(files, path, fd, mapping, start_offset=start_offset)
        file.set_positions(size_bytes)
        file.populated = size_bytes
        file.has_blocks = False
        return file

    @property
    def end_offset(self) -> int:
        """Physical offset after the segment."""
        return self.start_offset + self.size_bytes

    @property
    def read_limit(self) -> int:
        """Position up to which readers may read."""
        return self.wrote if self.write_buffer is None else self.committed

    @property
    def is_full(self) -> bool:
        """Whether nothing more fits."""
        return self.wrote == self.size_bytes

    def reserve(self) -> None:
        """Give every page a block on disk; raises ``OSError`` if there is no room."""
        if not self.has_blocks:
            self._files.allocate(self._fd, self.size_bytes)
            self.has_blocks = True

    def set_positions(self, position: int) -> None:
        """Declare everything before ``position`` written and flushed, nothing after it."""
        self.wrote = self.committed = self.flushed = position

    def append(self, data: bytes) -> None:
        """Copy whole records to the end; their first eight bytes become visible last."""
        start, end = self.wrote, self.wrote + len(data)
        assert self.has_blocks, "an append to a mapping that may have holes"
        assert end <= self.size_bytes, "an append runs over the end of its segment"
        target = self.mapping if self.write_buffer is None else self.write_buffer
        head = min(start + PUBLISH_BYTES, end)
        failpoint("append.before")
        target[head:end] = data[PUBLISH_BYTES:]
        failpoint("append.body")
        target[start:head] = data[:PUBLISH_BYTES]
        failpoint("append.after")
        self.moved_to(end)

    def moved_to(self, position: int) -> None:
        """Note that records up to ``position`` are in the mapping or the buffer."""
        self.wrote = position
        if self.write_buffer is None:
            self.committed = position

    def close_with(self, end_of_segment: bytes) -> None:
        """Write the mark that ends the segment; the bytes after it have no meaning."""
        self.append(end_of_segment)
        self.data_end = self.wrote
        self.moved_to(self.size_bytes)

    def slice(self, position: int, size_bytes: int) -> memoryview | None:
        """A view of readable bytes, ``None`` if some of them are missing."""
        if position < 0 or size_bytes <= 0 or position + size_bytes > self.read_limit:
            return None
        return self.view[position : position + size_bytes]

    def is_resident(self, position: int, size_bytes: int) -> bool:
        """Whether a range is in memory now."""
        return memory.is_resident(self.address + position, size_bytes)

    def will_need(self, position: int, size_bytes: int) -> None:
        """Start to bring a range into memory, without waiting for it."""
        memory.will_need(self.address + position, size_bytes)

    def make_resident(self, position: int, size_bytes: int) -> None:
        """Wait until a range is in memory, while other threads run.

        Raises :class:`~roquet.errors.StoreError` if it cannot be read: touching it in the mapping
        would end the process.
        """
        make_resident(self._files, self.path, self._fd, self.address, position, size_bytes)

    def read(self, position: int, size_bytes: int) -> bytes:
        """Read a range of the file itself, where the mapping need not be touched.

        A mapped read of a hole would take a block from some file systems. Raises
        :class:`~roquet.errors.StoreError` if it cannot be read.
        """
        return read_range(self._files, self.path, self._fd, position, size_bytes)

    @property
    def address(self) -> int:
        """Where the mapping starts; valid while this object lives."""
        if not self._address:
            self._address = memory.address_of(self.mapping)
        return self._address

    def populate(self, until: int) -> None:
        """Fault in pages up to a position, off the writer's path."""
        start = self.populated
        end = min(until, self.size_bytes)
        if end > start:
            page = start - start % memory.PAGE_BYTES
            memory.populate_write(self.address + page, end - page)
            self.populated = end

    def commit_range(self, start: int, end: int) -> None:
        """Write a part of the transient buffer to the file; the caller moves ``committed``."""
        end = min(end, self.data_end)
        if self.write_buffer is not None and end > start:
            failpoint("commit.before")
            self._files.write_at(self._fd, memoryview(self.write_buffer)[start:end], start)

    def sync(self) -> None:
        """Sync the file; after an ``OSError``, nothing is known to be on disk."""
        failpoint("sync.before")
        self._files.data_sync(self._fd)
        failpoint("sync.after")

    def cut(self, position: int) -> None:
        """Erase everything from ``position`` on, on disk, before the positions move.

        The next recovery would find old records after the cut again as soon as new ones reach up
        to them, so no byte of them may stay.
        """
        failpoint("truncate.before")
        self._files.zero_range(self._fd, position, self.size_bytes)
        self._files.data_sync(self._fd)
        failpoint("truncate.after")
        self.set_positions(position)
        self.data_end = self.size_bytes
        self.populated = min(self.populated, position)

    def close(self) -> None:
        """Close the descriptor; the mapping goes when the last view of it does."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._files.close(fd)

    def destroy(self) -> None:
        """Delete the file; the descriptor stays until no reader holds this object any more."""
        self._files.unlink(self.path)

    def __del__(self) -> None:
        """Close what a reader may have kept open past :meth:`destroy`."""
        with suppress(OSError):  # the kernel closes it in any case, and nobody could handle it
            self.close()
