"""The files of one queue: entries of a fixed length, one after another.

Owns the files below one directory, whatever their entries mean. A *place* is the number of an
entry; entry n is at byte ``n * unit_bytes`` across all files. Every entry begins with the 20 bytes
of a :class:`~roquet.format.consume_queue.CqUnit`.

Invariants: files are sparse and written by system calls, never through a mapping, so a full disk is
an error and not a signal. Files are deleted one at a time and each durably, so that a crash leaves
no gap. Any thread may read; ``starts`` is replaced and never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from roquet.format.consume_queue import CqUnit, unpack_unit
from roquet.format.segment_files import file_name
from roquet.runtime.files import DescriptorCache, Files, OpenFile
from roquet.store.io_errors import store_error
from roquet.store.mapped_file_queue import segment_starts, torn_starts

ReadAt = Callable[[int, int, int], bytes | None]

_SCAN_ENTRIES = 1 << 10
_PAGE_BYTES = 4096
_NO_LIMIT = 1 << 63


class EntryFiles:
    """Entry files open for writing at their end and for reading.

    Attributes:
        starts: Byte at which each file begins.
        tail: The file at whose end entries are written, if it is open.
        tail_start: Byte at which it begins.
        reading: The file that compiled code read last, other than the tail, if it is open.
        reading_start: Byte at which that one begins.
        dirty_bytes: How much was written but not synced.
    """

    __slots__ = (
        "_descriptors",
        "_files",
        "_last_path",
        "_torn",
        "_unsynced_bytes",
        "dirty_bytes",
        "entries_a_file",
        "file_bytes",
        "reading",
        "reading_start",
        "root",
        "starts",
        "tail",
        "tail_start",
        "unit_bytes",
    )

    def __init__(
        self,
        files: Files,
        descriptors: DescriptorCache,
        root: Path,
        *,
        unit_bytes: int,
        file_bytes: int,
    ) -> None:
        """Start without files; :meth:`load` finds existing ones."""
        self._files = files
        self._descriptors = descriptors
        self._last_path = (-1, root)
        self._torn = 0
        self._unsynced_bytes = 0
        self.dirty_bytes = 0
        self.entries_a_file = file_bytes // unit_bytes
        self.file_bytes = file_bytes
        self.root = root
        self.starts: list[int] = []
        self.tail: OpenFile | None = None
        self.tail_start = 0
        self.reading: OpenFile | None = None
        self.reading_start = 0
        self.unit_bytes = unit_bytes

    def load(self, *, is_torn: bool) -> None:
        """Find the files, after an unclean exit including torn ones; nothing is changed yet."""
        if is_torn:
            self.starts, whole = torn_starts(self._files, self.root, size_bytes=self.file_bytes)
            self._torn = len(self.starts) - whole
        else:
            self.starts = segment_starts(self._files, self.root, size_bytes=self.file_bytes)

    @property
    def first_place(self) -> int:
        """The first place of the oldest file, 0 if there are no files."""
        return self.starts[0] // self.unit_bytes if self.starts else 0

    @property
    def room_end(self) -> int:
        """The place after the last one that the files have room for."""
        return (self.starts[-1] + self.file_bytes) // self.unit_bytes if self.starts else 0

    @property
    def total_bytes(self) -> int:
        """Length of the files together."""
        return len(self.starts) * self.file_bytes

    # -- writing ----------------------------------------------------------------------------

    def write(self, entries: bytearray, place: int) -> int:
        """Write as many entries as fit at the end of the last file; returns how many bytes."""
        position = place * self.unit_bytes - self.tail_start
        if position >= self.file_bytes:
            self.move_end(place)
            position = place * self.unit_bytes - self.tail_start
        data = entries
        if position + len(entries) > self.file_bytes:
            data = entries[: self.file_bytes - position]
        tail = self.tail
        if tail is None or tail.fd < 0:
            tail = self.open_tail()
        tail.is_used = True
        self._files.write_at(tail.fd, data, position)
        self.dirty_bytes += len(data)
        return len(data)

    def move_end(self, place: int) -> None:
        """Continue writing at a place; the next write opens its file."""
        self.close()
        position = place * self.unit_bytes
        self.tail_start = position - position % self.file_bytes

    def open_tail(self) -> OpenFile:
        """Open the file at whose end entries are written, and create it if necessary."""
        tail = self.tail = self._descriptors.open(lambda: self._open(self.tail_start))
        return tail

    def close(self) -> None:
        """Close the files that are open."""
        if self.tail is not None:
            self._descriptors.close_one(self.tail)
            self.tail = None
        self._stop_reading()

    def _stop_reading(self) -> None:
        if self.reading is not None:
            self._descriptors.close_one(self.reading)
            self.reading = None

    def _open(self, start: int) -> int:
        """Open the file that begins at byte ``start``, or create it at its full, sparse length."""
        path = self._path(start)
        if self.starts and start <= self.starts[-1]:
            return self._files.open(path, write=True)
        if not self.starts:
            self._files.make_dirs(self.root)
        fd = self._files.open(path, write=True, create=True)
        try:
            self._files.truncate(fd, self.file_bytes)
            self._files.sync_dir(self.root)
        except OSError:
            self._files.close(fd)
            self._files.unlink(path)
            raise
        self.starts = [*self.starts, start]
        return fd

    def _path(self, start: int) -> Path:
        last_start, path = self._last_path
        if start != last_start:
            path = self._files.inside(self.root, file_name(start))
            self._last_path = (start, path)
        return path

    def sync(self) -> None:
        """Put written entries on disk, on any thread; raises ``OSError``.

        Usually only the tail changes, but a burst may span files, so all files that may have
        changed since the last call are synced. If a call fails, the next one syncs them.
        """
        changed, self.dirty_bytes = self.dirty_bytes, 0
        self._unsynced_bytes += changed
        self._sync_last(self._unsynced_bytes)
        self._unsynced_bytes = 0

    def _sync_last(self, changed: int) -> None:
        """Sync the files at the end that hold the last ``changed`` bytes, and one more."""
        for start in reversed(self.starts):
            try:
                fd = self._files.open(self._path(start), write=True)
            except FileNotFoundError:
                break  # expired and deleted meanwhile, and so are all older ones
            try:
                self._files.data_sync(fd)
            finally:
                self._files.close(fd)
            changed -= self.file_bytes
            if changed <= -self.file_bytes:
                break

    # -- reading ----------------------------------------------------------------------------

    def open_reading(self, start: int) -> OpenFile | None:
        """Keep the file that begins at byte ``start`` open for more reads on the owner's side.

        ``None`` if it cannot be opened; :meth:`read` reports why.
        """
        self._stop_reading()
        try:
            self.reading = self._descriptors.open(lambda: self._files.open(self._path(start)))
        except OSError:
            return None
        self.reading_start = start
        return self.reading

    def read(self, place: int, count: int, read: ReadAt) -> bytes | None:
        """Entries from a place on: up to ``count``, and within one file; ``read`` may give up."""
        position = place * self.unit_bytes
        start = position - position % self.file_bytes
        if not self.starts or start < self.starts[0]:
            return b""
        length = min(count * self.unit_bytes, start + self.file_bytes - position)
        try:
            fd = self._files.open(self._path(start))
            try:
                return read(fd, length, position - start)
            finally:
                self._files.close(fd)
        except FileNotFoundError:
            return b""  # expired and deleted meanwhile
        except OSError as error:
            raise store_error(f"reading {self._path(start)}", error) from error

    @contextmanager
    def descriptor(self, start: int) -> Iterator[int]:
        """A descriptor of the file that begins at byte ``start``, so that any thread may read."""
        fd = self._files.open(self._path(start))
        try:
            yield fd
        finally:
            self._files.close(fd)

    def data_at(self, place: int, count: int = 1) -> bytes:
        """Entries of one file, written or not; shorter where the file is torn."""
        position = place * self.unit_bytes
        start = position - position % self.file_bytes
        with self.descriptor(start) as fd:
            return self._files.read_at(fd, count * self.unit_bytes, position - start)

    def unit_at(self, place: int) -> CqUnit:
        """An entry, whether written or not."""
        return unpack_unit(self.data_at(place))

    def last_entry(self, low: int, place: int) -> tuple[int, CqUnit]:
        """The entry at a place or, if that is filler, the last one before it, down to ``low``."""
        unit = self.unit_at(place)
        while unit.is_filler and place > low:
            first = max(low, place - _SCAN_ENTRIES, place - place % self.entries_a_file)
            if first == place:
                first = place - 1
            units = self.data_at(first, place - first)
            while place > first and unit.is_filler:
                place -= 1
                unit = unpack_unit(units, (place - first) * self.unit_bytes)
        return place, unit

    def first_from(self, low: int, high: int, physical_offset: int) -> int:
        """Place of the first entry between two places that is at or after an offset of the log.

        Filler has no offset of its own; the one of the entry before it counts.
        """
        while low < high:
            place, unit = self.last_entry(low, (low + high) // 2)
            if unit.is_filler or unit.physical_offset < physical_offset:
                low = (low + high) // 2 + 1
            else:
                high = place
        return low

    # -- recovery ---------------------------------------------------------------------------

    def kept_end(self, log_end: int = _NO_LIMIT) -> int:
        """The place after the last entry whose record ends at or before ``log_end``.

        Entries are in the order of their records, and a torn write leaves zeros after the last
        valid one, so bisection finds the boundary. The first place if no entry is kept.
        """
        for index in range(len(self.starts) - self._torn - 1, -1, -1):
            count = self._kept_in_file(self.starts[index], log_end)
            if count:
                return self.starts[index] // self.unit_bytes + count
        return self.first_place

    def _kept_in_file(self, start: int, log_end: int) -> int:
        """How many entries of a file are kept; for most queues, the first page is enough."""
        unit_bytes = self.unit_bytes
        page_entries = min(_PAGE_BYTES // unit_bytes, self.entries_a_file)
        with self.descriptor(start) as fd:
            page = self._files.read_at(fd, page_entries * unit_bytes, 0)

            def is_kept(number: int) -> bool:
                if number < page_entries:
                    unit = unpack_unit(page, number * unit_bytes)
                else:
                    unit = unpack_unit(self._files.read_at(fd, unit_bytes, number * unit_bytes))
                return unit.is_written and unit.end_offset <= log_end

            if not is_kept(0):
                return 0
            low, high = 1, self.entries_a_file
            if not is_kept(page_entries - 1):
                high = page_entries - 1
            while low < high:
                middle = (low + high) // 2
                if is_kept(middle):
                    low = middle + 1
                else:
                    high = middle
            return low

    def sample_from(self, physical_offset: int) -> Iterator[CqUnit]:
        """Some entries at or after an offset of the log, as the files are before recovery.

        The first, then ever greater steps, and the last: enough to tell whether valid records
        follow a bad one, however many bad ones come first.
        """
        end = self.kept_end()
        if end == self.first_place:
            return
        low = self.first_from(self.first_place, end, physical_offset)
        step = 0
        while low + step < end:
            yield self.unit_at(low + step)
            step = step * 2 or 1
        if low < end:
            yield self.unit_at(end - 1)

    def peek_newest_offset(self) -> int:
        """Start of the newest record that has an entry, before recovery; -1 if none has."""
        end = self.kept_end()
        if end == self.first_place:
            return -1
        unit = self.unit_at(end - 1)
        return -1 if unit.is_filler else unit.physical_offset

    def peek(self, place: int) -> CqUnit | None:
        """An entry as it is in the files, before recovery; ``None`` before the first file."""
        return None if place < self.first_place else self.unit_at(place)

    def peek_first(self) -> CqUnit | None:
        """The first entry in the files; ``None`` if there are none, or the first file is torn."""
        data = self.data_at(self.first_place) if self.starts else b""
        return unpack_unit(data) if len(data) == self.unit_bytes else None

    # -- cutting ----------------------------------------------------------------------------

    def cut(self, end: int, *, erase: bool) -> bool:
        """Make the entry before a place the last one; return whether bytes after it were zeroed.

        With ``erase`` they are in any case, without it only if an entry follows.
        """
        number = (end - 1 - self.first_place) // self.entries_a_file
        self.keep_files(number + 1)
        if end == self.room_end or not (erase or self.unit_at(end).is_written):
            return False
        start = self.starts[number]
        with self._changing(start) as fd:
            self._files.punch(fd, end * self.unit_bytes - start, self.file_bytes)
        return True

    def keep_files(self, count: int) -> None:
        """Delete all but the ``count`` oldest files, newest first."""
        self.close()
        while len(self.starts) > count:
            self._files.unlink(self._path(self.starts[-1]))
            self.starts = self.starts[:-1]
            self._files.sync_dir(self.root)
        self._torn = 0

    def blank(self, head: bytes = b"") -> None:
        """Erase the oldest file except for ``head``, whatever its length was."""
        with self._changing(self.starts[0]) as fd:
            self._files.truncate(fd, 0)
            self._files.truncate(fd, self.file_bytes)
            if head:
                self._files.write_at(fd, head, 0)

    @contextmanager
    def _changing(self, start: int) -> Iterator[int]:
        fd = self._files.open(self._path(start), write=True)
        try:
            yield fd
        finally:
            self._files.close(fd)

    def delete_before(self, place: int, guard: AbstractContextManager[object]) -> int:
        """Delete files that end before a place, never the last file; returns how many.

        ``guard`` is held only while the list changes.
        """
        count = 0
        while len(self.starts) > 1:
            oldest = self.starts[0]
            if oldest + self.file_bytes > place * self.unit_bytes:
                break
            self._files.unlink(self._path(oldest))
            with guard:
                self.starts = self.starts[1:]
                if self.reading_start == oldest:
                    self._stop_reading()
            self._files.sync_dir(self.root)
            count += 1
        return count

    def destroy(self) -> None:
        """Delete the files and their directory, oldest first, as if they expired.

        What an interruption leaves are entries without a gap up to the last one. Raises
        ``OSError``; a repeated call syncs again what the first one could not.
        """
        self.close()
        while self.starts:
            self._files.unlink(self._path(self.starts[0]))
            self._files.sync_dir(self.root)
            self.starts = self.starts[1:]
        self._torn = 0
        self._files.remove_dir(self.root)
