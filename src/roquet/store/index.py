"""Queries by key: creates, searches and removes the index files of a store.

Upstream's IndexService. Owns the list of index files; one of them is an
:class:`~roquet.store.index_file.IndexFile`, and their directory is
:mod:`roquet.store.index_directory`.

Invariants:

* Only the newest file is written to.
* The index is derived. A file that may be incomplete after an unclean exit is removed, newest
  first, or rewound to where :mod:`roquet.store.index_mark` vouches for it, and the records from
  the end of the last kept file on are put again.

The event loop puts and removes; any thread may query, and may see a half-written entry, so callers
check the records. :meth:`IndexService.flush` belongs to one background thread. The lock guards the
list of files and the descriptors that a running flush uses.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from roquet.format import index_file as layout
from roquet.format.commit_log import DispatchRequest
from roquet.format.derived import tag_key
from roquet.format.index_file import IndexHeader
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.java_string import index_key_hash
from roquet.runtime.clock import Clock
from roquet.runtime.files import Files
from roquet.store.index_directory import IndexDirectory
from roquet.store.index_file import IndexFile
from roquet.store.index_mark import IndexMark, IndexMarkFile, rewind

__all__ = ["IndexFile", "IndexService", "QueryOffsetResult", "tag_key"]


class QueryOffsetResult(NamedTuple):
    """What a query found, and how far the index reached at that moment."""

    physical_offsets: list[int]
    last_update_timestamp_ms: int
    last_update_physical_offset: int


class IndexService:
    """All index files of a store, oldest first, in ``root``, which is created with the first.

    ``slots`` and ``entries`` are maxHashSlotNum and maxIndexNum; ``clock`` names new files;
    ``mark``, if any, keeps how far the newest file is on disk, for use after a crash.
    """

    def __init__(
        self,
        files: Files,
        root: Path,
        *,
        slots: int,
        entries: int,
        clock: Clock,
        mark: IndexMarkFile | None = None,
    ) -> None:
        self._files = files
        self._directory = IndexDirectory(files, root, slots=slots, entries=entries, clock=clock)
        self._entries = entries
        self._mark = mark
        self._rewound: tuple[IndexFile, int] | None = None
        # Read by compiled code, too; changed under the lock.
        self.open_files: list[IndexFile] = []
        self._lock = threading.Lock()
        self._syncing: list[IndexFile] = []
        self._retired: list[IndexFile] = []

    @property
    def index_files(self) -> tuple[IndexFile, ...]:
        """The files, oldest first."""
        return tuple(self.open_files)

    @property
    def file_count(self) -> int:
        """How many files there are."""
        return len(self.open_files)

    @property
    def total_bytes(self) -> int:
        """Length of all files together."""
        return self._directory.file_bytes * len(self.open_files)

    @property
    def durable_timestamp_ms(self) -> int:
        """End of the last of the oldest files that are full and on disk, 0 if there is none.

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
        ``index_msg_timestamp_ms``: these were synced before the mark was written. The file after
        them is rewound to its own mark. A short file without a header, left by an interrupted
        creation, is removed in any case.

        Returns:
            ``None`` after a clean exit. Otherwise the physical offset from which records must be
            put again, even if nothing was removed now: an earlier start may have removed files
            and died before putting their records again. It is the end of the last kept file, else
            the start of the oldest removed one, else 0.

        Raises:
            StoreDamaged: A file has a wrong name or length; nothing was changed.
        """
        unfinished: list[Path] = []
        try:
            for name in self._directory.names():
                path = self._directory.path(name)
                file = self._directory.open(path)
                if file is None:
                    unfinished.append(path)
                else:
                    self.open_files.append(file)
            kept = len(self.open_files)
            if not last_exit_ok:
                kept = self._count_trusted(index_msg_timestamp_ms)
                kept += self._rewind_marked(kept)
            for file in self.open_files[:kept]:
                file.is_durable = file.is_full
            for path in unfinished:
                self._files.unlink(path)
                self._directory.sync()
            resume_offset = self._remove_from(kept)
        except BaseException:
            self._release_all()
            raise
        return None if last_exit_ok else resume_offset

    def peek_resume_offset(self, *, index_msg_timestamp_ms: int) -> int:
        """What :meth:`load` will return after an unclean exit; nothing is opened or changed."""
        resume_offset = 0
        is_behind = False
        for name in self._directory.names():
            header = self._directory.peek_header(name)
            if header is None:
                break
            if is_behind or not self._is_trusted(header, index_msg_timestamp_ms):
                mark = self._mark.read() if self._mark is not None else None
                if mark is not None and mark.fits(name, header):
                    return mark.header.end_physical_offset
                return resume_offset or header.begin_physical_offset
            resume_offset = header.end_physical_offset
            is_behind = header.end_timestamp_ms == index_msg_timestamp_ms
        return resume_offset

    def _rewind_marked(self, number: int) -> int:
        """Rewind the file with this number to its mark; return how many files are then kept."""
        mark = self._mark.read() if self._mark is not None else None
        if mark is None or number >= len(self.open_files):
            return 0
        file = self.open_files[number]
        if not mark.fits(file.path.name, file.header):
            return 0
        rewind(self._files, file, mark.header)
        # Its last record is complete, so dispatch must not put it again: see end_recovery.
        self._rewound = (file, mark.header.end_physical_offset)
        self._set_end(file, mark.header.end_physical_offset + 1)
        return 1

    def end_recovery(self) -> None:
        """Let the header of a rewound file name its last record again."""
        if self._rewound is not None:
            file, end_offset = self._rewound
            self._rewound = None
            if file in self.open_files and file.header.end_physical_offset == end_offset + 1:
                self._set_end(file, end_offset)

    @staticmethod
    def _set_end(file: IndexFile, end_offset: int) -> None:
        header = file.header._replace(end_physical_offset=end_offset)
        file.mapping[: layout.HEADER_BYTES] = header.pack()

    def newest_header(self) -> tuple[IndexFile, IndexHeader] | None:
        """The newest file and its header; not while a record is being put."""
        if not self.open_files:
            return None
        file = self.open_files[-1]
        return file, file.header

    def keep_mark(self, file: IndexFile, header: IndexHeader) -> None:
        """Vouch for the entries that a header counts, after its file was synced.

        For the thread that calls :meth:`flush`.
        """
        if self._mark is not None and header.index_count > 1 and file in self.index_files:
            self._mark.write(IndexMark(file.path.name, header))

    def file_names(self) -> list[str]:
        """Names of the files on disk, oldest first; nothing is opened."""
        return self._directory.names()

    def peek_end_offset(self) -> int:
        """Physical offset of the newest record in the files on disk, -1 if there is none."""
        for name in reversed(self.file_names()):
            header = self._directory.peek_header(name)
            if header is not None and header.index_count > 1:
                return header.end_physical_offset
        return -1

    def doubtful_from(self, log_end: int) -> int | None:
        """Remove the files with entries at or beyond ``log_end``, where recovery truncated the log.

        Returns:
            The physical offset from which records must be put again, ``None`` if nothing was
            removed.
        """
        for kept, file in enumerate(self.open_files):
            if file.header.end_physical_offset >= log_end:
                return min(self._remove_from(kept), log_end)
        return None

    def build(self, request: DispatchRequest) -> None:
        """Put the keys of a record: the producer's id, each word of KEYS, then TAGS as a whole.

        A record before the end of the newest file is already in the index. One right at that end
        is put again, as upstream does, because its keys may be spread over two files.

        Raises:
            OSError: A new file was needed but could not be created; nothing of it remains.
        """
        if request.physical_offset < self.end_physical_offset:
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

    @property
    def end_physical_offset(self) -> int:
        """Physical offset of the newest record in the index, -1 if there is none."""
        return self.open_files[-1].header.end_physical_offset if self.open_files else -1

    def last_writable(self) -> IndexFile:
        """The file for the next entry; created if there is none or the newest is full."""
        file = self.open_files[-1] if self.open_files else None
        if file is None or file.is_full:
            file = self._directory.create(file)
            with self._lock:
                self.open_files.append(file)
        elif not file.has_blocks:
            self._directory.reserve(file)
        return file

    def query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> QueryOffsetResult:
        """Offsets of the records with a key, newest file first, both ends of time included.

        The tags of records are found as :func:`tag_key`. Different keys may share a hash, so the
        caller must check the records themselves.
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
            while len(self.open_files) > 1:
                file = self.open_files[0]
                following = self.open_files[1]
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
                self._directory.sync()
        return removed

    def flush(self, *, thorough: bool) -> int:
        """Sync the files that became full since the last call; if ``thorough``, the newest too.

        For one background thread at a time.

        Returns:
            :attr:`durable_timestamp_ms`, the checkpoint's new indexMsgTimestamp.
        """
        with self._lock:
            batch = [f for f in self.open_files if not f.is_durable and (thorough or f.is_full)]
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
        if self.open_files:
            self._directory.sync()

    def close(self) -> None:
        """Sync all files and release them; a mapping ends with its last user."""
        try:
            self.flush(thorough=True)
        finally:
            self._release_all()

    def destroy(self) -> None:
        """Remove all files."""
        self._remove_from(0)

    def _count_trusted(self, index_msg_timestamp_ms: int) -> int:
        """How many files, from the oldest, were surely on disk before an unclean exit."""
        for number, file in enumerate(self.open_files):
            header = file.header
            if not self._is_trusted(header, index_msg_timestamp_ms):
                return number
            if header.end_timestamp_ms == index_msg_timestamp_ms:
                # A later file may have filled up within the same millisecond, after the mark.
                return number + 1
        return len(self.open_files)

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
            resume_offset = self.open_files[kept - 1].header.end_physical_offset
        elif self.open_files:
            resume_offset = self.open_files[0].header.begin_physical_offset
        if self._mark is not None and len(self.open_files) > kept:
            # The next file may get the name of one that is removed now.
            mark = self._mark.read()
            if mark and mark.name in {file.path.name for file in self.open_files[kept:]}:
                self._mark.remove()
        # Newest first: a crash in between leaves a shorter index, never one with a hole.
        for file in reversed(self.open_files[kept:]):
            self._files.unlink(file.path)
            self._retire(file)
            self._directory.sync()
        return resume_offset

    def _retire(self, file: IndexFile) -> None:
        """Remove a file from the list and close its descriptor, unless a running flush does."""
        with self._lock:
            self.open_files.remove(file)
            if file in self._syncing:
                self._retired.append(file)
                return
        self._files.close(file.fd)

    def _release_all(self) -> None:
        while self.open_files:
            with suppress(OSError):
                self._retire(self.open_files[-1])

    def _put(self, request: DispatchRequest, key: str) -> None:
        key_hash = index_key_hash(request.topic, key)
        written = self.last_writable().put_key(
            key_hash, request.physical_offset, request.store_timestamp_ms
        )
        assert written, "a writable index file did not take an entry"
