"""Who uses a store: the files ``lock`` and ``abort``.

Owns both. ``lock`` carries the record lock a Java broker takes too, so the two never share a
store. ``abort`` is there while the store runs; found at start, it says that the last exit was not
clean.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from roquet.errors import StoreLocked
from roquet.runtime.files import Files
from roquet.runtime.held_stores import LOCK_FILE, hold, is_held_here, let_go
from roquet.runtime.memory import process_id

ABORT_FILE = "abort"


class StoreLock:
    """The claim of this process on one store."""

    def __init__(self, files: Files, root: Path) -> None:
        """Claim ``root``, not yet."""
        self._files = files
        self._root = root
        self._fd = -1
        self.was_aborted = False

    def acquire(self) -> None:
        """Take the store; raises :class:`StoreLocked` when somebody has it."""
        self._files.make_dirs(self._root)
        if is_held_here(self._root):
            raise self._locked("this process uses it already")
        fd = self._files.open(self._root / LOCK_FILE, write=True, create=True)
        try:
            self._claim(fd)
        except BaseException:
            self._files.close(fd)
            raise
        self._fd = fd
        hold(self._root)

    def _claim(self, fd: int) -> None:
        if not self._files.lock(fd):
            raise self._locked(self._holder())
        if self._files.length(fd) == 0:
            self._files.write_at(fd, b"lock", 0)
        self.was_aborted = self._files.exists(self._root / ABORT_FILE)

    def mark_running(self) -> None:
        """From here on an exit without :meth:`mark_stopped` is not clean."""
        self._files.write_file(self._root / ABORT_FILE, str(process_id()).encode())

    def mark_stopped(self) -> None:
        """Say that everything is on disk."""
        self._files.unlink(self._root / ABORT_FILE)
        self._files.sync_dir(self._root)

    def release(self) -> None:
        """Let others have the store."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            let_go(self._root)
            with suppress(OSError):  # the lock is given up in any case
                self._files.close(fd)

    def _holder(self) -> str:
        """What the running process left to be found by."""
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
