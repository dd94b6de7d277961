"""Finding messages by physical offset, by key and by time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.format.commit_log import decode_record
from roquet.runtime.clock import ManualClock
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import BoundaryType
from tests.unit.store.kit import FOREVER_MS, NOW_MS, SEGMENT_BYTES, config, message, opened, put
from tests.unit.store.reader_kit import drop_first_segments, fill


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DefaultMessageStore]:
    with opened(tmp_path / "store") as store:
        yield store


class TestByOffset:
    def test_select_one(self, store: DefaultMessageStore) -> None:
        fill(store, 3)
        physical = store.physical_offset_in_queue("T", 0, 1)
        record = store.select_one(physical)
        assert record is not None
        assert store.select_one(physical, len(record)) == record
        assert store.select_one(physical, len(record) - 1) is None
        assert store.select_one(physical, len(record) + 1) == record
        assert store.select_one(physical, -1) is None
        assert store.select_one(physical + 1) is None
        assert store.select_one(store.max_physical_offset) is None
        assert store.select_one(1 << 40) is None
        assert store.select_one(-1) is None

    def test_look_message(self, store: DefaultMessageStore) -> None:
        put(store, message(b"here", TAGS="t"))
        found = store.look_message(0)
        assert found is not None
        assert (found.body, found.tags, found.queue_offset) == (b"here", "t", 0)
        assert store.look_message(5) is None

    def test_the_end_of_a_segment_is_no_message(self, store: DefaultMessageStore) -> None:
        put(store, message(b"a" * 10_000), message(b"b" * 10_000))
        assert store.look_message(10_092) is None


class TestByKey:
    def test_keys_and_unique_keys(self, store: DefaultMessageStore) -> None:
        put(store, *[message(b"%d" % n, KEYS=f"k{n % 2} all", UNIQ_KEY=f"u{n}") for n in range(4)])

        def found(key: str, **limits: int) -> list[bytes]:
            begin, end = limits.get("begin", 0), limits.get("end", FOREVER_MS)
            result = store.query_message("T", key, limits.get("count", 32), begin, end)
            assert result.total_bytes == sum(len(record) for record in result.records)
            return [decode_record(record, 0, len(record)).body for record in result.records]

        assert found("k0") == [b"0", b"2"]
        assert found("u3") == [b"3"]
        assert found("all") == [b"0", b"1", b"2", b"3"]
        assert found("none") == []
        assert len(found("all", count=2)) == 2
        assert found("all", begin=NOW_MS + 1) == []
        assert found("all", end=NOW_MS - 1) == []
        assert store.query_message("U", "all", 32, 0, FOREVER_MS).records == []

    def test_how_far_the_index_reaches(self, store: DefaultMessageStore) -> None:
        put(store, message(KEYS="k"))
        result = store.query_message("T", "k", 32, 0, FOREVER_MS)
        assert result.index_last_update_timestamp_ms == NOW_MS
        assert result.index_last_update_physical_offset == 0

    def test_the_configured_limit(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store", config=config(query_messages_max=3)) as store:
            put(store, *[message(KEYS="k")] * 5)
            assert len(store.query_message("T", "k", 100, 0, FOREVER_MS).records) == 3

    def test_without_an_index(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store", config=config(message_index=False)) as store:
            put(store, message(KEYS="k"))
            assert store.query_message("T", "k", 32, 0, FOREVER_MS).records == []
            assert not (tmp_path / "store" / "index").exists()

    def test_deleted_records_are_omitted(self, store: DefaultMessageStore) -> None:
        put(store, *[message(b"%d" % n * 8000, KEYS="k") for n in range(6)])
        store.flush()
        drop_first_segments(store, 1)
        result = store.query_message("T", "k", 32, 0, FOREVER_MS)
        offsets = [decode_record(r, 0, len(r)).physical_offset for r in result.records]
        assert len(offsets) == 4
        assert min(offsets) == SEGMENT_BYTES


class TestByTime:
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[DefaultMessageStore]:
        """Twenty-four messages, two a time, at 0, 10, 20 … ms."""
        clock = ManualClock(NOW_MS)
        with opened(tmp_path / "store", clock=clock) as store:
            for _ in range(12):
                put(store, message(b"x" * 1500), message(b"y" * 1500))
                clock.advance(10)
            yield store

    @pytest.mark.parametrize(
        ("at_ms", "lower", "upper"),
        [
            (-5, 0, 0),
            (0, 0, 1),
            (5, 2, 1),  # no record at that time: the next for the lower, the previous for the upper
            (10, 2, 3),
            (95, 20, 19),
            (100, 20, 21),
            (110, 22, 23),
            (111, 24, 23),
            (10**9, 24, 23),
        ],
    )
    def test_both_boundaries(
        self, store: DefaultMessageStore, at_ms: int, lower: int, upper: int
    ) -> None:
        assert store.offset_by_time("T", 0, NOW_MS + at_ms) == lower
        assert store.offset_by_time("T", 0, NOW_MS + at_ms, BoundaryType.LOWER) == lower
        assert store.offset_by_time("T", 0, NOW_MS + at_ms, BoundaryType.UPPER) == upper

    def test_queues_that_have_nothing(self, store: DefaultMessageStore) -> None:
        store.queues.find_or_create("E", 0)
        for boundary in BoundaryType:
            assert store.offset_by_time("U", 0, NOW_MS, boundary) == 0
            assert store.offset_by_time("E", 0, NOW_MS, boundary) == 0

    def test_never_before_the_first_remaining_message(self, store: DefaultMessageStore) -> None:
        store.flush()
        drop_first_segments(store, 1)
        store.queues.correct_min_offsets(store.min_physical_offset)
        low = store.min_offset_in_queue("T", 0)
        assert low > 0
        for boundary in BoundaryType:
            assert store.offset_by_time("T", 0, 0, boundary) == low

    def test_store_times(self, store: DefaultMessageStore) -> None:
        assert store.message_store_time_ms("T", 0, 0) == NOW_MS
        assert store.message_store_time_ms("T", 0, 5) == NOW_MS + 20
        assert store.message_store_time_ms("T", 0, 24) == -1
        assert store.message_store_time_ms("T", 0, -1) == -1
        assert store.message_store_time_ms("U", 0, 0) == -1
        assert store.earliest_message_time_ms() == NOW_MS
        assert store.earliest_message_time_in_queue_ms("T", 0) == NOW_MS
        assert store.earliest_message_time_in_queue_ms("U", 0) == -1
