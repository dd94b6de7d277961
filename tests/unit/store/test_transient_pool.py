"""Appends that go to memory first, then to the file, then to the disk."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.errors import StoreError
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.runtime.memory import PAGE_BYTES
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.running_flags import RunningFlag
from roquet.store.transient_pool import TransientStorePool
from roquet.testing.files import FaultyFiles
from tests.unit.store.kit import NOW_MS, SEGMENT_BYTES, answer, bodies, config, message, opened, put

POOL = config(transient_store_pool=True, transient_store_pool_size=2)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[DefaultMessageStore]:
    with opened(tmp_path / "store", config=POOL, clock=clock) as store:
        yield store


def test_buffers_come_back_as_zeros() -> None:
    pool = TransientStorePool(Files(), count=1, size_bytes=4 * PAGE_BYTES)
    buffer = pool.borrow()
    assert buffer is not None
    assert pool.available == 0
    assert pool.borrow() is None
    buffer[:] = b"x" * len(buffer)
    pool.give_back(buffer)
    again = pool.borrow()
    assert again is buffer
    assert again[:] == bytes(4 * PAGE_BYTES)


def test_readers_do_not_see_what_is_only_in_memory(
    store: DefaultMessageStore, tmp_path: Path
) -> None:
    assert answer(store, message(b"a")).is_ok
    assert store.max_physical_offset == 0
    assert store.remaining_to_commit_bytes() > 0
    assert bodies(store) == []
    segment = next((tmp_path / "store" / "commitlog").iterdir())
    assert not any(segment.read_bytes())


def test_commit_then_flush(store: DefaultMessageStore, tmp_path: Path) -> None:
    put(store, message(b"a"))
    store.flusher._commit(least_pages=0)
    assert store.remaining_to_commit_bytes() == 0
    assert store.remaining_to_flush_bytes() == store.max_physical_offset > 0
    assert bodies(store) == [b"a"]
    assert any(next((tmp_path / "store" / "commitlog").iterdir()).read_bytes())
    store.flusher._flush(least_pages=0)
    assert store.remaining_to_flush_bytes() == 0


def test_a_flush_alone_does_not_pass_the_committed_end(store: DefaultMessageStore) -> None:
    put(store, message(b"a"))
    store.flusher._flush(least_pages=0)
    assert store.flushed_offset == 0
    store.flusher._commit(least_pages=0)
    put(store, message(b"b"))
    store.flusher._flush(least_pages=0)
    assert store.flushed_offset == store.max_physical_offset < store.commit_log.wrote_offset
    assert store.flush() == store.commit_log.wrote_offset


def test_few_pages_wait_for_the_thorough_interval(
    store: DefaultMessageStore, clock: ManualClock
) -> None:
    put(store, message(b"a"))
    store.flusher._commit_round()
    assert store.remaining_to_commit_bytes() > 0
    clock.advance(200)
    store.flusher._commit_round()
    assert store.remaining_to_commit_bytes() == 0


def test_a_full_segment_returns_its_buffer(store: DefaultMessageStore) -> None:
    assert store.remaining_transient_buffers() == 2
    put(store, message(b"a" * 10_000))
    assert store.remaining_transient_buffers() == 1
    assert not store.is_transient_store_pool_deficient()
    put(store, message(b"b" * 10_000))
    assert store.remaining_transient_buffers() == 0
    assert store.is_transient_store_pool_deficient()
    store.flusher._commit(least_pages=0)
    assert store.remaining_transient_buffers() == 1
    assert bodies(store) == [b"a" * 10_000, b"b" * 10_000]


def test_without_a_buffer_the_mapping_is_used_and_order_is_kept(store: DefaultMessageStore) -> None:
    put(store, *[message(b"%d" % n * 10_000) for n in range(4)])
    segments = store.commit_log.queue.segments
    assert [s.write_buffer is not None for s in segments] == [True, True, False, False]
    # The later segments are in their files already, but readers see no gap.
    assert store.max_physical_offset == 0
    assert bodies(store) == []
    store.flusher._commit(least_pages=0)
    assert bodies(store) == [b"%d" % n * 10_000 for n in range(4)]
    assert store.max_physical_offset == store.commit_log.wrote_offset


def test_without_a_buffer_puts_may_fail_fast(tmp_path: Path) -> None:
    settings = config(
        transient_store_pool=True,
        transient_store_pool_size=1,
        fast_fail_if_no_buffer_in_store_pool=True,
    )
    with opened(tmp_path / "store", config=settings) as store:
        put(store, message(b"a" * 10_000))
        refused = answer(store, message(b"b" * 10_000))
        assert refused.status.value == "CREATE_MAPPED_FILE_FAILED"
        assert "transient buffers" in refused.detail
        put(store, message(b"small"))
        settings_without = config(transient_store_pool=True, transient_store_pool_size=1)
    with opened(tmp_path / "store", config=settings_without) as store:
        put(store, message(b"b" * 10_000))
        store.flush()
        assert bodies(store) == [b"a" * 10_000, b"small", b"b" * 10_000]


def test_the_end_of_a_segment_is_written_and_nothing_after_it(
    store: DefaultMessageStore, tmp_path: Path
) -> None:
    for number in range(4):
        put(store, message(b"%d" % number * 10_000))
        store.flusher._commit(least_pages=0)
    first = (tmp_path / "store" / "commitlog" / f"{0:020d}").read_bytes()
    third = (tmp_path / "store" / "commitlog" / f"{2 * SEGMENT_BYTES:020d}").read_bytes()
    for data in (first, third):
        assert data[10_092 + 4 : 10_100] == bytes.fromhex("cbd43194")
        assert not any(data[10_100:])


def test_uncommitted_messages_are_lost_with_the_process(tmp_path: Path) -> None:
    store = DefaultMessageStore(tmp_path / "store", POOL, clock=ManualClock(NOW_MS))
    store.load()
    store.start(threads=False)
    put(store, message(b"a"))
    store.flusher._commit(least_pages=0)
    put(store, message(b"b"))
    store.lifecycle.abandon()  # what remains when the process is killed
    with opened(tmp_path / "store", config=POOL) as store:
        assert bodies(store) == [b"a"]
        put(store, message(b"c"))
        store.flush()
        assert bodies(store) == [b"a", b"c"]


def test_shutdown_commits_everything(tmp_path: Path) -> None:
    with opened(tmp_path / "store", config=POOL) as store:
        put(store, *[message(b"%d" % n * 10_000) for n in range(4)])
    with opened(tmp_path / "store", config=POOL) as store:
        assert store.lifecycle.last_recovery is not None
        assert store.lifecycle.last_recovery.clean_exit
        assert bodies(store) == [b"%d" % n * 10_000 for n in range(4)]


def test_the_checkpoint_covers_committed_records_only(
    store: DefaultMessageStore, clock: ManualClock
) -> None:
    put(store, message(b"a"))
    store.flusher._commit(least_pages=0)
    clock.advance(10)
    put(store, message(b"b"))
    store.flusher._flush(least_pages=0)
    assert store.checkpoint.marks.physic_msg_timestamp_ms == NOW_MS
    store.flush()
    assert store.checkpoint.marks.physic_msg_timestamp_ms == NOW_MS + 10


def test_a_truncation_returns_its_buffers(store: DefaultMessageStore) -> None:
    put(store, message(b"a"))
    kept = store.commit_log.wrote_offset
    for _ in range(3):
        put(store, message(b"b" * 10_000), message(b"c" * 10_000))
        store.truncate_to(kept)
        assert bodies(store) == [b"a"]
        assert store.remaining_transient_buffers() == 2
    put(store, message(b"d"))
    store.flush()
    assert bodies(store) == [b"a", b"d"]


def test_a_truncation_is_refused_while_its_rest_is_uncommitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FaultyFiles(error=errno.ENOMEM, only=frozenset({"write_at"}), and_after=True)
    with opened(tmp_path / "store", files=files, config=POOL) as store:
        monkeypatch.setattr("roquet.store.flush._SHORTAGE_PAUSES_S", (0.0,))
        put(store, message(b"a"))
        kept = store.commit_log.wrote_offset
        put(store, message(b"b"))
        files.fail_at = len(files.calls) + 1
        with pytest.raises(StoreError, match="cannot be truncated"):
            store.truncate_to(kept)
        files.heal()
        store.truncate_to(kept)
        assert bodies(store) == [b"a"]


def test_a_failed_commit_is_fatal(tmp_path: Path) -> None:
    files = FaultyFiles(only=frozenset({"write_at"}))
    fatal: list[OSError] = []
    store = DefaultMessageStore(
        tmp_path / "store", POOL, files=files, clock=ManualClock(NOW_MS), on_fatal=fatal.append
    )
    store.load()
    store.start(threads=False)
    put(store, message(b"a"))
    files.fail_at = len(files.calls) + 1
    store.flusher._commit(least_pages=0)
    assert [error.errno for error in fatal] == [errno.EIO]
    assert store.flags.has(RunningFlag.FLUSH_FAILED)
    assert answer(store, message()).status.value == "SERVICE_NOT_AVAILABLE"
    store.shutdown()
    assert (tmp_path / "store" / "abort").exists()
