from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roquet.errors import StoreError
from roquet.runtime import memory
from roquet.runtime.files import Buffer, DescriptorCache, DiskUsage, Files

FILES = Files()


def opened(path: Path, data: bytes = b"") -> int:
    path.write_bytes(data)
    return FILES.open(path, write=True)


@pytest.mark.parametrize("part", ["", ".", "..", "a/b", "/", "../x", "a\0b"])
def test_a_name_never_leaves_its_root(tmp_path: Path, part: str) -> None:
    with pytest.raises(StoreError) as raised:
        FILES.inside(tmp_path, "topic", part)
    assert str(tmp_path) in (raised.value.detail or "")


def test_ordinary_names(tmp_path: Path) -> None:
    assert FILES.inside(tmp_path, "%RETRY%g", "0") == tmp_path / "%RETRY%g" / "0"
    assert FILES.inside(tmp_path, "...") == tmp_path / "..."
    assert FILES.inside(tmp_path) == tmp_path


def test_listing_files(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"12345")
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    assert FILES.list_dir(tmp_path) == ["a", "b", "dangling", "link"]
    assert FILES.list_dir(tmp_path / "nothing") == []
    assert FILES.is_dir(tmp_path / "a")
    assert not FILES.is_dir(tmp_path / "link")
    assert not FILES.is_dir(tmp_path / "nothing")
    assert FILES.exists(tmp_path / "dangling")
    assert not FILES.exists(tmp_path / "nothing")
    assert not FILES.exists(tmp_path / "b" / "below-a-file")
    assert FILES.size_bytes(tmp_path / "b") == 5
    assert FILES.modified_ms(tmp_path / "b") == (tmp_path / "b").stat().st_mtime_ns // 1_000_000


def test_links_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for create in (False, True):
        with pytest.raises(OSError, match=r".+") as raised:
            FILES.open(tmp_path / "link", write=True, create=create)
        assert raised.value.errno == errno.ELOOP


def test_directories_are_made_with_durable_names(tmp_path: Path) -> None:
    synced: list[Path] = []

    class Watching(Files):
        def sync_dir(self, path: Path) -> None:
            synced.append(path)

    Watching().make_dirs(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    Watching().make_dirs(tmp_path / "a" / "b")
    assert len(synced) == 3


def test_reading_and_writing_at_a_position(tmp_path: Path) -> None:
    fd = opened(tmp_path / "f", b"0123456789")
    FILES.write_at(fd, b"ab", 3)
    FILES.write_at(fd, memoryview(b"yz"), 9)
    assert FILES.length(fd) == 11
    assert FILES.read_at(fd, 5, 2) == b"2ab56"
    assert FILES.read_at(fd, 100, 8) == b"8yz"
    assert FILES.read_at(fd, 100, 50) == b""
    assert FILES.read_at(fd, 0, 0) == b""
    FILES.close(fd)


def test_reading_what_is_in_memory(disk_path: Path) -> None:
    fd = opened(disk_path / "f", b"0123456789")
    assert FILES.read_cached_at(fd, 5, 2) == b"23456"
    assert FILES.read_cached_at(fd, 100, 8) is None, "not all of it is in memory"
    FILES.close(fd)


def test_pages_not_in_memory_are_not_read(disk_path: Path) -> None:
    fd = opened(disk_path / "f", bytes(1 << 20))
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if FILES.read_cached_at(fd, 1 << 20, 0) is not None:
        pytest.skip("this file system keeps pages, or cannot tell")
    assert FILES.read_at(fd, 1 << 20, 0) == bytes(1 << 20)
    assert FILES.read_cached_at(fd, 1 << 20, 0) == bytes(1 << 20)
    FILES.close(fd)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_that_does_not_report_residency_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fd = opened(tmp_path / "f", b"0123456789")

    def refuse(*_: object) -> int:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "preadv", refuse)
    if number == errno.EOPNOTSUPP:
        assert FILES.read_cached_at(fd, 5, 2) == b"23456"
    else:
        with pytest.raises(OSError, match="no"):
            FILES.read_cached_at(fd, 5, 2)
    FILES.close(fd)


def test_short_writes_and_reads_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = opened(tmp_path / "f", bytes(10))
    pwrite, pread = os.pwrite, os.pread

    def three_bytes(fd: int, data: Buffer, position: int) -> int:
        return pwrite(fd, bytes(data)[:3], position)

    monkeypatch.setattr(os, "pwrite", three_bytes)
    FILES.write_at(fd, b"0123456789", 0)
    monkeypatch.setattr(os, "pread", lambda fd, size, position: pread(fd, min(size, 3), position))
    assert FILES.read_at(fd, 10, 0) == b"0123456789"
    assert FILES.read_at(fd, 20, 0) == b"0123456789"
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="wrote nothing"):
        FILES.write_at(fd, b"x", 0)
    FILES.close(fd)


@pytest.mark.parametrize("by_kernel", [True, False])
@pytest.mark.parametrize("name", ["zero_range", "punch"])
def test_zeros_by_the_kernel_or_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, by_kernel: bool
) -> None:
    if not by_kernel:
        monkeypatch.setattr(memory, "zero_range", lambda *_: False)
        monkeypatch.setattr(memory, "punch_hole", lambda *_: False)
    size = 3_000_000
    fd = opened(tmp_path / "f", b"x" * size)
    call = FILES.zero_range if name == "zero_range" else FILES.punch
    call(fd, 100, size - 100)
    assert FILES.read_at(fd, size, 0) == b"x" * 100 + bytes(size - 200) + b"x" * 100
    call(fd, 50, 50)
    call(fd, 60, 50)
    assert FILES.read_at(fd, 100, 0) == b"x" * 100
    assert FILES.length(fd) == size
    FILES.close(fd)


def test_allocation_reserves_blocks(tmp_path: Path) -> None:
    fd = opened(tmp_path / "f")
    FILES.allocate(fd, 1 << 20)
    assert FILES.length(fd) == 1 << 20
    assert os.fstat(fd).st_blocks * 512 >= 1 << 20
    FILES.truncate(fd, 2 << 20)
    assert os.fstat(fd).st_blocks * 512 < 2 << 20
    FILES.close(fd)


def test_unlink_and_remove_dir_are_patient(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"")
    FILES.remove_dir(tmp_path / "d")
    assert (tmp_path / "d").is_dir()
    FILES.unlink(tmp_path / "d" / "f")
    FILES.unlink(tmp_path / "d" / "f")
    FILES.remove_dir(tmp_path / "d")
    FILES.remove_dir(tmp_path / "d")
    assert not (tmp_path / "d").exists()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        FILES.remove_dir(tmp_path / "file")


def test_small_files(tmp_path: Path) -> None:
    FILES.write_file(tmp_path / "f", b"a longer text")
    FILES.write_file(tmp_path / "f", b"short")
    assert FILES.read_file(tmp_path / "f") == b"short"
    FILES.rename(tmp_path / "f", tmp_path / "g")
    assert FILES.list_dir(tmp_path) == ["g"]


def test_mappings_share_the_file(tmp_path: Path) -> None:
    fd = opened(tmp_path / "f", bytes(4096))
    mapping = FILES.map(fd, 4096, write=True)
    mapping[:3] = b"abc"
    assert FILES.read_at(fd, 3, 0) == b"abc"
    reader = FILES.map(fd, 4096, write=False)
    assert reader[:3] == b"abc"
    with pytest.raises(TypeError):
        reader[:3] = b"xyz"
    FILES.close(fd)
    assert FILES.map_anonymous(4096)[:] == bytes(4096)


def test_disk_usage(tmp_path: Path) -> None:
    usage = FILES.disk_usage(tmp_path)
    assert 0 <= usage.free_bytes <= usage.total_bytes
    assert 0.0 <= usage.used_ratio <= 1.0
    assert DiskUsage(total_bytes=0, free_bytes=0).used_ratio == 0.0
    assert DiskUsage(total_bytes=100, free_bytes=25).used_ratio == 0.75
    # A tenth is kept for root and counts neither as used nor as free.
    assert DiskUsage(total_bytes=100, free_bytes=45, reserved_bytes=10).used_ratio == 0.5
    assert DiskUsage(total_bytes=10, free_bytes=0, reserved_bytes=10).used_ratio == 0.0


HOLD = """
import sys
from pathlib import Path
from roquet.runtime.files import Files
files = Files()
fd = files.open(Path(sys.argv[1]), write=True)
print(files.lock(fd), flush=True)
sys.stdin.read()
"""


def test_a_lock_is_seen_by_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"True\n"
        assert FILES.lock_holder(path) == other.pid
        fd = FILES.open(path, write=True)
        assert not FILES.lock(fd)
        FILES.close(fd)
        other.communicate(b"")
    assert FILES.lock_holder(path) is None
    fd = FILES.open(path, write=True)
    assert FILES.lock(fd)
    FILES.close(fd)


class TestDescriptorCache:
    def test_beyond_the_limit_idle_descriptors_are_closed(self, tmp_path: Path) -> None:
        cache = DescriptorCache(FILES, limit=3)
        kept = [cache.add(opened(tmp_path / str(n))) for n in range(10)]
        assert len(cache) == 3
        assert [file.fd >= 0 for file in kept].count(True) == 3
        assert kept[-1].fd >= 0
        cache.close()
        assert len(cache) == 0
        assert all(file.fd == -1 for file in kept)

    def test_a_used_one_outlives_idle_ones(self, tmp_path: Path) -> None:
        cache = DescriptorCache(FILES, limit=4)
        busy = cache.add(opened(tmp_path / "busy"))
        for number in range(20):
            busy.is_used = True
            cache.add(opened(tmp_path / str(number))).is_used = False
        assert busy.fd >= 0
        FILES.write_at(busy.fd, b"still open", 0)
        cache.close()

    def test_closing_one_twice_is_harmless(self, tmp_path: Path) -> None:
        cache = DescriptorCache(FILES, limit=2)
        file = cache.add(opened(tmp_path / "f"))
        cache.close_one(file)
        cache.close_one(file)
        assert file.fd == -1
        for number in range(5):
            cache.add(opened(tmp_path / str(number)))
        assert len(cache) == 2
        cache.close()
