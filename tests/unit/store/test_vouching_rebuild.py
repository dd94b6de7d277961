"""What ``verify`` reports about files that vanished, and what a rebuild discards or keeps."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.errors import StoreDamaged
from roquet.store.inspect.verify import verify
from roquet.storefiles.layout import MANIFEST_FILE
from roquet.storefiles.view import StoreView
from roquet.testing.files import Call, FaultyFiles, QuickFiles
from tests.unit.store.kit import SEGMENT_BYTES, bodies, message, new_store, opened, put
from tests.unit.store.vouching_kit import (
    COUNT,
    LATER,
    LOST_ENDS,
    as_java_left_it,
    crash,
    expire_all_of_queue_1,
    make,
    numbers,
    rebuild_in_place,
    remove_newest,
    remove_newest_two,
    segments,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def faults(root: Path) -> list[str]:
    with StoreView(QuickFiles(), root) as view:
        report = verify(view, LATER)
    return [f"{fault.file}: {fault.field}" for fault in report.faults]


@pytest.mark.parametrize("lose", LOST_ENDS)
def test_verify_reports_a_lost_end(root: Path, lose: Callable[[Path], None]) -> None:
    make(root)
    assert faults(root) == []
    lose(root)
    found = faults(root)
    assert f"{MANIFEST_FILE}: logEnd" in found
    assert "checkpoint: physicMsgTimestamp" in found


def test_verify_reports_lost_queues_and_index_files(root: Path) -> None:
    make(root)
    shutil.rmtree(root / "consumequeue" / "T" / "1")
    shutil.rmtree(root / "index")
    found = faults(root)
    assert "consumequeue/T/1: file" in found
    assert any(each.startswith("index/") for each in found)


@pytest.mark.parametrize("left", ["clean", "java", "crashed"])
@pytest.mark.parametrize("lose", LOST_ENDS)
def test_an_accepted_loss_lets_the_store_continue(
    root: Path, lose: Callable[[Path], None], left: str
) -> None:
    make(root)
    if left == "java":
        as_java_left_it(root)
    if left == "crashed":
        crash(root)
    lose(root)
    with pytest.raises(StoreDamaged):
        rebuild_in_place(root, accepts_loss=False)
    rebuild_in_place(root, accepts_loss=True)
    for number in range(2):
        with opened(root, clock=LATER) as store:
            for queue_id in (0, 1):
                assert store.max_offset_in_queue("T", queue_id) == COUNT // 2 + number
                put(store, message(b"next%d" % number, queue_id=queue_id))
                assert bodies(store, queue_id=queue_id)[-1] == b"next%d" % number
    assert faults(root) == []
    rebuild_in_place(root, accepts_loss=False)
    assert faults(root) == []


def test_a_crash_right_after_an_accepted_loss_reuses_no_offset(root: Path) -> None:
    make(root)
    remove_newest_two(root)
    rebuild_in_place(root, accepts_loss=True)
    for _ in range(2):
        store = new_store(root, clock=LATER)
        store.load()
        store.start(threads=False)
        assert store.max_offset_in_queue("T", 0) == COUNT // 2
        store.lifecycle.abandon()


@pytest.mark.parametrize("accepts_loss", [False, True])
def test_a_rebuild_syncs_the_log_first(root: Path, *, accepts_loss: bool) -> None:
    make(root)
    crash(root)
    if accepts_loss:
        remove_newest(root)
    files = FaultyFiles()
    rebuild_in_place(root, accepts_loss=accepts_loss, files=files)
    names = [call.name for call in files.calls]
    before_swaps = files.calls[: names.index("exchange")]
    assert {Call("data_sync", path.name) for path in segments(root)} <= set(before_swaps)
    assert Call("sync_dir", "commitlog") in before_swaps


def test_an_accepted_loss_of_old_segments(root: Path) -> None:
    make(root)
    segments(root)[0].unlink()
    with pytest.raises(StoreDamaged):
        rebuild_in_place(root, accepts_loss=False)
    rebuild_in_place(root, accepts_loss=True)
    with opened(root, clock=LATER) as store:
        assert store.commit_log.min_offset == SEGMENT_BYTES
        assert store.max_offset_in_queue("T", 0) == COUNT // 2


def test_a_rebuild_in_place_does_not_report_earlier_index_files_as_lost(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(root, 100)
    rebuild_in_place(root, accepts_loss=False)
    assert faults(root) == []
    with opened(root, clock=LATER) as store:
        assert numbers(store, 100)
    assert "files of the index are gone" not in caplog.text


def test_a_rebuild_keeps_the_offset_of_a_lost_queue_without_records(root: Path) -> None:
    expire_all_of_queue_1(root)
    shutil.rmtree(root / "consumequeue" / "T" / "1")
    rebuild_in_place(root, accepts_loss=False)
    with opened(root, clock=LATER) as store:
        assert store.max_offset_in_queue("T", 1) == 5


def test_a_manifest_that_cannot_be_read_is_discarded_with_the_loss(root: Path) -> None:
    make(root)
    (root / MANIFEST_FILE).write_bytes(b"{")
    rebuild_in_place(root, accepts_loss=True)
    with opened(root, clock=LATER) as store:
        assert numbers(store)
