"""Queues: entries, filler, what recovery keeps, what expires, and offsets that are never reused."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from roquet.format.consume_queue import FILLER, UNIT, UNIT_BYTES
from roquet.runtime.files import DescriptorCache, Files, OpenFile
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.testing.files import FaultyFiles
from tests.unit.store.kit import CONFIG, config, request

FILE_BYTES = 200
ENTRIES = 10
SIZE = 100


class Queue:
    """A queue in a directory, whose entry n is of the record at 1000 n."""

    def __init__(self, root: Path, files: Files | None = None) -> None:
        self.root = root
        self.files = files or Files()
        self.queue = self.fresh()

    def fresh(self) -> ConsumeQueue:
        return ConsumeQueue(
            self.files,
            DescriptorCache(self.files, limit=4),
            self.root,
            topic="T",
            queue_id=0,
            file_bytes=FILE_BYTES,
        )

    def put(self, *queue_offsets: int) -> None:
        for offset in queue_offsets:
            self.queue.put(request(offset, offset * 1000), tags_code=offset)
        if self.queue.pending:
            self.queue.write_pending()

    def reload(self, log_end: int = 1 << 40, *, erase: bool = False) -> ConsumeQueue:
        self.queue.close()
        self.queue = self.fresh()
        self.queue.load()
        self.queue.recover(log_end, erase=erase)
        self.queue.correct_min_offset(0)
        return self.queue

    def names(self) -> list[int]:
        """Queue offsets at which the files begin."""
        if not self.root.exists():
            return []
        return sorted(int(path.name) // UNIT_BYTES for path in self.root.iterdir())

    def bytes_at(self, queue_offset: int) -> bytes:
        start = queue_offset // ENTRIES * ENTRIES
        data = (self.root / f"{start * UNIT_BYTES:020d}").read_bytes()
        assert len(data) == FILE_BYTES
        position = (queue_offset - start) * UNIT_BYTES
        return data[position : position + UNIT_BYTES]

    def entries(self) -> list[int]:
        """Tags codes of what readers see; -1 for filler."""
        found = []
        for offset in range(self.queue.min_queue_offset, self.queue.max_queue_offset):
            unit = self.queue.unit_at(offset)
            assert unit is not None
            found.append(-1 if unit.is_filler else unit.tags_code)
        return found


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path / "T" / "0")


class TestBuilding:
    def test_an_empty_queue_has_no_files(self, queue: Queue) -> None:
        assert queue.names() == []
        assert queue.queue.unit_at(0) is None
        assert (queue.queue.min_queue_offset, queue.queue.max_queue_offset) == (0, 0)

    def test_entries_become_visible_when_they_are_written(self, queue: Queue) -> None:
        queue.queue.put(request(0, 0), tags_code=5)
        assert queue.queue.max_queue_offset == 0
        assert queue.queue.unit_at(0) is None
        queue.queue.write_pending()
        assert queue.queue.max_queue_offset == 1
        assert queue.bytes_at(0) == UNIT.pack(0, SIZE, 5)
        assert queue.bytes_at(1) == bytes(UNIT_BYTES)
        assert queue.queue.next_queue_offset == 1

    def test_a_burst_over_several_files(self, queue: Queue) -> None:
        queue.put(*range(35))
        assert queue.names() == [0, 10, 20, 30]
        assert queue.entries() == list(range(35))
        assert queue.queue.entries.total_bytes == 4 * FILE_BYTES

    def test_a_file_that_is_exactly_full_makes_no_other(self, queue: Queue) -> None:
        queue.put(*range(10))
        assert queue.names() == [0]
        queue.put(10)
        assert queue.names() == [0, 10]

    def test_files_are_sparse(self, queue: Queue) -> None:
        queue.put(0)
        assert (queue.root / f"{0:020d}").stat().st_size == FILE_BYTES

    def test_existing_entries_are_skipped(self, queue: Queue) -> None:
        queue.put(0, 1, 2)
        queue.put(0, 1, 2, 3)
        assert queue.entries() == [0, 1, 2, 3]

    def test_a_repeated_offset_is_refused(
        self, queue: Queue, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue.put(0, 1, 2)
        with caplog.at_level(logging.WARNING):
            queue.queue.put(request(1, 99_000), tags_code=77)
        assert "repeats queue offset 1" in caplog.text
        queue.put(3)
        assert queue.entries() == [0, 1, 2, 3]

    def test_a_failed_write_keeps_the_entries(self, tmp_path: Path) -> None:
        files = FaultyFiles(only=frozenset({"write_at"}), error=errno.ENOSPC)
        queue = Queue(tmp_path / "q", files)
        queue.put(*range(8))
        files.fail_at = len(files.calls) + 2  # the first file takes its part, the second fails
        for offset in range(8, 15):
            queue.queue.put(request(offset, offset * 1000), tags_code=offset)
        with pytest.raises(OSError, match="No space"):
            queue.queue.write_pending()
        assert queue.queue.max_queue_offset == 10
        assert queue.entries() == list(range(10))
        queue.queue.write_pending()
        assert queue.entries() == list(range(15))

    def test_a_file_that_cannot_be_created_leaves_nothing(self, tmp_path: Path) -> None:
        files = FaultyFiles(only=frozenset({"truncate"}), error=errno.ENOSPC, fail_at=1)
        queue = Queue(tmp_path / "q", files)
        queue.queue.put(request(0, 0), tags_code=0)
        with pytest.raises(OSError, match="No space"):
            queue.queue.write_pending()
        assert queue.names() == []
        queue.queue.write_pending()
        assert queue.entries() == [0]


class TestFiller:
    def test_a_queue_that_does_not_begin_with_0(self, queue: Queue) -> None:
        queue.put(35)
        assert queue.names() == [30]
        assert [queue.bytes_at(n) for n in range(30, 35)] == [FILLER] * 5
        assert queue.bytes_at(35) == UNIT.pack(35_000, SIZE, 35)
        assert (queue.queue.min_queue_offset, queue.queue.max_queue_offset) == (35, 36)
        queue.put(36, 37)
        assert queue.entries() == [35, 36, 37]

    def test_one_that_begins_where_a_file_does(self, queue: Queue) -> None:
        queue.put(30)
        assert queue.names() == [30]
        assert queue.entries() == [30]

    def test_a_gap_is_filled(self, queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
        queue.put(0, 1)
        with caplog.at_level(logging.WARNING):
            queue.put(23)
        assert "entries 2 to 23 are missing" in caplog.text
        assert queue.names() == [0, 10, 20]
        assert queue.entries() == [0, 1, *[-1] * 21, 23]
        assert queue.queue.next_queue_offset == 24

    def test_pending_entries_are_written_before_the_gap(self, queue: Queue) -> None:
        queue.queue.put(request(0, 0), tags_code=0)
        queue.queue.put(request(3, 3000), tags_code=3)
        queue.queue.write_pending()
        assert queue.entries() == [0, -1, -1, 3]

    def test_recovery_keeps_it(self, queue: Queue) -> None:
        queue.put(35, 36)
        recovered = queue.reload()
        assert (recovered.min_queue_offset, recovered.max_queue_offset) == (35, 37)
        assert queue.entries() == [35, 36]

    def test_offsets_continue_after_filler_when_nothing_else_is_left(self, queue: Queue) -> None:
        queue.put(35, 36)
        recovered = queue.reload(log_end=1000, erase=True)
        assert (recovered.min_queue_offset, recovered.max_queue_offset) == (35, 35)
        assert recovered.next_queue_offset == 35

    @pytest.mark.parametrize("min_physical", [0, 1, 500, 1000, 1001, 2000, 23_000, 23_001, 40_000])
    def test_filler_in_the_middle_hides_nothing(self, queue: Queue, min_physical: int) -> None:
        """The first living entry is found among real ones only."""
        places = [0, 1, 23, 24, 40]
        queue.put(*places)
        queue.queue.correct_min_offset(min_physical)
        alive = [place for place in places if place * 1000 >= min_physical]
        assert queue.queue.min_queue_offset == alive[0]

    def test_all_expired(self, queue: Queue) -> None:
        queue.put(0, 1, 23)
        queue.queue.correct_min_offset(1 << 40)
        assert queue.queue.min_queue_offset == 24

    def test_long_filler_over_many_files(self, queue: Queue) -> None:
        queue.put(0, 3000, 3001)
        queue.queue.correct_min_offset(1)
        assert queue.queue.min_queue_offset == 3000
        queue.queue.correct_min_offset(0)
        assert queue.queue.min_queue_offset == 0


class TestReading:
    def test_units_stay_within_a_file(self, queue: Queue) -> None:
        queue.put(*range(15))
        assert len(queue.queue.read_units(3, 100)) == 7 * UNIT_BYTES
        assert len(queue.queue.read_units(3, 2)) == 2 * UNIT_BYTES
        assert len(queue.queue.read_units(10, 100)) == 5 * UNIT_BYTES

    def test_outside(self, queue: Queue) -> None:
        queue.put(*range(3))
        for offset in (-1, 3, 1000):
            assert queue.queue.read_units(offset, 1) == b""
            assert queue.queue.unit_at(offset) is None

    def test_a_missing_file(self, queue: Queue) -> None:
        queue.put(*range(3))
        (queue.root / f"{0:020d}").unlink()
        assert queue.queue.unit_at(0) is None

    def test_next_file(self, queue: Queue) -> None:
        assert [queue.queue.next_file_offset(n) for n in (0, 9, 10)] == [10, 10, 20]


class TestRecovery:
    @pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 25])
    @pytest.mark.parametrize("kept", [0, 1, 5, 9, 10, 11, 19, 20, 25])
    def test_entries_up_to_an_offset_of_the_log(self, queue: Queue, count: int, kept: int) -> None:
        queue.put(*range(count))
        log_end = (kept - 1) * 1000 + SIZE if kept else 0
        recovered = queue.reload(log_end)
        expected = min(count, kept)
        assert recovered.max_queue_offset == recovered.next_queue_offset == expected
        assert queue.entries() == list(range(expected))
        assert recovered.max_physical_offset == ((expected - 1) * 1000 + SIZE if expected else -1)
        assert queue.names() == list(range(0, expected, ENTRIES))
        for place in range(expected, -(-expected // ENTRIES) * ENTRIES):
            assert queue.bytes_at(place) == bytes(UNIT_BYTES)

    def test_a_record_that_ends_beyond_the_log_is_ignored(self, queue: Queue) -> None:
        queue.put(0, 1)
        assert queue.reload(1000 + SIZE - 1).max_queue_offset == 1

    def test_erase_leaves_no_byte_after_the_end(self, queue: Queue) -> None:
        queue.put(*range(3))
        path = queue.root / f"{0:020d}"
        data = bytearray(path.read_bytes())
        data[100:120] = UNIT.pack(50_000, SIZE, 7)  # after zeros, as a torn write leaves it
        path.write_bytes(data)
        queue.reload(3000, erase=False)
        assert queue.bytes_at(5) != bytes(UNIT_BYTES)
        queue.reload(3000, erase=True)
        assert queue.bytes_at(5) == bytes(UNIT_BYTES)
        assert queue.entries() == [0, 1, 2]

    def test_building_continues(self, queue: Queue) -> None:
        queue.put(*range(25))
        queue.reload(17_000)
        queue.put(*range(15, 25))
        assert queue.entries() == list(range(25))

    def test_offsets_are_not_reused_when_the_oldest_files_are_gone(self, queue: Queue) -> None:
        queue.put(*range(20))
        queue.queue.delete_expired(12_000)
        assert queue.names() == [10]
        recovered = queue.reload(1000, erase=True)
        assert (recovered.max_queue_offset, recovered.next_queue_offset) == (10, 10)
        assert queue.names() == [10]
        assert recovered.max_physical_offset == -1
        queue.put(10)
        assert queue.bytes_at(10) == UNIT.pack(10_000, SIZE, 10)
        assert queue.bytes_at(11) == bytes(UNIT_BYTES)

    def test_sampling_entries_after_an_offset(self, queue: Queue) -> None:
        queue.put(*range(25))
        samples = [unit.tags_code for unit in queue.queue.entries.sample_from(7_000)]
        assert samples[0] == 7
        assert samples[-1] == 24
        assert list(queue.queue.entries.sample_from(24_001)) == []
        assert next(queue.queue.entries.sample_from(-1)).tags_code == 0

    def test_the_newest_record_before_recovery(self, queue: Queue) -> None:
        assert queue.queue.entries.peek_newest_offset() == -1
        queue.put(*range(12))
        assert queue.queue.entries.peek_newest_offset() == 11_000


class TestExpiry:
    def test_files_without_a_living_entry_are_removed(self, queue: Queue) -> None:
        queue.put(*range(35))
        assert queue.queue.delete_expired(9_001) == 1
        assert queue.names() == [10, 20, 30]
        assert queue.queue.min_queue_offset == 10
        assert queue.queue.delete_expired(19_000) == 0
        assert queue.queue.min_queue_offset == 19
        assert queue.queue.delete_expired(20_000) == 1

    def test_the_last_file_stays(self, queue: Queue) -> None:
        queue.put(*range(35))
        assert queue.queue.delete_expired(1 << 40) == 3
        assert queue.names() == [30]
        assert queue.queue.min_queue_offset == 35
        queue.put(35)
        assert queue.entries() == [35]

    def test_a_file_that_ends_in_filler_keeps_its_living_entries(self, queue: Queue) -> None:
        queue.put(0, 1, 2, 30)
        assert queue.queue.delete_expired(1_000) == 0
        assert queue.queue.min_queue_offset == 1
        assert queue.entries()[:2] == [1, 2]
        assert queue.queue.delete_expired(2_001) == 3
        assert queue.names() == [30]

    def test_writing_continues_in_the_open_file(self, queue: Queue) -> None:
        queue.put(*range(12))
        queue.queue.delete_expired(1 << 40)
        queue.put(12, 13)
        assert queue.reload().max_queue_offset == 14


class TestSync:
    def test_written_files_are_synced(self, tmp_path: Path) -> None:
        files = FaultyFiles(only=frozenset({"data_sync"}))
        queue = Queue(tmp_path / "q", files)
        queue.put(*range(25))
        queue.queue.sync()
        assert {int(call.subject) // UNIT_BYTES for call in files.calls} == {0, 10, 20}
        assert queue.queue.entries.dirty_bytes == 0

    def test_a_file_deleted_meanwhile_is_no_error(self, tmp_path: Path) -> None:
        queue = Queue(tmp_path / "q")
        queue.put(*range(25))
        (queue.root / f"{0:020d}").unlink()
        queue.queue.sync()

    def test_a_failed_sync_is_an_error(self, tmp_path: Path) -> None:
        files = FaultyFiles(only=frozenset({"data_sync"}), fail_at=1)
        queue = Queue(tmp_path / "q", files)
        queue.put(0)
        with pytest.raises(OSError, match="Input/output"):
            queue.queue.sync()


class TestStore:
    @pytest.fixture
    def queues(self, tmp_path: Path) -> ConsumeQueueStore:
        return ConsumeQueueStore(Files(), tmp_path, CONFIG)

    def put(self, queues: ConsumeQueueStore, *places: tuple[int, int], topic: str = "T") -> None:
        for queue_offset, physical_offset in places:
            queues.put(request(queue_offset, physical_offset, topic=topic))
        queues.write_pending()

    def test_grown_queues_are_reported_once(self, queues: ConsumeQueueStore) -> None:
        for topic in ("A", "B", "A"):
            queues.put(request(0 if topic == "B" else len(queues.table), 0, topic=topic))
        queue = queues.find("A", 0)
        assert queue is not None
        assert {grown.topic for grown in queues.write_pending()} == {"A", "B"}
        assert queues.write_pending() == []

    def test_a_topic_that_was_deleted_and_recreated_starts_over(
        self, queues: ConsumeQueueStore
    ) -> None:
        """A rebuild sees both lives of the topic; only the second counts."""
        self.put(queues, *[(n, n * 1000) for n in range(25)])
        self.put(queues, (0, 30_000), (1, 31_000))
        queue = queues.find("T", 0)
        assert queue is not None
        assert (queue.min_queue_offset, queue.max_queue_offset) == (0, 2)
        assert queue.next_queue_offset == 2
        unit = queue.unit_at(0)
        assert unit is not None
        assert unit.physical_offset == 30_000
        assert len(list(queue.root.iterdir())) == 1

    def test_seeing_the_first_record_twice_changes_nothing(self, queues: ConsumeQueueStore) -> None:
        self.put(queues, *[(n, n * 1000) for n in range(5)])
        self.put(queues, *[(n, n * 1000) for n in range(6)])
        queue = queues.find("T", 0)
        assert queue is not None
        assert queue.max_queue_offset == 6

    def test_deleting_a_topic(self, tmp_path: Path) -> None:
        queues = ConsumeQueueStore(Files(), tmp_path, config(consume_queue_ext=True))
        self.put(queues, (0, 0), (1, 1000))
        self.put(queues, (0, 2000), topic="U")
        assert (tmp_path / "consumequeue_ext" / "T" / "0").is_dir()
        queues.delete(queues.of_topics(["T", "Unknown"]))
        assert queues.find("T", 0) is None
        assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["U"]
        assert [path.name for path in (tmp_path / "consumequeue_ext").iterdir()] == ["U"]
        queues.close()

    def test_numbers_over_all_queues(self, queues: ConsumeQueueStore) -> None:
        assert queues.max_physical_offset == -1
        self.put(queues, (0, 0))
        self.put(queues, (0, 5000), topic="U")
        assert queues.max_physical_offset == 5000 + SIZE
        assert [queue.entries.total_bytes for queue in queues] == [FILE_BYTES] * 2

    def test_strange_names_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "consumequeue" / "T" / "zero").mkdir(parents=True)
        queues = ConsumeQueueStore(Files(), tmp_path, CONFIG)
        with pytest.raises(Exception, match="not a queue"):
            queues.load()

    def test_small_changes_wait_for_a_thorough_sync(self, tmp_path: Path) -> None:
        files = FaultyFiles(only=frozenset({"data_sync"}))
        queues = ConsumeQueueStore(files, tmp_path, CONFIG)
        self.put(queues, (0, 0))
        queues.sync(least_pages=2)
        assert files.calls == []
        queues.sync(least_pages=0)
        assert len(files.calls) == 1
        queues.sync(least_pages=0)
        assert len(files.calls) == 1

    def test_after_a_failed_sync_queues_stay_dirty(self, tmp_path: Path) -> None:
        files = FaultyFiles(only=frozenset({"data_sync"}), fail_at=1)
        queues = ConsumeQueueStore(files, tmp_path, CONFIG)
        self.put(queues, (0, 0))
        with pytest.raises(OSError, match="Input/output"):
            queues.sync(least_pages=0)
        queues.sync(least_pages=0)
        assert len(files.calls) == 2


def test_a_file_kept_open_for_reading_goes_with_the_queue(tmp_path: Path) -> None:
    at = Queue(tmp_path / "0")
    at.put(*range(25))
    entries = at.queue.entries

    def reading(start: int) -> OpenFile:
        file = entries.open_reading(start)
        assert file is not None
        assert file.fd >= 0
        return file

    first, second = reading(0), reading(FILE_BYTES)
    assert first.fd == -1
    at.queue.delete_expired(10_000)
    assert second.fd >= 0, "another file has expired"
    at.queue.delete_expired(20_000)
    assert second.fd == -1
    assert entries.open_reading(0) is None, "it is gone"
    third = reading(2 * FILE_BYTES)
    at.queue.restart()
    assert third.fd == -1
