"""Brings parts of mapped files into memory, and reports those that cannot be read.

Owns no state. Touching a page that the disk cannot read ends the process with SIGBUS; the kernel
calls here, and the read that follows if they fail, return an error instead.
"""

from __future__ import annotations

from pathlib import Path

from roquet.errors import StoreDamaged
from roquet.runtime import memory
from roquet.runtime.files import Files
from roquet.store.io_errors import store_error


def make_resident(  # noqa: PLR0917 - a range of an open, mapped file
    files: Files, path: Path, fd: int, mapped_at: int, position: int, size_bytes: int
) -> None:
    """Wait until a range of a mapped file is in memory, while other threads run.

    Raises:
        StoreError: It cannot be read.
    """
    if not memory.make_resident(mapped_at + position, size_bytes):
        read_range(files, path, fd, position, size_bytes)


def read_range(files: Files, path: Path, fd: int, position: int, size_bytes: int) -> bytes:
    """Read a range of an open file, all of it; raises ``StoreError``."""
    try:
        data = files.read_at(fd, size_bytes, position)
    except OSError as error:
        raise store_error(f"reading {path}", error) from error
    if len(data) < size_bytes:
        raise StoreDamaged(
            f"{path} is too short",
            detail=f"it has {len(data)} of {size_bytes} bytes at {position}",
            hint="restore the file from a replica or a backup",
        )
    return data
