"""The only access to the file system.

Owns every system call on files that the store makes. The store never imports ``os`` or ``mmap``;
it gets a :class:`Files` and calls that, so that a test can count the calls, fail the n-th, or
record what was synced and build the disk images that a power cut could leave
(``roquet.testing.files``).

Invariants:

* A write either takes all its bytes or raises ``OSError``.
* New files and directories are for their owner only (0600, 0700); existing ones keep their mode.
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
import sys
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from roquet.errors import StoreError
from roquet.runtime import memory
from roquet.runtime.exhaustion import SyncFailed, is_exhausted

Mapping = mmap.mmap
Buffer = bytes | bytearray | memoryview | mmap.mmap
WriteHook = Callable[[int, Buffer, int], None]
"""Called with the arguments of :meth:`Files.write_at` before the write; may raise instead."""
ReadHook = Callable[[int, int, int], None]
"""Likewise for :meth:`Files.read_cached_at`."""

_ZEROS = bytes(1 << 20)
_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD = -100
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_RENAME_EXCHANGE = 2
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EBADF, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})
_FLOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, len, pid


def _sync_failed(error: OSError) -> SyncFailed:
    return SyncFailed(error.errno, error.strerror)


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Space of the file system that holds a path.

    Attributes:
        total_bytes: The size of the file system.
        free_bytes: What an ordinary user can still use.
        reserved_bytes: What is unused but not available to an ordinary user.
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

    @property
    def write_hook(self) -> WriteHook | None:
        """Called before writes that compiled code makes itself.

        A subclass without one gets every write through :meth:`write_at`.
        """
        return None

    @property
    def read_hook(self) -> ReadHook | None:
        """Called before reads that compiled code makes itself.

        A subclass without one gets every read through :meth:`read_cached_at`.
        """
        return None

    def inside(self, root: Path, *parts: str) -> Path:
        """Join names below ``root``; a part that would leave it is refused.

        Topic names become directory names, so this is where ``../`` is stopped.
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
        """Names in a directory, sorted; empty if it does not exist."""
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
        """Create a directory and its parents, with durable names."""
        missing = [path, *path.parents]
        for directory in reversed([p for p in missing if not os.path.isdir(p)]):
            try:
                self.make_dir(directory)
            except FileExistsError:
                continue
            self.sync_dir(directory.parent)

    def make_dir(self, path: Path) -> None:
        """Create one directory, whose name is not yet durable."""
        os.mkdir(path, 0o700)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        """Open a file and return its descriptor; links are not followed."""
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NOFOLLOW
        if create:
            flags |= os.O_CREAT
        return os.open(path, flags, 0o600)

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
        """Make bytes ``start`` to ``end`` read as zeros and free their blocks."""
        if start < end and not memory.punch_hole(fd, start, end - start):
            self._write_zeros(fd, start, end)

    def _write_zeros(self, fd: int, start: int, end: int) -> None:
        """Write zeros where the bytes are not zero already."""
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
        """Fill a buffer from a position on; return how much, less only at the end of the file."""
        done = 0
        while done < len(buffer):
            read = os.preadv(fd, [buffer[done:]], position + done)
            if read == 0:
                break
            done += read
        return done

    def read_cached_at(self, fd: int, size_bytes: int, position: int) -> bytes | None:
        """Like :meth:`read_at`, but ``None`` if not all of it is in memory.

        If the file system cannot tell, the file is read.
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
        """Make the bytes of a file durable; raises :class:`SyncFailed`.

        A failure is final: never retry and continue.
        """
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise _sync_failed(error) from error

    def sync_dir(self, path: Path) -> None:
        """Make the names of a directory durable; raises :class:`SyncFailed` if the sync fails."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            raise _sync_failed(error) from error
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Replace ``target`` with ``source`` atomically."""
        os.replace(source, target)

    def exchange(self, first: Path, second: Path) -> None:
        """Swap two names of one file system atomically, directories too.

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
        """Remove a file; no error if it does not exist."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_dir(self, path: Path) -> None:
        """Remove a directory if it is empty; no error if it does not exist."""
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}:
                raise

    def map(self, fd: int, size_bytes: int, *, write: bool) -> Mapping:
        """Map a file shared; the mapping lives until its last view is dropped."""
        access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
        if sys.version_info >= (3, 13):
            return mmap.mmap(fd, size_bytes, access=access, trackfd=False)
        return mmap.mmap(fd, size_bytes, access=access)

    def unmap(self, mapping: Mapping, view: memoryview) -> None:
        """Release a mapping at once, with its descriptor and view.

        While slices of the view are in use, it is released with the last of them.
        """
        view.release()
        with suppress(BufferError):
            mapping.close()

    def map_anonymous(self, size_bytes: int) -> Mapping:
        """Map memory without a file, allocated page by page as it is touched.

        Private, because pages of a shared mapping outlive :func:`roquet.runtime.memory.discard`.
        """
        return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def lock(self, fd: int) -> bool:
        """Take the record lock on byte 0, like a Java broker; false if another process has it."""
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            if error.errno in {errno.EACCES, errno.EAGAIN}:
                return False
            raise
        return True

    def lock_dir(self, path: Path) -> int | None:
        """Lock a directory itself, not a file in it; ``None`` if another process has it.

        Returns a descriptor: closing it releases the lock. On a file system without such locks the
        descriptor locks nothing.
        """
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(fd)
                raise
        return fd

    def lock_holder(self, path: Path) -> int | None:
        """The process that holds the record lock on byte 0 of a file.

        A process id, 0 for a process that this one cannot see (another container), or ``None``.
        Never call this in the process that holds the lock: closing any descriptor of a file
        releases all record locks of the process on it.
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
        """The content of a small file."""
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
    """A limited number of open descriptors of many files; unused ones are closed first.

    A broker has tens of thousands of ConsumeQueue files, and a far lower limit of open descriptors.
    Callers keep the :class:`OpenFile`, set ``is_used`` on each use and reopen it when ``fd`` is -1,
    which is cheaper than a lookup per write. Closing loses nothing, because written bytes are in
    the file, and a sync opens the file itself.

    Attributes:
        limit: How many descriptors are kept open at most.
    """

    def __init__(self, files: Files, *, limit: int) -> None:
        """Keep at most ``limit`` descriptors of ``files`` open."""
        self._files = files
        self.limit = limit
        self._open: deque[OpenFile] = deque()

    def __len__(self) -> int:
        """How many descriptors are open now."""
        return sum(1 for file in self._open if file.fd >= 0)

    def open(self, opener: Callable[[], int]) -> OpenFile:
        """Keep the descriptor that ``opener`` returns.

        If the process has none left, half of the kept ones are closed and ``opener`` is retried
        once.
        """
        try:
            fd = opener()
        except OSError as error:
            if not (is_exhausted(error) and self.give_up()):
                raise
            fd = opener()
        return self.add(fd)

    def add(self, fd: int) -> OpenFile:
        """Keep a descriptor, and close the first one not used since the last check."""
        file = OpenFile(fd)
        self._open.append(file)
        self._shrink_to(self.limit)
        return file

    def give_up(self) -> bool:
        """Close half of the descriptors, idle ones first; return whether there were any."""
        before = len(self._open)
        self._shrink_to(before // 2)
        return before > 0

    def _shrink_to(self, count: int) -> None:
        while len(self._open) > count:
            oldest = self._open.popleft()
            if oldest.is_used and oldest.fd >= 0:
                oldest.is_used = False
                self._open.append(oldest)
            else:
                self.close_one(oldest)

    def close_one(self, file: OpenFile) -> None:
        """Close a descriptor if it is open."""
        fd, file.fd = file.fd, -1
        if fd >= 0:
            self._files.close(fd)

    def close(self) -> None:
        """Close all, even if closing one of them raises."""
        with ExitStack() as stack:
            while self._open:
                stack.callback(self.close_one, self._open.pop())
