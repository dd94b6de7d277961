"""Memory calls that Python's ``mmap`` lacks, reached through libc with the GIL released.

Owns the few numbers of the Linux ABI they need. Every function returns false where the kernel, the
file system or the platform cannot do it; callers then continue without.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys

_MADV_WILLNEED = 3
_MADV_POPULATE_READ = 22  # Linux 5.14
_MADV_POPULATE_WRITE = 23
_MADV_DONTNEED = 4
_FALLOC_FL_KEEP_SIZE = 0x01
_FALLOC_FL_PUNCH_HOLE = 0x02
_FALLOC_FL_ZERO_RANGE = 0x10
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_HEAP_KEPT_BYTES = 32 << 20
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}

PAGE_BYTES = mmap.PAGESIZE

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
if _libc is not None:
    _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    _libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    _libc.munlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    _libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    _libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def keep_heap() -> bool:
    """Make the allocator keep some free memory instead of returning each large block at once.

    A server takes and frees buffers of some hundred kilobytes all the time. By default each of them
    is returned to the kernel and allocated again, page by page, under a lock that the thread that
    populates the log needs as well.
    """
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is None:
        return False
    settings = (
        (_M_MMAP_THRESHOLD, _HEAP_KEPT_BYTES),
        (_M_TRIM_THRESHOLD, _HEAP_KEPT_BYTES),
        (_M_TOP_PAD, 1 << 20),
    )
    return all(int(mallopt(name, value)) == 1 for name, value in settings)


def give_back() -> bool:
    """Return freed memory that the allocator keeps to the system, which may take a while."""
    trim = getattr(_libc, "malloc_trim", None)
    return trim is not None and int(trim(0)) == 1


def anonymous_bytes() -> int:
    """Anonymous memory of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as pages:
            _, resident, of_files, *_ = pages.read().split()
    except OSError:
        return 0
    return (int(resident) - int(of_files)) * PAGE_BYTES


def address_of(mapping: mmap.mmap) -> int:
    """Where a writable mapping starts; it must outlive every use of the number."""
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def populate_write(address: int, size_bytes: int) -> bool:
    """Fault pages in for writing, as the first touch by the writer would, but off its path."""
    if _libc is None or size_bytes <= 0:
        return False
    return int(_libc.madvise(address, size_bytes, _MADV_POPULATE_WRITE)) == 0


def populate_read(address: int, size_bytes: int) -> bool:
    """Bring pages of a mapped file into memory, while other threads run."""
    return _advise_pages(address, size_bytes, _MADV_POPULATE_READ)


def will_need(address: int, size_bytes: int) -> bool:
    """Start to bring pages of a mapped file into memory, without waiting for them."""
    return _advise_pages(address, size_bytes, _MADV_WILLNEED)


def _advise_pages(address: int, size_bytes: int, advice: int) -> bool:
    if _libc is None or size_bytes <= 0:
        return False
    start = address - address % PAGE_BYTES
    return int(_libc.madvise(start, address + size_bytes - start, advice)) == 0


def make_resident(address: int, size_bytes: int) -> bool:
    """Wait until a mapped range is in memory; false if the kernel cannot do that.

    A thread that reads a missing page waits for the disk while it holds the GIL; one that calls
    this first does not.
    """
    return is_resident(address, size_bytes) or populate_read(address, size_bytes)


def discard(address: int, size_bytes: int) -> bool:
    """Return anonymous pages to the kernel; they read as zeros afterwards."""
    if _libc is None or size_bytes <= 0:
        return False
    return int(_libc.madvise(address, size_bytes, _MADV_DONTNEED)) == 0


def lock(address: int, size_bytes: int) -> bool:
    """Keep pages in memory."""
    return _libc is not None and int(_libc.mlock(address, size_bytes)) == 0


def is_resident(address: int, size_bytes: int) -> bool:
    """Whether reading a mapped range would find every page in memory."""
    if _libc is None or size_bytes <= 0:
        return False
    start = address - address % PAGE_BYTES
    length = address + size_bytes - start
    pages = (length + PAGE_BYTES - 1) // PAGE_BYTES
    vector = (ctypes.c_ubyte * pages)()
    if _libc.mincore(start, length, vector) != 0:
        return False
    flags = bytes(vector)
    return flags.count(1) == pages or all(flag & 1 for flag in flags)


def zero_range(fd: int, start: int, size_bytes: int) -> bool:
    """Turn a range of a file into zeros without writing them; false if the file system cannot."""
    return _fallocate(fd, _FALLOC_FL_ZERO_RANGE, start, size_bytes)


def punch_hole(fd: int, start: int, size_bytes: int) -> bool:
    """Turn a range of a file into a hole of the same length; false if that is not possible."""
    return _fallocate(fd, _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE, start, size_bytes)


def _fallocate(fd: int, mode: int, start: int, size_bytes: int) -> bool:
    if _libc is None:
        return False
    if _libc.fallocate(fd, mode, start, size_bytes) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number))


def physical_memory_bytes() -> int:
    """Installed memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def process_id() -> int:
    """The id of this process."""
    return os.getpid()
