"""The rest of the interface: numbers, replication, truncation, maintenance, health."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.errors import StoreClosed, StoreError
from roquet.format import commit_log as fmt
from roquet.format.commit_log import DispatchRequest, decode_record
from roquet.model.host import LOOPBACK
from roquet.model.message_id import OffsetMessageId
from roquet.runtime.clock import ManualClock
from roquet.store.config import BrokerRole, FlushDiskType
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.reader import MessageFilter
from roquet.store.results import PutMessageResult, PutMessageStatus
from roquet.store.running_flags import RunningFlag
from roquet.testing.files import FaultyFiles
from tests.unit.store.kit import (
    FOREVER_MS,
    NOW_MS,
    SEGMENT_BYTES,
    answer,
    bodies,
    config,
    hash_of,
    message,
    open_store,
    opened,
    put,
)

SLAVE = config(broker_role=BrokerRole.SLAVE)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DefaultMessageStore]:
    with opened(tmp_path / "store") as store:
        yield store


def fill(store: DefaultMessageStore, count: int, size: int = 1000) -> None:
    for number in range(count):
        put(store, message(b"%04d" % number * (size // 4), queue_id=number % 2, KEYS=f"k{number}"))


class TestNumbers:
    def test_of_a_queue(self, store: DefaultMessageStore) -> None:
        fill(store, 5)
        assert store.max_offset_in_queue("T", 0) == 3
        assert store.max_offset_in_queue("T", 1) == 2
        assert store.min_offset_in_queue("T", 0) == 0
        assert store.total_in_queue("T", 0) == 3
        assert store.physical_offset_in_queue("T", 0, 0) == 0
        assert store.physical_offset_in_queue("T", 0, 3) == -1
        assert store.find_consume_queue("T", 1) is store.queues.find("T", 1)

    def test_of_no_queue(self, store: DefaultMessageStore) -> None:
        assert store.max_offset_in_queue("U", 0) == 0
        assert store.min_offset_in_queue("U", 0) == -1
        assert store.total_in_queue("U", 0) == 0
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
        with pytest.raises(StoreClosed, match="not read"):
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


class TestReplication:
    def replicate(self, master: DefaultMessageStore, slave: DefaultMessageStore, step: int) -> None:
        while (offset := slave.commit_log.wrote_offset) < master.max_physical_offset:
            parts = master.bulk_commit_log_data(offset, step)
            assert slave.append_to_commit_log(offset, b"".join(parts))

    @pytest.mark.parametrize("step", [100, 1000, 32_768])
    def test_a_slave_becomes_the_same_store(self, tmp_path: Path, step: int) -> None:
        with (
            opened(tmp_path / "master") as master,
            opened(tmp_path / "slave", config=SLAVE) as slave,
        ):
            fill(master, 40)
            self.replicate(master, slave, step)
            for queue_id in (0, 1):
                assert bodies(slave, queue_id=queue_id) == bodies(master, queue_id=queue_id)
            assert slave.query_message("T", "k7", 1, 0, FOREVER_MS).total_bytes > 0
            assert slave.commit_log.store_timestamp_ms == NOW_MS
            master.flush()
            slave.flush()
            assert slave.checkpoint.marks.physic_msg_timestamp_ms == NOW_MS
        for name in ("commitlog", "consumequeue"):
            files = sorted(p for p in (tmp_path / "master" / name).rglob("*") if p.is_file())
            for path in files:
                twin = tmp_path / "slave" / path.relative_to(tmp_path / "master")
                assert twin.read_bytes() == path.read_bytes(), path.name

    def test_half_a_record_waits_for_its_rest(self, tmp_path: Path) -> None:
        with opened(tmp_path / "master") as master:
            fill(master, 2)
            data = bytes(master.commit_log_data(0) or b"")
        with opened(tmp_path / "slave", config=SLAVE) as slave:
            position = 0
            for length in (3, 5, 100, 900, len(data)):
                part = data[position : position + length]
                assert slave.append_to_commit_log(position, part)
                position += len(part)
                slave.flush()
                whole = sum(position >= end for end in (len(data) // 2, len(data)))
                found = len(bodies(slave)) + len(bodies(slave, queue_id=1))
                assert found == whole
            assert not slave.flags.has(RunningFlag.LOGICS_QUEUE_ERROR)

    def test_half_a_record_is_cut_off_by_a_restart(self, tmp_path: Path) -> None:
        with opened(tmp_path / "master") as master:
            fill(master, 2)
            data = bytes(master.commit_log_data(0) or b"")
        with opened(tmp_path / "slave", config=SLAVE) as slave:
            slave.append_to_commit_log(0, data[:-10])
        with opened(tmp_path / "slave", config=SLAVE) as slave:
            assert slave.max_physical_offset == len(data) // 2
            assert slave.append_to_commit_log(len(data) // 2, data[len(data) // 2 :])
            assert len(bodies(slave, queue_id=1)) == 1

    def test_bytes_that_are_no_record_stop_a_slave(self, tmp_path: Path) -> None:
        with opened(tmp_path / "slave", config=SLAVE) as slave:
            with pytest.raises(StoreError, match="changed after it was written"):
                slave.append_to_commit_log(0, b"?" * 100)
            assert slave.flags.has(RunningFlag.LOGICS_QUEUE_ERROR)

    def test_only_where_the_log_ends(self, tmp_path: Path) -> None:
        with opened(tmp_path / "slave", config=SLAVE) as slave:
            assert not slave.append_to_commit_log(17, b"x")
            fill(slave, 1)
            end = slave.commit_log.wrote_offset
            assert not slave.append_to_commit_log(end + 1, b"x")
            assert not slave.append_to_commit_log(0, b"x")
            assert slave.commit_log.wrote_offset == end

    def test_sync_flush_on_a_slave(self, tmp_path: Path) -> None:
        settings = config(broker_role=BrokerRole.SLAVE, flush_disk_type=FlushDiskType.SYNC_FLUSH)
        with (
            opened(tmp_path / "master") as master,
            opened(tmp_path / "slave", config=settings) as slave,
        ):
            fill(master, 3)
            self.replicate(master, slave, 1000)
            assert bodies(slave) == []
            slave.flush()
            assert bodies(slave) == bodies(master)

    def test_a_later_life_begins_where_the_master_says(self, tmp_path: Path) -> None:
        with opened(tmp_path / "slave", config=SLAVE) as slave:
            with pytest.raises(StoreError, match="cannot begin at 100"):
                slave.reset_write_offset(100)
            slave.reset_write_offset(3 * SEGMENT_BYTES)
            assert slave.min_physical_offset == 3 * SEGMENT_BYTES
            assert slave.max_physical_offset == 3 * SEGMENT_BYTES
            assert slave.dispatch_behind_bytes() == 0
            record = fmt.encode_record(
                topic=b"T",
                body=b"x",
                properties=b"",
                queue_id=0,
                flag=0,
                queue_offset=35,
                physical_offset=3 * SEGMENT_BYTES,
                sys_flag=0,
                born_timestamp_ms=0,
                born_host=LOOPBACK.pack(),
                store_timestamp_ms=NOW_MS,
                store_host=LOOPBACK.pack(),
            )
            assert slave.append_to_commit_log(3 * SEGMENT_BYTES, record)
            assert (slave.min_offset_in_queue("T", 0), bodies(slave)) == (35, [b"x"])
        with opened(tmp_path / "slave", config=SLAVE) as slave:
            assert bodies(slave) == [b"x"]

    def test_whom_to_follow(self, store: DefaultMessageStore) -> None:
        assert store.ha_master_address == ""
        store.update_ha_master_address("127.0.0.1:10912")
        assert store.ha_master_address == "127.0.0.1:10912"

    def test_how_far_a_slave_is(self, store: DefaultMessageStore) -> None:
        fill(store, 2)
        assert store.slave_behind_bytes() == store.max_physical_offset
        store.acks.replicated_offset = 100
        assert store.slave_behind_bytes() == store.max_physical_offset - 100

    def test_log_data(self, store: DefaultMessageStore) -> None:
        fill(store, 30)
        assert store.max_physical_offset > SEGMENT_BYTES
        first = store.commit_log_data(100)
        assert first is not None
        assert len(first) == SEGMENT_BYTES - 100
        assert store.commit_log_data(store.max_physical_offset) is None
        assert store.commit_log_data(1 << 40) is None
        parts = store.bulk_commit_log_data(SEGMENT_BYTES - 10, 30)
        assert [len(part) for part in parts] == [10, 20]
        whole = b"".join(store.bulk_commit_log_data(0, 1 << 30))
        assert len(whole) == store.max_physical_offset
        assert store.bulk_commit_log_data(0, 0) == []


class TestConfirmOffset:
    def test_readers_see_nothing_behind_it(self, store: DefaultMessageStore) -> None:
        assert store.confirm_offset == 0
        fill(store, 2)
        assert store.confirm_offset == store.max_physical_offset
        limit = store.max_physical_offset
        store.set_confirm_offset(limit)
        fill(store, 4)
        assert store.confirm_offset == limit
        assert len(bodies(store)) == 1
        burst = store.put_burst([message(b"burst"), message(b"burst")])
        assert list(burst.queue_offsets) == [3, 4]
        assert len(bodies(store)) == 1
        third = store.look_message(limit)
        assert third is not None
        store.set_confirm_offset(limit + third.store_size)
        assert len(bodies(store)) == 2
        store.set_confirm_offset(None)
        assert len(bodies(store)) == 5
        assert store.dispatch_behind_bytes() == 0
        assert store.checkpoint.marks.confirm_physical_offset >= limit

    def test_a_store_that_hides_something_is_not_left_as_clean(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store") as store:
            store.set_confirm_offset(0)
            fill(store, 2)
            assert bodies(store) == []
        with opened(tmp_path / "store") as store:
            assert len(bodies(store)) == 1


class TestTruncation:
    """Cutting the end off: gone for good, from log, queues and index alike."""

    def offsets(self, store: DefaultMessageStore) -> list[int]:
        return sorted(
            store.physical_offset_in_queue("T", queue_id, place)
            for queue_id in (0, 1)
            for place in range(store.max_offset_in_queue("T", queue_id))
        )

    @pytest.mark.parametrize("kept", [0, 1, 13, 14, 15, 16, 29, 39, 40])
    def test_to_any_record(self, tmp_path: Path, kept: int) -> None:
        with opened(tmp_path / "store") as store:
            fill(store, 40)
            starts = self.offsets(store)
            end = starts[kept] if kept < 40 else store.max_physical_offset
            store.truncate_to(end)
            assert store.max_physical_offset == end
            assert self.offsets(store) == starts[:kept]
            for number in range(40):
                result = store.query_message("T", f"k{number}", 5, 0, FOREVER_MS)
                assert len(result.records) == (1 if number < kept else 0), number
            put(store, message(b"after", queue_id=kept % 2, KEYS="after"))
            assert bodies(store, queue_id=kept % 2)[-1] == b"after"
        with opened(tmp_path / "store") as store:
            assert store.last_recovery is not None
            assert store.last_recovery.clean_exit
            assert self.offsets(store)[:kept] == starts[:kept]
            assert len(self.offsets(store)) == kept + 1
            assert len(store.query_message("T", "after", 5, 0, FOREVER_MS).records) == 1

    def test_to_the_start_of_a_segment(self, store: DefaultMessageStore) -> None:
        fill(store, 40)
        store.truncate_to(SEGMENT_BYTES)
        assert store.max_physical_offset == SEGMENT_BYTES
        assert max(self.offsets(store)) < SEGMENT_BYTES
        result = answer(store, message())
        assert result.append is not None
        assert result.append.wrote_offset == SEGMENT_BYTES

    def test_nothing_comes_back_after_a_crash(self, tmp_path: Path) -> None:
        store = open_store(tmp_path / "store")
        fill(store, 20)
        starts = self.offsets(store)
        store.truncate_to(starts[5])
        store._close_files()
        store._store_lock.release()
        with opened(tmp_path / "store") as store:
            assert store.last_recovery is not None
            assert not store.last_recovery.clean_exit
            assert self.offsets(store) == starts[:5]
            assert store.max_physical_offset == starts[5]

    def test_segments_made_ahead_go_too(self, tmp_path: Path) -> None:
        store = DefaultMessageStore(tmp_path / "store", config())
        store.load()
        store.start()
        fill(store, 40)
        starts = self.offsets(store)
        store.truncate_to(starts[3])
        names = sorted(int(p.name) for p in (tmp_path / "store" / "commitlog").iterdir())
        assert names == [0]
        fill(store, 40)
        store.shutdown()
        names = sorted(int(p.name) for p in (tmp_path / "store" / "commitlog").iterdir())
        assert names == [n * SEGMENT_BYTES for n in range(len(names))]

    def test_the_checkpoint_vouches_for_nothing_behind_the_cut(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with opened(tmp_path / "store", clock=clock) as store:
            for _ in range(40):
                fill(store, 1)
                clock.advance(1000)
            store.flush()
            store._flush_logics(thorough=True)
            assert store.checkpoint.marks.physic_msg_timestamp_ms == NOW_MS + 39_000
            starts = self.offsets(store)
            store.truncate_to(starts[20])
            kept_ms = store.look_message(SEGMENT_BYTES)
            assert kept_ms is not None
            marks = store.checkpoint.marks
            assert marks.physic_msg_timestamp_ms == kept_ms.store_timestamp_ms
            assert marks.logics_msg_timestamp_ms == kept_ms.store_timestamp_ms
            assert store.flushed_offset == starts[20]
            assert store.queues.synced_offset == starts[20]
            store._flush_logics(thorough=True)
            assert store.queues.synced_offset == starts[20]

    @pytest.mark.parametrize("offset", [-1, 1, 500, 1 << 40])
    def test_offsets_that_are_none(self, tmp_path: Path, offset: int) -> None:
        with opened(tmp_path / "store") as store:
            fill(store, 40)
            before = hash_of(tmp_path / "store")
            assert not store.is_offset_aligned(offset)
            with pytest.raises(StoreError, match="cannot be truncated") as raised:
                store.truncate_to(offset)
            assert raised.value.detail
            assert hash_of(tmp_path / "store") == before

    def test_not_below_what_is_gone(self, store: DefaultMessageStore) -> None:
        fill(store, 60)
        store.flush()
        for segment in store.commit_log.queue.drop_oldest(2):
            segment.destroy()
        with pytest.raises(StoreError) as raised:
            store.truncate_to(SEGMENT_BYTES)
        assert str(2 * SEGMENT_BYTES) in (raised.value.detail or "")
        store.truncate_to(2 * SEGMENT_BYTES)
        assert store.min_physical_offset == store.max_physical_offset == 2 * SEGMENT_BYTES

    def test_not_while_puts_are_under_way(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store") as store:
            store.submit(message())
            with pytest.raises(StoreError) as raised:
                store.truncate_to(0)
            assert raised.value.detail == "puts are under way"
            store.finish_burst()
            store.truncate_to(0)
        settings = config(flush_disk_type=FlushDiskType.SYNC_FLUSH)
        with opened(tmp_path / "sync", config=settings) as store:
            answers: list[PutMessageResult] = []
            store.submit(message(), answers.append)
            store.finish_burst()
            with pytest.raises(StoreError, match="cannot be truncated"):
                store.truncate_to(0)
            store.flush()
            assert len(answers) == 1
            store.truncate_to(0)
            assert bodies(store) == []
            store.submit(message(b"later"), answers.append)
            store.finish_burst()
            assert len(answers) == 1, "an old flush must not release a new message"
            store.flush()
            assert len(answers) == 2

    def test_with_a_transient_pool(self, tmp_path: Path) -> None:
        settings = config(transient_store_pool=True, transient_store_pool_size=2)
        with opened(tmp_path / "store", config=settings) as store:
            fill(store, 40)
            store.flush()
            starts = self.offsets(store)
            fill(store, 3)
            store.truncate_to(starts[20])
            fill(store, 2)
            store.flush()
            assert self.offsets(store)[:20] == starts[:20]
            assert len(self.offsets(store)) == 22
        with opened(tmp_path / "store", config=settings) as store:
            assert len(self.offsets(store)) == 22

    def test_a_store_that_is_only_loaded(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store") as store:
            fill(store, 20)
            starts = self.offsets(store)
        store = DefaultMessageStore(tmp_path / "store", config(), clock=ManualClock(NOW_MS))
        store.load()
        store.truncate_to(starts[4])
        assert self.offsets(store) == starts[:4]
        store.shutdown()
        with opened(tmp_path / "store") as store:
            assert self.offsets(store) == starts[:4]

    def test_to_the_end_is_nothing(self, store: DefaultMessageStore, tmp_path: Path) -> None:
        fill(store, 3)
        before = hash_of(tmp_path / "store")
        assert store.is_offset_aligned(store.max_physical_offset)
        store.truncate_to(store.max_physical_offset)
        store.reset_write_offset(store.max_physical_offset)
        assert hash_of(tmp_path / "store") == before

    def test_the_end_of_a_segment_is_aligned(self, store: DefaultMessageStore) -> None:
        put(store, message(b"a" * 10_000), message(b"b" * 10_000))
        assert store.is_offset_aligned(10_092)
        store.truncate_to(10_092)
        assert bodies(store) == [b"a" * 10_000]
        put(store, message(b"c"))
        assert bodies(store) == [b"a" * 10_000, b"c"]

    def test_a_failing_disk_is_told(self, tmp_path: Path) -> None:
        files = FaultyFiles(only=frozenset({"zero_range"}), error=errno.EIO)
        store = open_store(tmp_path / "store", files=files)
        fill(store, 5)
        starts = self.offsets(store)
        files.fail_at = len(files.calls) + 1
        with pytest.raises(OSError, match="Input/output"):
            store.truncate_to(starts[2])
        store._close_files()
        store._store_lock.release()
        with opened(tmp_path / "store") as store:
            assert self.offsets(store)[:2] == starts[:2]


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

    def test_records_on_their_way_do_not_bring_a_topic_back(self, tmp_path: Path) -> None:
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
        assert store.clean_unused_topics({"Used"}) == 1
        assert set(store.queues.table) == set(topics) - {"Unused"}

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
        clock = ManualClock(NOW_MS)
        settings = config(flush_disk_type=FlushDiskType.SYNC_FLUSH)
        with opened(tmp_path / "store", config=settings, clock=clock) as store:
            store.submit(message())
            store.finish_burst()
            store.flush()
            assert (store.dispatch_behind_bytes(), store.dispatch_behind_ms()) == (0, 0)
            clock.advance(700)
            store.submit(message())
            store.finish_burst()
            assert store.dispatch_behind_bytes() == store.max_physical_offset // 2
            assert store.dispatch_behind_ms() == 700

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

    def test_an_append_that_raises_is_over(self, store: DefaultMessageStore) -> None:
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
        assert not store.is_in_disk("T", 0, 0)
        assert store.is_in_store("T", 0, 1)
        assert not store.is_in_store("T", 0, 2)

    def test_runtime_info(self, store: DefaultMessageStore) -> None:
        fill(store, 4)
        info = store.runtime_info()
        assert info["commitLogMinOffset"] == "0"
        assert info["commitLogMaxOffset"] == str(store.max_physical_offset)
        assert info["putMessageTimesTotal"] == "4"
        assert info["putMessageSizeTotal"] == str(store.max_physical_offset)
        assert "putTps" in store.running_data_info()

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
                store._housekeeping_round()
                fill(store, 2)
                clock.advance(1000)
            store._housekeeping_round()
            assert store.runtime_info()["putTps"].split(" ")[0] == "2.0"


class TestJoiningIn:
    def test_dispatchers_see_every_record_in_order(self, store: DefaultMessageStore) -> None:
        seen: list[DispatchRequest] = []
        store.add_dispatcher(seen.append)
        assert store.dispatchers == [seen.append]
        fill(store, 4)
        store.put_burst([message(), message()])
        assert [request.physical_offset for request in seen] == sorted(
            request.physical_offset for request in seen
        )
        assert len(seen) == 6
        assert seen[0].keys == "k0"

    def test_listeners_hear_of_queues_that_grew(self, store: DefaultMessageStore) -> None:
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


def test_the_record_of_a_get_is_the_record_of_a_look(store: DefaultMessageStore) -> None:
    fill(store, 3)
    result = store.get_message("T", 0, 0, 1)
    record = decode_record(result.body(), 0, result.total_bytes)
    assert store.look_message(record.physical_offset) == record
