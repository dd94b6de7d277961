"""One queue of one topic: entries that point into the log.

Owns the files below ``consumequeue/<topic>/<queueId>/`` and the queue's numbers. Entry n lies at
byte 20n of the files taken together.

    min_queue_offset <= max_queue_offset <= next_queue_offset

``next_queue_offset`` is the place the next append gets (upstream's topicQueueTable),
``max_queue_offset`` the end of what readers see, ``min_queue_offset`` the first entry whose
record the log still holds.

Invariants: everything here is derived from the log and may be rebuilt from it. Entries of a burst
are collected and reach the file by one write a file; readers see them after that write. Files are
sparse and written by calls, never through a mapping, so a full disk is an error and not a signal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from roquet.format.commit_log import DispatchRequest
from roquet.format.consume_queue import FILLER, UNIT, UNIT_BYTES, CqUnit, unpack_unit
from roquet.format.file_parts import file_name
from roquet.runtime.files import DescriptorCache, Files, OpenFile
from roquet.store.consume_queue_ext import ConsumeQueueExt
from roquet.store.io_errors import store_error
from roquet.store.mapped_file_queue import segment_starts, torn_starts

log = logging.getLogger(__name__)

Fits = Callable[["ConsumeQueue", int], bool]
ReadAt = Callable[[int, int, int], bytes | None]

_FILL_ENTRIES_MAX = 1 << 14
_SCAN_ENTRIES = 1 << 10
_PAGE_ENTRIES = 4096 // UNIT_BYTES
_NO_LIMIT = 1 << 63


class ConsumeQueue:
    """A queue open for building and reading."""

    __slots__ = (
        "_descriptors",
        "_entries_a_file",
        "_file_bytes",
        "_files",
        "_last_path",
        "_starts",
        "_tail",
        "_tail_start",
        "_torn",
        "dirty_bytes",
        "ext",
        "max_physical_offset",
        "max_queue_offset",
        "min_queue_offset",
        "next_queue_offset",
        "pending",
        "queue_id",
        "root",
        "topic",
    )

    def __init__(
        self,
        files: Files,
        descriptors: DescriptorCache,
        root: Path,
        *,
        topic: str,
        queue_id: int,
        file_bytes: int,
        ext: ConsumeQueueExt | None = None,
    ) -> None:
        """A queue without files yet; :meth:`load` finds those of an earlier life."""
        self._files = files
        self._descriptors = descriptors
        self._file_bytes = file_bytes
        self._entries_a_file = file_bytes // UNIT_BYTES
        self._last_path = (-1, root)
        self._starts: list[int] = []
        self._torn = 0
        self._tail: OpenFile | None = None
        self._tail_start = 0
        self.root = root
        self.topic = topic
        self.queue_id = queue_id
        self.ext = ext
        self.min_queue_offset = 0
        self.max_queue_offset = 0
        self.next_queue_offset = 0
        self.max_physical_offset = -1
        self.pending = bytearray()
        self.dirty_bytes = 0

    # -- building ---------------------------------------------------------------------------

    def put(self, request: DispatchRequest, tags_code: int) -> None:
        """Collect the entry of a record; one that is there already is passed over."""
        if request.end_offset <= self.max_physical_offset:
            return
        expected = self.max_queue_offset + len(self.pending) // UNIT_BYTES
        if request.queue_offset != expected:
            if request.queue_offset < expected:
                name, place = self.root, (request.physical_offset, request.queue_offset)
                log.warning("%s: record at %d repeats queue offset %d", name, *place)
                return
            self._skip_to(request.queue_offset)
        self.pending += UNIT.pack(request.physical_offset, request.size_bytes, tags_code)
        self.max_physical_offset = request.end_offset
        if self.next_queue_offset <= request.queue_offset:
            self.next_queue_offset = request.queue_offset + 1

    def write_pending(self) -> None:
        """Write the burst's entries and show them to readers; raises ``OSError``, keeps them."""
        pending = self.pending
        length = len(pending)
        position = self.max_queue_offset * UNIT_BYTES - self._tail_start
        if position + length > self._file_bytes:
            self._write_over_files(position)
            return
        tail = self._tail
        if tail is None or tail.fd < 0:
            tail = self._open_tail()
        tail.is_used = True
        self._files.write_at(tail.fd, pending, position)
        self.dirty_bytes += length
        self.max_queue_offset += length // UNIT_BYTES
        pending.clear()

    def _write_over_files(self, position: int) -> None:
        """Write entries that do not all fit the tail file."""
        while (room := self._file_bytes - position) < len(self.pending):
            if room:
                rest = self.pending[room:]
                del self.pending[room:]
                try:
                    self.write_pending()
                finally:
                    self.pending += rest
            self._close_tail()
            self._tail_start += self._file_bytes
            position = 0
        self.write_pending()

    def _open_tail(self) -> OpenFile:
        tail = self._tail = self._descriptors.add(self._open(self._tail_start))
        return tail

    def _close_tail(self) -> None:
        if self._tail is not None:
            self._descriptors.close_one(self._tail)
            self._tail = None

    def _skip_to(self, queue_offset: int) -> None:
        """Continue at a later place: with filler, as upstream marks what was never there."""
        if self.pending:
            self.write_pending()
        is_first = not self._starts
        begin = self.max_queue_offset
        if is_first:
            begin = queue_offset - queue_offset % self._entries_a_file
            self.min_queue_offset = queue_offset
        else:
            log.warning("%s: entries %d to %d are missing", self.root, begin, queue_offset)
        self._move_end(begin)
        while self.max_queue_offset < queue_offset:
            count = min(queue_offset - self.max_queue_offset, _FILL_ENTRIES_MAX)
            self.pending += FILLER * count
            self.write_pending()

    def _open(self, start: int) -> int:
        """Open the file that begins at byte ``start``, making it at its full, sparse length."""
        path = self._path(start)
        if self._starts and start <= self._starts[-1]:
            return self._files.open(path, write=True)
        if not self._starts:
            self._files.make_dirs(self.root)
        fd = self._files.open(path, write=True, create=True)
        try:
            self._files.truncate(fd, self._file_bytes)
            self._files.sync_dir(self.root)
        except OSError:
            self._files.close(fd)
            self._files.unlink(path)
            raise
        self._starts = [*self._starts, start]
        return fd

    def _path(self, start: int) -> Path:
        last_start, path = self._last_path
        if start != last_start:
            path = self._files.inside(self.root, file_name(start))
            self._last_path = (start, path)
        return path

    # -- reading ----------------------------------------------------------------------------

    def read_units(self, queue_offset: int, count: int) -> bytes:
        """Raw entries from an offset on: as many as asked, visible, and in one file."""
        return self._read_units(queue_offset, count, self._files.read_at) or b""

    def read_cached_units(self, queue_offset: int, count: int) -> bytes | None:
        """As :meth:`read_units`, or ``None`` when that would wait for the disk."""
        return self._read_units(queue_offset, count, self._files.read_cached_at)

    def _read_units(self, queue_offset: int, count: int, read: ReadAt) -> bytes | None:
        if not self.min_queue_offset <= queue_offset < self.max_queue_offset:
            return b""
        position = queue_offset * UNIT_BYTES
        start = position - position % self._file_bytes
        if not self._starts or start < self._starts[0]:
            return b""
        count = min(count, self.max_queue_offset - queue_offset)
        length = min(count * UNIT_BYTES, start + self._file_bytes - position)
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

    def unit_at(self, queue_offset: int) -> CqUnit | None:
        """One entry."""
        data = self.read_units(queue_offset, 1)
        return unpack_unit(data) if data else None

    def next_file_offset(self, queue_offset: int) -> int:
        """Queue offset of the first entry of the file behind the one that holds an offset."""
        return queue_offset + self._entries_a_file - queue_offset % self._entries_a_file

    def _read(self, start: int, length: int, position: int) -> bytes:
        """Read through a descriptor of its own, so that any thread may."""
        with self._descriptor(start) as fd:
            return self._files.read_at(fd, length, position)

    @contextmanager
    def _descriptor(self, start: int) -> Iterator[int]:
        fd = self._files.open(self._path(start))
        try:
            yield fd
        finally:
            self._files.close(fd)

    # -- files ------------------------------------------------------------------------------

    def load(self, *, is_torn: bool = False) -> None:
        """Find the files, after an unclean exit torn ones too; nothing is changed yet."""
        if is_torn:
            self._starts, whole = torn_starts(self._files, self.root, size_bytes=self._file_bytes)
            self._torn = len(self._starts) - whole
        else:
            self._starts = segment_starts(self._files, self.root, size_bytes=self._file_bytes)
        if self.ext is not None:
            self.ext.load(is_torn=is_torn)

    def recover(self, log_end: int, *, erase: bool, fits: Fits | None = None) -> bool:
        """Keep the entries whose records end at or before ``log_end``; drop the others.

        With ``erase`` the bytes behind the last kept entry become zeros whatever they look like;
        without, only if an entry follows. After an unclean exit ``fits`` must tell whether an
        entry is that of its record: one torn over two sectors may look like that of an older
        one. The caller syncs the queue when the answer is true.
        """
        index, count = self._boundary(log_end)
        while (
            fits is not None
            and index >= 0
            and not fits(self, self._starts[index] // UNIT_BYTES + count - 1)
        ):
            count -= 1
            if count == 0:
                index, count = index - 1, self._entries_a_file
        if index < 0:
            return self._recover_empty()
        self._forget_files(index + 1)
        self._torn = 0
        start = self._starts[index]
        end = start // UNIT_BYTES + count
        changed = False
        if count < self._entries_a_file and (erase or self._read_unit(end).is_written):
            self._erase(start, count * UNIT_BYTES)
            changed = True
        self._set_end(end)
        last = self._read_unit(end - 1)
        self.max_physical_offset = last.end_offset if not last.is_filler else -1
        if self.ext is not None:
            self.ext.recover()
            self.ext.truncate_by_max_address(last.tags_code)
        return changed

    def _recover_empty(self) -> bool:
        """Drop every entry; places go on where the oldest file begins, never from 0 again."""
        first = self._starts[0] if self._starts else 0
        self._forget_files(1 if first else 0)
        self._torn = 0
        self._set_end(first // UNIT_BYTES)
        self.max_physical_offset = -1
        if self.ext is not None:
            self.ext.destroy()
        if first:
            self._blank(first)
        return first > 0

    def _blank(self, start: int) -> None:
        """Leave nothing in a file, whatever its length was, but keep its place."""
        fd = self._files.open(self._path(start), write=True)
        try:
            self._files.truncate(fd, 0)
            self._files.truncate(fd, self._file_bytes)
        finally:
            self._files.close(fd)

    def restart(self) -> None:
        """Drop every entry and begin with 0 again: the queue was deleted and made anew."""
        log.warning("%s-%d begins anew", self.topic, self.queue_id)
        self._forget_files(0)
        self._set_end(0)
        if self.ext is not None:
            self.ext.destroy()

    def _boundary(self, log_end: int) -> tuple[int, int]:
        """File number and count of entries in it up to which records end before ``log_end``.

        Entries lie in the order of their records, and a torn write leaves zeros behind the last
        good one, so the boundary is found by halving. (-1, 0) when no entry is kept.
        """
        for index in range(len(self._starts) - self._torn - 1, -1, -1):
            count = self._kept_in_file(self._starts[index], log_end)
            if count:
                return index, count
        return -1, 0

    def _kept_in_file(self, start: int, log_end: int) -> int:
        """How many entries of a file are kept; of most queues the first page tells."""
        page_entries = min(_PAGE_ENTRIES, self._entries_a_file)
        with self._descriptor(start) as fd:
            page = self._files.read_at(fd, page_entries * UNIT_BYTES, 0)

            def is_kept(place: int) -> bool:
                if place < page_entries:
                    return _keeps(unpack_unit(page, place * UNIT_BYTES), log_end)
                data = self._files.read_at(fd, UNIT_BYTES, place * UNIT_BYTES)
                return _keeps(unpack_unit(data), log_end)

            if not is_kept(0):
                return 0
            low, high = 1, self._entries_a_file
            if not is_kept(page_entries - 1):
                high = page_entries - 1
            while low < high:
                middle = (low + high) // 2
                if is_kept(middle):
                    low = middle + 1
                else:
                    high = middle
            return low

    def sample_units_from(self, physical_offset: int) -> Iterator[CqUnit]:
        """Some entries at or behind an offset of the log, as the files are before recovery.

        The first, then ever greater steps, and the last: enough to tell whether good records
        follow a bad place, however many bad ones come first.
        """
        index, count = self._boundary(_NO_LIMIT)
        if index < 0:
            return
        end = self._starts[index] // UNIT_BYTES + count
        low = self._first_from(self._starts[0] // UNIT_BYTES, end, physical_offset)
        step = 0
        while low + step < end:
            yield self._read_unit(low + step)
            step = step * 2 or 1
        if low < end:
            yield self._read_unit(end - 1)

    def peek_max_physical_offset(self) -> int:
        """Start of the newest record that has an entry, before recovery; -1 without any."""
        index, count = self._boundary(_NO_LIMIT)
        if index < 0:
            return -1
        unit = self._read_unit(self._starts[index] // UNIT_BYTES + count - 1)
        return -1 if unit.is_filler else unit.physical_offset

    def peek_unit(self, queue_offset: int) -> CqUnit | None:
        """An entry as the files have it, before recovery; ``None`` before the first file."""
        if queue_offset * UNIT_BYTES < self._starts[0]:
            return None
        return self._read_unit(queue_offset)

    def _read_unit(self, queue_offset: int) -> CqUnit:
        """An entry by its place in the files, written or not."""
        position = queue_offset * UNIT_BYTES
        start = position - position % self._file_bytes
        return unpack_unit(self._read(start, UNIT_BYTES, position - start))

    def _set_end(self, queue_offset: int) -> None:
        self.next_queue_offset = queue_offset
        self._move_end(queue_offset)
        self.min_queue_offset = min(self.min_queue_offset, queue_offset)
        if queue_offset == 0:
            self.max_physical_offset = -1
        self.pending = bytearray()

    def _move_end(self, queue_offset: int) -> None:
        """Continue writing at a place; its file is opened by the next write."""
        self._close_tail()
        self.max_queue_offset = queue_offset
        position = queue_offset * UNIT_BYTES
        self._tail_start = position - position % self._file_bytes

    def _forget_files(self, index: int) -> None:
        """Delete the files from ``index`` on, newest first."""
        self._close_tail()
        while len(self._starts) > index:
            self._files.unlink(self._path(self._starts[-1]))
            self._starts = self._starts[:-1]
            self._files.sync_dir(self.root)

    def _erase(self, start: int, position: int) -> None:
        """Zeros from ``position`` to the end of a file."""
        fd = self._files.open(self._path(start), write=True)
        try:
            self._files.punch(fd, position, self._file_bytes)
        finally:
            self._files.close(fd)

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Set the first entry whose record the log still holds."""
        if not self._starts:
            return
        first = self._starts[0] // UNIT_BYTES
        self.min_queue_offset = self._first_from(first, self.max_queue_offset, min_physical_offset)

    def _first_from(self, low: int, high: int, physical_offset: int) -> int:
        """Place of the first entry between two places that is at or behind an offset of the log.

        Filler has no offset of its own; it takes that of the entry before it.
        """
        while low < high:
            place, unit = self._last_entry(low, (low + high) // 2)
            if unit.is_filler or unit.physical_offset < physical_offset:
                low = (low + high) // 2 + 1
            else:
                high = place
        return low

    def _last_entry(self, low: int, place: int) -> tuple[int, CqUnit]:
        """The entry at a place or, if that is filler, the last one before it, down to ``low``."""
        unit = self._read_unit(place)
        while unit.is_filler and place > low:
            first = max(low, place - _SCAN_ENTRIES, place - place % self._entries_a_file)
            if first == place:
                first = place - 1
            position = first * UNIT_BYTES
            start = position - position % self._file_bytes
            units = self._read(start, (place - first) * UNIT_BYTES, position - start)
            while place > first and unit.is_filler:
                place -= 1
                unit = unpack_unit(units, (place - first) * UNIT_BYTES)
        return place, unit

    def delete_expired(
        self, min_physical_offset: int, *, lock: AbstractContextManager[object] | None = None
    ) -> int:
        """Delete files that end before the first living entry; never the last file.

        One at a time and each durably, because a crash in between must leave no gap. ``lock``
        is taken only while the queue's numbers and lists change.
        """
        guard = lock or nullcontext()
        with guard:
            self.correct_min_offset(min_physical_offset)
        count = 0
        while len(self._starts) > 1:
            oldest = self._starts[0]
            if oldest + self._file_bytes > self.min_queue_offset * UNIT_BYTES:
                break
            self._files.unlink(self._path(oldest))
            with guard:
                self._starts = self._starts[1:]
            self._files.sync_dir(self.root)
            count += 1
        if self.ext is not None and count:
            unit = self.unit_at(self.min_queue_offset)
            if unit is not None:
                with guard:
                    self.ext.truncate_by_min_address(unit.tags_code)
        return count

    def sync(self) -> None:
        """Put written entries on disk, on any thread; raises ``OSError``.

        Ext units go first: an entry must never point at a unit that is not there. The tail is
        where a busy queue changes, but a burst may span files, so as many are synced as can have
        changed since the last call.
        """
        if self.ext is not None:
            self.ext.flush()
        changed, self.dirty_bytes = self.dirty_bytes, 0
        for start in reversed(self._starts):
            try:
                fd = self._files.open(self._path(start), write=True)
            except FileNotFoundError:
                break  # expired and deleted meanwhile, and so are all older ones
            try:
                self._files.data_sync(fd)
            finally:
                self._files.close(fd)
            changed -= self._file_bytes
            if changed <= -self._file_bytes:
                break

    def total_bytes(self) -> int:
        """Length of the files together."""
        return len(self._starts) * self._file_bytes

    def close(self) -> None:
        """Close descriptors."""
        self._close_tail()
        if self.ext is not None:
            self.ext.close()

    def destroy(self) -> None:
        """Delete the files and the queue's directory."""
        self._forget_files(0)
        self._set_end(0)
        self._files.remove_dir(self.root)
        if self.ext is not None:
            self.ext.destroy()


def _keeps(unit: CqUnit, log_end: int) -> bool:
    return unit.is_written and unit.end_offset <= log_end
