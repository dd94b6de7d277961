"""Preallocated segments: ready in time, without a gap, removed when not used."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.runtime.clock import ManualClock, SystemClock
from roquet.runtime.files import Files
from roquet.store import allocate
from roquet.store.allocate import AllocateMappedFile
from roquet.testing.files import FaultyFiles

SIZE = 1 << 14
CLOCK = SystemClock()
PATIENCE_S = 60


def names(root: Path) -> list[int]:
    return sorted(int(path.name) // SIZE for path in root.iterdir())


@pytest.fixture
def allocator(tmp_path: Path) -> Iterator[AllocateMappedFile]:
    allocator = AllocateMappedFile(Files(), tmp_path, CLOCK, size_bytes=SIZE, warm=False)
    allocator.start()
    yield allocator
    allocator.stop()


def wait_for(root: Path, expected: list[int], allocator: AllocateMappedFile) -> None:
    """Wait until the thread has made the requested segments."""
    for start in expected:
        future = allocator._ready.get(start * SIZE)
        if future is not None:
            future.exception(PATIENCE_S)
    assert names(root) == expected


def test_without_a_thread_segments_are_created_at_once(tmp_path: Path) -> None:
    allocator = AllocateMappedFile(Files(), tmp_path, CLOCK, size_bytes=SIZE, warm=False)
    segment = allocator.take(3 * SIZE)
    assert (segment.start_offset, segment.size_bytes, segment.wrote) == (3 * SIZE, SIZE, 0)
    assert names(tmp_path) == [3]
    allocator.stop()
    assert names(tmp_path) == [3]
    segment.close()


def test_two_segments_are_kept_ready(allocator: AllocateMappedFile, tmp_path: Path) -> None:
    first = allocator.take(0)
    wait_for(tmp_path, [0, 1, 2], allocator)
    second = allocator.take(SIZE)
    assert second.start_offset == SIZE
    wait_for(tmp_path, [0, 1, 2, 3], allocator)
    first.close()
    second.close()


def test_stop_removes_unused_segments(allocator: AllocateMappedFile, tmp_path: Path) -> None:
    segment = allocator.take(0)
    wait_for(tmp_path, [0, 1, 2], allocator)
    allocator.stop()
    assert names(tmp_path) == [0]
    segment.close()


def test_discard_removes_them_newest_first(tmp_path: Path) -> None:
    removed: list[str] = []

    class Watching(Files):
        def unlink(self, path: Path) -> None:
            if path.exists():
                removed.append(path.name)
            super().unlink(path)

        def sync_dir(self, path: Path) -> None:
            removed.append("sync")
            super().sync_dir(path)

    allocator = AllocateMappedFile(Watching(), tmp_path, CLOCK, size_bytes=SIZE, warm=False)
    allocator.start()
    segment = allocator.take(0)
    wait_for(tmp_path, [0, 1, 2], allocator)
    removed.clear()
    allocator.discard()
    assert removed == [f"{2 * SIZE:020d}", "sync", f"{SIZE:020d}", "sync"]
    again = allocator.take(SIZE)
    assert again.start_offset == SIZE
    allocator.stop()
    assert names(tmp_path) == [0, 1]
    segment.close()
    again.close()


def test_a_failure_is_reported_and_retried(tmp_path: Path) -> None:
    files = FaultyFiles(only=frozenset({"allocate"}), error=errno.ENOSPC, fail_at=1)
    allocator = AllocateMappedFile(files, tmp_path, CLOCK, size_bytes=SIZE, warm=False)
    allocator.start()
    with pytest.raises(OSError, match="No space left"):
        allocator.take(0)
    allocator._worker.wake()
    assert names(tmp_path) == []
    segment = allocator.take(0)
    assert segment.start_offset == 0
    allocator.stop()
    assert names(tmp_path) == [0]
    segment.close()


def test_no_later_segment_is_created_without_its_predecessor(tmp_path: Path) -> None:
    files = FaultyFiles(only=frozenset({"allocate"}), error=errno.ENOSPC, fail_at=2)
    allocator = AllocateMappedFile(files, tmp_path, CLOCK, size_bytes=SIZE, warm=False)
    allocator.start()
    segment = allocator.take(0)  # asks for 1, which fails, and for 2
    allocator._worker.stop()
    assert names(tmp_path) == [0]
    assert len(files.calls) <= 2
    allocator.stop()
    segment.close()


def test_any_error_reaches_the_writer(tmp_path: Path) -> None:
    class Broken(Files):
        def allocate(self, fd: int, size_bytes: int) -> None:  # noqa: ARG002
            raise ValueError("out of the blue")

    allocator = AllocateMappedFile(Broken(), tmp_path, CLOCK, size_bytes=SIZE, warm=False)
    allocator.start()
    with pytest.raises(ValueError, match="out of the blue"):
        allocator.take(0)
    allocator.stop()


def test_leftovers_of_an_earlier_run_are_replaced(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(b"old records" * 100)
    allocator = AllocateMappedFile(Files(), tmp_path, CLOCK, size_bytes=SIZE, warm=False)
    segment = allocator.take(0)
    assert segment.mapping[:] == bytes(SIZE)
    segment.close()


def test_warm_segments_are_populated(tmp_path: Path) -> None:
    allocator = AllocateMappedFile(Files(), tmp_path, CLOCK, size_bytes=SIZE, warm=True)
    segment = allocator.take(0)
    assert segment.populated == SIZE
    segment.close()


def test_pages_are_populated_ahead_of_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocate, "AHEAD_BYTES_MIN", 4096)
    monkeypatch.setattr(allocate, "AHEAD_BYTES_MAX", 16384)
    size, clock = 1 << 16, ManualClock()
    allocator = AllocateMappedFile(Files(), tmp_path, clock, size_bytes=size, warm=False)
    segment = allocator.take(0)
    assert segment.populated == 4096
    allocator.populate_ahead(segment)
    assert allocator._populate is None  # enough is left
    segment.moved_to(4000)
    clock.advance(50)
    allocator.populate_ahead(segment)
    allocator._populate_some()
    assert segment.populated == 4000 + 8192  # hardly anything was left: twice as much from now on
    segment.moved_to(4000 + 8192 - 4000)
    clock.advance(5)
    allocator.populate_ahead(segment)
    allocator._populate_some()
    assert segment.populated == segment.wrote + 16384  # requested again soon: twice as much as well
    segment.moved_to(segment.populated + 100)  # faster than all that: not more than the limit
    clock.advance(5)
    allocator.populate_ahead(segment)
    allocator._populate_some()
    assert segment.populated == segment.wrote + 16384
    segment.moved_to(segment.populated - 8191)
    clock.advance(50)
    allocator.populate_ahead(segment)
    allocator._populate_some()
    assert segment.populated == segment.wrote + 16384  # neither soon nor late: as much
    segment.moved_to(segment.populated - 8191)
    clock.advance(200)
    allocator.populate_ahead(segment)
    allocator._populate_some()
    assert segment.populated == segment.wrote + 8192  # not requested for long: half as much
    segment.moved_to(size - 100)
    allocator.populate_ahead(segment)
    allocator._populate_some()
    assert segment.populated == size
    allocator.populate_ahead(segment)
    assert allocator._populate is None
    segment.close()
