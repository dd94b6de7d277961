"""Batch consume queues under ``roquet store verify``, ``info``, ``dump`` and ``rebuild``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from roquet.format.batch_consume_queue import BATCH_UNIT_BYTES, BatchCqUnit, unpack_batch_unit
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.inspect.dump import Dump, Selection
from roquet.store.inspect.info import gather_info
from roquet.store.inspect.rebuild import plan_rebuild, rebuild
from roquet.store.inspect.report import Report
from roquet.store.inspect.verify import verify
from roquet.store.manifest import write_manifest
from roquet.storefiles.layout import MANIFEST_FILE
from roquet.storefiles.manifest import read_manifest
from roquet.storefiles.view import StoreView
from tests.unit.store.batch_kit import INNER, SMALL_FILE, files_of, inner_batch, kill, open_batches
from tests.unit.store.kit import NOW_MS, SEGMENT_BYTES, message, put

CLOCK = ManualClock(NOW_MS + 10**7)
SLOTS = 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with batches and single messages in B, and messages in T."""
    store = open_batches(tmp_path / "store")
    for size in (3, 1, 2, 4, 5, 2):
        put(store, inner_batch(size), message(topic="B"), message(topic="T"))
    store.shutdown()
    return tmp_path / "store"


def check(root: Path) -> Report:
    with StoreView(Files(), root) as view:
        return verify(view, CLOCK, index_slots=SLOTS)


def queue_file(root: Path, number: int = 0) -> Path:
    return root / "batchconsumequeue" / "B" / "0" / f"{number * SMALL_FILE:020d}"


def change(root: Path, position: int, data: bytes) -> None:
    path = queue_file(root)
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def write_topics(root: Path, **topics: str) -> None:
    table = {name: {"attributes": {"queue.type": kind}} for name, kind in topics.items()}
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def test_a_sound_store_has_no_faults(root: Path) -> None:
    report = check(root)
    assert (report.faults, report.notes) == ([], [])
    assert report.counts.queue_entries == 18
    assert report.counts.queues == 2


@pytest.mark.parametrize(
    ("position", "data", "field"),
    [
        (8, b"\0\0\1\1", "size"),
        (12, b"\7" * 8, "tagsCode"),
        (20, b"\0" * 8, "storeTimestamp"),
        (28, b"\0" * 7 + b"\1", "msgBaseOffset"),
        (36, b"\0\7", "batchSize"),
    ],
)
def test_every_field_of_an_entry_is_compared(
    root: Path, position: int, data: bytes, field: str
) -> None:
    change(root, position, data)
    (fault,) = check(root).faults
    assert (fault.field, fault.topic, fault.physical_offset) == (field, "B", 0)
    assert fault.file == "batchconsumequeue/B/0/00000000000000000000"


def test_an_entry_that_points_elsewhere_is_a_fault(root: Path) -> None:
    change(root, BATCH_UNIT_BYTES, b"\0" * 7 + b"\7")
    fields = {(fault.field, fault.physical_offset) for fault in check(root).faults}
    second = unpack_batch_unit(queue_file(root).read_bytes())
    assert fields == {("physicalOffset", 7), ("physicalOffset", second.end_offset)}


def test_missing_entries_are_a_fault_unless_they_may_be_late(root: Path) -> None:
    (root / MANIFEST_FILE).unlink()
    last = max(queue_file(root).parent.iterdir())
    last.write_bytes(bytes(SMALL_FILE))
    (fault,) = check(root).faults
    assert fault.detail.startswith("4 entries are missing")
    (root / "abort").write_bytes(b"1")
    report = check(root)
    assert report.faults == []
    assert [note.kind for note in report.notes] == ["lag"]


def test_a_missing_queue_is_a_fault(root: Path) -> None:
    shutil.rmtree(root / "batchconsumequeue")
    write_topics(root, B="BatchCQ", T="SimpleCQ")
    (unlisted, vouched) = check(root).faults
    assert (unlisted.file, unlisted.queue_offset) == ("batchconsumequeue", 0)
    assert (vouched.file, vouched.field) == ("batchconsumequeue/B/0", "file")
    assert vouched.detail == "the queue is gone; it had entries from 0 to 23"


@pytest.mark.parametrize("is_crashed", [False, True])
def test_entries_lost_after_the_store_was_closed_are_reported(
    root: Path, *, is_crashed: bool
) -> None:
    max(queue_file(root).parent.iterdir()).write_bytes(bytes(SMALL_FILE))
    if is_crashed:
        (root / "abort").write_bytes(b"1")
    faults = [fault for fault in check(root).faults if fault.field == "maxOffset"]
    assert [(fault.file, fault.topic) for fault in faults] == [("batchconsumequeue/B/0", "B")]
    assert faults[0].detail.endswith(", but there were entries up to 23")


def test_an_emptied_queue_that_keeps_its_offset_has_no_faults(root: Path) -> None:
    manifest = read_manifest(Files(), root)
    assert manifest is not None
    write_manifest(Files(), root, replace(manifest, batch_queues={"B": {0: (7, 7)}}))
    for path in queue_file(root).parent.iterdir():
        path.unlink()
    kept = BatchCqUnit(0, 0, 0, 0, 7, 0, 0).pack()
    queue_file(root).write_bytes(kept.ljust(SMALL_FILE, b"\0"))
    fields = {fault.field for fault in check(root).faults}
    assert fields == {"physicalOffset"}  # records without entries
    with StoreView(Files(), root) as view:
        (queue,) = view.batch_queues.values()
        assert queue.offsets(view.min_offset) == (7, 7)


def test_a_deleted_topic_of_batches_is_reported(tmp_path: Path) -> None:
    store = open_batches(tmp_path)
    put(store, inner_batch(3), message(topic="B"), inner_batch(2), message(topic="T"))
    store.delete_topics(["B"])
    store.shutdown()
    write_topics(tmp_path, T="SimpleCQ")
    report = check(tmp_path)
    assert report.faults == []
    assert [note.kind for note in report.notes] == ["deleted"]


def test_a_recreated_topic_has_entries_of_its_second_life(tmp_path: Path) -> None:
    store = open_batches(tmp_path)
    put(store, inner_batch(3), inner_batch(2))
    store.delete_topics(["B"])
    put(store, inner_batch(4), inner_batch(1))
    store.shutdown()
    before = files_of(tmp_path)
    assert check(tmp_path).faults == []
    with StoreView(Files(), tmp_path) as view:
        rebuild(view, plan_rebuild(view, into=None, index_slots=SLOTS, index_entries=50), CLOCK)
    assert files_of(tmp_path) == before


def test_entries_beyond_the_log_are_stale(root: Path) -> None:
    stale = unpack_batch_unit(queue_file(root).read_bytes())._replace(
        physical_offset=SEGMENT_BYTES * 9, base_offset=99
    )
    last = queue_file(root, 3)
    last.write_bytes(stale.pack().ljust(SMALL_FILE, b"\0"))
    report = check(root)
    assert report.faults == []
    assert [note.kind for note in report.notes] == ["stale"]


def test_a_gap_between_entries_is_a_fault(root: Path) -> None:
    store = open_batches(root)
    queue = store.queues.find_or_create("B", 0)
    queue.next_queue_offset += 5
    put(store, inner_batch(2))
    store.shutdown()
    (fault,) = check(root).faults
    assert fault.field == "queueOffset"


def test_info_counts_messages(root: Path) -> None:
    with StoreView(Files(), root) as view:
        info = gather_info(view, CLOCK)
    (batches,) = [queue for queue in info.queues if queue.topic == "B"]
    assert (batches.min_queue_offset, batches.max_queue_offset) == (0, 23)
    assert batches.file_count == 3
    assert {topic.topic: topic.message_count for topic in info.topics} == {"B": 23, "T": 6}


@pytest.mark.parametrize(("low", "high", "bases"), [(1, 2, [0]), (2, 4, [0, 3, 4]), (5, 5, [5])])
def test_dump_finds_a_batch_by_any_of_its_offsets(
    root: Path, low: int, high: int, bases: list[int]
) -> None:
    chosen = Selection(
        topics=frozenset({"B"}), queue_id=0, from_queue_offset=low, to_queue_offset=high
    )
    with StoreView(Files(), root) as view:
        found = list(Dump(view, chosen, pytest.fail).messages())
    assert [one.queue_offset for one in found] == bases


@pytest.mark.parametrize("is_known", [True, False], ids=["from files", "from settings"])
def test_a_rebuild_gives_the_same_queues(root: Path, *, is_known: bool) -> None:
    before = files_of(root)
    if not is_known:
        write_topics(root, B="BatchCQ", T="SimpleCQ")
        shutil.rmtree(root / "batchconsumequeue")
    with StoreView(Files(), root) as view:
        plan = plan_rebuild(view, into=None, index_slots=SLOTS, index_entries=50)
        result = rebuild(view, plan, CLOCK)
    assert (result.queues, result.faults) == (2, [])
    if is_known:
        assert files_of(root) == before
    else:
        (data,) = files_of(root).values()
        assert data.rstrip(b"\0") == b"".join(before.values()).rstrip(b"\0")


def test_a_rebuild_carries_expired_queues_over(tmp_path: Path) -> None:
    store = open_batches(tmp_path)
    put(store, inner_batch(3, body=b"x" * 1000))
    for _ in range(5):
        put(store, message(b"y" * (SEGMENT_BYTES // 2), topic="T"))
    store.flush()
    store.upkeep.flush_logics(thorough=True)
    store.delete_files_manually(archived_offset=2 * SEGMENT_BYTES)
    store.retention.run_once()
    store.shutdown()
    before = files_of(tmp_path)
    with StoreView(Files(), tmp_path) as view:
        plan = plan_rebuild(view, into=None, index_slots=SLOTS, index_entries=50)
        assert rebuild(view, plan, CLOCK).carried_queues == 1
    assert files_of(tmp_path) == before


def test_a_running_store_is_checked_to_its_last_batch(tmp_path: Path) -> None:
    store = open_batches(tmp_path)
    put(store, inner_batch(3), inner_batch(2))
    report = check(tmp_path)
    assert report.faults == []
    assert report.counts.queue_entries == 2
    kill(store)


def test_javas_inner_batch_flag_without_a_count_is_sound(tmp_path: Path) -> None:
    store = open_batches(tmp_path)
    put(store, message(topic="B", sys_flag=INNER))
    store.shutdown()
    assert check(tmp_path).faults == []
