"""The rest of the interface: numbers, replication, truncation, maintenance, health."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.errors import StoreClosed
from roquet.format.commit_log import DispatchRequest, decode_record
from roquet.model.host import LOOPBACK
from roquet.model.message_id import OffsetMessageId
from roquet.runtime.clock import ManualClock
from roquet.store.config import FlushDiskType
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.maintenance import TOPICS_A_STEP
from roquet.store.reader import MessageFilter
from roquet.store.results import PutMessageStatus
from roquet.store.running_flags import RunningFlag
from tests.unit.store.kit import (
    FOREVER_MS,
    NOW_MS,
    answer,
    bodies,
    config,
    fill,
    message,
    open_store,
    opened,
    put,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DefaultMessageStore]:
    with opened(tmp_path / "store") as store:
        yield store


class TestNumbers:
    def test_of_a_queue(self, store: DefaultMessageStore) -> None:
        fill(store, 5)
        assert store.max_offset_in_queue("T", 0) == 3
        assert store.max_offset_in_queue("T", 1) == 2
        assert store.min_offset_in_queue("T", 0) == 0
        assert store.physical_offset_in_queue("T", 0, 0) == 0
        assert store.physical_offset_in_queue("T", 0, 3) == -1
        assert store.find_consume_queue("T", 1) is store.queues.find("T", 1)

    def test_of_no_queue(self, store: DefaultMessageStore) -> None:
        assert store.max_offset_in_queue("U", 0) == 0
        assert store.min_offset_in_queue("U", 0) == -1
        assert store.physical_offset_in_queue("U", 0, 0) == -1
        assert store.find_consume_queue("U", 0) is None
        assert store.earliest_message_time_ms() == -1

    def test_of_the_log(self, store: DefaultMessageStore) -> None:
        assert (store.min_physical_offset, store.max_physical_offset) == (0, 0)
        fill(store, 1)
        assert store.max_physical_offset == store.commit_log.wrote_offset > 1000
        assert store.now_ms() == NOW_MS

    def test_message_ids(self, store: DefaultMessageStore) -> None:
        put(store, *[message() for _ in range(25)])
        ids = store.message_ids("T", 0, -5, 100, LOOPBACK)
        assert list(ids.values()) == list(range(25))
        for text, offset in ids.items():
            parsed = OffsetMessageId.parse(text)
            assert parsed.store_host == LOOPBACK
            assert store.physical_offset_in_queue("T", 0, offset) == parsed.physical_offset
        assert list(store.message_ids("T", 0, 8, 13, LOOPBACK).values()) == [8, 9, 10, 11, 12]
        assert store.message_ids("T", 0, 30, 40, LOOPBACK) == {}
        assert store.message_ids("U", 0, 0, 10, LOOPBACK) == {}


class TestShutDown:
    def test_nothing_is_read_any_more(self, tmp_path: Path) -> None:
        store = open_store(tmp_path / "store")
        fill(store, 1)
        store.shutdown()
        store.shutdown()
        assert store.is_shut_down
        for read in (
            lambda: store.get_message("T", 0, 0, 1),
            lambda: store.look_message(0),
            lambda: store.select_one(0),
            lambda: store.query_message("T", "k0", 1, 0, FOREVER_MS),
            lambda: store.message_ids("T", 0, 0, 1, LOOPBACK),
            lambda: store.commit_log_data(0),
            lambda: store.bulk_commit_log_data(0, 1),
            lambda: store.append_to_commit_log(0, b"x"),
            lambda: store.truncate_to(0),
        ):
            with pytest.raises(StoreClosed) as raised:
                read()
            assert "SHUT_DOWN" in (raised.value.detail or "")
        assert answer(store, message()).detail == "SHUT_DOWN"

    def test_a_store_may_be_unreadable(self, store: DefaultMessageStore) -> None:
        store.flags.set(RunningFlag.NOT_READABLE)
        with pytest.raises(StoreClosed, match="cannot be read"):
            store.get_message("T", 0, 0, 1)
        store.flags.clear(RunningFlag.NOT_READABLE)
        store.get_message("T", 0, 0, 1)

    def test_destroy(self, tmp_path: Path) -> None:
        store = open_store(tmp_path / "store")
        fill(store, 30)
        with pytest.raises(StoreClosed, match="running"):
            store.destroy()
        store.shutdown()
        store.destroy()
        left = {path.name for path in (tmp_path / "store").rglob("*") if path.is_file()}
        assert left <= {"lock"}
        with opened(tmp_path / "store") as store:
            assert store.max_offset_in_queue("T", 0) == 0


class TestMaintenance:
    def test_deleting_topics(self, store: DefaultMessageStore) -> None:
        for topic in ("A", "B", "C"):
            put(store, message(topic=topic), message(topic=topic, queue_id=1))
        assert store.delete_topics(["A", "B", "A", "Unknown"]) == 2
        assert store.find_consume_queue("A", 0) is None
        assert store.max_offset_in_queue("C", 1) == 1
        assert store.delete_topics([]) == 0

    def test_a_deleted_topic_begins_with_0_and_stays_readable(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store") as store:
            put(store, *[message(b"old") for _ in range(15)])
            store.delete_topics(["T"])
            put(store, message(b"new"))
            assert bodies(store) == [b"new"]
        (tmp_path / "store" / "abort").write_bytes(b"1")
        (tmp_path / "store" / "checkpoint").unlink()
        with opened(tmp_path / "store") as store:
            assert bodies(store) == [b"new"]
            put(store, message(b"newer"))
            assert bodies(store) == [b"new", b"newer"]

    def test_records_in_flight_do_not_bring_a_topic_back(self, tmp_path: Path) -> None:
        settings = config(flush_disk_type=FlushDiskType.SYNC_FLUSH)
        with opened(tmp_path / "store", config=settings) as store:
            for _ in range(3):
                store.submit(message(b"old"))
            store.finish_burst()
            assert store.max_offset_in_queue("T", 0) == 0
            assert store.delete_topics(["T"]) == 1
            store.flush()
            assert store.find_consume_queue("T", 0) is None
            store.submit(message(b"new"))
            store.finish_burst()
            store.flush()
            assert bodies(store) == [b"new"]

    def test_unused_topics(self, store: DefaultMessageStore) -> None:
        topics = ("Used", "Unused", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_x", "%LMQ%q", "TBW102")
        for topic in topics:
            put(store, message(topic=topic))
        assert list(store.clean_unused_topics({"Used"})) == [1]
        assert set(store.queues.table) == set(topics) - {"Unused"}

    def test_a_topic_that_is_used_again_meanwhile_is_kept(self, store: DefaultMessageStore) -> None:
        topics = [f"Unused{number}" for number in range(TOPICS_A_STEP + 2)]
        for topic in topics:
            put(store, message(topic=topic))
        retained: set[str] = set()
        steps = store.clean_unused_topics(retained)
        assert next(steps) == TOPICS_A_STEP
        again, gone = store.queues.topics()
        retained.add(again)
        assert list(steps) == [1]
        assert store.queues.topics() == [again]
        assert store.find_consume_queue(gone, 0) is None

    def test_flush(self, store: DefaultMessageStore) -> None:
        fill(store, 2)
        assert store.flushed_offset == 0
        assert store.remaining_to_flush_bytes() == store.max_physical_offset
        assert store.flush() == store.flushed_offset == store.max_physical_offset
        assert store.remaining_to_flush_bytes() == 0


class TestHealth:
    def test_buffers_without_a_pool(self, store: DefaultMessageStore) -> None:
        assert store.remaining_transient_buffers() == 0x7FFFFFFF
        assert not store.is_transient_store_pool_deficient()
        assert store.remaining_to_commit_bytes() == 0

    def test_dispatch_behind(self, tmp_path: Path) -> None:
        settings = config(flush_disk_type=FlushDiskType.SYNC_FLUSH)
        with opened(tmp_path / "store", config=settings) as store:
            store.submit(message())
            store.finish_burst()
            store.flush()
            assert store.dispatch_behind_bytes() == 0
            store.submit(message())
            store.finish_burst()
            assert store.dispatch_behind_bytes() == store.max_physical_offset // 2

    def test_a_busy_page_cache(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with opened(tmp_path / "store", clock=clock) as store:
            seen: list[tuple[int, bool]] = []

            def slow(_: object) -> None:
                clock.advance(1001)
                seen.append((store.lock_time_ms(), store.is_os_page_cache_busy()))

            clock.advance(1)
            assert not store.is_os_page_cache_busy()
            store.put_hooks.append(slow)
            assert answer(store, message()).is_ok
            assert seen == [(1001, True)]
            assert store.lock_time_ms() == 0
            assert store.is_os_page_cache_busy()
            store.put_hooks.clear()
            assert answer(store, message()).status is PutMessageStatus.OS_PAGE_CACHE_BUSY
            refused = store.put_burst([message()]).refused
            assert refused[0].status is PutMessageStatus.OS_PAGE_CACHE_BUSY
            clock.advance(1000)
            assert not store.is_os_page_cache_busy()
            assert answer(store, message()).is_ok
            assert store.stats.runtime_info()["putMessageEntireTimeMax"] == "1001"

    def test_an_append_that_raises_is_finished(self, store: DefaultMessageStore) -> None:
        def broken(_: object) -> None:
            raise RuntimeError("hook")

        store.put_hooks.append(broken)
        with pytest.raises(RuntimeError, match="hook"):
            store.submit(message())
        assert store.lock_time_ms() == 0
        store.put_hooks.clear()
        assert answer(store, message()).is_ok

    def test_where_messages_are(self, store: DefaultMessageStore) -> None:
        fill(store, 4)
        assert store.is_in_memory("T", 0, 0)
        assert store.is_in_memory("T", 0, 0, batch=2)
        assert not store.is_in_memory("T", 0, 2)
        assert not store.is_in_memory("U", 0, 0)

    def test_runtime_info(self, store: DefaultMessageStore) -> None:
        fill(store, 4)
        info = store.runtime_info()
        assert info["commitLogMinOffset"] == "0"
        assert info["commitLogMaxOffset"] == str(store.max_physical_offset)
        assert info["putMessageTimesTotal"] == "4"
        assert info["putMessageSizeTotal"] == str(store.max_physical_offset)

    def test_the_slowest_get(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with opened(tmp_path / "store", clock=clock) as store:
            fill(store, 2)

            def slow(_: memoryview) -> bool:
                clock.advance(7)
                return True

            store.get_message("T", 0, 0, 1, message_filter=MessageFilter(by_record=slow))
            store.get_message("T", 0, 0, 1)
            assert store.runtime_info()["getMessageEntireTimeMax"] == "7"

    def test_bursts_are_counted(self, store: DefaultMessageStore) -> None:
        store.put_burst([message(), message(topic=""), message()])
        info = store.runtime_info()
        assert (info["putMessageTimesTotal"], info["putMessageFailedTimes"]) == ("2", "1")

    def test_rates_are_sampled_by_the_housekeeper(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with opened(tmp_path / "store", clock=clock) as store:
            for _ in range(11):
                store.upkeep.housekeeping_round()
                fill(store, 2)
                clock.advance(1000)
            store.upkeep.housekeeping_round()
            assert store.runtime_info()["putTps"].split(" ")[0] == "2.0"


class TestJoiningIn:
    def test_dispatchers_see_every_record_in_order(self, store: DefaultMessageStore) -> None:
        seen: list[DispatchRequest] = []
        store.dispatchers.append(seen.append)
        fill(store, 4)
        store.put_burst([message(), message()])
        assert [request.physical_offset for request in seen] == sorted(
            request.physical_offset for request in seen
        )
        assert len(seen) == 6
        assert seen[0].keys == "k0"

    def test_listeners_are_notified_of_queues_that_grew(self, store: DefaultMessageStore) -> None:
        heard: list[tuple[int, int]] = []

        def listen(queue: ConsumeQueue) -> None:
            heard.append((queue.queue_id, queue.max_queue_offset))

        store.add_arriving_listener(listen)
        put(store, message(), message(), message(queue_id=3))
        assert sorted(heard) == [(0, 2), (3, 1)]

    def test_hooks_may_refuse(self, store: DefaultMessageStore) -> None:
        record = answer(store, message(b"a"))
        assert record.append is not None
        store.put_hooks.append(lambda one: record if one.topic == "No" else None)
        assert answer(store, message(topic="Yes")).append != record.append


def test_get_and_look_return_the_same_record(store: DefaultMessageStore) -> None:
    fill(store, 3)
    result = store.get_message("T", 0, 0, 1)
    record = decode_record(result.body(), 0, result.total_bytes)
    assert store.look_message(record.physical_offset) == record
