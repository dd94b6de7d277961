"""Queries by key: the index files of a store, how they roll, are searched and are removed.

Upstream's IndexService. Owns the directory ``index`` of a store; one file of it is an
:class:`~roquet.store.index_file.IndexFile`.

Invariants:

* Only the newest file is written to. Blocks are reserved before a mapping is written, so that a
  full disk is an ``OSError`` at creation and never a signal.
* Records of a burst may be collected in ``pending`` by whoever has asked :meth:`has_room` for
  them. They are written before any other record, and before their burst ends.
* The index is derived. A file that may not be whole after an unclean exit is removed, newest
  first, and the records from the end of the last kept file on are put again.

The event loop puts and removes; any thread may query, and may see an entry that is half there,
which is why callers look at the records. :meth:`IndexService.flush` belongs to one background
thread. The lock guards the list of files and the descriptors that a running flush uses.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from roquet.errors import ConfigError, StoreDamaged
from roquet.format import index_file as layout
from roquet.format.commit_log import DispatchRequest
from roquet.format.derived import tag_key
from roquet.format.index_file import IndexHeader, name_after
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.java_string import index_key_hash
from roquet.runtime.clock import Clock
from roquet.runtime.files import Files
from roquet.store.index_file import IndexFile, IndexRecord

__all__ = ["IndexFile", "IndexRecord", "IndexService", "QueryOffsetResult", "tag_key"]


class QueryOffsetResult(NamedTuple):
    """What a query found, and how far the index reached at that moment."""

    physical_offsets: list[int]
    last_update_timestamp_ms: int
    last_update_physical_offset: int


class IndexService:
    """All index files of a store, oldest first, in ``root``, which the first of them makes.

    ``slots`` and ``entries`` are maxHashSlotNum and maxIndexNum; ``clock`` names new files.
    """

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
        self._file_bytes = layout.file_size(slots, entries)
        self._clock = clock
        self._index_files: list[IndexFile] = []
        self.pending: list[IndexRecord] = []
        self._room = 0
        self._lock = threading.Lock()
        self._syncing: list[IndexFile] = []
        self._retired: list[IndexFile] = []

    @property
    def index_files(self) -> tuple[IndexFile, ...]:
        """The files, oldest first."""
        return tuple(self._index_files)

    @property
    def file_count(self) -> int:
        """How many files there are."""
        return len(self._index_files)

    @property
    def total_bytes(self) -> int:
        """Length of all files together."""
        return self._file_bytes * len(self._index_files)

    @property
    def durable_timestamp_ms(self) -> int:
        """End of the newest file up to which all are full and on disk, 0 for none.

        This is checkpoint.indexMsgTimestamp. It goes back when :meth:`load` or
        :meth:`doubtful_from` removes files, and the checkpoint must follow it before records are
        put again: a mark beyond the kept files would vouch for their successors.
        """
        timestamp_ms = 0
        for file in self.index_files:
            if not (file.is_durable and file.is_full):
                break
            timestamp_ms = file.header.end_timestamp_ms
        return timestamp_ms

    def load(self, *, last_exit_ok: bool, index_msg_timestamp_ms: int) -> int | None:
        """Open the files, and after an unclean exit remove those in doubt.

        Kept are the full files up to the one whose end is the checkpoint's
        ``index_msg_timestamp_ms``: these were synced before the mark was written. What a crash
        left of a creation, a short file without a header, is removed in any case.

        Returns:
            ``None`` after a clean exit. Otherwise the physical offset from which records must be
            put again, even when nothing was removed now: an earlier start may have removed files
            and have died before it had put their records again. It is the end of the last kept
            file, else the begin of the oldest removed one, else 0.

        Raises:
            StoreDamaged: A file has a wrong name or length; nothing is changed then.
        """
        unfinished: list[Path] = []
        try:
            for name in self._files.list_dir(self._root):
                path = self._files.inside(self._root, name)
                file = self._open(path)
                if file is None:
                    unfinished.append(path)
                else:
                    self._index_files.append(file)
            kept = len(self._index_files)
            if not last_exit_ok:
                kept = self._count_trusted(index_msg_timestamp_ms)
            for file in self._index_files[:kept]:
                file.is_durable = file.is_full
            for path in unfinished:
                self._files.unlink(path)
                self._files.sync_dir(self._root)
            resume_offset = self._remove_from(kept)
        except BaseException:
            self._release_all()
            raise
        return None if last_exit_ok else resume_offset

    def peek_resume_offset(self, *, index_msg_timestamp_ms: int) -> int:
        """What :meth:`load` will return after an unclean exit; nothing is opened or changed."""
        resume_offset = 0
        for name in self._files.list_dir(self._root):
            fd = self._files.open(self._files.inside(self._root, name))
            try:
                head = self._files.read_at(fd, layout.HEADER_BYTES, 0)
            finally:
                self._files.close(fd)
            if len(head) < layout.HEADER_BYTES:
                break
            header = IndexHeader.unpack(head)
            if not self._is_trusted(header, index_msg_timestamp_ms):
                return resume_offset or header.begin_physical_offset
            resume_offset = header.end_physical_offset
            if header.end_timestamp_ms == index_msg_timestamp_ms:
                break
        return resume_offset

    def doubtful_from(self, log_end: int) -> int | None:
        """Remove the files with entries at or beyond ``log_end``, where recovery cut the log.

        Returns:
            The physical offset from which records must be put again, ``None`` if nothing was
            removed.
        """
        for kept, file in enumerate(self._index_files):
            if file.header.end_physical_offset >= log_end:
                return min(self._remove_from(kept), log_end)
        return None

    def build(self, request: DispatchRequest) -> None:
        """Put the keys of a record: the producer's id, each word of KEYS, then TAGS as a whole.

        A record before the end of the newest file is in the index already. One right at that end
        is put again, as upstream does, because its keys may have been spread over two files.

        Raises:
            OSError: A new file was needed and could not be made; nothing of it is left.
        """
        self.write_pending()
        if self._index_files:
            end_offset = self._index_files[-1].header.end_physical_offset
            if request.physical_offset < end_offset:
                return
        if flags.transaction_type(request.sys_flag) == flags.TRANSACTION_ROLLBACK:
            return
        if request.unique_key is not None:
            self._put(request, request.unique_key)
        for key in request.keys.split(prop.KEY_SEPARATOR):
            if key:
                self._put(request, key)
        if tags := request.properties.get(prop.TAGS):
            self._put(request, tag_key(tags))

    def has_room(self, keys: int, physical_offset: int) -> bool:
        """Whether a record with so many keys may be collected; if so, room is kept for them.

        It may not where :meth:`build` would make a file or pass over the record.
        """
        room = self._room - keys
        if room >= 0:
            self._room = room
            return True
        self.write_pending()
        if not self._index_files or not self._index_files[-1].has_blocks:
            return False
        file = self._index_files[-1]
        header = file.header
        if header.end_physical_offset > physical_offset:
            return False
        room = file.entries - header.index_count - keys
        self._room = max(room, 0)
        return room >= 0

    def write_pending(self) -> None:
        """Write the records that were collected."""
        self._room = 0
        if self.pending:
            self._index_files[-1].put_records(self.pending)
            self.pending.clear()

    def last_writable(self) -> IndexFile:
        """The file that takes the next entry; made when there is none or the newest is full."""
        if not self._index_files or self._index_files[-1].is_full:
            file = self._create()
            with self._lock:
                self._index_files.append(file)
            return file
        file = self._index_files[-1]
        if not file.has_blocks:
            self._files.allocate(file.fd, self._file_bytes)
            file.has_blocks = True
        return file

    def query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> QueryOffsetResult:
        """Offsets of the records with a key, newest file first, both ends of time included.

        The tags of records are found as :func:`tag_key`. Different keys may share a hash, so the
        caller must look at the records themselves.
        """
        offsets: list[int] = []
        index_files = self.index_files
        if not index_files:
            return QueryOffsetResult(offsets, 0, 0)
        key_hash = index_key_hash(topic, key)
        for file in reversed(index_files):
            if file.overlaps(begin_ms, end_ms):
                file.select(offsets, key_hash, max_num, begin_ms, end_ms)
            if file.header.begin_timestamp_ms < begin_ms or len(offsets) >= max_num:
                break
        newest = index_files[-1].header
        return QueryOffsetResult(offsets, newest.end_timestamp_ms, newest.end_physical_offset)

    def delete_expired(self, min_physical_offset: int) -> int:
        """Remove the files that end before the log begins, never the newest; returns how many.

        A file that ends in the same millisecond as the next one stays until that is on disk too:
        the checkpoint's mark could not tell the two apart.
        """
        removed = 0
        try:
            while len(self._index_files) > 1:
                file = self._index_files[0]
                following = self._index_files[1]
                if file.header.end_physical_offset >= min_physical_offset or (
                    file.header.end_timestamp_ms == following.header.end_timestamp_ms
                    and not following.is_durable
                ):
                    break
                self._files.unlink(file.path)
                self._retire(file)
                removed += 1
        finally:
            if removed:
                self._files.sync_dir(self._root)
        return removed

    def flush(self, *, thorough: bool) -> int:
        """Sync the files that became full since the last call, if ``thorough`` the newest too.

        For one background thread at a time.

        Returns:
            :attr:`durable_timestamp_ms`, the checkpoint's new indexMsgTimestamp.
        """
        with self._lock:
            batch = [f for f in self._index_files if not f.is_durable and (thorough or f.is_full)]
            self._syncing = batch
        try:
            for file in batch:
                was_full = file.is_full
                self._files.data_sync(file.fd)
                file.is_durable = was_full
        finally:
            with self._lock:
                self._syncing = []
                retired, self._retired = self._retired, []
            for file in retired:
                self._files.close(file.fd)
        return self.durable_timestamp_ms

    def sync_names(self) -> None:
        """Make the names of all files durable."""
        if self._index_files:
            self._files.sync_dir(self._root)

    def close(self) -> None:
        """Sync all files and let go of them; the mappings end with their last user."""
        try:
            self.flush(thorough=True)
        finally:
            self._release_all()

    def destroy(self) -> None:
        """Remove all files."""
        self._remove_from(0)

    def _open(self, path: Path) -> IndexFile | None:
        """Map an existing file; ``None`` for one whose creation did not end."""
        if not _is_stamp(path.name) or self._files.is_dir(path):
            raise StoreDamaged(
                f"{path.name} is no index file",
                detail=f"{path}: the name of an index file is its time of creation in 17 digits",
                hint="move it out of the directory; only index files belong there",
            )
        fd = self._files.open(path, write=True)
        try:
            if self._is_whole(fd, path):
                mapping = self._files.map(fd, self._file_bytes, write=True)
                return IndexFile(path, mapping, slots=self._slots, entries=self._entries, fd=fd)
        except BaseException:
            self._files.close(fd)
            raise
        self._files.close(fd)
        return None

    def _is_whole(self, fd: int, path: Path) -> bool:
        """Whether a file has its full length; false if its creation did not end."""
        length = self._files.length(fd)
        if length == self._file_bytes:
            return True
        head = self._files.read_at(fd, layout.HEADER_BYTES, 0)
        if length < self._file_bytes and not any(head):
            return False
        raise StoreDamaged(
            "an index file has the wrong length",
            detail=f"{path}: {length} bytes, {self._file_bytes} expected for "
            f"{self._slots} slots and {self._entries} entries",
            hint="set maxHashSlotNum and maxIndexNum as they were when it was written",
        )

    def _count_trusted(self, index_msg_timestamp_ms: int) -> int:
        """How many files, from the oldest, were surely on disk before an unclean exit."""
        for number, file in enumerate(self._index_files):
            header = file.header
            if not self._is_trusted(header, index_msg_timestamp_ms):
                return number
            if header.end_timestamp_ms == index_msg_timestamp_ms:
                # A later file may have filled up within the same millisecond, after the mark.
                return number + 1
        return len(self._index_files)

    def _is_trusted(self, header: IndexHeader, index_msg_timestamp_ms: int) -> bool:
        """Whether a file was full, and so synced, before the checkpoint's mark was written."""
        return (
            header.index_count == self._entries
            and header.end_timestamp_ms <= index_msg_timestamp_ms
        )

    def _remove_from(self, kept: int) -> int:
        """Remove all but the first ``kept`` files durably; returns where records must resume."""
        resume_offset = 0
        if kept:
            resume_offset = self._index_files[kept - 1].header.end_physical_offset
        elif self._index_files:
            resume_offset = self._index_files[0].header.begin_physical_offset
        # Newest first: a crash in between leaves a shorter index, never one with a hole.
        for file in reversed(self._index_files[kept:]):
            self._files.unlink(file.path)
            self._retire(file)
            self._files.sync_dir(self._root)
        return resume_offset

    def _retire(self, file: IndexFile) -> None:
        """Take a file off the list and close its descriptor, or leave that to a running flush."""
        with self._lock:
            self._index_files.remove(file)
            if file in self._syncing:
                self._retired.append(file)
                return
        self._files.close(file.fd)

    def _release_all(self) -> None:
        while self._index_files:
            with suppress(OSError):
                self._retire(self._index_files[-1])

    def _put(self, request: DispatchRequest, key: str) -> None:
        key_hash = index_key_hash(request.topic, key)
        written = self.last_writable().put_key(
            key_hash, request.physical_offset, request.store_timestamp_ms
        )
        assert written, "a writable index file took no entry"

    def _create(self) -> IndexFile:
        """Make the next file; it starts where the newest one ends."""
        self._files.make_dirs(self._root)
        path = self._next_path()
        fd = self._files.open(path, write=True, create=True)
        try:
            self._files.allocate(fd, self._file_bytes)
            mapping = self._files.map(fd, self._file_bytes, write=True)
            mapping[: layout.HEADER_BYTES] = self._seed().pack()
            self._files.sync_dir(self._root)
        except BaseException:
            self._discard(fd, path)
            raise
        file = IndexFile(path, mapping, slots=self._slots, entries=self._entries, fd=fd)
        file.has_blocks = True
        return file

    def _seed(self) -> IndexHeader:
        if not self._index_files:
            return IndexHeader()
        previous = self._index_files[-1].header
        return IndexHeader(
            begin_timestamp_ms=previous.end_timestamp_ms,
            end_timestamp_ms=previous.end_timestamp_ms,
            begin_physical_offset=previous.end_physical_offset,
            end_physical_offset=previous.end_physical_offset,
        )

    def _discard(self, fd: int, path: Path) -> None:
        """Undo a creation; the error that led here is the one to report."""
        with suppress(OSError):
            self._files.close(fd)
        with suppress(OSError):
            self._files.unlink(path)
            self._files.sync_dir(self._root)

    def _next_path(self) -> Path:
        """A name after all others, although clocks repeat and summer time ends."""
        stamp = self._clock.local_stamp()
        if self._index_files:
            stamp = max(stamp, name_after(self._index_files[-1].path.name))
        path = self._files.inside(self._root, stamp)
        while self._files.exists(path):
            path = self._files.inside(self._root, name_after(path.name))
        return path


def _is_stamp(name: str) -> bool:
    if len(name) != layout.FILE_NAME_DIGITS or not (name.isascii() and name.isdigit()):
        return False
    try:
        name_after(name)
    except (ValueError, OverflowError):
        return False
    return True
