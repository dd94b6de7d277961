"""Reading back: every status and limit, filters, times, and damaged records."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.format.commit_log import decode_record
from roquet.format.consume_queue import FILLER, UNIT
from roquet.format.consume_queue_ext import CqExtUnit
from roquet.model import sys_flag as flags
from roquet.model.java_string import tags_code
from roquet.store.config import BrokerRole
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.reader import MessageFilter
from roquet.store.results import GetMessageResult, GetMessageStatus
from tests.unit.store.kit import NOW_MS, bodies, config, message, opened, put
from tests.unit.store.reader_kit import drop_first_segments, fill

FOUND = GetMessageStatus.FOUND


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DefaultMessageStore]:
    with opened(tmp_path / "store") as store:
        yield store


def numbers(result: GetMessageResult) -> list[int]:
    """The queue offsets of the records in a result, read from the records themselves."""
    found, position, data = [], 0, result.body()
    while position < len(data):
        record = decode_record(data, position, len(data))
        found.append(record.queue_offset)
        position += record.store_size
    assert found == result.queue_offsets
    assert len(data) == result.total_bytes
    return found


class TestStatus:
    def test_no_such_queue(self, store: DefaultMessageStore) -> None:
        fill(store, 1)
        for topic, queue_id in (("U", 0), ("T", 1)):
            result = store.get_message(topic, queue_id, 5, 32)
            assert result.status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
            assert (result.next_begin_offset, result.min_offset, result.max_offset) == (0, 0, 0)

    def test_no_message_in_queue(self, store: DefaultMessageStore) -> None:
        store.queues.find_or_create("T", 0)
        result = store.get_message("T", 0, 5, 32)
        assert result.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE
        assert result.next_begin_offset == 0

    def test_offset_overflow_one(self, store: DefaultMessageStore) -> None:
        fill(store, 3)
        result = store.get_message("T", 0, 3, 32)
        assert result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE
        assert (result.next_begin_offset, result.min_offset, result.max_offset) == (3, 0, 3)

    def test_offset_overflow_badly(self, store: DefaultMessageStore) -> None:
        fill(store, 3)
        result = store.get_message("T", 0, 4, 32)
        assert result.status is GetMessageStatus.OFFSET_OVERFLOW_BADLY
        assert result.next_begin_offset == 3

    def test_offset_too_small(self, store: DefaultMessageStore) -> None:
        fill(store, 10, size=5000)
        store.flush()
        drop_first_segments(store, 2)
        store.queues.correct_min_offsets(store.min_physical_offset)
        low = store.min_offset_in_queue("T", 0)
        assert low > 0
        for offset in (low - 1, 0, -1):
            result = store.get_message("T", 0, offset, 32)
            assert result.status is GetMessageStatus.OFFSET_TOO_SMALL
            assert (result.next_begin_offset, result.min_offset) == (low, low)
        assert store.get_message("T", 0, low, 32).status is FOUND

    def test_message_was_removing(self, store: DefaultMessageStore) -> None:
        put(store, *[message(b"x" * 5000) for _ in range(30)])
        store.flush()
        drop_first_segments(store, 5)  # three messages each
        result = store.get_message("T", 0, 0, 2)
        assert result.status is GetMessageStatus.MESSAGE_WAS_REMOVING
        assert (result.message_count, result.next_begin_offset) == (0, 10)
        assert numbers(store.get_message("T", 0, 10, 2)) == [15, 16]
        assert len(bodies(store)) == 15

    def test_no_matched_message(self, store: DefaultMessageStore) -> None:
        fill(store, 5)
        nobody = MessageFilter(by_queue=lambda _tags, _ext: False)
        result = store.get_message("T", 0, 0, 32, message_filter=nobody)
        assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
        assert result.next_begin_offset == 5

    def test_offset_found_null(self, store: DefaultMessageStore, tmp_path: Path) -> None:
        fill(store, 25)
        (tmp_path / "store" / "consumequeue" / "T" / "0" / f"{200:020d}").unlink()
        result = store.get_message("T", 0, 13, 32)
        assert result.status is GetMessageStatus.OFFSET_FOUND_NULL
        assert result.next_begin_offset == 20
        assert result.behind_bytes == store.max_physical_offset
        assert not result.suggest_pulling_from_slave
        store.reader.memory_bytes = 1
        assert store.get_message("T", 0, 13, 32).suggest_pulling_from_slave
        assert store.get_message("T", 0, 20, 32).queue_offsets == [20, 21, 22, 23, 24]

    def test_found(self, store: DefaultMessageStore) -> None:
        fill(store, 5)
        result = store.get_message("T", 0, 1, 3)
        assert result.status is FOUND
        assert numbers(result) == [1, 2, 3]
        assert (result.next_begin_offset, result.min_offset, result.max_offset) == (4, 0, 5)
        assert not result.suggest_pulling_from_slave

    def test_a_slave_leaves_offsets_to_its_master(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store") as store:
            fill(store, 3)
        slave = config(broker_role=BrokerRole.SLAVE)
        with opened(tmp_path / "store", config=slave) as store:
            assert store.get_message("U", 0, 7, 32).next_begin_offset == 7
            assert store.get_message("T", 0, 99, 32).next_begin_offset == 99
        checking = config(broker_role=BrokerRole.SLAVE, offset_check_in_slave=True)
        with opened(tmp_path / "store", config=checking) as store:
            assert store.get_message("T", 0, 99, 32).next_begin_offset == 3

    def test_gets_are_counted(self, store: DefaultMessageStore) -> None:
        fill(store, 5)
        store.get_message("T", 0, 0, 32)
        store.get_message("T", 0, 5, 32)
        store.get_message("U", 0, 0, 32)
        assert (store.stats.get_found, store.stats.get_messages) == (1, 5)
        assert store.stats.get_missed >= 1


class TestLimits:
    def test_by_count(self, store: DefaultMessageStore) -> None:
        fill(store, 10)
        assert numbers(store.get_message("T", 0, 0, 4)) == [0, 1, 2, 3]
        assert numbers(store.get_message("T", 0, 0, 1)) == [0]
        assert numbers(store.get_message("T", 0, 0, 0)) == [0]  # the first always fits

    def test_one_queue_file_at_a_time(self, store: DefaultMessageStore) -> None:
        fill(store, 25)
        assert numbers(store.get_message("T", 0, 0, 32)) == list(range(10))
        assert numbers(store.get_message("T", 0, 7, 32)) == [7, 8, 9]
        assert numbers(store.get_message("T", 0, 20, 32)) == [20, 21, 22, 23, 24]

    def test_by_bytes(self, store: DefaultMessageStore) -> None:
        put(store, *[message(b"x" * 1000)] * 8)
        size = 1000 + 92
        for limit, count in ((3 * size, 3), (3 * size + 1, 3), (4 * size - 1, 3), (4 * size, 4)):
            result = store.get_message("T", 0, 0, 32, max_total_bytes=limit)
            assert numbers(result) == list(range(count))

    def test_one_record_passes_any_limit_of_bytes(self, store: DefaultMessageStore) -> None:
        put(store, message(b"x" * 10_000), message())
        for limit in (0, -5, 100, 10_091):
            assert numbers(store.get_message("T", 0, 0, 32, max_total_bytes=limit)) == [0]

    def test_in_memory(self, tmp_path: Path) -> None:
        settings = config(transfer_count_in_memory_max=3, transfer_count_in_disk_max=1)
        with opened(tmp_path / "store", config=settings) as store:
            fill(store, 8)
            assert numbers(store.get_message("T", 0, 0, 32)) == [0, 1, 2]
        settings = config(transfer_bytes_in_memory_max=300, transfer_bytes_in_disk_max=1)
        with opened(tmp_path / "store", config=settings) as store:
            sizes = [len(store.get_message("T", 0, n, 1).body()) for n in range(3)]
            expected = [0, 1] if sum(sizes[:2]) <= 300 < sum(sizes) else [0]
            assert numbers(store.get_message("T", 0, 0, 32)) == expected

    def test_on_disk_by_distance(self, tmp_path: Path) -> None:
        settings = config(
            transfer_count_in_memory_max=100,
            transfer_count_in_disk_max=2,
            access_message_in_memory_max_ratio=0,
            message_in_disk_by_distance=True,
        )
        with opened(tmp_path / "store", config=settings) as store:
            fill(store, 8)
            result = store.get_message("T", 0, 0, 32)
            assert numbers(result) == [0, 1]
            assert result.suggest_pulling_from_slave
            assert not store.will_block("T", 0, 99)
            assert not store.will_block("U", 0, 0)
        settings = config(
            transfer_bytes_in_disk_max=150,
            access_message_in_memory_max_ratio=0,
            message_in_disk_by_distance=True,
        )
        with opened(tmp_path / "store", config=settings) as store:
            assert numbers(store.get_message("T", 0, 0, 32)) == [0]

    def test_neighbours_in_the_log_share_a_slice(self, store: DefaultMessageStore) -> None:
        put(store, message(b"a"), message(b"b"), message(b"c", queue_id=1), message(b"d"))
        result = store.get_message("T", 0, 0, 32)
        assert result.message_count == 3
        assert len(result.slices) == 2
        assert numbers(result) == [0, 1, 2]

    def test_how_many_entries_are_examined(self, tmp_path: Path) -> None:
        settings = config(filter_message_bytes_max=100, consume_queue_file_bytes=6000)
        with opened(tmp_path / "store", config=settings) as store:
            put(store, *[message(b"x")] * 20)
            last = MessageFilter(by_record=lambda view: view[20:28] == struct.pack(">q", 19))
            result = store.get_message("T", 0, 0, 1, message_filter=last)
            assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
            assert result.next_begin_offset == 5
            assert store.get_message("T", 0, 0, 8, message_filter=last).next_begin_offset == 8
            result = store.get_message("T", 0, 15, 1, message_filter=last)
            assert numbers(result) == [19]


class TestFilters:
    def test_by_tags(self, store: DefaultMessageStore) -> None:
        fill(store, 8)
        odd = MessageFilter(by_queue=lambda tags, ext: tags == tags_code("odd") and ext is None)
        result = store.get_message("T", 0, 0, 32, message_filter=odd)
        assert numbers(result) == [1, 3, 5, 7]
        assert (result.next_begin_offset, result.filtered_count) == (8, 0), "no record was read"

    def test_by_record(self, store: DefaultMessageStore) -> None:
        fill(store, 8)
        big = MessageFilter(by_record=lambda view: b"55555" in bytes(view))
        result = store.get_message("T", 0, 0, 32, message_filter=big)
        assert numbers(result) == [5]
        assert (result.next_begin_offset, result.filtered_count) == (8, 7)

    def test_the_record_is_checked_only_if_the_entry_matches(
        self, store: DefaultMessageStore
    ) -> None:
        fill(store, 4)
        asked: list[int] = []

        def by_record(view: memoryview) -> bool:
            asked.append(struct.unpack_from(">q", view, 20)[0])
            return True

        both = MessageFilter(lambda tags, _: tags == tags_code("odd"), by_record)
        assert numbers(store.get_message("T", 0, 0, 32, message_filter=both)) == [1, 3]
        assert asked == [1, 3]

    def test_filtering_out_the_last_entries_still_advances(
        self, store: DefaultMessageStore
    ) -> None:
        fill(store, 8)
        first = MessageFilter(by_record=lambda view: view[20:28] == bytes(8))
        result = store.get_message("T", 0, 0, 32, message_filter=first)
        assert (result.status, numbers(result), result.next_begin_offset) == (FOUND, [0], 8)

    def test_ext_units_reach_the_filter(self, tmp_path: Path) -> None:
        seen: list[tuple[int, CqExtUnit | None]] = []

        def by_queue(tags: int, ext: CqExtUnit | None) -> bool:
            seen.append((tags, ext))
            return True

        with opened(tmp_path / "store", config=config(consume_queue_ext=True)) as store:
            store.dispatcher.bitmap = lambda request: b"\x01" * (request.queue_offset + 1)
            fill(store, 2)
            store.get_message("T", 0, 0, 32, message_filter=MessageFilter(by_queue))
        assert [tags for tags, _ in seen] == [tags_code("even"), tags_code("odd")]
        assert [ext.filter_bitmap for _, ext in seen if ext] == [b"\x01", b"\x01\x01"]
        assert [ext.store_timestamp_ms for _, ext in seen if ext] == [NOW_MS, NOW_MS]

    def test_a_lost_ext_unit_counts_as_a_match(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store", config=config(consume_queue_ext=True)) as store:
            fill(store, 3)
            queue = store.find_consume_queue("T", 0)
            assert queue is not None
            assert queue.ext is not None
            queue.ext.destroy()
            nobody = MessageFilter(by_queue=lambda _tags, _ext: False)
            assert numbers(store.get_message("T", 0, 0, 32, message_filter=nobody)) == [0, 1, 2]


class TestDamage:
    """A record that does not match its entry is skipped and never served."""

    def damaged(
        self,
        store: DefaultMessageStore,
        offset: int,
        change: bytes,
        caplog: pytest.LogCaptureFixture,
    ) -> list[int]:
        physical = store.physical_offset_in_queue("T", 0, 2)
        segment = store.commit_log.queue.find(physical)
        assert segment is not None
        position = physical - segment.start_offset + offset
        segment.mapping[position : position + len(change)] = change
        with caplog.at_level(logging.ERROR):
            served = numbers(store.get_message("T", 0, 0, 32))
        assert store.reader.damaged_records == 1
        assert "offset 2" in caplog.text
        assert store.look_message(physical) is None or offset in {12, 20, 99, 107}
        return served

    @pytest.mark.parametrize(
        ("offset", "change"),
        [
            (0, struct.pack(">i", 5000)),
            (4, b"\0"),
            (8, b"\0\0\0\0"),
            (12, struct.pack(">i", 9)),
            (20, struct.pack(">q", 7)),
            (28, struct.pack(">q", 0)),
            (84, struct.pack(">i", 3)),
            (90, b"?"),
            (99, b"U"),
        ],
    )
    def test_one_field(
        self,
        store: DefaultMessageStore,
        offset: int,
        change: bytes,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        fill(store, 5)
        assert self.damaged(store, offset, change, caplog) == [0, 1, 3, 4]

    def test_the_tags(self, store: DefaultMessageStore, caplog: pytest.LogCaptureFixture) -> None:
        fill(store, 5)
        record = store.get_message("T", 0, 2, 1).body()
        position = record.index(b"even")
        assert self.damaged(store, position, b"Even", caplog) == [0, 1, 3, 4]

    def test_the_only_record(
        self, store: DefaultMessageStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        fill(store, 5)
        self.damaged(store, 90, b"?", caplog)
        result = store.get_message("T", 0, 2, 1)
        assert result.status in {GetMessageStatus.MESSAGE_WAS_REMOVING, FOUND}
        assert 2 not in result.queue_offsets
        assert result.next_begin_offset > 2

    def test_an_entry_that_points_into_the_middle_of_a_record(
        self, store: DefaultMessageStore, tmp_path: Path
    ) -> None:
        fill(store, 5)
        path = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
        data = bytearray(path.read_bytes())
        physical, size, tags = UNIT.unpack_from(data, 40)
        UNIT.pack_into(data, 40, physical + 1, size, tags)
        path.write_bytes(data)
        assert numbers(store.get_message("T", 0, 0, 32)) == [0, 1, 3, 4]

    def test_an_entry_of_another_queue(self, store: DefaultMessageStore, tmp_path: Path) -> None:
        put(store, message(b"a", queue_id=0), message(b"b", queue_id=1))
        first = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
        second = tmp_path / "store" / "consumequeue" / "T" / "1" / f"{0:020d}"
        first.write_bytes(second.read_bytes())
        assert store.get_message("T", 0, 0, 32).status is GetMessageStatus.MESSAGE_WAS_REMOVING

    def test_filler_is_skipped(self, store: DefaultMessageStore, tmp_path: Path) -> None:
        fill(store, 5)
        path = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
        data = bytearray(path.read_bytes())
        data[20:40] = FILLER
        path.write_bytes(data)
        assert numbers(store.get_message("T", 0, 0, 32)) == [0]
        assert numbers(store.get_message("T", 0, 1, 32)) == [2, 3, 4]
        assert [body[:1] for body in bodies(store)] == [b"0", b"2", b"3", b"4"]
        assert store.reader.damaged_records == 0
        assert store.physical_offset_in_queue("T", 0, 1) == -1
        assert store.message_store_time_ms("T", 0, 1) == -1


def test_half_messages_of_the_old_kind_are_in_no_queue(store: DefaultMessageStore) -> None:
    put(store, message(b"half", sys_flag=flags.TRANSACTION_PREPARED), message(b"whole"))
    assert bodies(store) == [b"whole"]
    half = store.look_message(0)
    assert half is not None
    assert half.body == b"half"
