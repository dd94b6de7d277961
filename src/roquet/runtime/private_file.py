"""A small file for one user only, such as one with secrets in it.

Owns :class:`PrivateFile`.

Invariants:

* Nobody but its owner may read it, from its first byte on.
* A reader sees the old content or the new one, never a part; so does the next start after a crash.
* Changes by several processes happen one after another.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["PrivateFile"]

OTHERS = 0o077


class PrivateFile:
    """A file that is replaced as a whole.

    Args:
        path: Where it is, or will be; if that is a link, what it points to is replaced.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> bytes | None:
        """What is in it; ``None`` if there is no such file.

        Raises:
            OSError: It cannot be read.
        """
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def is_exposed(self) -> bool:
        """Whether others than its owner may read or write it."""
        try:
            return bool(os.stat(self.path).st_mode & OTHERS)
        except FileNotFoundError:
            return False

    def change(self, make: Callable[[bytes | None], bytes]) -> None:
        """Replace the content by what is made of it; if that raises, nothing changes.

        Raises:
            OSError: It cannot be read or written.
        """
        target = Path(os.path.realpath(self.path))
        os.makedirs(target.parent, mode=0o700, exist_ok=True)
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            self._replace(target, make(self.read()))
            os.fsync(folder)
        finally:
            os.close(folder)

    def _replace(self, target: Path, data: bytes) -> None:
        # Made readable for the owner only, whatever the process would give other files.
        fd, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
