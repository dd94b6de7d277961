from __future__ import annotations

import mmap
import os
import platform
import sys
from pathlib import Path

import pytest

from roquet.runtime import memory
from roquet.runtime.files import Files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="calls of the Linux ABI")

PAGE = memory.PAGE_BYTES


def test_discarded_pages_read_as_zeros() -> None:
    mapping = Files().map_anonymous(4 * PAGE)
    mapping[:] = b"x" * (4 * PAGE)
    address = memory.address_of(mapping)
    assert memory.discard(address, 2 * PAGE)
    assert mapping[: 2 * PAGE] == bytes(2 * PAGE)
    assert mapping[2 * PAGE :] == b"x" * (2 * PAGE)


def test_populated_pages_are_resident(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * PAGE))
    with path.open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 4 * PAGE)
    address = memory.address_of(mapping)
    if not memory.populate_write(address, 4 * PAGE):
        pytest.skip("this kernel cannot populate")
    assert memory.is_resident(address, 4 * PAGE)
    assert memory.is_resident(address + 100, 1)
    assert mapping[:] == bytes(4 * PAGE)


def test_pages_are_loaded_for_reading(disk_path: Path) -> None:
    path = disk_path / "file"
    path.write_bytes(b"x" * (64 * PAGE))
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        mapping = mmap.mmap(file.fileno(), 64 * PAGE)
        address = memory.address_of(mapping)
        if memory.is_resident(address, 64 * PAGE):
            pytest.skip("this file system keeps pages")
        if not memory.populate_read(address + 100, 63 * PAGE):
            pytest.skip("this kernel cannot populate")
        assert memory.is_resident(address, 63 * PAGE)
        assert mapping[:] == b"x" * (64 * PAGE)


def test_nothing_to_do_is_false() -> None:
    mapping = mmap.mmap(-1, PAGE)
    address = memory.address_of(mapping)
    assert not memory.populate_read(address, 0)
    assert not memory.will_need(address, 0)
    assert not memory.populate_write(address, 0)
    assert not memory.discard(address, 0)
    assert not memory.is_resident(address, 0)


def test_locking() -> None:
    mapping = mmap.mmap(-1, PAGE)
    address = memory.address_of(mapping)
    if memory.lock(address, PAGE):
        assert memory.is_resident(address, PAGE)


@pytest.mark.parametrize("call", [memory.zero_range, memory.punch_hole])
def test_ranges_become_zeros_or_stay_unchanged(tmp_path: Path, call: object) -> None:
    assert call in {memory.zero_range, memory.punch_hole}
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10_000)
    fd = os.open(path, os.O_RDWR)
    try:
        done = memory.zero_range if call is memory.zero_range else memory.punch_hole
        if done(fd, 1000, 5000):
            assert path.read_bytes() == b"x" * 1000 + bytes(5000) + b"x" * 4000
        else:
            assert path.read_bytes() == b"x" * 10_000
    finally:
        os.close(fd)


def test_a_real_error_is_raised() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        memory.zero_range(-1, 0, 10)


def test_facts_of_the_machine() -> None:
    assert memory.physical_memory_bytes() > PAGE
    assert memory.process_id() == os.getpid()


def test_the_heap_can_be_kept_where_the_allocator_is_glibc_s() -> None:
    assert memory.keep_heap() is (platform.libc_ver()[0] == "glibc")
