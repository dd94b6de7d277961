"""A small file that only its owner may read, such as one with secrets.

Owns :class:`PrivateFile`.

Invariants:

* Nobody but its owner may read it, from its first byte on.
* A reader sees the whole old or new content, also after a crash.
* Changes by several processes are serialized.
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
        path: The path; if it is a link, its target is replaced.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> bytes | None:
        """The content; ``None`` if the file does not exist.

        Raises:
            OSError: It cannot be read.
        """
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def is_exposed(self) -> bool:
        """Whether users other than its owner may read or write it."""
        try:
            return bool(os.stat(self.path).st_mode & OTHERS)
        except FileNotFoundError:
            return False

    def change(self, make: Callable[[bytes | None], bytes]) -> None:
        """Replace the content with the result of a function; if that raises, nothing changes.

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
        # Readable for the owner only, whatever the umask.
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
