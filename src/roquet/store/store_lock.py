"""Who uses a store: the files ``lock`` and ``abort``.

Owns both. ``lock`` carries the same record lock that a Java broker takes, so the two never share a
store. ``abort`` exists while the store runs; at start, it means that the last exit was unclean.

The file can be removed while a broker runs, so the directory itself is locked too, which only
Roquet does.

``lock`` also shows who used the store last: a clean shutdown leaves :data:`OUR_MARK` there, and a
Java broker overwrites it at every start.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from roquet.errors import StoreLocked
from roquet.runtime.files import Files
from roquet.runtime.held_stores import LOCK_FILE, hold, is_held_here, let_go
from roquet.runtime.memory import process_id
from roquet.storefiles.layout import OUR_MARK

ABORT_FILE = "abort"


class StoreLock:
    """The claim of this process on one store."""

    def __init__(self, files: Files, root: Path) -> None:
        """Prepare to claim ``root``."""
        self._files = files
        self._root = root
        self._fd = -1
        self._directory_fd = -1
        self.was_aborted = False
        self.was_ours = False

    def acquire(self) -> None:
        """Lock the store; raises :class:`StoreLocked` if it is in use."""
        self._files.make_dirs(self._root)
        if is_held_here(self._root):
            raise self._locked("this process uses it already")
        directory_fd = self._files.lock_dir(self._root)
        if directory_fd is None:
            raise self._locked(self._holder())
        fd = -1
        try:
            fd = self._files.open(self._root / LOCK_FILE, write=True, create=True)
            self._claim(fd)
        except BaseException:
            self._close(fd, directory_fd)
            raise
        self._fd, self._directory_fd = fd, directory_fd
        hold(self._root)

    def _claim(self, fd: int) -> None:
        if not self._files.lock(fd):
            raise self._locked(self._holder())
        self.was_ours = self._files.read_at(fd, len(OUR_MARK), 0) == OUR_MARK
        if self._files.length(fd) == 0:
            self._files.write_at(fd, b"lock", 0)
        self.was_aborted = self._files.exists(self._root / ABORT_FILE)

    def mark_running(self) -> None:
        """Mark the store as running: an exit without :meth:`mark_stopped` is unclean."""
        self._files.write_file(self._root / ABORT_FILE, str(process_id()).encode())

    def mark_stopped(self) -> None:
        """Mark the store as cleanly closed by Roquet."""
        if not self.was_ours:
            self._files.write_at(self._fd, OUR_MARK, 0)
            self._files.data_sync(self._fd)
        self._files.unlink(self._root / ABORT_FILE)
        self._files.sync_dir(self._root)

    def release(self) -> None:
        """Unlock the store."""
        if self._fd >= 0:
            fd, directory_fd = self._fd, self._directory_fd
            self._fd = self._directory_fd = -1
            let_go(self._root)
            self._close(fd, directory_fd)

    def _close(self, *descriptors: int) -> None:
        for fd in descriptors:
            if fd >= 0:
                with suppress(OSError):  # the lock is released in any case
                    self._files.close(fd)

    def _holder(self) -> str:
        """Describe the running process by what it left in the file."""
        try:
            text = self._files.read_file(self._root / ABORT_FILE).decode("ascii", "replace")
        except OSError:
            return "another process holds the lock"
        return f"process {text.strip() or 'unknown'} holds the lock"

    def _locked(self, detail: str) -> StoreLocked:
        return StoreLocked(
            f"{self._root} is in use",
            detail=detail,
            hint="stop the broker that runs on it, or choose another storePathRootDir",
        )
