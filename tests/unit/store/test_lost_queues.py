"""Queues and index files that vanish while a store is not in use: rebuilt, or not needed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from roquet.errors import StoreDamaged
from roquet.model.topic import LMQ_PREFIX
from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.store.drop import drop_segments
from roquet.store.inspect.verify import verify
from roquet.store.manifest import write_manifest
from roquet.store.recovery import Recovery
from roquet.storefiles.layout import MANIFEST_FILE
from roquet.storefiles.manifest import Manifest, read_manifest
from roquet.storefiles.view import StoreView
from roquet.testing.files import QuickFiles
from tests.unit.store.kit import (
    CONFIG,
    FOREVER_MS,
    NOW_MS,
    SEGMENT_BYTES,
    bodies,
    message,
    new_store,
    open_store,
    opened,
    put,
)
from tests.unit.store.vouching_kit import (
    COUNT,
    LATER,
    ONE_FILE_A_QUEUE,
    crash,
    expire_all_of_queue_1,
    make,
    numbers,
    rebuild_in_place,
    refused,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.mark.parametrize("is_crashed", [False, True])
@pytest.mark.parametrize("what", ["T", "T/1", "."])
def test_missing_queue_directories_are_filled_again(
    root: Path, what: str, *, is_crashed: bool
) -> None:
    make(root)
    shutil.rmtree(root / "consumequeue" / what)
    if is_crashed:
        crash(root)
    with opened(root, clock=LATER) as store:
        assert numbers(store)
        put(store, message(b"next", queue_id=1))
        assert store.max_offset_in_queue("T", 1) == COUNT // 2 + 1
        assert len(store.query_message("T", "k30", 5, 0, FOREVER_MS).records) >= 1


@pytest.mark.parametrize("number", [0, 1])
def test_a_queue_that_lost_a_file_at_one_end_is_filled_again(root: Path, number: int) -> None:
    make(root)
    sorted((root / "consumequeue" / "T" / "0").iterdir())[-number].unlink()
    with opened(root, clock=LATER) as store:
        assert numbers(store)


def test_a_gap_in_a_queue_is_refused_and_a_rebuild_fills_it(root: Path) -> None:
    make(root, 80)  # forty entries a queue, and ten fit a file
    sorted((root / "consumequeue" / "T" / "0").iterdir())[1].unlink()
    assert "segments are missing" in refused(root).message
    rebuild_in_place(root, accepts_loss=False)
    with opened(root, clock=LATER) as store:
        assert numbers(store, 80)


def test_a_crash_while_queues_are_filled_again_loses_nothing(root: Path) -> None:
    make(root)
    shutil.rmtree(root / "consumequeue" / "T" / "1")
    store = new_store(root, clock=LATER)
    store.load()  # filled again, and killed before the store is closed
    store.lifecycle.abandon()
    assert (root / "abort").exists()
    shutil.rmtree(root / "consumequeue" / "T" / "1")
    with opened(root, clock=LATER) as again:
        assert numbers(again)


class Killed(BaseException):
    """The end of a process, which nothing in it may catch."""


def die_while_filling(root: Path, monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    """Load a store until queues have the records before an offset again."""

    def fill_partly(recovery: Recovery, start: int, _end: int) -> None:
        recovery._dispatcher.dispatched_offset = start
        recovery._dispatcher.run(offset)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Recovery, "_dispatch", fill_partly)
        store = new_store(root, clock=LATER, config=ONE_FILE_A_QUEUE)
        with pytest.raises(Killed):
            store.load()


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_crash_amid_queues_that_are_filled_again_loses_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, has_manifest: bool
) -> None:
    make(root, 100, ONE_FILE_A_QUEUE)
    shutil.rmtree(root / "consumequeue")
    if not has_manifest:
        (root / MANIFEST_FILE).unlink()
    die_while_filling(root, monkeypatch, 3 * SEGMENT_BYTES)
    assert (root / "abort").exists()
    with opened(root, clock=LATER, config=ONE_FILE_A_QUEUE) as store:
        assert numbers(store, 100)


def test_a_second_crash_amid_queues_that_are_filled_again_loses_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root, 100, ONE_FILE_A_QUEUE)
    shutil.rmtree(root / "consumequeue" / "T" / "1")
    crash(root)
    for count in (3, 2):
        die_while_filling(root, monkeypatch, count * SEGMENT_BYTES)
    with opened(root, clock=LATER, config=ONE_FILE_A_QUEUE) as store:
        assert numbers(store, 100)


def test_a_recreated_topic_does_not_hide_leftovers_of_an_interrupted_start(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(NOW_MS)
    with opened(root, clock=clock) as store:
        put(store, message(b"old", topic="U"))
        store.delete_topics(["U"])
        put(store, message(b"new", topic="U"))
    make(root, 100)
    before = read_manifest(QuickFiles(), root)
    shutil.rmtree(root / "consumequeue")
    die_while_filling(root, monkeypatch, 3 * SEGMENT_BYTES)
    assert read_manifest(QuickFiles(), root) == before
    shutil.rmtree(root / "consumequeue" / "T" / "1")
    with opened(root, clock=LATER, config=ONE_FILE_A_QUEUE) as store:
        assert numbers(store, 100)
        assert bodies(store, "U") == [b"new"]


@pytest.mark.parametrize("is_crashed", [False, True])
def test_a_lost_queue_without_records_continues_at_its_offset(
    root: Path, *, is_crashed: bool
) -> None:
    expire_all_of_queue_1(root)
    shutil.rmtree(root / "consumequeue" / "T" / "1")
    if is_crashed:
        crash(root)
    for _ in range(2):
        with opened(root, clock=LATER) as store:
            assert store.max_offset_in_queue("T", 1) == 5
            assert bodies(store, queue_id=1) == []
    with opened(root, clock=LATER) as store:
        put(store, message(b"next", queue_id=1))
        assert store.max_offset_in_queue("T", 1) == 6
        assert bodies(store, queue_id=1) == [b"next"]


def test_a_lost_queue_continues_where_a_file_begins(root: Path) -> None:
    make(root, 20)  # ten entries a queue, and ten fit a file
    manifest = read_manifest(QuickFiles(), root)
    assert manifest is not None
    shutil.rmtree(root / "consumequeue")
    write_manifest(QuickFiles(), root, Manifest(queues={"Gone": {0: (10, 10)}}))
    for _ in range(2):
        with opened(root, clock=LATER) as store:
            assert store.max_offset_in_queue("Gone", 0) == 10


def test_entries_that_are_zero_are_not_filled_silently(root: Path) -> None:
    make(root)
    last = max((root / "consumequeue" / "T" / "0").iterdir())
    last.write_bytes(bytes(last.stat().st_size))
    store = new_store(root, clock=LATER)
    with pytest.raises(StoreDamaged, match="consumequeue/T/0 ends at 10") as caught:
        store.load()
    assert "roquet store rebuild" in (caught.value.hint or "")


def test_a_lost_light_queue_is_refused(root: Path) -> None:
    make(root)
    topic = f"{LMQ_PREFIX}x"
    manifest = read_manifest(QuickFiles(), root)
    assert manifest is not None
    assert manifest.queues is not None
    manifest.queues[topic] = {0: (0, 3)}
    write_manifest(QuickFiles(), root, manifest)
    assert topic in refused(root).message


def test_missing_index_files_are_rebuilt(root: Path) -> None:
    make(root, 60)
    assert len(list((root / "index").iterdir())) > 1
    min((root / "index").iterdir()).unlink()
    with opened(root, clock=LATER) as store:
        for key in ("k00", "k20", "k59"):
            assert len(store.query_message("T", key, 5, 0, FOREVER_MS).records) == 1


def test_index_files_that_expired_before_a_crash_are_not_taken_for_lost(root: Path) -> None:
    make(root, 100)
    store = open_store(root, clock=LATER)
    assert store.index is not None
    oldest = min(store.index.file_names())
    store.retention.request_archived(4 * SEGMENT_BYTES)
    assert store.retention.run_once() == 4
    left = store.index.file_names()
    assert oldest not in left
    store.flush()
    store.upkeep.flush_logics(thorough=True)
    store.lifecycle.abandon()
    with opened(root, clock=LATER) as again:
        assert again.lifecycle.last_recovery is not None
        assert again.lifecycle.last_recovery.start_offset > 4 * SEGMENT_BYTES
        assert again.index is not None
        assert again.index.file_names() == left


def test_queue_files_that_expired_after_a_drop_and_before_a_crash_are_not_taken_for_lost(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(root, 100)
    assert len(drop_segments(root, 3 * SEGMENT_BYTES, files=QuickFiles())) == 3
    store = open_store(root, clock=LATER)
    store.retention.run_once()
    assert not (root / "consumequeue" / "T" / "0" / f"{0:020d}").exists()
    store.lifecycle.abandon()
    with opened(root, clock=LATER) as again:
        assert "has lost files" not in caplog.text
        assert again.max_offset_in_queue("T", 0) == 50


def delete_topic_t(root: Path) -> None:
    """Delete one topic and write to another."""
    with opened(root, clock=LATER) as store:
        store.delete_topics(["T"])
        put(store, message(b"u", topic="U"))


def test_deleted_topics_are_not_taken_for_lost(root: Path) -> None:
    make(root)
    delete_topic_t(root)
    with opened(root, clock=LATER) as store:
        assert store.queues.find("T", 0) is None


@pytest.mark.parametrize("others", [0, 1])
def test_a_deleted_topic_with_the_newest_records_does_not_come_back(
    root: Path, others: int
) -> None:
    make(root)
    with opened(root, clock=LATER) as store:
        for _ in range(others):
            put(store, message(b"u", topic="U"))
        put(store, message(b"newest"))
        store.delete_topics(["T"])
    for _ in range(2):
        with opened(root, clock=LATER) as store:
            assert store.queues.find("T", 0) is None
            assert bodies(store, "U") == [b"u"] * others
    assert not (root / "consumequeue" / "T").exists()
    with opened(root, clock=LATER) as store:
        put(store, message(b"second life"))
        assert bodies(store) == [b"second life"]
        assert store.max_offset_in_queue("T", 0) == 1


def test_deleted_topics_do_not_come_back_with_a_lost_queue(root: Path) -> None:
    make(root)
    delete_topic_t(root)
    shutil.rmtree(root / "consumequeue" / "U")
    with opened(root, clock=LATER) as store:
        assert bodies(store, "U") == [b"u"]
        assert store.queues.find("T", 0) is None
    assert not (root / "consumequeue" / "T").exists()


def test_deleted_topics_do_not_come_back_with_an_interrupted_start(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root, COUNT, ONE_FILE_A_QUEUE)
    with opened(root, clock=LATER, config=ONE_FILE_A_QUEUE) as store:
        store.delete_topics(["T"])
        put(store, message(b"u", topic="U"))
        end = store.commit_log.wrote_offset
    shutil.rmtree(root / "consumequeue")
    die_while_filling(root, monkeypatch, end)
    assert (root / "consumequeue" / "T").exists()
    with opened(root, clock=LATER, config=ONE_FILE_A_QUEUE) as store:
        assert bodies(store, "U") == [b"u"]
        assert store.queues.find("T", 0) is None


def test_a_topic_deleted_and_a_crash_after_that(root: Path) -> None:
    make(root)
    store = new_store(root, clock=LATER)
    store.load()
    store.start(threads=False)
    store.delete_topics(["T"])
    store.lifecycle.abandon()
    manifest = read_manifest(QuickFiles(), root)
    assert manifest is not None
    assert manifest.queues == {}
    with opened(root, clock=LATER) as again:
        put(again, message(b"new", topic="U"))


@pytest.mark.parametrize("lost", [["consumequeue"], ["consumequeue", "index"]])
def test_after_a_topic_was_deleted_other_losses_are_still_detected(
    root: Path, lost: list[str]
) -> None:
    make(root)
    store = open_store(root, clock=LATER)
    put(store, message(b"gone", topic="Gone"))
    store.shutdown()
    store = open_store(root, clock=LATER)
    store.delete_topics(["Gone"])
    store.lifecycle.abandon()
    for name in lost:
        shutil.rmtree(root / name)
    with opened(root, clock=LATER) as again:
        assert numbers(again)
        assert again.queues.find("Gone", 0) is None


def test_unknown_queues_are_never_removed(root: Path) -> None:
    make(root)
    manifest = read_manifest(QuickFiles(), root)
    assert manifest is not None
    write_manifest(QuickFiles(), root, replace_struct(manifest, queues=None))
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    with opened(root, clock=LATER) as store:
        assert numbers(store)


def test_one_of_two_queues_is_forgotten(root: Path) -> None:
    make(root)
    with opened(root, clock=LATER) as store:
        queue = store.queues.find("T", 0)
        assert queue is not None
        store.queues.delete([queue])
        manifest = read_manifest(QuickFiles(), root)
        assert manifest is not None
        assert manifest.queues == {"T": {1: (0, COUNT // 2)}}


def test_topics_that_java_deleted_are_not_taken_for_lost(root: Path) -> None:
    make(root)
    with opened(root, clock=LATER) as store:
        put(store, message(b"u", topic="U"))
    (root / "lock").write_bytes(b"lock")
    shutil.rmtree(root / "consumequeue" / "T")
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"U":{}}}')
    with opened(root, clock=LATER) as store:
        assert store.queues.find("T", 0) is None


@pytest.mark.parametrize("is_crashed", [False, True])
@pytest.mark.parametrize("settings", [CONFIG, ONE_FILE_A_QUEUE])
def test_a_topic_that_java_deleted_and_recreated_continues(
    root: Path, settings: MessageStoreConfig, *, is_crashed: bool
) -> None:
    make(root, COUNT, settings)
    manifest = (root / MANIFEST_FILE).read_bytes()
    with opened(root, clock=LATER, config=settings) as store:
        store.delete_topics(["T"])
        for _ in range(3):
            put(store, message(b"new"))
    (root / MANIFEST_FILE).write_bytes(manifest)  # a Java broker leaves it alone
    (root / "lock").write_bytes(b"lock")
    if is_crashed:
        crash(root)
    with StoreView(QuickFiles(), root) as view:
        faults = verify(view, LATER, index_slots=CONFIG.index_slots).faults
    assert [fault for fault in faults if fault.queue_id == 0] == []
    with opened(root, clock=LATER, config=settings) as store:
        assert store.max_offset_in_queue("T", 0) == 3
        assert bodies(store) == [b"new"] * 3
