"""How much of the log a recovery reads, and what is kept of an index file that is half full."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from roquet.format.index_file import IndexHeader, entry_position
from roquet.runtime.clock import ManualClock
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.index_mark import MARK_FILE, IndexMark
from roquet.store.inspect.verify import verify
from roquet.store.results import RecoveryReport
from roquet.storefiles.view import StoreView
from roquet.testing.files import QuickFiles
from tests.unit.store.kit import FOREVER_MS, NOW_MS, SEGMENT_BYTES, config, message, new_store, put

SETTINGS = config(index_entries=2000, index_slots=100)
LATER = ManualClock(NOW_MS + 10**7)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def run(root: Path, count: int, *, after: int) -> None:
    """A store that is killed some messages after queues, index and marks were synced."""
    clock = ManualClock(NOW_MS)
    store = new_store(root, clock=clock, config=SETTINGS)
    store.load()
    store.start(threads=False)
    for number in range(count + after):
        if number == count:
            store.flush()
            store.upkeep.flush_logics(thorough=True)
        put(store, message(b"%04d" % number * 250, KEYS=f"k{number} all", TAGS="t"))
        clock.advance(1000)
    store.flush()
    kill(store)


def kill(store: DefaultMessageStore) -> None:
    store.lifecycle.abandon()


def recover(root: Path) -> tuple[RecoveryReport, DefaultMessageStore]:
    store = new_store(root, clock=LATER, config=SETTINGS)
    report = store.load()
    store.start(threads=False)
    return report, store


def assert_all_found(store: DefaultMessageStore, count: int) -> None:
    for number in range(count):
        found = store.query_message("T", f"k{number}", 5, 0, FOREVER_MS).records
        assert len({bytes(record) for record in found}) == 1, number
    every = store.query_message("T", "all", 64, 0, FOREVER_MS).records
    assert len(every) == 64


def test_recovery_reads_what_follows_the_checkpoint(root: Path) -> None:
    """And one segment before it, however much the index file holds already."""
    run(root, 200, after=3)
    report, store = recover(root)
    assert report.end_offset > 12 * SEGMENT_BYTES
    assert report.read_bytes <= 2 * SEGMENT_BYTES
    assert_all_found(store, 203)
    kill(store)
    again, store = recover(root)
    assert again.read_bytes <= 2 * SEGMENT_BYTES
    assert_all_found(store, 203)
    kill(store)
    with StoreView(QuickFiles(), root) as view:
        assert verify(view, LATER, index_slots=100).ok


def test_without_a_mark_the_index_is_built_from_the_last_full_file(root: Path) -> None:
    run(root, 200, after=3)
    (root / MARK_FILE).unlink()
    report, store = recover(root)
    assert report.start_offset == 0
    assert_all_found(store, 203)
    kill(store)


@pytest.mark.parametrize("data", [b"", b"x" * 100, bytes(76)])
def test_a_torn_mark_means_nothing(root: Path, data: bytes) -> None:
    run(root, 100, after=3)
    (root / MARK_FILE).write_bytes(data)
    report, store = recover(root)
    assert report.start_offset == 0
    assert_all_found(store, 103)
    kill(store)


def test_pages_after_the_mark_may_be_lost(root: Path) -> None:
    """The kernel wrote the slots of later entries, but not the entries."""
    run(root, 100, after=20)
    mark = IndexMark.unpack((root / MARK_FILE).read_bytes())
    assert mark is not None
    path = root / "index" / mark.name
    data = bytearray(path.read_bytes())
    end = entry_position(100, mark.header.index_count)
    assert any(data[end:])
    data[end:] = bytes(len(data) - end)
    path.write_bytes(data)
    _, store = recover(root)
    assert_all_found(store, 120)
    kill(store)
    with StoreView(QuickFiles(), root) as view:
        assert verify(view, LATER, index_slots=100).ok


def test_a_repeated_recovery_gives_the_same_bytes(root: Path, tmp_path: Path) -> None:
    run(root, 100, after=20)
    images = []
    for number in range(2):
        copy = shutil.copytree(root, tmp_path / f"copy{number}")
        store = new_store(copy, clock=LATER, config=SETTINGS)
        store.load()
        kill(store)
        images.append([path.read_bytes() for path in sorted((copy / "index").iterdir())])
    assert images[0] == images[1]


def test_a_mark_of_a_file_that_is_gone_is_forgotten(root: Path) -> None:
    run(root, 100, after=3)
    mark = IndexMark.unpack((root / MARK_FILE).read_bytes())
    assert mark is not None
    _, store = recover(root)
    store.truncate_to(SEGMENT_BYTES)
    now = IndexMark.unpack((root / MARK_FILE).read_bytes()) if (root / MARK_FILE).exists() else None
    assert now is None or now.header.end_physical_offset < SEGMENT_BYTES
    kill(store)
    _, store = recover(root)
    assert store.commit_log.wrote_offset == SEGMENT_BYTES
    kill(store)


def test_marks_are_distinguished_from_other_files() -> None:
    header = IndexHeader(1, 5, 10, 50, 3, 7)
    mark = IndexMark("20260101000000000", header)
    assert IndexMark.unpack(mark.pack()) == mark
    assert mark.fits(mark.name, header._replace(index_count=9, end_physical_offset=70))
    assert not mark.fits("20260101000000001", header)
    assert not mark.fits(mark.name, header._replace(index_count=6))
    assert not mark.fits(mark.name, header._replace(begin_physical_offset=11))
