"""Pages of mapped files that the disk cannot read.

Touching one would end the process with SIGBUS. Here the kernel's answers are replaced, so what is
tested is that every such page is asked for before it is touched.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from roquet.errors import StoreError
from roquet.format.index_file import HEADER_BYTES
from roquet.runtime import memory
from roquet.store import log_walk
from roquet.store.running_flags import RunningFlag
from roquet.testing.files import HookedFiles
from tests.unit.store.kit import (
    CONFIG,
    FOREVER_MS,
    answer,
    bodies,
    hash_of,
    message,
    new_store,
    opened,
    put,
)
from tests.unit.store.vouching_kit import COUNT, LATER, crash, make

PAGE = memory.PAGE_BYTES


class BadDisk(HookedFiles):
    """Reports an error for every read of a segment that includes some page of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: set[int] = set()

    def read_at(self, fd: int, size_bytes: int, position: int) -> bytes:
        path = self._paths[fd]
        if path.parent.name == "commitlog":
            start = int(path.name) + position
            if self.bad.intersection(range(start // PAGE, -(-(start + size_bytes) // PAGE))):
                raise OSError(errno.EIO, "the disk is broken", str(path))
        return super().read_at(fd, size_bytes, position)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> BadDisk:
    """A disk that is asked about every page, because the kernel has none and brings none in."""
    monkeypatch.setattr(memory, "is_resident", lambda *_: False)
    monkeypatch.setattr(memory, "make_resident", lambda *_: False)
    return BadDisk()


@pytest.mark.parametrize("is_crashed", [False, True])
@pytest.mark.parametrize("bad_page", [0, 2, 4, 5, 9])
def test_a_start_reports_unreadable_pages_and_changes_nothing(
    tmp_path: Path, disk: BadDisk, bad_page: int, *, is_crashed: bool
) -> None:
    root = tmp_path / "store"
    make(root)
    if is_crashed:
        crash(root)
        (root / "checkpoint").unlink()
    before = hash_of(root)
    disk.bad.add(bad_page)
    store = new_store(root, files=disk, clock=LATER)
    if is_crashed or bad_page in {0, 4}:
        with pytest.raises(StoreError, match=r"reading .*commitlog"):
            store.load()
        assert hash_of(root) == before
    disk.bad.clear()
    with opened(root, files=disk, clock=LATER) as store:
        assert len(bodies(store)) == COUNT // 2


@pytest.mark.parametrize("step_bytes", [1 << 20, 3 * PAGE])
def test_unreadable_pages_after_the_last_record_are_ignored(
    tmp_path: Path, disk: BadDisk, monkeypatch: pytest.MonkeyPatch, step_bytes: int
) -> None:
    monkeypatch.setattr(log_walk, "_BRING_BYTES", step_bytes)
    with opened(tmp_path / "store") as store:
        put(store, *[message(b"x" * 1000) for _ in range(5)])
        end = store.max_physical_offset
    disk.bad.update(range(-(-end // PAGE) + 1, CONFIG.commit_log_file_bytes // PAGE))
    crash(tmp_path / "store")
    with opened(tmp_path / "store", files=disk) as store:
        assert len(bodies(store)) == 5


class BrokenIndex(HookedFiles):
    """Can read the index up to its header only."""

    is_broken = False

    def read_at(self, fd: int, size_bytes: int, position: int) -> bytes:
        if self.is_broken and self._paths[fd].parent.name == "index" and size_bytes != HEADER_BYTES:
            raise OSError(errno.EIO, "the disk is broken")
        return super().read_at(fd, size_bytes, position)


def test_an_index_file_is_read_before_it_is_written(tmp_path: Path) -> None:
    files = BrokenIndex()
    with opened(tmp_path / "store", files=files) as store:
        put(store, message(KEYS="a"))
    with opened(tmp_path / "store", files=files) as store:
        files.is_broken = True
        put(store, message(KEYS="b"))
        assert store.flags.has(RunningFlag.INDEX_FILE_ERROR)
        assert not answer(store, message(KEYS="c")).is_ok
        files.is_broken = False
        store.upkeep.flush_logics(thorough=True)
        store.dispatcher.run(store.max_physical_offset)
        assert store.query_message("T", "b", 1, 0, FOREVER_MS).total_bytes


def test_an_index_query_reports_unreadable_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = BrokenIndex()
    with opened(tmp_path / "store", files=files) as store:
        put(store, message(KEYS="k"))
        monkeypatch.setattr(memory, "make_resident", lambda *_: False)
        assert store.query_message("T", "k", 1, 0, FOREVER_MS).total_bytes
        files.is_broken = True
        with pytest.raises(StoreError, match=r"reading .*index"):
            store.query_message("T", "k", 1, 0, FOREVER_MS)
        files.is_broken = False
