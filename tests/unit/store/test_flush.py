"""Getting to disk: when the log is synced, what a result waits for, and what a failure means."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from roquet.runtime.clock import ManualClock
from roquet.runtime.memory import PAGE_BYTES
from roquet.store.config import BrokerRole, FlushDiskType
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.flush import AckQueue
from roquet.store.results import PutMessageResult, PutMessageStatus
from roquet.store.running_flags import RunningFlag
from roquet.testing.files import FaultyFiles
from tests.unit.store.kit import (
    NOW_MS,
    SEGMENT_BYTES,
    answer,
    bodies,
    config,
    message,
    open_store,
    opened,
    put,
)

SYNC = config(flush_disk_type=FlushDiskType.SYNC_FLUSH)
PATIENCE_S = 60


def submit(store: DefaultMessageStore, *bodies: bytes, wait: bool = True) -> list[PutMessageResult]:
    """Put a burst; the list fills as results arrive."""
    answers: list[PutMessageResult] = []
    for body in bodies:
        store.submit(message(body, wait_store_ok=wait), answers.append)
    store.finish_burst()
    return answers


def statuses(answers: list[PutMessageResult]) -> list[str]:
    return [one.status.value for one in answers]


class TestAckQueue:
    def queue(self, clock: ManualClock, **changes: object) -> AckQueue:
        return AckQueue(config(**changes), clock)

    def test_which_puts_wait_for_what(self) -> None:
        clock = ManualClock()
        sync_flush = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
        sync_master = {"broker_role": BrokerRole.SYNC_MASTER}
        assert not self.queue(clock).is_needed
        assert self.queue(clock, **sync_flush).is_needed
        assert self.queue(clock, **sync_master).is_needed

    @pytest.mark.parametrize(
        ("flush", "role", "flushed", "replicated", "done"),
        [
            ("SYNC_FLUSH", "ASYNC_MASTER", 100, 0, True),
            ("SYNC_FLUSH", "ASYNC_MASTER", 99, 1000, False),
            ("ASYNC_FLUSH", "SYNC_MASTER", 0, 100, True),
            ("ASYNC_FLUSH", "SYNC_MASTER", 1000, 99, False),
            ("SYNC_FLUSH", "SYNC_MASTER", 100, 100, True),
            ("SYNC_FLUSH", "SYNC_MASTER", 1000, 99, False),
            ("SYNC_FLUSH", "SYNC_MASTER", 99, 1000, False),
        ],
    )
    def test_marks(
        self, flush: str, role: str, flushed: int, replicated: int, *, done: bool
    ) -> None:
        acks = self.queue(
            ManualClock(), flush_disk_type=FlushDiskType(flush), broker_role=BrokerRole(role)
        )
        answers: list[PutMessageStatus] = []
        acks.wait(100, answers.append)
        acks.flushed_offset, acks.replicated_offset = flushed, replicated
        acks.release()
        assert bool(answers) is done
        assert len(acks) == 1 - done

    def test_one_sync_releases_all_before_it_in_order(self) -> None:
        acks = self.queue(ManualClock(), flush_disk_type=FlushDiskType.SYNC_FLUSH)
        order: list[int] = []
        for number in range(1, 6):
            acks.wait(number * 10, lambda _, number=number: order.append(number))  # type: ignore[misc]
        acks.flushed_offset = 30
        acks.release()
        assert order == [1, 2, 3]
        acks.flushed_offset = 50
        acks.release()
        assert order == [1, 2, 3, 4, 5]

    def test_time_out_names_what_was_missing(self) -> None:
        clock = ManualClock()
        acks = self.queue(
            clock,
            flush_disk_type=FlushDiskType.SYNC_FLUSH,
            broker_role=BrokerRole.SYNC_MASTER,
            sync_flush_timeout_ms=1000,
            slave_timeout_ms=2000,
        )
        answers: list[PutMessageStatus] = []
        acks.wait(10, answers.append)
        acks.wait(20, answers.append)
        acks.flushed_offset = 10
        clock.advance(1999)
        acks.expire()
        assert answers == []
        clock.advance(1)
        acks.expire()
        assert [one.value for one in answers] == ["FLUSH_SLAVE_TIMEOUT", "FLUSH_DISK_TIMEOUT"]
        assert len(acks) == 0

    def test_setting_the_clock_expires_nothing(self) -> None:
        clock = ManualClock()
        acks = self.queue(clock, flush_disk_type=FlushDiskType.SYNC_FLUSH)
        answers: list[PutMessageStatus] = []
        acks.wait(10, answers.append)
        clock.set(clock.now_ms() + 86_400_000)
        acks.expire()
        assert answers == []

    def test_failure_releases_every_waiter(self) -> None:
        acks = self.queue(ManualClock(), flush_disk_type=FlushDiskType.SYNC_FLUSH)
        answers: list[PutMessageStatus] = []
        acks.wait(10, answers.append)
        acks.wait(20, answers.append)
        acks.fail()
        assert [one.value for one in answers] == ["UNKNOWN_ERROR"] * 2


class TestAsyncFlush:
    def test_few_pages_wait_for_the_thorough_interval(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with opened(tmp_path / "store", clock=clock) as store:
            put(store, message(b"x" * (3 * PAGE_BYTES)))
            store.flusher._flush_round()
            assert store.flushed_offset == 0
            clock.advance(9_999)
            store.flusher._flush_round()
            assert store.flushed_offset == 0
            clock.advance(1)
            store.flusher._flush_round()
            assert store.flushed_offset == store.max_physical_offset

    def test_enough_pages_are_synced_at_once(self, tmp_path: Path) -> None:
        settings = config(commit_log_file_bytes=1 << 16, max_message_bytes=1 << 16)
        with opened(tmp_path / "store", config=settings) as store:
            put(store, message(b"x" * (4 * PAGE_BYTES)))
            assert store.remaining_to_flush_bytes() > 4 * PAGE_BYTES
            store.flusher._flush_round()
            assert store.flushed_offset == store.max_physical_offset
            assert store.remaining_to_flush_bytes() == 0

    def test_all_segments_since_the_last_sync_are_synced(self, tmp_path: Path) -> None:
        files = FaultyFiles(only=frozenset({"data_sync"}))
        with opened(tmp_path / "store", files=files) as store:
            put(store, *[message(b"x" * 10_000)] * 4)
            files.calls.clear()
            assert store.flush() == store.max_physical_offset
            names = [call.subject for call in files.calls]
            assert names == [f"{n * SEGMENT_BYTES:020d}" for n in range(4)]
            assert [s.flushed for s in store.commit_log.queue.segments][:3] == [SEGMENT_BYTES] * 3
            files.calls.clear()
            store.flush()
            assert files.calls == []

    def test_the_result_does_not_wait(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store") as store:
            assert statuses(submit(store, b"a", b"b")) == ["PUT_OK", "PUT_OK"]
            assert store.flushed_offset == 0
            assert bodies(store) == [b"a", b"b"]

    def test_the_checkpoint_follows_the_sync(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with opened(tmp_path / "store", clock=clock) as store:
            put(store, message())
            assert store.checkpoint.marks.physic_msg_timestamp_ms == 0
            clock.advance(5)
            put(store, message())
            store.flush()
            assert store.checkpoint.marks.physic_msg_timestamp_ms == NOW_MS + 5


class TestSyncFlush:
    def test_results_and_readers_wait_for_the_disk(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store", config=SYNC) as store:
            answers = submit(store, b"a", b"b")
            assert answers == []
            assert store.max_offset_in_queue("T", 0) == 0
            assert store.max_offset_in_queue("T", 0, committed=False) == 2
            assert store.dispatch_behind_bytes() > 0
            store.flusher._flush_round()
            assert statuses(answers) == ["PUT_OK", "PUT_OK"]
            assert bodies(store) == [b"a", b"b"]
            assert store.dispatch_behind_bytes() == 0

    def test_a_message_that_does_not_wait(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store", config=SYNC) as store:
            assert statuses(submit(store, b"a", wait=False)) == ["PUT_OK"]
            assert store.flushed_offset == 0
            assert bodies(store) == []
            store.flush()
            assert bodies(store) == [b"a"]

    def test_time_out(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with opened(tmp_path / "store", config=SYNC, clock=clock) as store:
            answers = submit(store, b"a")
            clock.advance(4999)
            store.upkeep.housekeeping_round()
            assert answers == []
            clock.advance(1)
            store.upkeep.housekeeping_round()
            assert statuses(answers) == ["FLUSH_DISK_TIMEOUT"]
            assert answers[0].is_stored
            assert not answers[0].is_ok
            assert answers[0].append is not None
            store.flush()
            assert bodies(store) == [b"a"]
            assert len(answers) == 1

    def test_shutdown_flushes_pending_messages(self, tmp_path: Path) -> None:
        store = open_store(tmp_path / "store", config=SYNC)
        answers = submit(store, b"a")
        store.shutdown()
        assert statuses(answers) == ["PUT_OK"]
        with opened(tmp_path / "store", config=SYNC) as store:
            assert bodies(store) == [b"a"]

    def test_put_message_waits_with_the_threads_running(self, tmp_path: Path) -> None:
        store = DefaultMessageStore(tmp_path / "store", SYNC)
        store.load()
        store.start()
        results = [store.put_message(message(b"%d" % n)) for n in range(20)]
        assert all(result.is_ok for result in results)
        assert results[-1].append is not None
        assert store.flushed_offset >= results[-1].append.end_offset
        store.shutdown()

    def test_many_threads_put_at_once(self, tmp_path: Path) -> None:
        store = DefaultMessageStore(tmp_path / "store", SYNC)
        store.load()
        store.start()
        failed: list[PutMessageResult] = []

        def put_some(number: int) -> None:
            for count in range(25):
                result = store.put_message(message(b"%d-%d" % (number, count), queue_id=number))
                if not result.is_ok:
                    failed.append(result)

        threads = [threading.Thread(target=put_some, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert failed == []
        for number in range(4):
            assert bodies(store, queue_id=number) == [b"%d-%d" % (number, n) for n in range(25)]
        store.shutdown()


class TestFailedSync:
    def failing(self, tmp_path: Path, files: FaultyFiles) -> tuple[DefaultMessageStore, list[str]]:
        fatal: list[str] = []
        store = DefaultMessageStore(
            tmp_path / "store",
            SYNC,
            files=files,
            clock=ManualClock(NOW_MS),
            on_fatal=lambda error: fatal.append(errno.errorcode[error.errno or 0]),
        )
        store.load()
        store.start(threads=False)
        return store, fatal

    def test_it_is_fatal(self, tmp_path: Path) -> None:
        files = FaultyFiles(only=frozenset({"data_sync"}))
        store, fatal = self.failing(tmp_path, files)
        submit(store, b"safe")
        store.flush()
        answers = submit(store, b"lost?")
        files.fail_at = len(files.calls) + 1
        store.flusher._flush_round()
        assert fatal == ["EIO"]
        assert statuses(answers) == ["UNKNOWN_ERROR"]
        assert store.flags.has(RunningFlag.FLUSH_FAILED)
        # The disk works again, but the fate of the pages meanwhile is unknown.
        flushed = store.flushed_offset
        calls = len(files.calls)
        store.flusher._flush_round()
        store.flush()
        assert store.flushed_offset == flushed
        assert len(files.calls) == calls
        refused = answer(store, message())
        assert (refused.status.value, refused.detail) == ("SERVICE_NOT_AVAILABLE", "FLUSH_FAILED")
        assert bodies(store) == [b"safe"]
        assert fatal == ["EIO"]
        store.shutdown()
        assert (tmp_path / "store" / "abort").exists()
        assert store.checkpoint.marks.physic_msg_timestamp_ms == NOW_MS

    def test_after_a_restart_the_disk_decides(self, tmp_path: Path) -> None:
        files = FaultyFiles(only=frozenset({"data_sync"}))
        store, _ = self.failing(tmp_path, files)
        submit(store, b"maybe")
        files.fail_at = len(files.calls) + 1
        store.flush()
        store.shutdown()
        with opened(tmp_path / "store", config=SYNC) as store:
            assert store.lifecycle.last_recovery is not None
            assert not store.lifecycle.last_recovery.clean_exit
            assert bodies(store) == [b"maybe"]

    def test_a_failed_sync_of_queues_is_fatal(self, tmp_path: Path) -> None:
        files = FaultyFiles(only=frozenset({"data_sync"}))
        store, fatal = self.failing(tmp_path, files)
        submit(store, b"a")
        store.flush()
        files.fail_at = len(files.calls) + 1
        store.upkeep.last_thorough_ns = -(10**15)
        store.upkeep.flush_logics_round()
        assert fatal == ["EIO"]
        assert store.flags.has(RunningFlag.FLUSH_FAILED)
        store.upkeep.flush_logics_round()
        store.shutdown()
        assert (tmp_path / "store" / "abort").exists()


class TestQuiet:
    def test_no_sync_begins_while_it_is_quiet(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store") as store:
            put(store, message())
            began, ended = threading.Event(), threading.Event()

            def flush() -> None:
                began.set()
                store.flush()
                ended.set()

            thread = threading.Thread(target=flush)
            with store.flusher.quiet():
                thread.start()
                assert began.wait(PATIENCE_S)
                assert not ended.is_set()
                assert store.flushed_offset == 0
            assert ended.wait(PATIENCE_S)
            thread.join()
            assert store.flushed_offset == store.max_physical_offset
