"""Segments that vanish while a store is not in use: the log is refused, or nothing was lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.errors import NotAStore
from roquet.format.checkpoint import Checkpoint
from roquet.runtime.clock import ManualClock
from roquet.storefiles.layout import MANIFEST_FILE
from roquet.storefiles.manifest import Manifest, read_manifest
from roquet.testing.files import QuickFiles
from tests.unit.store.kit import (
    NOW_MS,
    SEGMENT_BYTES,
    bodies,
    config,
    message,
    new_store,
    opened,
    put,
)
from tests.unit.store.vouching_kit import (
    COUNT,
    LATER,
    LOST_ENDS,
    as_java_left_it,
    crash,
    empty_log,
    empty_newest,
    make,
    numbers,
    rebuild_in_place,
    refused,
    remove_newest,
    remove_newest_two,
    segments,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.mark.parametrize("lose", LOST_ENDS)
@pytest.mark.parametrize("left", ["clean", "crashed", "java-clean", "java-crashed"])
def test_a_log_that_lost_its_end_is_refused(
    root: Path, lose: Callable[[Path], None], left: str
) -> None:
    make(root)
    if left.startswith("java"):
        as_java_left_it(root)
    if left.endswith("crashed"):
        crash(root)
    lose(root)
    error = refused(root)
    assert error.detail


@pytest.mark.parametrize("lose", LOST_ENDS)
def test_the_manifest_alone_reveals_a_lost_end(root: Path, lose: Callable[[Path], None]) -> None:
    make(root)
    lose(root)
    (root / "checkpoint").unlink()
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    assert "logEnd" in (refused(root).detail or "")


@pytest.mark.parametrize("witness", ["consumequeue", "index"])
@pytest.mark.parametrize("lose", [remove_newest, empty_newest, empty_log])
def test_entries_of_lost_records_reveal_them_after_a_clean_exit(
    root: Path, lose: Callable[[Path], None], witness: str
) -> None:
    """The checkpoint of a Java broker may be seconds behind when it stops."""
    make(root)
    as_java_left_it(root)
    (root / "checkpoint").write_bytes(Checkpoint(0, 0).pack().ljust(4096, b"\0"))
    for name in {"consumequeue", "index"} - {witness}:
        shutil.rmtree(root / name)
    lose(root)
    assert witness in (refused(root).detail or "")


def test_an_entry_that_java_left_after_a_truncation_is_no_loss(root: Path) -> None:
    make(root, 9)
    with opened(root, clock=LATER) as store:
        end = store.commit_log.wrote_offset
    last = end - end // 9
    with segments(root)[0].open("r+b") as file:
        file.seek(last)
        file.write(bytes(end - last))
    as_java_left_it(root)
    shutil.rmtree(root / "index")
    marks = Checkpoint(NOW_MS + 7000, NOW_MS + 7000)
    (root / "checkpoint").write_bytes(marks.pack().ljust(4096, b"\0"))
    with opened(root, clock=LATER) as store:
        assert store.commit_log.wrote_offset == last
        assert numbers(store, 8)


def test_missing_segments_are_named(root: Path) -> None:
    make(root)
    names = [path.name for path in segments(root)]
    remove_newest_two(root)
    detail = refused(root).detail or ""
    assert all(name in detail for name in names[-2:])
    assert names[0] not in detail


def test_a_missing_first_segment_is_refused_after_our_own_shutdown(root: Path) -> None:
    make(root)
    segments(root)[0].unlink()
    error = refused(root)
    assert "begins at" in error.message
    assert "00000000000000000000" in (error.detail or "")


@pytest.mark.parametrize("left", ["crashed", "java"])
def test_others_may_have_deleted_old_segments(root: Path, left: str) -> None:
    make(root)
    segments(root)[0].unlink()
    if left == "crashed":
        crash(root)
    else:
        (root / "lock").write_bytes(b"lock")
    with opened(root, clock=LATER) as store:
        assert store.commit_log.min_offset == SEGMENT_BYTES
        assert store.max_offset_in_queue("T", 0) == COUNT // 2


def test_the_log_of_another_store_is_refused(root: Path, tmp_path: Path) -> None:
    make(root)
    other = tmp_path / "other"
    clock = ManualClock(NOW_MS + 5)
    with opened(other, clock=clock) as store:
        for number in range(COUNT + 5):
            put(store, message(b"%04d" % number * 250, KEYS=f"o{number:02d}"))
            clock.advance(1000)
    shutil.rmtree(root / "commitlog")
    shutil.copytree(other / "commitlog", root / "commitlog")
    assert "another store" in (refused(root).detail or "")


def test_a_clock_that_was_set_back_is_no_loss(root: Path) -> None:
    """Java's checkpoint has the time of a flush; records after it may be older than that."""
    make(root, 3)
    as_java_left_it(root)
    shutil.rmtree(root / "index")
    marks = Checkpoint(NOW_MS + 1000, NOW_MS + 1000)
    (root / "checkpoint").write_bytes(marks.pack().ljust(4096, b"\0"))
    path = segments(root)[0]
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[:4], "big")
    for number in (0, 2):
        data[number * size + 56 : number * size + 64] = (NOW_MS - 5000).to_bytes(8, "big")
    path.write_bytes(data)
    crash(root)
    with opened(root, clock=LATER) as store:
        assert numbers(store, 3)


def test_a_manifest_that_cannot_be_read_is_refused(root: Path) -> None:
    make(root)
    (root / MANIFEST_FILE).write_bytes(b"{")
    assert MANIFEST_FILE in refused(root).message


def test_a_gap_in_the_log_is_refused_until_its_loss_is_accepted(root: Path) -> None:
    make(root)
    segments(root)[1].unlink()
    assert "segments are missing" in refused(root).message
    segments(root)[0].unlink()
    refused(root)
    rebuild_in_place(root, accepts_loss=True)
    with opened(root, clock=LATER) as store:
        assert store.max_offset_in_queue("T", 0) == COUNT // 2
        assert len(bodies(store)) > 0


def test_a_truncated_log_is_not_taken_for_lost(root: Path) -> None:
    make(root)
    with opened(root, clock=LATER) as store:
        store.truncate_to(SEGMENT_BYTES)
    with opened(root, clock=LATER) as store:
        assert store.commit_log.wrote_offset == SEGMENT_BYTES


@pytest.mark.parametrize("kept", [0, 5, 12])
@pytest.mark.parametrize("has_pool", [False, True])
def test_older_records_after_a_truncation_are_no_loss(
    root: Path, tmp_path: Path, kept: int, *, has_pool: bool
) -> None:
    """A slave that was master meanwhile follows another one, whose records are older."""
    settings = config(transient_store_pool=has_pool, transient_store_pool_size=2)
    make(tmp_path / "master", kept + 2)
    with opened(tmp_path / "master", clock=LATER) as master:
        data = master.commit_log_data(0)
        assert data is not None
        copy = bytes(data[: master.commit_log.wrote_offset])
    one = len(copy) // (kept + 2)
    later = ManualClock(LATER.now_ms())
    with opened(root, clock=later, config=settings) as store:
        store.append_to_commit_log(0, copy[: kept * one])
        store.flusher.flush_all()
        for number in range(3):
            put(store, message(b"%d" % number))
            later.advance(1000)
        store.flusher.flush_all()
        store.upkeep.flush_logics(thorough=True)
        store.truncate_to(kept * one)
        store.append_to_commit_log(kept * one, copy[kept * one :])
    with opened(root, clock=later, config=settings) as store:
        assert store.commit_log.wrote_offset == len(copy)
        assert numbers(store, kept + 2)


def test_an_empty_store_stays_an_empty_store(root: Path) -> None:
    for _ in range(3):
        with opened(root, clock=LATER) as store:
            assert store.commit_log.wrote_offset == 0
    assert read_manifest(QuickFiles(), root) == Manifest()


def test_a_clean_restart_writes_the_same_manifest(root: Path) -> None:
    make(root)
    before = (root / MANIFEST_FILE).read_bytes()
    with opened(root, clock=LATER):
        pass
    assert (root / MANIFEST_FILE).read_bytes() == before


def test_without_an_index_nothing_of_it_is_taken_for_lost(root: Path) -> None:
    make(root)
    with opened(root, clock=LATER, config=config(message_index=False)) as store:
        assert numbers(store)


def test_a_store_that_must_exist_is_not_created(root: Path) -> None:
    settings = config(must_exist=True)
    for _ in range(2):
        with pytest.raises(NotAStore, match="storeMustExist"):
            new_store(root, config=settings).load()
        assert not root.exists() or not list(root.iterdir())
        root.mkdir(exist_ok=True)  # a mount point without its disk
    make(root, 3)
    with opened(root, config=settings) as store:
        assert store.max_offset_in_queue("T", 0) == 2
