"""The one door to the file system.

Owns every system call on files that the store makes. The store never imports ``os`` or ``mmap``;
it is given a :class:`Files` and calls that, so that a test can count the calls, fail the n-th of
them, or remember what was synced and build the images a power cut could leave
(``roquet.testing.files``).

Invariants:

* A write either takes all its bytes or raises ``OSError``.
* A path handed to :meth:`Files.inside` never leaves its root, whatever its parts contain.
* A name is durable only after :meth:`Files.sync_dir` on its directory, its bytes only after
  :meth:`Files.data_sync`; callers order the two.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import stat
import struct
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from roquet.errors import StoreError
from roquet.runtime import memory

Mapping = mmap.mmap
Buffer = bytes | bytearray | memoryview | mmap.mmap

_ZEROS = bytes(1 << 20)
_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD = -100
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_RENAME_EXCHANGE = 2
_FLOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, len, pid


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Space of the file system that holds a path.

    Attributes:
        total_bytes: All of it.
        free_bytes: What an ordinary user can still take.
        reserved_bytes: What is neither taken nor free to an ordinary user.
    """

    total_bytes: int
    free_bytes: int
    reserved_bytes: int = 0

    @property
    def used_ratio(self) -> float:
        """Used share between 0 and 1, as ``df`` and upstream count it for an ordinary user."""
        usable_bytes = self.total_bytes - self.reserved_bytes
        if usable_bytes <= 0:
            return 0.0
        return 1.0 - self.free_bytes / usable_bytes


class Files:
    """Plain system calls, one method each; subclasses add counting, faults or recording."""

    def inside(self, root: Path, *parts: str) -> Path:
        """Join names below ``root``; a part that would leave it is refused.

        Topic names become directory names, so this is where ``../`` has to end.
        """
        for part in parts:
            if part in {"", ".", ".."} or "/" in part or "\0" in part:
                raise StoreError(
                    f"{part!r} cannot be a file name",
                    detail=f"below {root}",
                    hint="names may not contain '/', NUL, or be '.' or '..'",
                )
        return root.joinpath(*parts)

    def exists(self, path: Path) -> bool:
        """Whether something is at ``path``; a link is not followed."""
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: Path) -> bool:
        """Whether ``path`` is a real directory (not a link to one)."""
        try:
            return stat.S_ISDIR(os.lstat(path).st_mode)
        except FileNotFoundError:
            return False

    def list_dir(self, path: Path) -> list[str]:
        """Names in a directory, sorted; empty when it does not exist."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def size_bytes(self, path: Path) -> int:
        """Length of a file."""
        return os.stat(path).st_size

    def modified_ms(self, path: Path) -> int:
        """Time of the last write, in milliseconds since the epoch."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_dirs(self, path: Path) -> None:
        """Make a directory and its parents, each name durable."""
        missing = [path, *path.parents]
        for directory in reversed([p for p in missing if not os.path.isdir(p)]):
            try:
                self.make_dir(directory)
            except FileExistsError:
                continue
            self.sync_dir(directory.parent)

    def make_dir(self, path: Path) -> None:
        """Make one directory, its name not yet durable."""
        os.mkdir(path)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        """Open a file and return its descriptor; links are not followed."""
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NOFOLLOW
        if create:
            flags |= os.O_CREAT
        return os.open(path, flags, 0o644)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def length(self, fd: int) -> int:
        """Length of an open file."""
        return os.fstat(fd).st_size

    def allocate(self, fd: int, size_bytes: int) -> None:
        """Reserve real blocks for the whole length: a mapped write then never hits a full disk."""
        os.posix_fallocate(fd, 0, size_bytes)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Set the length; a grown part is a hole that reads as zeros."""
        os.ftruncate(fd, size_bytes)

    def zero_range(self, fd: int, start: int, end: int) -> None:
        """Make bytes ``start`` to ``end`` read as zeros and keep their blocks reserved."""
        if start < end and not memory.zero_range(fd, start, end - start):
            self._write_zeros(fd, start, end)

    def punch(self, fd: int, start: int, end: int) -> None:
        """Make bytes ``start`` to ``end`` read as zeros and give their blocks back."""
        if start < end and not memory.punch_hole(fd, start, end - start):
            self._write_zeros(fd, start, end)

    def _write_zeros(self, fd: int, start: int, end: int) -> None:
        """Zeros by writing, where they are not zeros already."""
        position = start
        while position < end:
            step = min(len(_ZEROS), end - position)
            if os.pread(fd, step, position) != _ZEROS[:step]:
                self.write_at(fd, memoryview(_ZEROS)[:step], position)
            position += step

    def read_at(self, fd: int, size_bytes: int, position: int) -> bytes:
        """Read up to ``size_bytes``; short only at the end of the file."""
        data = os.pread(fd, size_bytes, position)
        while 0 < len(data) < size_bytes:
            more = os.pread(fd, size_bytes - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def read_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """Fill a buffer from a position on; tells how much, less only at the end of the file."""
        done = 0
        while done < len(buffer):
            read = os.preadv(fd, [buffer[done:]], position + done)
            if read == 0:
                break
            done += read
        return done

    def read_cached_at(self, fd: int, size_bytes: int, position: int) -> bytes | None:
        """As :meth:`read_at`, or ``None`` when not all of it is in memory.

        Where the file system cannot tell, it is read.
        """
        buffer = bytearray(size_bytes)
        try:
            length = os.preadv(fd, [buffer], position, _RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return self.read_at(fd, size_bytes, position)
        return bytes(buffer) if length == size_bytes else None

    def write_at(self, fd: int, data: Buffer, position: int) -> None:
        """Write all of ``data`` at ``position``."""
        done = os.pwrite(fd, data, position)
        if done == len(data):
            return
        view = memoryview(data)
        while done < len(view):
            written = os.pwrite(fd, view[done:], position + done)
            if written <= 0:
                raise OSError(errno.EIO, "pwrite wrote nothing")
            done += written

    def data_sync(self, fd: int) -> None:
        """Make the bytes of a file durable. A failure is final: never call it again and go on."""
        os.fdatasync(fd)

    def sync_dir(self, path: Path) -> None:
        """Make the names of a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Put ``source`` in the place of ``target`` atomically."""
        os.replace(source, target)

    def exchange(self, first: Path, second: Path) -> None:
        """Let two names of one file system change places atomically, directories too.

        Raises ``OSError`` with ENOSYS or EINVAL where the kernel or the file system cannot.
        """
        try:
            rename = _LIBC.renameat2
        except AttributeError:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
        names = os.fsencode(first), os.fsencode(second)
        if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(first), None, str(second))

    def unlink(self, path: Path) -> None:
        """Remove a file; one that is gone already is no error."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory; one that is gone or not empty stays as it is."""
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}:
                raise

    def map(self, fd: int, size_bytes: int, *, write: bool) -> Mapping:
        """Map a file shared; the mapping lives until its last view is dropped."""
        access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
        return mmap.mmap(fd, size_bytes, access=access)

    def unmap(self, mapping: Mapping, view: memoryview) -> None:
        """Give a mapping up at once, with its descriptor, and the view of it.

        While somebody has parts of the view, it goes with the last of them.
        """
        view.release()
        with suppress(BufferError):
            mapping.close()

    def map_anonymous(self, size_bytes: int) -> Mapping:
        """Memory apart from any file, taken from the kernel page by page as it is touched.

        Private, because pages of a shared mapping outlive :func:`roquet.runtime.memory.discard`.
        """
        return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def lock(self, fd: int) -> bool:
        """Take the record lock on byte 0 that a Java broker takes; false when another has it."""
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            if error.errno in {errno.EACCES, errno.EAGAIN}:
                return False
            raise
        return True

    def lock_holder(self, path: Path) -> int | None:
        """Who holds the record lock on byte 0 of a file, without taking it.

        A process id, 0 for a process that this one cannot see (another container), or ``None``.
        Never call this in the process that holds the lock: to close any descriptor of a file gives
        up all record locks the process has on it.
        """
        fd = self.open(path)
        try:
            question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            answer = fcntl.fcntl(fd, fcntl.F_GETLK, question)
        finally:
            os.close(fd)
        kind, _, _, _, holder = _FLOCK.unpack(answer)
        return None if kind == fcntl.F_UNLCK else max(int(holder), 0)

    def disk_usage(self, path: Path) -> DiskUsage:
        """Space of the file system that holds ``path``."""
        usage = shutil.disk_usage(path)
        return DiskUsage(
            total_bytes=usage.total,
            free_bytes=usage.free,
            reserved_bytes=usage.total - usage.used - usage.free,
        )

    def read_file(self, path: Path) -> bytes:
        """The whole of a small file."""
        fd = self.open(path)
        try:
            return self.read_at(fd, self.length(fd), 0)
        finally:
            self.close(fd)

    def write_file(self, path: Path, data: bytes) -> None:
        """Write a small file in place and make bytes and name durable."""
        fd = self.open(path, write=True, create=True)
        try:
            self.truncate(fd, 0)
            self.write_at(fd, data, 0)
            self.data_sync(fd)
        finally:
            self.close(fd)
        self.sync_dir(path.parent)


class OpenFile:
    """A file kept open by a :class:`DescriptorCache`; ``fd`` is -1 once the cache closed it."""

    __slots__ = ("fd", "is_used")

    def __init__(self, fd: int) -> None:
        """Take over a descriptor."""
        self.fd = fd
        self.is_used = True


class DescriptorCache:
    """Open descriptors of many files, those not used lately closed beyond a limit.

    A broker has tens of thousands of ConsumeQueue files and a limit of open descriptors far below.
    A user keeps the :class:`OpenFile`, sets ``is_used`` with each use and opens again when ``fd``
    is -1: that is cheaper than a look-up a write.
    """

    def __init__(self, files: Files, *, limit: int) -> None:
        """Keep at most ``limit`` descriptors of ``files`` open."""
        self._files = files
        self._limit = limit
        self._open: deque[OpenFile] = deque()

    def __len__(self) -> int:
        """How many descriptors are open now."""
        return sum(1 for file in self._open if file.fd >= 0)

    def add(self, fd: int) -> OpenFile:
        """Keep a descriptor, closing the first one found that was not used since the last look."""
        while len(self._open) >= self._limit:
            oldest = self._open.popleft()
            if oldest.fd < 0:
                continue
            if oldest.is_used:
                oldest.is_used = False
                self._open.append(oldest)
            else:
                self.close_one(oldest)
        file = OpenFile(fd)
        self._open.append(file)
        return file

    def close_one(self, file: OpenFile) -> None:
        """Close a descriptor if it is open."""
        fd, file.fd = file.fd, -1
        if fd >= 0:
            self._files.close(fd)

    def close(self) -> None:
        """Close all, whatever the closing of one of them raises."""
        with ExitStack() as stack:
            while self._open:
                stack.callback(self.close_one, self._open.pop())
