"""Topics with batch consume queues: an entry a batch, an offset a message."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from roquet.errors import ConfigError, StoreDamaged
from roquet.format.batch import encode_batch
from roquet.format.batch_consume_queue import (
    BATCH_UNIT_BYTES,
    BatchCqUnit,
    inner_number,
    unpack_batch_unit,
)
from roquet.format.commit_log import decode_record
from roquet.model.host import LOOPBACK
from roquet.model.message import BatchMessage
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.inspect.rebuild import plan_rebuild, rebuild
from roquet.store.queue_reader import MessageFilter
from roquet.store.results import BoundaryType, GetMessageStatus
from roquet.storefiles.manifest import read_manifest
from roquet.storefiles.view import StoreView
from tests.unit.store.batch_kit import (
    INNER,
    SIZES,
    SMALL,
    SMALL_FILE,
    files_of,
    fill,
    inner_batch,
    kill,
    open_batches,
    places,
    queue_of,
)
from tests.unit.store.kit import (
    CONFIG,
    NOW_MS,
    SEGMENT_BYTES,
    answer,
    bodies,
    message,
    put,
    refusal,
)
from tests.unit.store.kit import config as changed

BASES = (0, 3, 4, 6, 10, 15, 17, 18, 25)
END = 28


# -- puts ----------------------------------------------------------------------------------------


def test_offsets_count_the_messages_inside(tmp_path: Path) -> None:
    store = open_batches(tmp_path)
    assert store.max_offset_in_queue("B", 0) == 0
    for size, base in zip(SIZES, BASES, strict=True):
        result = answer(store, inner_batch(size)).append
        assert result is not None
        assert (result.queue_offset, result.message_count) == (base, size)
    assert (store.min_offset_in_queue("B", 0), store.max_offset_in_queue("B", 0)) == (0, END)
    assert store.stats.put_messages == END
    assert places(store) == list(zip(BASES, SIZES, strict=True))
    assert [len(data) for data in files_of(tmp_path).values()] == [SMALL_FILE] * 3
    assert not (tmp_path / "consumequeue" / "B").exists()
    store.shutdown()


def test_the_base_is_that_of_the_store(tmp_path: Path) -> None:
    store = open_batches(tmp_path)
    put(store, inner_batch(3))
    claimed = message(topic="B", sys_flag=INNER, INNER_NUM="2", INNER_BASE="77")
    put(store, claimed)
    result = store.get_message("B", 0, 3, 1)
    stored = decode_record(result.body(), 0, result.total_bytes)
    assert (stored.queue_offset, stored.properties["INNER_BASE"]) == (3, "3")
    store.shutdown()


def test_other_messages_are_batches_of_one(tmp_path: Path) -> None:
    store = open_batches(tmp_path)
    body = encode_batch([(0, b"one", b""), (0, b"two", b"INNER_NUM\x015\x02INNER_BASE\x010\x02")])
    put(
        store,
        message(topic="B"),
        BatchMessage("B", 0, body, INNER, NOW_MS, LOOPBACK, LOOPBACK),
        inner_batch(2),
        message(topic="B", sys_flag=INNER, UNIQ_KEY="no number"),
        message(topic="B", sys_flag=INNER, INNER_NUM=""),
    )
    assert places(store) == [(0, 1), (1, 1), (2, 1), (3, 2), (5, 1), (6, 1)]
    records = store.get_message("B", 0, 1, 2)
    assert decode_record(records.body(), 0, records.total_bytes).sys_flag == 0
    store.shutdown()


@pytest.mark.parametrize("number", ["0", "-1", "32768", "many", " 3", "3.0", "٣"])
def test_a_batch_of_no_possible_size_is_refused(tmp_path: Path, number: str) -> None:
    store = open_batches(tmp_path)
    put(store, inner_batch(2))
    status, detail = refusal(store, inner_batch(number))
    assert status == "MESSAGE_ILLEGAL"
    assert "INNER_NUM" in detail
    store.shutdown()


def test_an_inner_batch_is_refused_by_simple_queues(tmp_path: Path) -> None:
    store = open_batches(tmp_path)
    put(store, message())
    assert refusal(store, inner_batch(2, topic="T"))[0] == "MESSAGE_ILLEGAL"
    store.shutdown()


def test_entries_are_not_written_twice_or_out_of_order(tmp_path: Path) -> None:
    store = open_batches(tmp_path)
    put(store, inner_batch(3), inner_batch(2))
    before = places(store)
    offsets = store.get_message("B", 0, 0, 32)
    assert offsets.queue_offsets == [0, 3]
    store.dispatcher.dispatched_offset = 0
    store.dispatcher.run(store.max_physical_offset)
    assert places(store) == before
    store.shutdown()


# -- reads ---------------------------------------------------------------------------------------


def test_a_pull_from_inside_a_batch_gets_the_batch(tmp_path: Path) -> None:
    fill(tmp_path)
    store = open_batches(tmp_path)
    for base, size in zip(BASES, SIZES, strict=True):
        for offset in range(base, base + size):
            found = store.get_message("B", 0, offset, 1)
            assert found.status is GetMessageStatus.FOUND
            assert (found.queue_offsets, found.message_count) == ([base], size)
            assert found.next_begin_offset == base + size
            assert (found.min_offset, found.max_offset) == (0, END)
    store.shutdown()


@pytest.mark.parametrize(
    ("offset", "count", "following", "messages"),
    [(0, 2, 3, 3), (0, 4, 4, 4), (1, 5, 4, 4), (1, 6, 6, 6), (0, 100, 10, 10), (10, 7, 17, 7)],
)
def test_limits_are_in_messages(
    tmp_path: Path, offset: int, count: int, following: int, messages: int
) -> None:
    fill(tmp_path)
    store = open_batches(tmp_path)
    found = store.get_message("B", 0, offset, count)
    assert (found.next_begin_offset, found.message_count) == (following, messages)
    assert store.stats.get_messages == messages
    store.shutdown()


def test_a_pull_is_limited_in_bytes_and_in_messages_looked_at(tmp_path: Path) -> None:
    fill(tmp_path, (200, 200, 3))
    store = open_batches(tmp_path)
    size = store.get_message("B", 0, 0, 1).total_bytes
    assert store.get_message("B", 0, 0, 1000, max_total_bytes=2 * size - 1).queue_offsets == [0]
    none = MessageFilter(by_queue=lambda _code, _ext: False)
    passed = store.get_message("B", 0, 0, 1, message_filter=none)
    assert passed.status is GetMessageStatus.NO_MATCHED_MESSAGE
    assert passed.next_begin_offset == 400
    store.shutdown()


def test_an_empty_queue_begins_before_its_first_offset(tmp_path: Path) -> None:
    store = open_batches(tmp_path)
    missing = store.get_message("B", 0, 0, 1)
    assert (missing.status, missing.min_offset) == (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, -1)
    queue = store.queues.find_or_create("B", 0)
    assert (queue.min_queue_offset, queue.max_queue_offset) == (-1, 0)
    found = store.get_message("B", 0, 0, 1)
    assert found.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE
    assert (found.next_begin_offset, found.min_offset, found.max_offset) == (0, -1, 0)
    assert store.offset_by_time("B", 0, NOW_MS) == 0
    store.shutdown()


def test_batches_are_found_by_time(tmp_path: Path) -> None:
    fill(tmp_path)
    store = open_batches(tmp_path)
    first, last = NOW_MS, NOW_MS + (len(SIZES) - 1) * 1000
    for number, base in enumerate(BASES):
        at = first + number * 1000
        assert store.offset_by_time("B", 0, at) == base
        assert store.offset_by_time("B", 0, at - 1) == base
        assert store.offset_by_time("B", 0, at, BoundaryType.UPPER) == base
        assert store.offset_by_time("B", 0, at + 1, BoundaryType.UPPER) == base
        assert store.message_store_time_ms("B", 0, base) == at
    assert store.offset_by_time("B", 0, last + 1) == BASES[-1]
    assert store.offset_by_time("B", 0, first - 1, BoundaryType.UPPER) == 0
    assert store.earliest_message_time_in_queue_ms("B", 0) == first
    store.shutdown()


def test_files_removed_while_they_are_read_are_no_error(tmp_path: Path) -> None:
    fill(tmp_path)
    store = open_batches(tmp_path)
    for name in files_of(tmp_path):
        (tmp_path / "batchconsumequeue" / name).unlink()
    assert store.offset_by_time("B", 0, NOW_MS + 5000) == 0
    found = store.get_message("B", 0, 4, 1)
    assert found.status is GetMessageStatus.OFFSET_FOUND_NULL
    kill(store)


def test_ids_and_offsets_are_those_of_batches(tmp_path: Path) -> None:
    fill(tmp_path)
    store = open_batches(tmp_path)
    ids = store.message_ids("B", 0, 4, 11, LOOPBACK)
    assert list(ids.values()) == [4, 6, 10]
    assert store.physical_offset_in_queue("B", 0, 5) == store.physical_offset_in_queue("B", 0, 4)
    store.shutdown()


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_a_restart_continues_where_the_queue_ended(tmp_path: Path, *, is_clean: bool) -> None:
    fill(tmp_path)
    before = files_of(tmp_path)
    if not is_clean:
        (tmp_path / "abort").write_bytes(b"1")
    store = open_batches(tmp_path)
    assert files_of(tmp_path) == before
    assert places(store) == list(zip(BASES, SIZES, strict=True))
    result = answer(store, inner_batch(2)).append
    assert result is not None
    assert result.queue_offset == END
    store.shutdown()


def test_a_torn_entry_is_written_again(tmp_path: Path) -> None:
    fill(tmp_path)
    before = files_of(tmp_path)
    (tmp_path / "abort").write_bytes(b"1")
    last = tmp_path / "batchconsumequeue" / "B" / "0" / f"{2 * SMALL_FILE:020d}"
    torn = bytearray(last.read_bytes())
    torn[28:46] = bytes(18)
    last.write_bytes(torn)
    store = open_batches(tmp_path)
    assert files_of(tmp_path) == before
    store.shutdown()


def test_an_unwritten_queue_is_built_from_the_log(tmp_path: Path) -> None:
    store = open_batches(tmp_path)
    put(store, inner_batch(3), message(topic="B"), inner_batch(4))
    kill(store)
    for path in (tmp_path / "batchconsumequeue" / "B" / "0").iterdir():
        path.write_bytes(bytes(SMALL_FILE))
    again = open_batches(tmp_path)
    assert places(again) == [(0, 3), (3, 1), (4, 4)]
    again.shutdown()


@pytest.mark.parametrize("size_bytes", [0, 20, BATCH_UNIT_BYTES - 1, BATCH_UNIT_BYTES])
def test_a_first_file_that_was_not_finished_is_built_from_the_log(
    tmp_path: Path, size_bytes: int
) -> None:
    """A process that dies between making the file and giving it its length leaves such a one."""
    store = open_batches(tmp_path)
    put(store, inner_batch(3), inner_batch(4))
    kill(store)
    (path,) = (tmp_path / "batchconsumequeue" / "B" / "0").iterdir()
    path.write_bytes(bytes(size_bytes))
    again = open_batches(tmp_path)
    assert places(again) == [(0, 3), (3, 4)]
    again.shutdown()


def test_truncation_takes_entries_and_offsets_back(tmp_path: Path) -> None:
    fill(tmp_path)
    store = open_batches(tmp_path)
    cut = store.physical_offset_in_queue("B", 0, 10)
    store.truncate_to(cut)
    assert places(store) == list(zip(BASES, SIZES, strict=True))[:4]
    assert store.max_offset_in_queue("B", 0, committed=False) == 10
    store.shutdown()


def test_expired_batches_leave_the_queue(tmp_path: Path) -> None:
    fill(tmp_path, (3, 2) * 8, body=b"x" * (SEGMENT_BYTES // 4))
    store = open_batches(tmp_path)
    store.delete_files_manually(archived_offset=3 * SEGMENT_BYTES)
    store.retention.run_once()
    first = store.min_offset_in_queue("B", 0)
    assert 0 < first < store.max_offset_in_queue("B", 0)
    assert store.physical_offset_in_queue("B", 0, first) >= store.min_physical_offset
    assert min(files_of(tmp_path)) > f"B/0/{0:020d}"
    store.shutdown()
    again = open_batches(tmp_path)
    assert again.min_offset_in_queue("B", 0) == first
    again.shutdown()


def test_offsets_of_an_emptied_queue_are_not_reused(tmp_path: Path) -> None:
    fill(tmp_path, (3, 2) * 8, body=b"x" * (SEGMENT_BYTES // 4))
    store = open_batches(tmp_path)
    store.delete_files_manually(archived_offset=3 * SEGMENT_BYTES)
    store.retention.run_once()
    first_file = min(files_of(tmp_path).values(), key=lambda data: unpack_batch_unit(data)[0])
    base = unpack_batch_unit(first_file).base_offset
    queue = queue_of(store)
    assert queue.recover(0, erase=True)
    assert (queue.max_queue_offset, queue.next_queue_offset) == (base, base)
    queue.recover(0, erase=False)
    assert queue.next_queue_offset == base
    put_again = BatchCqUnit(0, 0, 0, 0, base, 0, 0)
    assert unpack_batch_unit(next(iter(files_of(tmp_path).values()))) == put_again
    kill(store)


def test_gaps_are_skipped(tmp_path: Path) -> None:
    store = open_batches(tmp_path)
    put(store, inner_batch(3))
    queue = queue_of(store)
    queue.next_queue_offset = 10
    put(store, inner_batch(2))
    found = store.get_message("B", 0, 5, 32)
    assert (found.queue_offsets, found.next_begin_offset) == ([10], 12)
    store.shutdown()


def test_a_deleted_topic_leaves_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    store = open_batches(tmp_path)
    assert store.delete_topics(["B", "none"]) == 1
    assert files_of(tmp_path) == {}
    assert not (tmp_path / "batchconsumequeue" / "B").exists()
    assert store.max_offset_in_queue("B", 0) == 0
    put(store, inner_batch(2))
    assert places(store) == [(0, 2)]
    assert sum(store.clean_unused_topics([])) == 1
    store.shutdown()


def test_a_recreated_topic_begins_with_its_second_life(tmp_path: Path) -> None:
    store = open_batches(tmp_path)
    put(store, inner_batch(3), inner_batch(2))
    store.delete_topics(["B"])
    put(store, inner_batch(4))
    kill(store)
    again = open_batches(tmp_path)
    assert places(again) == [(0, 4)]
    again.shutdown()


def test_an_inner_batch_reveals_an_unknown_queue_type(tmp_path: Path) -> None:
    fill(tmp_path)
    for path in sorted((tmp_path / "batchconsumequeue").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "abort").write_bytes(b"1")
    store = DefaultMessageStore(tmp_path, SMALL, clock=ManualClock(NOW_MS + 10**6))
    store.load()
    assert places(store) == list(zip(BASES, SIZES, strict=True))
    store.start(threads=False)
    store.shutdown()


def test_a_topic_with_queues_of_both_types_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    for queue_id in ("0", "1"):
        (tmp_path / "consumequeue" / "B" / queue_id).mkdir(parents=True)
    (tmp_path / "consumequeue" / "B" / "0" / f"{0:020d}").write_bytes(bytes(200))
    with pytest.raises(StoreDamaged, match="queues of both types"):
        open_batches(tmp_path)


@pytest.mark.parametrize("is_crashed", [False, True])
def test_empty_directories_of_the_other_type_are_skipped(
    tmp_path: Path, *, is_crashed: bool
) -> None:
    fill(tmp_path)
    store = open_batches(tmp_path)
    put(store, message(b"simple", topic="S"))
    store.shutdown()
    (tmp_path / "consumequeue" / "B" / "0").mkdir(parents=True)
    (tmp_path / "batchconsumequeue" / "S" / "0").mkdir(parents=True)
    if is_crashed:
        (tmp_path / "abort").write_bytes(b"1")
    store = open_batches(tmp_path)
    assert places(store) == list(zip(BASES, SIZES, strict=True))
    assert bodies(store, "S") == [b"simple"]
    store.shutdown()


def test_files_hold_whole_entries() -> None:
    with pytest.raises(ConfigError, match="mapperFileSizeBatchConsumeQueue"):
        changed(batch_consume_queue_file_bytes=100)
    assert CONFIG.batch_consume_queue_file_bytes == 13_800_000


def test_numbers_are_read_as_java_reads_them() -> None:
    assert [inner_number(text) for text in ("1", "+32767", "007", None, "")] == [
        1, 32767, 7, None, None,
    ]  # fmt: skip


def test_a_missing_batch_queue_is_filled_again(tmp_path: Path) -> None:
    fill(tmp_path)
    shutil.rmtree(tmp_path / "batchconsumequeue" / "B")
    again = open_batches(tmp_path)
    assert places(again) == list(zip(BASES, SIZES, strict=True))
    again.shutdown()


def test_a_rebuild_that_accepts_loss_vouches_for_queues_of_batches(tmp_path: Path) -> None:
    fill(tmp_path)
    with StoreView(Files(), tmp_path) as view:
        plan = plan_rebuild(view, into=None, index_slots=20, index_entries=50, accepts_loss=True)
        rebuild(view, plan, ManualClock(NOW_MS + 10**6))
    manifest = read_manifest(Files(), tmp_path)
    assert manifest is not None
    assert manifest.batch_queues == {"B": {0: (0, sum(SIZES))}}
    assert manifest.queues == {}
