"""The file ``checkpoint``: how far each kind of file is known to be on disk.

Owns the marks and their file. Recovery starts from the oldest of them, so a mark moves only after
its sync has returned.
"""

from __future__ import annotations

import threading
from pathlib import Path

from roquet.format import checkpoint as fmt
from roquet.runtime.failpoint import failpoint
from roquet.runtime.files import Files

RECOVERY_MARGIN_MS = 3000


class StoreCheckpoint:
    """The marks, written by the flush threads and read by recovery."""

    def __init__(self, files: Files, path: Path) -> None:
        """Use the file at ``path``; the first :meth:`flush` creates it."""
        self._files = files
        self._path = path
        self._lock = threading.Lock()
        self._marks = fmt.Checkpoint()
        self._saved: fmt.Checkpoint | None = None

    @property
    def marks(self) -> fmt.Checkpoint:
        """The current marks."""
        return self._marks

    def load(self) -> None:
        """Read the file if it exists."""
        if self._files.exists(self._path):
            data = self._files.read_file(self._path)
            self._marks = fmt.Checkpoint.unpack(data)
            if len(data) >= fmt.FILE_BYTES:  # the next flush extends a shorter one
                self._saved = self._marks

    def advance(
        self, *, physic_ms: int = 0, logics_ms: int = 0, index_ms: int = 0, confirm: int = 0
    ) -> None:
        """Move marks forward; a mark never goes back here."""
        with self._lock:
            old = self._marks
            self._marks = fmt.Checkpoint(
                max(old.physic_msg_timestamp_ms, physic_ms),
                max(old.logics_msg_timestamp_ms, logics_ms),
                max(old.index_msg_timestamp_ms, index_ms),
                old.master_flushed_offset,
                max(old.confirm_physical_offset, confirm),
            )

    def note_master_flushed(self, physical_offset: int) -> None:
        """Note how far a slave's master had flushed."""
        with self._lock:
            self._marks = self._marks._replace(master_flushed_offset=physical_offset)

    def reset(self, marks: fmt.Checkpoint) -> None:
        """Set the marks, also backwards, as recovery must after truncating the log."""
        with self._lock:
            self._marks = marks

    @property
    def recovery_timestamp_ms(self) -> int:
        """Records stored before this are known to be in the log and in every queue."""
        marks = self._marks
        oldest = min(marks.physic_msg_timestamp_ms, marks.logics_msg_timestamp_ms)
        return max(oldest - RECOVERY_MARGIN_MS, 0)

    def flush(self) -> None:
        """Write the marks and sync them; raises ``OSError``."""
        with self._lock:
            marks = self._marks
        if marks == self._saved:
            return
        failpoint("checkpoint.before")
        fresh = not self._files.exists(self._path)
        fd = self._files.open(self._path, write=True, create=True)
        try:
            if self._files.length(fd) < fmt.FILE_BYTES:
                self._files.truncate(fd, fmt.FILE_BYTES)
            self._files.write_at(fd, marks.pack(), 0)
            self._files.data_sync(fd)
        finally:
            self._files.close(fd)
        if fresh:
            self._files.sync_dir(self._path.parent)
        self._saved = marks
        failpoint("checkpoint.after")
