"""Reading ahead: what is loaded, when, and how much of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roquet.errors import StoreError
from roquet.runtime.clock import ManualClock
from roquet.store import read_ahead
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.read_ahead import STREAMS_A_QUEUE_MAX, ReadAhead
from tests.residency import patch_residency
from tests.unit.store.batch_kit import inner_batch, open_batches, queue_of
from tests.unit.store.kit import NOW_MS, SEGMENT_BYTES, bodies, config, message, opened, put

WINDOW_MIN = 1000
WINDOW_MAX = 4000
SPARSE = 500
RECORD = 100
"""About the length of a record in these tests, at most."""


class FakeWorker:
    """A thread that runs only when a test says so."""

    def __init__(
        self, name: str, round_: Callable[[], None], *, interval_ms: Callable[[], int]
    ) -> None:
        assert name.startswith("read-ahead")
        assert interval_ms() > 0
        self.run = round_
        self.wakes = 0

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def wake(self) -> None:
        self.wakes += 1


class Ahead:
    """Reads ahead in a store, by hand."""

    def __init__(self, store: DefaultMessageStore, *, ahead_bytes_max: int = 1 << 20) -> None:
        self.clock = ManualClock(NOW_MS)
        self.store = store
        self.subject = ReadAhead(store.commit_log, self.clock, ahead_bytes_max=ahead_bytes_max)
        self.subject.start()
        self.brought: list[tuple[int, int]] = []
        """Physical offset and length of what was brought in."""
        self.requested: list[tuple[int, int]] = []
        """Likewise of what was requested before any of it was waited for."""
        self.is_resident = False
        """Whether the log is in memory already."""

    def queue(self, queue_id: int = 0) -> ConsumeQueue:
        queue = self.store.find_consume_queue("T", queue_id)
        assert queue is not None
        return queue

    def read(self, first: int, following: int, *, queue_id: int = 0) -> tuple[int, int]:
        return self.subject.advance(self.queue(queue_id), first, following)

    def bring(self) -> list[tuple[int, int]]:
        """Let the thread run; return what it loaded."""
        self.brought.clear()
        self.subject.bring_wanted()
        return list(self.brought)

    def place(self, queue_offset: int, *, queue_id: int = 0) -> int:
        return self.store.physical_offset_in_queue("T", queue_id, queue_offset)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "Worker", FakeWorker)
    monkeypatch.setattr(read_ahead, "WINDOW_BYTES_MIN", WINDOW_MIN)
    monkeypatch.setattr(read_ahead, "WINDOW_BYTES_MAX", WINDOW_MAX)
    monkeypatch.setattr(read_ahead, "SPARSE_BYTES", SPARSE)
    monkeypatch.setattr(read_ahead, "_RECORD_BYTES_MIN", 10)


@pytest.fixture
def store(tmp_path: Path, small: None) -> Iterator[DefaultMessageStore]:  # noqa: ARG001 - sizes
    with opened(tmp_path, config=config(consume_queue_file_bytes=20_000)) as store:
        put(store, *(message(b"%04d" % number) for number in range(600)))
        yield store


@pytest.fixture
def ahead(store: DefaultMessageStore, monkeypatch: pytest.MonkeyPatch) -> Ahead:
    made = Ahead(store)
    watch(made, monkeypatch)
    return made


def watch(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_resident(start: int, size_bytes: int) -> None:
        ahead.brought.append((start, size_bytes))
        if ahead.requested:
            assert (start, size_bytes) in ahead.requested

    patch_residency(
        monkeypatch,
        is_resident=lambda *_: ahead.is_resident,
        make_resident=make_resident,
        will_need=lambda *requested: ahead.requested.append(requested),
    )


def total(brought: list[tuple[int, int]]) -> int:
    return sum(size_bytes for _, size_bytes in brought)


class TestStreams:
    def test_a_single_read_loads_nothing(self, ahead: Ahead) -> None:
        assert ahead.read(0, 8) == (0, 8)
        assert ahead.read(0, 8) == (0, 8), "a retry"
        assert ahead.read(100, 108) == (100, 108), "a random read"
        assert ahead.bring() == []

    def test_a_read_that_continues_gets_a_window(self, ahead: Ahead) -> None:
        ahead.read(0, 8)
        assert ahead.read(8, 16) == (8, 16)
        brought = ahead.bring()
        assert brought[0][0] == ahead.place(16)
        assert WINDOW_MIN <= total(brought) <= WINDOW_MIN + RECORD

    def test_the_next_window_is_requested_on_entering_the_last(self, ahead: Ahead) -> None:
        ahead.read(0, 8)
        start, due = ahead.read(8, 16)
        assert (start, due) == (8, 16)
        first = ahead.bring()
        assert ahead.bring() == []
        ahead.read(16, 17)
        second = ahead.bring()
        assert second[0][0] == first[0][0] + total(first)
        assert total(second) > 1.8 * total(first)

    def test_windows_grow_up_to_their_maximum(self, ahead: Ahead) -> None:
        offset, sizes = 0, []
        while offset < 450:
            ahead.read(offset, offset + 8)
            offset += 8
            sizes += [total(brought) for brought in [ahead.bring()] if brought]
        assert sizes[0] < sizes[1] < sizes[2]
        assert max(sizes) <= WINDOW_MAX + RECORD

    def test_there_is_no_second_window_while_one_is_pending(self, ahead: Ahead) -> None:
        ahead.read(0, 8)
        ahead.read(8, 16)
        assert ahead.read(16, 24) == (8, 16)
        assert ahead.read(24, 32) == (8, 16), "a reader that gets ahead stays in its stream"
        assert len(ahead.bring()) == 1

    def test_a_reader_that_overtook_its_window_continues(self, ahead: Ahead) -> None:
        ahead.read(0, 8)
        ahead.read(8, 16)
        for offset in range(16, 56, 8):
            ahead.read(offset, offset + 8)
        ahead.bring()
        ahead.read(56, 64)
        brought = ahead.bring()
        assert brought[0][0] == ahead.place(64)
        assert total(brought) > 1.8 * WINDOW_MIN, "not a new stream"

    def test_groups_at_the_same_offset_share_a_stream(self, ahead: Ahead) -> None:
        for _ in range(3):
            ahead.read(0, 8)
        for _ in range(3):
            ahead.read(8, 16)
        assert len(ahead.bring()) == 1

    def test_groups_at_different_offsets_have_their_own_streams(self, ahead: Ahead) -> None:
        for offset in (0, 300):
            ahead.read(offset, offset + 8)
            ahead.read(offset + 8, offset + 16)
        assert [start for start, _ in ahead.bring()] == [ahead.place(16), ahead.place(316)]

    def test_the_mark_catches_a_reader_that_goes_back(self, ahead: Ahead) -> None:
        for offset in range(200, 300, 8):
            start, _ = ahead.read(offset, offset + 8)
            ahead.bring()
        assert start > 0, "a read from 0 is outside the mark"
        assert ahead.read(0, 8) == (0, 8)

    def test_nothing_is_read_ahead_before_the_start(self, store: DefaultMessageStore) -> None:
        subject = ReadAhead(store.commit_log, ManualClock(NOW_MS))
        queue = store.queues.find_or_create("T", 0)
        for offset in range(0, 80, 8):
            start, due = subject.advance(queue, offset, offset + 8)
            assert start <= offset < 1 << 60 < due
        subject.bring_wanted()
        assert store.reader.read_ahead.advance(queue, 0, 8)[1] > 1 << 60, "the store's own"

    def test_stop_drops_what_is_pending(self, ahead: Ahead) -> None:
        ahead.read(0, 8)
        ahead.read(8, 16)
        ahead.subject.stop()
        assert ahead.bring() == []


class TestBounds:
    def test_the_more_streams_the_shorter_the_windows(
        self, store: DefaultMessageStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def longest(streams: int) -> int:
            ahead = Ahead(store, ahead_bytes_max=4 * WINDOW_MAX)
            watch(ahead, monkeypatch)
            sizes = []
            for step in range(0, 160, 8):
                for number in range(streams):
                    offset = number * 200 + step
                    ahead.read(offset, offset + 8)
                sizes += [size_bytes for _, size_bytes in ahead.bring()]
            return max(sizes)

        assert longest(1) > WINDOW_MAX - RECORD
        assert longest(2) > WINDOW_MAX - RECORD
        assert longest(3) < 4 * WINDOW_MAX // 6 + RECORD

    def test_the_stream_idle_longest_is_forgotten_first(
        self, store: DefaultMessageStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ahead = Ahead(store, ahead_bytes_max=4 * WINDOW_MIN)
        watch(ahead, monkeypatch)
        ahead.read(0, 8)
        ahead.read(200, 208)
        ahead.read(0, 8)  # used again
        ahead.read(400, 408)  # a third: the one at 200 has to go
        ahead.read(8, 16)
        ahead.read(208, 216)
        assert [start for start, _ in ahead.bring()] == [ahead.place(16)]

    def test_idle_streams_do_not_count(
        self, store: DefaultMessageStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ahead = Ahead(store, ahead_bytes_max=8 * WINDOW_MIN)
        watch(ahead, monkeypatch)
        for offset in (200, 300, 400):
            ahead.read(offset, offset + 8)
            ahead.read(offset + 8, offset + 16)
        ahead.bring()
        ahead.clock.advance(read_ahead.IDLE_NS_MAX // 1_000_000 + 1)
        sizes = []
        for offset in range(0, 160, 8):
            ahead.read(offset, offset + 8)
            sizes += [size_bytes for _, size_bytes in ahead.bring()]
        assert max(sizes) > WINDOW_MAX - RECORD

    def test_pages_that_cannot_be_read_are_left_to_the_reader(
        self, ahead: Ahead, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise StoreError("reading failed")

        ahead.read(0, 8)
        ahead.read(8, 16)
        patch_residency(monkeypatch, make_resident=fail)
        ahead.bring()
        watch(ahead, monkeypatch)
        ahead.read(16, 24)
        assert ahead.bring()[0][0] == ahead.place(24)


class TestWindows:
    def test_a_window_may_span_segments(self, ahead: Ahead) -> None:
        assert ahead.place(599) > 3 * SEGMENT_BYTES
        offset = 0
        ends: set[int] = set()
        while offset < 560:
            ahead.read(offset, offset + 8)
            offset += 8
            for start, size_bytes in ahead.bring():
                assert start // SEGMENT_BYTES == (start + size_bytes - 1) // SEGMENT_BYTES
                ends.add(start + size_bytes)
        assert ends & {SEGMENT_BYTES, 2 * SEGMENT_BYTES, 3 * SEGMENT_BYTES}

    def test_a_window_ends_where_the_queue_does(self, ahead: Ahead) -> None:
        ahead.read(580, 588)
        ahead.read(588, 596)
        assert total(ahead.bring()) == ahead.store.max_physical_offset - ahead.place(596)
        ahead.read(596, 600)
        assert ahead.bring() == []

    def test_a_window_of_segments_that_expired(
        self, ahead: Ahead, store: DefaultMessageStore
    ) -> None:
        ahead.read(0, 8)
        ahead.read(8, 16)
        for segment in store.commit_log.queue.drop_oldest(2):
            segment.destroy()
        assert ahead.bring() == []

    def test_only_the_records_of_a_sparse_queue_are_loaded(
        self, ahead: Ahead, store: DefaultMessageStore
    ) -> None:
        for _ in range(30):
            put(store, message(b"mine", queue_id=1), message(b"x" * 3000, queue_id=2))
        ahead.read(0, 2, queue_id=1)
        ahead.read(2, 4, queue_id=1)
        brought = ahead.bring()
        assert len(brought) > 8
        assert ahead.requested == brought
        assert [start for start, _ in brought] == [
            ahead.place(4 + number, queue_id=1) for number in range(len(brought))
        ]
        assert total(brought) <= WINDOW_MIN + RECORD

    @pytest.mark.usefixtures("small")
    def test_batches(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = open_batches(tmp_path, settings=config())
        put(store, *(inner_batch(3) for _ in range(60)))
        ahead = Ahead(store)
        watch(ahead, monkeypatch)
        queue = queue_of(store)
        ahead.subject.advance(queue, 0, 6)
        ahead.subject.advance(queue, 6, 12)
        first = ahead.bring()
        ahead.subject.advance(queue, 12, 15)
        second = ahead.bring()
        assert first[0][0] < second[0][0] == first[0][0] + total(first)
        store.shutdown()


class TestResident:
    """Windows that are in memory already."""

    def test_they_need_no_thread(self, ahead: Ahead) -> None:
        ahead.read(0, 8)
        ahead.read(8, 16)
        (_, first_bytes), *_ = ahead.bring()
        ahead.is_resident = True
        start, due = ahead.read(16, 24)
        for _ in range(6):
            before, (start, due) = due, ahead.read(due, due + 8)
            assert start <= before < due, "the next window counts as loaded"
            assert ahead.bring() == []
        assert 2 * first_bytes < (due - start) * RECORD, "windows grow"

    def test_a_thread_loads_pages_that_are_not_resident(self, ahead: Ahead) -> None:
        ahead.read(0, 8)
        ahead.read(8, 16)
        ahead.bring()
        ahead.is_resident = True
        _, due = ahead.read(16, 24)
        ahead.is_resident = False
        _, end = ahead.read(due, due + 8)
        ahead.read(end, end + 8)
        ((start, _),) = ahead.bring()
        assert start >= ahead.place(end)

    def test_the_end_of_the_queue_is_left_to_a_thread(self, ahead: Ahead) -> None:
        ahead.read(560, 568)
        ahead.read(568, 576)
        ahead.bring()
        ahead.is_resident = True
        ahead.read(576, 584)
        ((start, size_bytes),) = ahead.bring()
        assert start + size_bytes > ahead.place(599), "less than a window was left"


def test_pages_dropped_from_memory_are_read_back(disk_path: Path) -> None:
    """With real files and threads: whatever the kernel keeps, a consumer gets its messages."""
    settings = config(commit_log_file_bytes=1 << 20, consume_queue_file_bytes=20_000)
    expected = [b"%04d" % number * 300 for number in range(800)]
    with opened(disk_path, config=settings) as store:
        put(store, *(message(body) for body in expected))
    for path in disk_path.rglob("*"):
        if path.is_file() and path.name != "lock":
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
    with opened(disk_path, config=settings) as store:
        store.reader.read_ahead.start()
        assert bodies(store) == expected
        store.reader.read_ahead.stop()


class TestReadersThatJump:
    def test_a_queue_has_few_streams(self, ahead: Ahead) -> None:
        for begin in range(0, 500, 20):
            ahead.read(begin, begin + 8)
        assert ahead.read(480, 488) == (480, 488), "the newest is known"
        ahead.read(8, 16)
        assert not ahead.bring(), "the oldest was forgotten, so this is a first read"

    def test_a_window_of_a_forgotten_stream_is_not_loaded(self, ahead: Ahead) -> None:
        ahead.read(0, 8)
        ahead.read(8, 16)
        for begin in range(200, 200 + 20 * STREAMS_A_QUEUE_MAX, 20):
            ahead.read(begin, begin + 8)
        assert not ahead.bring()
