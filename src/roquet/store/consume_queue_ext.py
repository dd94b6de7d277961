"""Extended queue entries beyond the 20 bytes, for SQL92 filters.

Owns the files below ``consumequeue_ext/<topic>/<queueId>/``; the bytes are those of
:mod:`roquet.format.consume_queue_ext`. A file's name is the real offset of its first byte.

Invariants:

* An address is used once. What is truncated is erased on disk before its space is reused, so that
  a ConsumeQueue entry never points to the unit of another message.
* Units are an optimization: a reader that finds none must treat the message as matching.
* Files are sparse and written by system calls, so that a full disk is an error and not a signal.
  Every call opens and closes what it needs: :meth:`ConsumeQueueExt.get` and
  :meth:`ConsumeQueueExt.flush` may run on any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from roquet.format import consume_queue_ext as layout
from roquet.format.consume_queue_ext import CqExtUnit
from roquet.format.segment_files import file_name
from roquet.runtime.files import Files
from roquet.store.mapped_file_queue import segment_starts, torn_starts

log = logging.getLogger(__name__)

_READ_AHEAD_BYTES = 256
_CHUNK_BYTES = 1 << 16


class ConsumeQueueExt:
    """The units of one queue.

    Args:
        files: The file system.
        root: The queue's directory; created with the first file.
        file_bytes: Length of a file (``mappedFileSizeConsumeQueueExt``).
    """

    __slots__ = ("_end", "_file_bytes", "_files", "_flushed", "_starts", "_torn", "root")

    def __init__(self, files: Files, root: Path, *, file_bytes: int) -> None:
        self._files = files
        self._file_bytes = file_bytes
        self._starts: list[int] = []
        self._torn: list[int] = []
        self._end = 0
        self._flushed = 0
        self.root = root

    @property
    def max_address(self) -> int:
        """Address after the newest unit."""
        return layout.address_of(self._end)

    @property
    def total_bytes(self) -> int:
        """Length of all files together."""
        return len(self._starts) * self._file_bytes

    def load(self, *, is_torn: bool = False) -> None:
        """Find the files; until :meth:`recover`, all of them count as full.

        After an unclean exit (``is_torn``), a file whose length was never synced, and those after
        it, do not count: no kept entry points there. :meth:`recover` deletes them.

        Raises:
            StoreDamaged: A file has a wrong name or length, or one is missing in between.
        """
        self._restore_length()
        if is_torn:
            starts, whole = torn_starts(self._files, self.root, size_bytes=self._file_bytes)
            self._starts, self._torn = starts[:whole], starts[whole:]
        else:
            self._starts = segment_starts(self._files, self.root, size_bytes=self._file_bytes)
        self._end = self._last_file_end
        self._flushed = self._starts[0] if self._starts else 0

    def recover(self) -> None:
        """Find the end of the last unit; bytes after it that are not a unit are erased.

        The queue must then truncate the units that none of its entries points to
        (:meth:`truncate_by_max_address`).
        """
        self._forget(self._torn)
        if not self._starts:
            return
        start = self._starts[-1]
        with self._opened(start, write=True) as fd:
            position = self._walk(fd, self._file_bytes - layout.END_RESERVED_BYTES)
            follows = self._files.read_at(fd, len(layout.END_MARK), position)
            # Pages after a lost one may hold older units, so the rest is always dropped; it is
            # synced only if it is known to hold something.
            self._drop_rest(fd, position)
            if any(follows) and follows != layout.END_MARK:
                log.warning("%s: bytes from %d on were not a unit", self._path(start), position)
                self._files.data_sync(fd)
        self._end = start + position

    def put(self, unit: CqExtUnit) -> int:
        """Append a unit and return its address, or 1 for one that is too big.

        Raises:
            OSError: The write failed; the next call uses the same position.
        """
        size = unit.size_bytes
        if not layout.fits(size, self._file_bytes) or self._end + size > layout.REAL_OFFSET_MAX:
            return layout.NO_ADDRESS
        if self._end + size > self._last_file_end - layout.END_RESERVED_BYTES:
            self._end_last_file()
            self._create()
        start = self._starts[-1]
        with self._opened(start, write=True) as fd:
            self._files.write_at(fd, layout.pack_unit(unit), self._end - start)
        address = self.max_address
        self._end += size
        return address

    def put_message(
        self, *, tags_code: int, store_time_ms: int, bitmap: bytes | None
    ) -> int | None:
        """Append the unit of a record; ``None`` if it got no address."""
        address = self.put(CqExtUnit(tags_code, store_time_ms, bitmap or b""))
        return address if layout.is_ext_address(address) else None

    def get(self, address: int) -> CqExtUnit | None:
        """The unit with an address, ``None`` if there is none."""
        if not layout.is_ext_address(address):
            return None
        starts, end = self._starts, self._end
        real_offset = layout.real_offset_of(address)
        if not starts or not starts[0] <= real_offset < end:
            return None
        start = real_offset - real_offset % self._file_bytes
        position = real_offset - start
        room = min(end - start, self._file_bytes - layout.END_RESERVED_BYTES) - position
        if room < layout.UNIT_BYTES_MIN:
            return None
        try:
            with self._opened(start) as fd:
                data = self._files.read_at(fd, min(room, _READ_AHEAD_BYTES), position)
                size = layout.peek_size(data)
                if len(data) < size <= room:
                    data = self._files.read_at(fd, size, position)
        except FileNotFoundError:
            return None  # expired and deleted meanwhile
        except OSError:
            log.exception("%s cannot be read, its filters count as matched", self.root)
            return None
        return layout.unpack_unit(data)

    def truncate_by_min_address(self, address: int) -> None:
        """Delete the files that end before an address, oldest first; never the last file."""
        if not layout.is_ext_address(address):
            return
        real_offset = layout.real_offset_of(address)
        while len(self._starts) > 1 and self._starts[0] + self._file_bytes < real_offset:
            self._files.unlink(self._path(self._starts[0]))
            self._starts = self._starts[1:]
            self._files.sync_dir(self.root)

    def truncate_by_max_address(self, address: int) -> bool:
        """Erase everything after the unit with an address, on disk, newest file first.

        If the unit itself is lost, its address and those before it are not reused.

        Returns:
            Whether the unit exists.
        """
        unit = self.get(address)
        if unit is None:
            if layout.is_ext_address(address):
                self._pass_over(layout.real_offset_of(address))
            return False
        cut = layout.real_offset_of(address) + unit.size_bytes
        if cut == self._end:
            return True
        while self._starts[-1] > cut:
            self._files.unlink(self._path(self._starts[-1]))
            self._starts = self._starts[:-1]
            self._files.sync_dir(self.root)
        start = self._starts[-1]
        with self._opened(start, write=True) as fd:
            self._drop_rest(fd, cut - start)
            self._files.data_sync(fd)
        self._end = cut
        self._flushed = min(self._flushed, cut)
        return True

    def flush(self) -> None:
        """Put written units on disk; not while the files are being truncated.

        Raises:
            OSError: The sync failed; after that, nothing counts as flushed.
        """
        end, flushed = self._end, self._flushed
        for start in list(self._starts):
            if start + self._file_bytes <= flushed or start >= end or flushed == end:
                continue
            with suppress(FileNotFoundError), self._opened(start, write=True) as fd:
                self._files.data_sync(fd)
        self._flushed = end

    def close(self) -> None:
        """Put written units on disk."""
        self.flush()

    def destroy(self) -> None:
        """Delete the files and the queue's directory; addresses restart."""
        self._forget(self._torn)
        while self._starts:
            self._forget(self._starts[-1:])
            self._starts = self._starts[:-1]
        self._files.remove_dir(self.root)
        self._end = self._flushed = 0

    def _forget(self, starts: list[int]) -> None:
        """Delete files, newest first and each durably: a crash in between must leave no gap."""
        while starts:
            self._files.unlink(self._path(starts[-1]))
            self._files.sync_dir(self.root)
            starts.pop()

    @property
    def _last_file_end(self) -> int:
        return self._starts[-1] + self._file_bytes if self._starts else 0

    def _path(self, start: int) -> Path:
        return self._files.inside(self.root, file_name(start))

    @contextmanager
    def _opened(self, start: int, *, write: bool = False) -> Iterator[int]:
        fd = self._files.open(self._path(start), write=write)
        try:
            yield fd
        finally:
            self._files.close(fd)

    def _restore_length(self) -> None:
        """Give the newest file its full length again after a crash.

        It is short if its creation or :meth:`_drop_rest` was interrupted: then its units, if any,
        reach its very last byte, which those of a whole file never do.
        """
        names = self._files.list_dir(self.root)
        if not names or self._files.is_dir(path := self._files.inside(self.root, names[-1])):
            return
        length = self._files.size_bytes(path)
        if length >= self._file_bytes:
            return
        fd = self._files.open(path, write=True)
        try:
            if self._walk(fd, length) == length:
                self._files.truncate(fd, self._file_bytes)
        finally:
            self._files.close(fd)

    def _create(self) -> None:
        """Create the next file at its full, sparse length; on failure nothing remains."""
        start = self._last_file_end
        path = self._path(start)
        self._files.make_dirs(self.root)
        fd = self._files.open(path, write=True, create=True)
        try:
            try:
                self._files.truncate(fd, self._file_bytes)
                self._files.sync_dir(self.root)
            finally:
                self._files.close(fd)
        except BaseException:
            with suppress(OSError):
                self._files.unlink(path)
                self._files.sync_dir(self.root)
            raise
        self._starts = [*self._starts, start]
        self._end = start

    def _end_last_file(self) -> None:
        """Mark the newest file as ended, unless it already is."""
        if self._end < self._last_file_end:
            start = self._starts[-1]
            with self._opened(start, write=True) as fd:
                self._files.write_at(fd, layout.END_MARK, self._end - start)
            self._end = self._last_file_end

    def _pass_over(self, real_offset: int) -> None:
        """Skip addresses up to one whose unit is lost but whose file exists."""
        if self._end <= real_offset < self._last_file_end:
            self._end_last_file()
            self._create()
            self.flush()

    def _walk(self, fd: int, limit: int) -> int:
        """Position after the last unit of a file; units end at ``limit`` at the latest."""
        position = chunk_at = 0
        chunk = b""
        while position < limit:
            if position - chunk_at + layout.UNIT_BYTES_MIN > len(chunk):
                chunk = self._files.read_at(fd, _CHUNK_BYTES, position)
                chunk_at = position
            size = layout.peek_size(chunk, position - chunk_at)
            if size == 0 or position + size > limit:
                break
            position += size
        return position

    def _drop_rest(self, fd: int, position: int) -> None:
        """Punch a hole, which reads as zeros, from ``position`` to the end of a file."""
        self._files.truncate(fd, position)
        self._files.truncate(fd, self._file_bytes)
