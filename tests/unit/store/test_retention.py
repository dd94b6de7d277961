"""What is deleted and when: by the hour, by age, by hand, by force; and what is never deleted."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.store.maintenance import QUEUES_A_STEP
from roquet.store.results import GetMessageStatus
from roquet.store.running_flags import RunningFlag
from tests.unit.store.kit import (
    CONFIG,
    FOREVER_MS,
    NOW_MS,
    SEGMENT_BYTES,
    DiskOf,
    answer,
    bodies,
    config,
    message,
    open_store,
    put,
)

HOUR_MS = 3_600_000
NOON_MS = NOW_MS // (24 * HOUR_MS) * 24 * HOUR_MS + 12 * HOUR_MS


@pytest.fixture(autouse=True)
def _greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class Kept:
    """A store with a clock and a disk that a test controls; one message fills a segment."""

    def __init__(self, root: Path, **changes: object) -> None:
        self.clock = ManualClock(NOON_MS)
        self.disk = DiskOf(10)
        self.root = root
        settings = config(**changes) if changes else CONFIG
        self.store = open_store(root, files=self.disk, clock=self.clock, config=settings)

    def fill(self, segments: int) -> None:
        for number in range(segments):
            put(self.store, message(b"%d" % (number % 10) * 10_000, KEYS=f"k{number}"))
        self.settle()
        self.age()

    def settle(self) -> None:
        """Put log and queues on disk."""
        self.store.flush()
        self.store.upkeep.flush_logics(thorough=True)

    def age(self) -> None:
        """Set the files' modification time to now."""
        for path in (self.root / "commitlog").iterdir():
            os.utime(path, (self.clock.now_ms() / 1000, self.clock.now_ms() / 1000))

    def segments(self) -> list[int]:
        names = sorted(path.name for path in (self.root / "commitlog").iterdir())
        starts = [segment.start_offset for segment in self.store.commit_log.queue.segments]
        assert [int(name) for name in names] == starts
        return [start // SEGMENT_BYTES for start in starts]

    def at_hour(self, hour: int) -> None:
        """Move to that hour of the next day."""
        day_ms = self.clock.now_ms() // (24 * HOUR_MS) * 24 * HOUR_MS
        self.clock.set(day_ms + (24 + hour) * HOUR_MS)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path / "store")
    yield kept
    kept.store.shutdown()


class TestByTheHour:
    def test_old_segments_are_deleted_at_the_hour(self, kept: Kept) -> None:
        kept.fill(4)
        kept.clock.advance(80 * HOUR_MS)
        assert kept.clock.local_hour() != 4
        assert kept.store.retention.run_once() == 0
        kept.at_hour(4)
        assert kept.store.retention.run_once() == 3
        assert kept.segments() == [3]

    def test_young_segments_are_kept(self, kept: Kept) -> None:
        kept.fill(4)
        kept.at_hour(4)
        kept.clock.advance(24 * HOUR_MS)
        assert kept.store.retention.run_once() == 0
        assert kept.segments() == [0, 1, 2, 3]

    def test_the_age_is_exact(self, kept: Kept) -> None:
        kept.fill(2)
        kept.clock.set(NOON_MS + 72 * HOUR_MS - 1)
        kept.store.delete_files_manually()
        assert kept.store.retention.run_once() == 0
        kept.clock.set(NOON_MS + 72 * HOUR_MS)
        assert kept.store.retention.run_once() == 1

    def test_deletion_stops_at_the_first_young_one(self, kept: Kept) -> None:
        kept.fill(2)
        kept.clock.advance(100 * HOUR_MS)
        put(kept.store, message(b"new" * 3000), message(b"new" * 3000))
        kept.settle()
        os.utime(
            kept.root / "commitlog" / f"{SEGMENT_BYTES:020d}",
            (kept.clock.now_ms() / 1000, kept.clock.now_ms() / 1000),
        )
        kept.at_hour(4)
        kept.store.retention.run_once()
        assert kept.segments() == [1, 2, 3]

    def test_several_hours(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path / "store", delete_when="03;15", file_reserved_hours=0)
        for hour, deleted in ((2, 0), (3, 2), (14, 0), (15, 2)):
            kept.fill(2 if hour == 2 else 1)
            kept.at_hour(hour)
            assert kept.store.retention.run_once() == deleted
        kept.store.shutdown()

    def test_a_batch_a_round(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path / "store", delete_file_batch_max=2, file_reserved_hours=0)
        kept.fill(6)
        kept.at_hour(4)
        assert [kept.store.retention.run_once() for _ in range(4)] == [2, 2, 1, 0]
        assert kept.segments() == [5]
        kept.store.shutdown()


class TestByHand:
    def test_the_hour_does_not_count(self, kept: Kept) -> None:
        kept.fill(3)
        kept.clock.advance(100 * HOUR_MS + HOUR_MS)
        assert kept.store.retention.run_once() == 0
        kept.store.delete_files_manually()
        assert kept.store.retention.run_once() == 2

    def test_the_age_counts(self, kept: Kept) -> None:
        kept.fill(3)
        kept.store.delete_files_manually()
        assert kept.store.retention.run_once() == 0

    def test_a_manual_deletion_lasts_twenty_rounds(self, kept: Kept) -> None:
        kept.store.delete_files_manually()
        for _ in range(19):
            kept.store.retention.run_once()
        kept.fill(2)
        kept.clock.advance(100 * HOUR_MS + HOUR_MS)
        assert kept.store.retention.run_once() == 1
        kept.fill(1)
        kept.clock.advance(100 * HOUR_MS)
        assert kept.store.retention.run_once() == 0


def test_no_request_deletes_young_segments(tmp_path: Path) -> None:
    hours = MessageStoreConfig().archived_reserved_hours
    kept = Kept(tmp_path / "store", archived_reserved_hours=hours)
    kept.fill(4)
    kept.store.delete_files_manually(archived_offset=1 << 62)
    assert kept.store.retention.run_once() == 0
    kept.clock.advance(71 * HOUR_MS)
    assert kept.store.retention.run_once() == 0
    kept.clock.advance(2 * HOUR_MS)
    assert kept.store.retention.run_once() == 3
    kept.store.shutdown()


class TestArchived:
    def test_neither_hour_nor_age_count(self, kept: Kept) -> None:
        kept.fill(4)
        kept.store.delete_files_manually(archived_offset=3 * SEGMENT_BYTES - 1)
        assert kept.store.retention.run_once() == 2
        assert kept.segments() == [2, 3]
        assert kept.store.retention.run_once() == 0
        assert kept.store.min_offset_in_queue("T", 0) == 2

    def test_old_segments_after_it_wait_for_their_hour(self, kept: Kept) -> None:
        kept.fill(4)
        kept.clock.advance(100 * HOUR_MS + HOUR_MS)
        kept.store.delete_files_manually(archived_offset=SEGMENT_BYTES)
        assert kept.store.retention.run_once() == 1

    def test_the_newest_is_kept(self, kept: Kept) -> None:
        kept.fill(3)
        kept.store.delete_files_manually(archived_offset=1 << 40)
        assert kept.store.retention.run_once() == 2


class TestByTheDisk:
    @pytest.mark.parametrize(("used", "deleted"), [(75, 0), (75.5, 3)])
    def test_above_the_used_ratio_old_segments_are_deleted(
        self, kept: Kept, used: float, deleted: int
    ) -> None:
        kept.fill(4)
        kept.clock.advance(100 * HOUR_MS + HOUR_MS)
        kept.disk.used_percent = used
        assert kept.store.retention.run_once() == deleted

    def test_above_the_used_ratio_young_segments_are_kept(self, kept: Kept) -> None:
        kept.fill(4)
        kept.disk.used_percent = 80
        assert kept.store.retention.run_once() == 0

    @pytest.mark.parametrize(("used", "deleted"), [(85, 0), (85.5, 3)])
    def test_above_the_forcing_ratio_all_segments_are_deleted(
        self, kept: Kept, used: float, deleted: int
    ) -> None:
        kept.fill(4)
        kept.disk.used_percent = used
        assert kept.store.retention.run_once() == deleted
        assert kept.segments()[-1] == 3

    def test_force_can_be_forbidden(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path / "store", clean_file_forcibly=False)
        kept.fill(4)
        kept.disk.used_percent = 89
        assert kept.store.retention.run_once() == 0
        kept.store.shutdown()

    def test_a_full_disk_refuses_writes_and_serves_reads(self, kept: Kept) -> None:
        kept.fill(1)
        kept.disk.used_percent = 90
        kept.store.retention.check_disk()
        assert answer(kept.store, message()).is_ok
        kept.disk.used_percent = 90.5
        kept.store.retention.check_disk()
        assert kept.store.flags.has(RunningFlag.DISK_FULL)
        refused = answer(kept.store, message())
        assert (refused.status.value, refused.detail) == ("SERVICE_NOT_AVAILABLE", "DISK_FULL")
        assert kept.store.get_message("T", 0, 0, 1).status is GetMessageStatus.FOUND
        kept.disk.used_percent = 86
        kept.store.retention.run_once()
        assert kept.store.flags.has(RunningFlag.DISK_FULL), "not yet: it would flap"
        kept.disk.used_percent = 85
        kept.store.retention.run_once()
        assert not kept.store.flags.has(RunningFlag.DISK_FULL)
        assert answer(kept.store, message()).is_ok

    def test_a_store_that_starts_on_a_full_disk(self, tmp_path: Path) -> None:
        disk = DiskOf(95)
        store = open_store(tmp_path / "store", files=disk)
        assert answer(store, message()).status.value == "SERVICE_NOT_AVAILABLE"
        store.shutdown()

    def test_usage_in_the_runtime_info(self, kept: Kept) -> None:
        kept.disk.used_percent = 24
        info = kept.store.runtime_info()
        assert info["commitLogDiskRatio"] == "0.24"
        assert info["consumeQueueDiskRatio"] == "0.24"
        assert info[f"commitLogDiskRatio_{kept.root / 'commitlog'}"] == "0.24"


class TestWhatStays:
    def test_the_newest_segment(self, kept: Kept) -> None:
        kept.fill(1)
        kept.disk.used_percent = 99
        kept.clock.advance(10_000 * HOUR_MS)
        assert kept.store.retention.run_once() == 0
        assert kept.segments() == [0]

    def test_unflushed_segments(self, kept: Kept) -> None:
        for number in range(4):
            put(kept.store, message(b"%d" % number * 10_000))
        kept.disk.used_percent = 89
        assert kept.store.retention.run_once() == 0
        kept.settle()
        assert kept.store.retention.run_once() == 3

    def test_an_empty_store(self, kept: Kept) -> None:
        kept.disk.used_percent = 89
        assert kept.store.retention.run_once() == 0


class TestWhatFollows:
    def test_queues_follow_the_log(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path / "store", file_reserved_hours=0)
        put(kept.store, *[message(b"x" * 1000) for _ in range(45)], message(queue_id=1))
        kept.settle()
        kept.age()
        queue_root = kept.root / "consumequeue" / "T" / "0"
        assert len(list(queue_root.iterdir())) == 5
        kept.at_hour(4)
        kept.store.retention.run_once()
        low = kept.store.min_offset_in_queue("T", 0)
        assert low > 0
        assert kept.store.physical_offset_in_queue("T", 0, low) == kept.store.min_physical_offset
        first_file = min(int(path.name) for path in queue_root.iterdir()) // 20
        assert first_file <= low < first_file + 10
        assert len(bodies(kept.store)) == 45 - low
        assert len(list((kept.root / "consumequeue" / "T" / "1").iterdir())) == 1
        kept.store.shutdown()

    def test_the_index_follows_the_log(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path / "store", file_reserved_hours=0, index_entries=10)
        kept.fill(30)
        before = len(list((kept.root / "index").iterdir()))
        kept.at_hour(4)
        for _ in range(3):
            kept.store.retention.run_once()
        assert kept.segments() == [29]
        assert 1 <= len(list((kept.root / "index").iterdir())) < before
        assert len(kept.store.query_message("T", "k29", 1, 0, FOREVER_MS).records) == 1
        assert kept.store.query_message("T", "k3", 1, 0, FOREVER_MS).records == []
        kept.store.shutdown()

    def test_queue_offsets_continue_when_all_records_are_gone(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path / "store", file_reserved_hours=0)
        put(kept.store, *[message(b"a", topic="Quiet") for _ in range(15)])
        kept.fill(3)
        kept.at_hour(4)
        kept.store.retention.run_once()
        assert kept.store.min_offset_in_queue("Quiet", 0) == 15
        assert kept.store.max_offset_in_queue("Quiet", 0) == 15
        result = answer(kept.store, message(topic="Quiet"))
        assert result.append is not None
        assert result.append.queue_offset == 15
        kept.store.shutdown()
        again = open_store(tmp_path / "store", clock=kept.clock)
        assert again.max_offset_in_queue("Quiet", 0) == 16
        assert bodies(again, "Quiet") == [b"body"]
        again.shutdown()

    def test_deleted_segments_stay_readable_to_their_holders(self, kept: Kept) -> None:
        kept.fill(3)
        result = kept.store.get_message("T", 0, 0, 1)
        kept.disk.used_percent = 89
        assert kept.store.retention.run_once() == 2
        assert b"0" * 10_000 in result.body()
        assert kept.store.get_message("T", 0, 0, 1).status is GetMessageStatus.OFFSET_TOO_SMALL

    def test_the_store_opens_again_after_deletion(self, kept: Kept, tmp_path: Path) -> None:
        kept.fill(4)
        kept.disk.used_percent = 86
        kept.store.retention.run_once()
        kept.store.shutdown()
        (tmp_path / "store" / "abort").write_bytes(b"1")
        again = open_store(tmp_path / "store", clock=kept.clock)
        assert bodies(again) == [b"3" * 10_000]
        assert again.min_offset_in_queue("T", 0) == 3
        again.shutdown()


def test_a_segment_removed_by_hand_does_not_keep_those_after_it(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "store", file_reserved_hours=0)
    kept.fill(4)
    min((tmp_path / "store" / "commitlog").iterdir()).unlink()
    kept.at_hour(4)
    assert kept.store.retention.run_once() == 3
    assert bodies(kept.store) == [b"3" * 10_000]
    kept.store.shutdown()
    again = open_store(tmp_path / "store", clock=kept.clock)
    assert bodies(again) == [b"3" * 10_000]
    again.shutdown()


def test_a_shortage_amid_a_round_only_delays_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path / "store", consume_queue_ext=True, consume_queue_file_bytes=20)
    kept.fill(4)
    kept.disk.used_percent = 86
    folder = tmp_path / "store" / "consumequeue" / "T" / "0"
    open_file = kept.disk.open

    def open_or_fail(path: Path, *, write: bool = False, create: bool = False) -> int:
        if path.parent == folder and len(list(folder.iterdir())) == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(path, write=write, create=create)

    with monkeypatch.context() as patch:
        patch.setattr(kept.disk, "open", open_or_fail)
        assert kept.store.retention.run_once() == 3
    assert "the next round continues" in caplog.text
    kept.store.shutdown()


def test_stopping_ends_a_round_that_waits(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "store", delete_commit_log_interval_ms=3_600_000)
    kept.fill(4)
    kept.disk.used_percent = 89
    deleted: list[int] = []
    thread = threading.Thread(target=lambda: deleted.append(kept.store.retention.run_once()))
    thread.start()
    kept.store.retention.stop()
    thread.join(60)
    assert deleted == [1]
    kept.store.shutdown()


class TestExpiredQueues:
    def expired(self, tmp_path: Path) -> Kept:
        """A store whose topics Old and SCHEDULE_TOPIC_XXXX have no records left."""
        kept = Kept(tmp_path / "store", file_reserved_hours=0)
        for topic in ("Old", "SCHEDULE_TOPIC_XXXX"):
            put(kept.store, message(topic=topic))
        kept.fill(3)
        kept.at_hour(4)
        kept.store.retention.run_once()
        return kept

    def test_they_are_deleted_on_request(self, tmp_path: Path) -> None:
        kept = self.expired(tmp_path)
        assert sum(kept.store.clean_expired_consume_queues()) == 1
        assert kept.store.find_consume_queue("Old", 0) is None
        assert not (kept.root / "consumequeue" / "Old").exists()
        assert sum(kept.store.clean_expired_consume_queues()) == 0
        assert bodies(kept.store) == [b"2" * 10_000]
        kept.store.shutdown()

    def test_one_that_gets_a_message_meanwhile_is_kept(self, tmp_path: Path) -> None:
        kept = Kept(tmp_path / "store", file_reserved_hours=0)
        topics = [f"Old{number}" for number in range(QUEUES_A_STEP + 2)]
        for topic in topics:
            put(kept.store, message(topic=topic))
        kept.fill(3)
        kept.at_hour(4)
        kept.store.retention.run_once()
        steps = kept.store.clean_expired_consume_queues()
        assert next(steps) == QUEUES_A_STEP
        used, gone = [topic for topic in topics if topic in kept.store.queues.table]
        put(kept.store, message(b"new", topic=used))
        assert list(steps) == [1]
        assert kept.store.find_consume_queue(gone, 0) is None
        assert kept.store.max_offset_in_queue(used, 0) == 2
        kept.store.shutdown()

    def test_delayed_messages_keep_their_offsets(self, tmp_path: Path) -> None:
        kept = self.expired(tmp_path)
        assert sum(kept.store.clean_expired_consume_queues()) == 1
        assert kept.store.max_offset_in_queue("SCHEDULE_TOPIC_XXXX", 0) == 1
        kept.store.shutdown()

    def test_queues_that_never_had_a_message_are_kept(self, tmp_path: Path) -> None:
        kept = self.expired(tmp_path)
        kept.store.queues.find_or_create("Fresh", 0)
        assert sum(kept.store.clean_expired_consume_queues()) == 1
        assert kept.store.find_consume_queue("Fresh", 0) is not None
        kept.store.shutdown()
