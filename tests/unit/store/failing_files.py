"""A file system whose n-th call fails, for loops that fail every call in turn."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from roquet.runtime.files import Buffer, Files, Mapping


class FailingFiles(Files):
    """Counts calls from 1 and raises at number ``fail_at``; 0 never fails.

    A failed call does nothing, except ``close``, which the kernel carries out in any case.
    """

    def __init__(self, fail_at: int = 0, number: int = errno.ENOSPC) -> None:
        self.fail_at = fail_at
        self.number = number
        self.calls: list[str] = []

    @property
    def has_failed(self) -> bool:
        return 0 < self.fail_at <= len(self.calls)

    def _count(self, name: str) -> None:
        self.calls.append(name)
        if len(self.calls) == self.fail_at:
            raise OSError(self.number, os.strerror(self.number), name)

    def list_dir(self, path: Path) -> list[str]:
        self._count("list_dir")
        return super().list_dir(path)

    def make_dirs(self, path: Path) -> None:
        self._count("make_dirs")
        super().make_dirs(path)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        self._count("create" if create else "open")
        return super().open(path, write=write, create=create)

    def close(self, fd: int) -> None:
        super().close(fd)
        self._count("close")

    def length(self, fd: int) -> int:
        self._count("length")
        return super().length(fd)

    def size_bytes(self, path: Path) -> int:
        self._count("size_bytes")
        return super().size_bytes(path)

    def allocate(self, fd: int, size_bytes: int) -> None:
        self._count("allocate")
        super().allocate(fd, size_bytes)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._count("truncate")
        super().truncate(fd, size_bytes)

    def read_at(self, fd: int, size_bytes: int, position: int) -> bytes:
        self._count("read_at")
        return super().read_at(fd, size_bytes, position)

    def write_at(self, fd: int, data: Buffer, position: int) -> None:
        self._count("write_at")
        super().write_at(fd, data, position)

    def data_sync(self, fd: int) -> None:
        self._count("data_sync")
        super().data_sync(fd)

    def sync_dir(self, path: Path) -> None:
        self._count("sync_dir")
        super().sync_dir(path)

    def unlink(self, path: Path) -> None:
        self._count("unlink")
        super().unlink(path)

    def map(self, fd: int, size_bytes: int, *, write: bool) -> Mapping:
        self._count("map")
        return super().map(fd, size_bytes, write=write)
