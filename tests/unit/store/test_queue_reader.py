"""Reads by queue: from memory, or not at all, or after the pages were loaded."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import ClassVar

import pytest

from roquet.errors import StoreError
from roquet.format.record_layout import RECORD_BYTES_MIN
from roquet.runtime import memory
from roquet.runtime.files import Files
from roquet.store import queue_reader
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.mapped_file import MappedFile
from roquet.store.plugin import PluginMessageStore
from roquet.store.queue_reader import MessageFilter
from roquet.store.results import Bytes, GetMessageResult, GetMessageStatus
from tests.residency import patch_residency
from tests.unit.store.kit import NOW_MS, SEGMENT_BYTES, config, message, opened, put


class Pages:
    """What the kernel reports about pages, and what it is asked to load."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cold: set[int] = set()
        """Physical offsets of bytes that are not in memory."""
        self.asked: list[tuple[int, int]] = []
        self.brought: list[tuple[int, int]] = []
        pages = self

        def is_resident(start: int, size_bytes: int) -> bool:
            pages.asked.append((start, size_bytes))
            return not any(start <= offset < start + size_bytes for offset in pages.cold)

        def make_resident(start: int, size_bytes: int) -> None:
            pages.brought.append((start, size_bytes))
            pages.cold.difference_update(range(start, start + size_bytes))

        patch_residency(monkeypatch, is_resident=is_resident, make_resident=make_resident)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    return Pages(monkeypatch)


def fill(store: DefaultMessageStore, count: int, *, queue_id: int = 0) -> None:
    put(store, *(message(b"%d" % number, queue_id=queue_id) for number in range(count)))


def reopened(root: Path, count: int) -> None:
    """Leave messages that another process appended."""
    with opened(root) as store:
        fill(store, count)


def place(store: DefaultMessageStore, queue_offset: int) -> int:
    return store.physical_offset_in_queue("T", 0, queue_offset)


def get(store: DefaultMessageStore, offset: int = 0, count: int = 32) -> GetMessageResult | None:
    return store.get_message_in_memory("T", 0, offset, count)


def test_reads_from_memory_are_the_same_either_way(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 5)
        for offset in range(-1, 8):
            found = get(store, offset)
            expected = store.get_message("T", 0, offset, 32)
            assert found is not None
            assert found.body() == expected.body()
            assert (found.status, found.next_begin_offset, found.queue_offsets) == (
                expected.status,
                expected.next_begin_offset,
                expected.queue_offsets,
            )
        missing = store.get_message_in_memory("U", 0, 0, 32)
        assert missing is not None
        assert missing.status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE


def test_the_kernel_is_not_asked_about_recent_appends(tmp_path: Path, pages: Pages) -> None:
    with opened(tmp_path) as store:
        fill(store, 1)
        get(store)
        pages.asked.clear()
        fill(store, 5)
        pages.cold.add(place(store, 3))
        assert get(store, 1) is not None
        assert pages.asked == []


def test_older_pages_are_asked_about(
    tmp_path: Path, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as store:
        get(store)
        fill(store, 9)
        monkeypatch.setattr(queue_reader, "RECENT_BYTES", place(store, 8) - place(store, 4))
        get(store)
        assert pages.asked


def test_appends_of_another_process_are_asked_about_in_windows(
    tmp_path: Path, pages: Pages
) -> None:
    reopened(tmp_path, 5)
    with opened(tmp_path) as store:
        pages.asked.clear()
        found = get(store)
        assert found is not None
        assert len(found.queue_offsets) == 5
        assert pages.asked == [(0, store.max_physical_offset)]


def test_a_read_is_given_up_when_a_page_is_not_in_memory(tmp_path: Path, pages: Pages) -> None:
    reopened(tmp_path, 5)
    with opened(tmp_path) as store:
        pages.cold.add(place(store, 3) + 1)
        assert get(store) is None
        assert store.will_block("T", 0, 3)
        assert not store.will_block("T", 0, 2)
        found = get(store, 0, 3)
        assert found is not None
        assert found.queue_offsets == [0, 1, 2]
        assert get(store, 3) is None
        assert get(store, 4) is not None


def test_records_that_a_filter_skips_need_not_be_in_memory(tmp_path: Path, pages: Pages) -> None:
    with opened(tmp_path) as store:
        put(store, message(b"0", TAGS="a"), message(b"1", TAGS="b"), message(b"2", TAGS="a"))
    with opened(tmp_path) as store:
        unit = store.queues.find_or_create("T", 0).unit_at(1)
        assert unit is not None
        pages.cold.add(unit.physical_offset)
        others = MessageFilter(lambda tags_code, _: tags_code != unit.tags_code)
        found = store.get_message_in_memory("T", 0, 0, 32, message_filter=others)
        assert found is not None
        assert found.queue_offsets == [0, 2]


def test_records_that_a_filter_reads_must_be_in_memory(tmp_path: Path, pages: Pages) -> None:
    settings = config(access_message_in_memory_max_ratio=0)
    with opened(tmp_path, config=settings) as store:
        fill(store, 5)
    with opened(tmp_path, config=settings) as store:
        last = MessageFilter(by_record=lambda record: record[20:28] == (4).to_bytes(8, "big"))
        found = store.get_message_in_memory("T", 0, 0, 32, message_filter=last)
        assert found is not None
        assert (found.queue_offsets, found.filtered_count) == ([4], 4)
        pages.cold.add(place(store, 2))
        assert store.get_message_in_memory("T", 0, 0, 32, message_filter=last) is None
        assert store.get_message("T", 0, 0, 32, message_filter=last).queue_offsets == [4]


def test_a_read_that_may_wait_loads_the_pages_first(tmp_path: Path, pages: Pages) -> None:
    reopened(tmp_path, 5)
    with opened(tmp_path) as store:
        pages.brought.clear()
        pages.cold.add(place(store, 3))
        assert len(store.get_message("T", 0, 0, 32).queue_offsets) == 5
        start = place(store, 3)
        assert pages.brought == [(start, store.max_physical_offset - start)]


def test_the_page_of_a_time_is_loaded_first(tmp_path: Path, pages: Pages) -> None:
    reopened(tmp_path, 5)
    with opened(tmp_path) as store:
        pages.brought.clear()
        pages.cold.add(place(store, 3))
        assert store.message_store_time_ms("T", 0, 3) == NOW_MS
        assert store.earliest_message_time_ms() == NOW_MS
        assert [start for start, _ in pages.brought] == [place(store, 3), 0]


def test_pages_that_the_kernel_does_not_load_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Watched(Files):
        read: ClassVar[list[tuple[int, int]]] = []
        is_broken = False

        def read_at(self, fd: int, size_bytes: int, position: int) -> bytes:
            if self.is_broken:
                raise OSError(errno.EIO, "the disk is broken")
            self.read.append((size_bytes, position))
            return super().read_at(fd, size_bytes, position)

    monkeypatch.setattr(memory, "make_resident", lambda *_: False)
    files = Watched()
    segment = MappedFile.create(files, tmp_path / "0", start_offset=0, size_bytes=8192)
    segment.make_resident(100, 50)
    assert files.read == [(50, 100)]
    files.is_broken = True
    with pytest.raises(StoreError, match="reading"):
        segment.make_resident(100, 50)
    files.is_broken = False
    os.truncate(tmp_path / "0", 120)
    with pytest.raises(StoreError, match="too short"):
        segment.make_resident(100, 50)
    segment.close()


def test_a_record_is_loaded_whole_and_nothing_after_it(tmp_path: Path, pages: Pages) -> None:
    with opened(tmp_path) as store:
        put(store, message(b"x" * 5000), message())
    with opened(tmp_path) as store:
        pages.brought.clear()
        found = store.look_message(0)
        assert found is not None
        assert found.body == b"x" * 5000
        assert pages.brought == [(0, RECORD_BYTES_MIN), (0, place(store, 1))]


def test_windows_end_where_their_segment_does(
    tmp_path: Path, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_reader, "WINDOW_BYTES", SEGMENT_BYTES // 4)
    with opened(tmp_path) as store:
        put(store, *(message(b"x" * 1500) for _ in range(25)))
    with opened(tmp_path) as store:
        offset = 0
        while offset < 25:
            found = get(store, offset)
            assert found is not None
            offset = found.next_begin_offset
        assert len(pages.asked) > 8
        for start, size_bytes in pages.asked:
            assert start // SEGMENT_BYTES == (start + size_bytes - 1) // SEGMENT_BYTES


@pytest.mark.parametrize("by_distance", [False, True])
def test_far_records_are_served_if_they_are_in_memory(
    tmp_path: Path, pages: Pages, *, by_distance: bool
) -> None:
    settings = config(
        access_message_in_memory_max_ratio=0,
        transfer_count_in_disk_max=2,
        message_in_disk_by_distance=by_distance,
    )
    with opened(tmp_path, config=settings) as store:
        fill(store, 6)
    with opened(tmp_path, config=settings) as store:
        found = get(store)
        assert found is not None
        assert found.queue_offsets == ([0, 1] if by_distance else [0, 1, 2, 3, 4, 5])
        assert found.suggest_pulling_from_slave
        pages.cold.add(place(store, 0))
        assert get(store) is None
        assert store.will_block("T", 0, 0)


def test_a_read_ends_where_it_would_have_to_wait(tmp_path: Path, pages: Pages) -> None:
    settings = config(transfer_count_in_disk_max=2)
    with opened(tmp_path, config=settings) as store:
        fill(store, 9)
    with opened(tmp_path, config=settings) as store:
        pages.brought.clear()
        pages.cold.add(place(store, 3))
        found = get(store)
        assert found is not None
        assert (found.queue_offsets, found.next_begin_offset) == ([0, 1, 2], 3)
        assert found.behind_bytes == store.max_physical_offset - place(store, 2)
        assert get(store, 2) is None, "one record is too few"
        found = store.get_message("T", 0, 3, 32)
        assert (found.queue_offsets, found.next_begin_offset) == ([3, 4], 5)
        assert pages.brought == [(place(store, 3), store.max_physical_offset - place(store, 3))]


def test_the_limit_of_bytes_on_disk_counts_what_is_not_in_memory(
    tmp_path: Path, pages: Pages
) -> None:
    with opened(tmp_path) as store:
        fill(store, 5)
        size_bytes = place(store, 1)
    settings = config(transfer_bytes_in_disk_max=2 * size_bytes)
    with opened(tmp_path, config=settings) as store:
        pages.cold.add(place(store, 2))
        found = get(store)
        assert found is not None
        assert found.queue_offsets == [0, 1]
        assert get(store, 1) is None
        assert store.get_message("T", 0, 2, 32).queue_offsets == [2, 3]
        assert store.get_message("T", 0, 2, 32).queue_offsets == [2, 3, 4], "they are in memory now"


class ColdQueues(Files):
    """A file system that has no queue file in memory."""

    def read_cached_at(self, fd: int, size_bytes: int, position: int) -> bytes | None:
        assert fd >= 0
        assert size_bytes > 0 <= position
        return None


def test_a_read_is_given_up_when_the_queue_is_not_in_memory(tmp_path: Path) -> None:
    with opened(tmp_path, files=ColdQueues()) as store:
        fill(store, 3)
        assert get(store) is None
        assert store.will_block("T", 0, 0)
        assert get(store, 3) is not None, "there is nothing to read"
        assert store.get_message("T", 0, 0, 32).queue_offsets == [0, 1, 2]


def test_reads_that_were_given_up_are_not_counted(tmp_path: Path) -> None:
    with opened(tmp_path, files=ColdQueues()) as store:
        fill(store, 3)
        before = store.stats.get_messages
        get(store)
        assert store.stats.get_messages == before


def test_neighbours_are_one_slice(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 2)
        fill(store, 1, queue_id=1)
        fill(store, 3)
        found = get(store)
        assert found is not None
        assert [bytes(part) for part in found.slices] == [
            bytes(store.commit_log.queue.segments[0].view[start:end])
            for start, end in (
                (0, place(store, 1) * 2),
                (place(store, 2), store.max_physical_offset),
            )
        ]
        assert found.total_bytes == sum(len(part) for part in found.slices)


def test_records_of_a_segment_that_expires_meanwhile_are_still_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as store:
        fill(store, 3)
        segments = store.commit_log.queue.segments
        found = store.get_message("T", 0, 0, 1)
        slices: list[Bytes] = []
        gathered = queue_reader.RecordSlices(store.commit_log, slices)
        record = found.slices[0]
        gathered.add(record, 0)
        monkeypatch.setattr(store.commit_log.queue, "segments", [])
        gathered.add(record, 10_000)
        monkeypatch.setattr(store.commit_log.queue, "segments", segments)
        gathered.add(record, 0)
        gathered.join()
        assert [bytes(each) for each in slices] == [bytes(record)] * 3
        assert (gathered.count, gathered.total_bytes) == (3, 3 * len(record))


@pytest.mark.parametrize("setting", ["append_property_crc", "force_verify_property_crc"])
def test_a_record_with_a_crc_over_all_of_it_is_checked_by_that_too(
    tmp_path: Path, setting: str
) -> None:
    settings = config(**{"append_property_crc": True, setting: True})
    with opened(tmp_path, config=settings) as store:
        put(store, message(b"0", KEYS="one"), message(b"1", KEYS="two"), message(b"2", KEYS="six"))
        segment = store.commit_log.queue.segments[0]
        at = bytes(segment.view).index(b"two")
        segment.view[at : at + 1] = b"T"
        found = store.get_message("T", 0, 0, 32)
        assert found.queue_offsets == [0, 2]
        assert store.reader.damaged_records == 1


def test_threads_read_while_the_owner_appends(tmp_path: Path) -> None:
    with opened(tmp_path, config=config(commit_log_file_bytes=1 << 20)) as store:
        fill(store, 1)
        problems: list[object] = []
        done = threading.Event()

        def read() -> None:
            offset = 0
            while not (done.is_set() and offset == store.max_offset_in_queue("T", 0)):
                found = store.get_message("T", 0, offset, 32)
                if found.queue_offsets != list(range(offset, found.next_begin_offset)):
                    problems.append(found)
                    return
                offset = found.next_begin_offset

        thread = threading.Thread(target=read)
        thread.start()
        for _ in range(200):
            fill(store, 10)
        done.set()
        thread.join(timeout=60)
        assert not thread.is_alive()
        assert problems == []


class ReadsItsOwnWay(PluginMessageStore):
    def get_message(self, *_: object, **__: object) -> GetMessageResult:
        return GetMessageResult(GetMessageStatus.OFFSET_FOUND_NULL)


def test_a_plug_in_with_its_own_read_is_called_in_a_thread(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, 1)
        plain, own = PluginMessageStore(store), ReadsItsOwnWay(store)
        found = plain.get_message_in_memory("T", 0, 0, 32)
        assert found is not None
        assert found.queue_offsets == [0]
        assert own.get_message_in_memory("T", 0, 0, 32) is None
        assert PluginMessageStore(own).get_message_in_memory("T", 0, 0, 32) is None
