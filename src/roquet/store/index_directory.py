"""The directory of the index files: their names, and how they are created and opened.

Owns the directory ``index`` of a store. Blocks are reserved before a mapping is written, so that a
full disk is an ``OSError`` at creation and never a signal.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from roquet.errors import ConfigError, StoreDamaged
from roquet.format import index_file as layout
from roquet.format.index_file import IndexHeader, name_after
from roquet.format.segment_files import LOST_AND_FOUND
from roquet.runtime.clock import Clock
from roquet.runtime.files import Files, Mapping
from roquet.store.index_file import IndexFile

_READ_BYTES = 1 << 20


class IndexDirectory:
    """The directory of the index files of one store, created with the first of them."""

    def __init__(self, files: Files, root: Path, *, slots: int, entries: int, clock: Clock) -> None:
        if slots < 1 or entries < 2:
            raise ConfigError(
                f"an index file cannot have {slots} slots and {entries} entries",
                detail="entry 0 is never used",
                hint="set maxHashSlotNum to 1 or more, and maxIndexNum to 2 or more",
            )
        self._files = files
        self._root = root
        self._slots = slots
        self._entries = entries
        self._clock = clock
        self.file_bytes = layout.file_size(slots, entries)

    def names(self) -> list[str]:
        """Names of the files on disk, oldest first; nothing is opened."""
        return [name for name in self._files.list_dir(self._root) if name != LOST_AND_FOUND]

    def path(self, name: str) -> Path:
        """Where a file is."""
        return self._files.inside(self._root, name)

    def sync(self) -> None:
        """Make the names of all files durable."""
        self._files.sync_dir(self._root)

    def reserve(self, file: IndexFile) -> None:
        """Reserve the blocks of a file before it is written to, and read what writes will touch.

        That is its slots and the page of the next entry: if they cannot be read, that is an error
        here, and would be SIGBUS later.
        """
        self._files.allocate(file.fd, self.file_bytes)
        next_entry = layout.entry_position(self._slots, max(file.header.index_count, 1))
        for position in range(0, layout.entry_position(self._slots, 0), _READ_BYTES):
            self._files.read_at(file.fd, _READ_BYTES, position)
        self._files.read_at(file.fd, layout.ENTRY.size, next_entry)
        file.has_blocks = True

    def peek_header(self, name: str) -> IndexHeader | None:
        """The header of a file that need not be open, ``None`` if it is too short for one."""
        fd = self._files.open(self._files.inside(self._root, name))
        try:
            head = self._files.read_at(fd, layout.HEADER_BYTES, 0)
        finally:
            self._files.close(fd)
        return IndexHeader.unpack(head) if len(head) >= layout.HEADER_BYTES else None

    def open(self, path: Path) -> IndexFile | None:
        """Map an existing file; ``None`` if its creation was interrupted."""
        if not _is_stamp(path.name) or self._files.is_dir(path):
            raise StoreDamaged(
                f"{path.name} is not an index file",
                detail=f"{path}: the name of an index file is its time of creation in 17 digits",
                hint="move it out of the directory; only index files belong there",
            )
        fd = self._files.open(path, write=True)
        try:
            if self._is_whole(fd, path):
                mapping = self._files.map(fd, self.file_bytes, write=True)
                return self._opened(path, mapping, fd)
        except BaseException:
            self._files.close(fd)
            raise
        self._files.close(fd)
        return None

    def _is_whole(self, fd: int, path: Path) -> bool:
        """Whether a file has its full length; false if its creation was interrupted."""
        length = self._files.length(fd)
        if length == self.file_bytes:
            return True
        head = self._files.read_at(fd, layout.HEADER_BYTES, 0)
        if length < self.file_bytes and not any(head):
            return False
        raise StoreDamaged(
            "an index file has the wrong length",
            detail=f"{path}: {length} bytes, {self.file_bytes} expected for "
            f"{self._slots} slots and {self._entries} entries",
            hint="set maxHashSlotNum and maxIndexNum as they were when it was written",
        )

    def create(self, newest: IndexFile | None) -> IndexFile:
        """Create the next file; it starts where the newest one ends."""
        self._files.make_dirs(self._root)
        path = self._next_path(newest)
        fd = self._files.open(path, write=True, create=True)
        try:
            self._files.allocate(fd, self.file_bytes)
            mapping = self._files.map(fd, self.file_bytes, write=True)
            mapping[: layout.HEADER_BYTES] = _seed(newest).pack()
            self._files.sync_dir(self._root)
        except BaseException:
            self._discard(fd, path)
            raise
        file = self._opened(path, mapping, fd)
        file.has_blocks = True
        return file

    def _opened(self, path: Path, mapping: Mapping, fd: int) -> IndexFile:
        return IndexFile(
            self._files, path, mapping, slots=self._slots, entries=self._entries, fd=fd
        )

    def _discard(self, fd: int, path: Path) -> None:
        """Undo a creation; the error that led here is the one to report."""
        with suppress(OSError):
            self._files.close(fd)
        with suppress(OSError):
            self._files.unlink(path)
            self._files.sync_dir(self._root)

    def _next_path(self, newest: IndexFile | None) -> Path:
        """A name after all others, although clocks repeat and summer time ends."""
        stamp = self._clock.local_stamp()
        if newest is not None:
            stamp = max(stamp, name_after(newest.path.name))
        path = self._files.inside(self._root, stamp)
        while self._files.exists(path):
            path = self._files.inside(self._root, name_after(path.name))
        return path


def _seed(newest: IndexFile | None) -> IndexHeader:
    if newest is None:
        return IndexHeader()
    previous = newest.header
    return IndexHeader(
        begin_timestamp_ms=previous.end_timestamp_ms,
        end_timestamp_ms=previous.end_timestamp_ms,
        begin_physical_offset=previous.end_physical_offset,
        end_physical_offset=previous.end_physical_offset,
    )


def _is_stamp(name: str) -> bool:
    if len(name) != layout.FILE_NAME_DIGITS or not (name.isascii() and name.isdigit()):
        return False
    try:
        name_after(name)
    except (ValueError, OverflowError):
        return False
    return True
