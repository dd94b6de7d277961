"""One queue of one topic: entries that point into the log.

Owns the numbers of a queue whose files are below ``consumequeue/<topic>/<queueId>/``. An entry's
place in the files is its queue offset.

    min_queue_offset <= max_queue_offset <= next_queue_offset

``next_queue_offset`` is the offset of the next append (upstream's topicQueueTable),
``max_queue_offset`` the end of what readers see, ``min_queue_offset`` the first entry whose
record the log still holds.

Invariants: everything here is derived from the log and may be rebuilt from it. Entries of a burst
are collected and written with one write per file; readers see them after that write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import count, repeat
from pathlib import Path
from typing import ClassVar

from roquet.format.commit_log import DispatchRequest
from roquet.format.consume_queue import FILLER, UNIT, UNIT_BYTES, CqUnit, unpack_unit
from roquet.runtime.files import DescriptorCache, Files
from roquet.store.consume_queue_ext import ConsumeQueueExt
from roquet.store.entry_files import EntryFiles, ReadAt

log = logging.getLogger(__name__)

Fits = Callable[["ConsumeQueue", int], bool]
Entry = tuple[int, int, int]
"""The fields at the start of every queue's entries: physical offset, size, tags code."""

_FILL_ENTRIES_MAX = 1 << 14


class ConsumeQueue:
    """A queue open for building and reading.

    Attributes:
        unit_bytes: Length of an entry.
        entries: Its files.
        pending: Entries that are collected but not yet written.
    """

    unit_bytes: ClassVar[int] = UNIT_BYTES

    __slots__ = (
        "_files",
        "entries",
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
        """A queue without files; :meth:`load` finds existing ones."""
        self._files = files
        self.entries = EntryFiles(
            files, descriptors, root, unit_bytes=self.unit_bytes, file_bytes=file_bytes
        )
        self.root = root
        self.topic = topic
        self.queue_id = queue_id
        self.ext = ext
        self.min_queue_offset = 0
        self.max_queue_offset = 0
        self.next_queue_offset = 0
        self.max_physical_offset = -1
        self.pending = bytearray()

    # -- building ---------------------------------------------------------------------------

    def put(self, request: DispatchRequest, tags_code: int) -> None:
        """Collect the entry of a record, unless the queue already has it."""
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
        """Write the burst's entries and show them to readers; on ``OSError`` they are kept."""
        while self.pending:
            written = self.entries.write(self.pending, self.max_queue_offset)
            self.max_queue_offset += written // UNIT_BYTES
            del self.pending[:written]

    def _skip_to(self, queue_offset: int) -> None:
        """Continue at a later offset, with filler in between, as upstream marks missing entries."""
        self.write_pending()
        begin = self.max_queue_offset
        if not self.entries.starts:
            begin = queue_offset - queue_offset % self.entries.entries_a_file
            self.min_queue_offset = queue_offset
        else:
            log.warning("%s: entries %d to %d are missing", self.root, begin, queue_offset)
        self._move_end(begin)
        while self.max_queue_offset < queue_offset:
            entries = min(queue_offset - self.max_queue_offset, _FILL_ENTRIES_MAX)
            self.pending += FILLER * entries
            self.write_pending()

    def go_on_at(self, queue_offset: int) -> None:
        """Give the next message at least this offset, although those before it are lost."""
        if self.max_queue_offset >= queue_offset:
            return
        self._skip_to(queue_offset)
        self.next_queue_offset = max(self.next_queue_offset, queue_offset)
        if not self.entries.starts:
            # At the start of a file there is nothing to fill; its name keeps the offset.
            self.entries.open_tail()

    # -- reading ----------------------------------------------------------------------------

    def read_units(self, queue_offset: int, count: int) -> bytes:
        """Raw visible entries from an offset on: up to ``count``, and within one file."""
        return self._read_units(queue_offset, count, self._files.read_at) or b""

    def read_cached_units(self, queue_offset: int, count: int) -> bytes | None:
        """Like :meth:`read_units`, or ``None`` if that would wait for the disk."""
        return self._read_units(queue_offset, count, self._files.read_cached_at)

    def _read_units(self, queue_offset: int, count: int, read: ReadAt) -> bytes | None:
        if not self.min_queue_offset <= queue_offset < self.max_queue_offset:
            return b""
        return self.entries.read(
            queue_offset, min(count, self.max_queue_offset - queue_offset), read
        )

    def unpack_entries(self, units: bytes, queue_offset: int) -> Iterator[tuple[Entry, int, int]]:
        """Entries read from an offset on, each with its queue offset and its message count."""
        return zip(UNIT.iter_unpack(units), count(queue_offset), repeat(1), strict=False)

    def unit_at(self, queue_offset: int) -> CqUnit | None:
        """One entry."""
        data = self.read_units(queue_offset, 1)
        return unpack_unit(data) if data else None

    def next_file_offset(self, queue_offset: int) -> int:
        """Queue offset of the first entry of the file after the one that holds an offset."""
        entries_a_file = self.entries.entries_a_file
        return queue_offset + entries_a_file - queue_offset % entries_a_file

    def peek_queue_offset(self, place: int) -> int:
        """The queue offset of the entry at a place, before recovery."""
        return place

    # -- files ------------------------------------------------------------------------------

    def load(self, *, is_torn: bool = False) -> None:
        """Find the files, after an unclean exit including torn ones; nothing is changed yet."""
        self.entries.load(is_torn=is_torn)
        if self.ext is not None:
            self.ext.load(is_torn=is_torn)

    def recover(self, log_end: int, *, erase: bool, fits: Fits | None = None) -> bool:
        """Keep the entries whose records end at or before ``log_end``; drop the others.

        With ``erase``, the bytes after the last kept entry are zeroed in any case; without it,
        only if an entry follows. After an unclean exit, ``fits`` must check an entry against its
        record: one torn across two sectors may look like an older one. If this returns true, the
        caller syncs the queue.
        """
        first, end = self.entries.first_place, self.entries.kept_end(log_end)
        while fits is not None and end > first and not fits(self, end - 1):
            end -= 1
        if end == first:
            return self._recover_empty()
        changed = self.entries.cut(end, erase=erase)
        self._set_end(end)
        last = self.entries.unit_at(end - 1)
        _, newest = self.entries.last_entry(first, end - 1)
        self.max_physical_offset = newest.end_offset if not newest.is_filler else -1
        if self.ext is not None:
            self.ext.recover()
            self.ext.truncate_by_max_address(last.tags_code)
        return changed

    def _recover_empty(self) -> bool:
        """Drop every entry; offsets continue where the oldest file begins, never from 0 again."""
        first = self.entries.first_place
        self.entries.keep_files(1 if first else 0)
        self._set_end(first)
        self.max_physical_offset = -1
        if self.ext is not None:
            self.ext.destroy()
        if first:
            self.entries.blank()
        return first > 0

    def restart(self) -> None:
        """Drop every entry and restart at 0: the queue was deleted and re-created."""
        log.warning("%s-%d restarts at offset 0", self.topic, self.queue_id)
        self.drop()

    def drop(self) -> None:
        """Delete every file; entries may then be added from any offset on."""
        self.entries.keep_files(0)
        self._set_end(0)
        if self.ext is not None:
            self.ext.destroy()

    def _set_end(self, place: int) -> None:
        """Continue after the entry before a place."""
        self.next_queue_offset = place
        self._move_end(place)
        self.min_queue_offset = min(self.min_queue_offset, place)
        if place == 0:
            self.max_physical_offset = -1
        self.pending = bytearray()

    def _move_end(self, queue_offset: int) -> None:
        self.max_queue_offset = queue_offset
        self.entries.move_end(queue_offset)

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Set the first entry whose record the log still holds."""
        if self.entries.starts:
            self.min_queue_offset = self.entries.first_from(
                self.entries.first_place, self.max_queue_offset, min_physical_offset
            )

    @property
    def min_place(self) -> int:
        """Place of the first entry whose record the log still holds."""
        return self.min_queue_offset

    def delete_expired(
        self, min_physical_offset: int, *, lock: AbstractContextManager[object] | None = None
    ) -> int:
        """Delete files that end before the first live entry; never the last file.

        ``lock`` is held only while the queue's numbers and lists change.
        """
        guard = lock or nullcontext()
        with guard:
            self.correct_min_offset(min_physical_offset)
        deleted = self.entries.delete_before(self.min_place, guard)
        if self.ext is not None and deleted:
            unit = self.unit_at(self.min_queue_offset)
            if unit is not None:
                with guard:
                    self.ext.truncate_by_min_address(unit.tags_code)
        return deleted

    def sync(self) -> None:
        """Put written entries on disk, on any thread; raises ``OSError``.

        Ext units go first: an entry must never point at a missing unit.
        """
        if self.ext is not None:
            self.ext.flush()
        self.entries.sync()

    def close(self) -> None:
        """Close descriptors."""
        self.entries.close()
        if self.ext is not None:
            self.ext.close()

    def destroy(self) -> None:
        """Delete the files and the queue's directory."""
        self.entries.destroy()
        self._set_end(0)
        if self.ext is not None:
            self.ext.destroy()
