"""A log that another broker wrote: appended, confirmed and truncated."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.errors import StoreError
from roquet.format import commit_log as fmt
from roquet.model.host import LOOPBACK
from roquet.runtime.clock import ManualClock
from roquet.store.config import BrokerRole, FlushDiskType
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import PutMessageResult
from roquet.store.running_flags import RunningFlag
from roquet.testing.files import FaultyFiles
from tests.unit.store.kit import (
    FOREVER_MS,
    NOW_MS,
    SEGMENT_BYTES,
    answer,
    bodies,
    config,
    fill,
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

    def test_bytes_that_are_not_a_record_stop_a_slave(self, tmp_path: Path) -> None:
        with opened(tmp_path / "slave", config=SLAVE) as slave:
            with pytest.raises(StoreError, match="changed after it was written"):
                slave.append_to_commit_log(0, b"?" * 100)
            assert slave.flags.has(RunningFlag.LOGICS_QUEUE_ERROR)

    def test_a_corrupted_body_stops_the_slave(self, tmp_path: Path) -> None:
        with opened(tmp_path / "master") as master:
            put(master, message(b"a" * 100), message(b"b" * 100))
            data = bytearray(master.commit_log_data(0) or b"")
        data[data.rindex(b"b")] ^= 1
        with opened(tmp_path / "slave", config=SLAVE) as slave:
            with pytest.raises(StoreError, match="changed after it was written"):
                slave.append_to_commit_log(0, bytes(data))
            with pytest.raises(StoreError, match="accepts no replicated data"):
                slave.append_to_commit_log(len(data), b"more")
        with opened(tmp_path / "slave", config=SLAVE) as slave:
            assert bodies(slave) == [b"a" * 100]
            assert slave.max_physical_offset == len(data) // 2

    def test_an_empty_segment_may_be_replaced(self, tmp_path: Path) -> None:
        with opened(tmp_path / "master") as master:
            fill(master, 40)
            begin = 2 * SEGMENT_BYTES
            data = b"".join(master.bulk_commit_log_data(begin, 1 << 30))
        with opened(tmp_path / "slave", config=SLAVE) as slave:
            assert slave.append_to_commit_log(0, b"\0\0\1")
            slave.truncate_to(0)
            assert not slave.append_to_commit_log(begin + 1, data)
            assert slave.append_to_commit_log(begin, data)
            assert slave.min_physical_offset == begin
            assert bodies(slave)
        with opened(tmp_path / "slave", config=SLAVE) as slave:
            assert (slave.min_physical_offset, slave.max_physical_offset) == (
                begin,
                begin + len(data),
            )

    def test_a_slave_takes_no_messages(self, tmp_path: Path) -> None:
        with opened(tmp_path / "slave", config=SLAVE) as slave:
            refused = answer(slave, message(b"x"))
            assert (refused.status.value, refused.is_stored) == ("SERVICE_NOT_AVAILABLE", False)
            puts = slave.puts.begin_plain_puts()
            slave.puts.finish_plain_puts(puts, 0)
            assert not puts.is_allowed
            assert slave.put_burst([message(b"x")]).refused
            assert slave.commit_log.wrote_offset == 0

    def test_only_where_the_log_ends(self, tmp_path: Path) -> None:
        with opened(tmp_path / "master") as master:
            fill(master, 1)
            data = bytes(master.commit_log_data(0) or b"")
        with opened(tmp_path / "slave", config=SLAVE) as slave:
            assert not slave.append_to_commit_log(17, b"x")
            assert slave.append_to_commit_log(0, data)
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

    def test_which_master_to_follow(self, store: DefaultMessageStore) -> None:
        assert store.ha_master_address == ""
        store.update_ha_master_address("127.0.0.1:10912")
        assert store.ha_master_address == "127.0.0.1:10912"

    def test_how_far_a_slave_is(self, store: DefaultMessageStore) -> None:
        fill(store, 2)
        assert store.slave_behind_bytes() == store.max_physical_offset
        store.acks.slave_offset = 100
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
    def test_readers_see_nothing_after_it(self, store: DefaultMessageStore) -> None:
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
    """Truncating the end: gone for good, from log, queues and index alike."""

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
            assert store.lifecycle.last_recovery is not None
            assert store.lifecycle.last_recovery.clean_exit
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

    def test_nothing_reappears_after_a_crash(self, tmp_path: Path) -> None:
        store = open_store(tmp_path / "store")
        fill(store, 20)
        starts = self.offsets(store)
        store.truncate_to(starts[5])
        store.lifecycle.abandon()
        with opened(tmp_path / "store") as store:
            assert store.lifecycle.last_recovery is not None
            assert not store.lifecycle.last_recovery.clean_exit
            assert self.offsets(store) == starts[:5]
            assert store.max_physical_offset == starts[5]

    def test_preallocated_segments_are_removed_too(self, tmp_path: Path) -> None:
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

    def test_the_checkpoint_covers_nothing_after_the_truncation(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with opened(tmp_path / "store", clock=clock) as store:
            for _ in range(40):
                fill(store, 1)
                clock.advance(1000)
            store.flush()
            store.upkeep.flush_logics(thorough=True)
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
            store.upkeep.flush_logics(thorough=True)
            assert store.queues.synced_offset == starts[20]

    @pytest.mark.parametrize("offset", [-1, 1, 500, 1 << 40])
    def test_invalid_offsets(self, tmp_path: Path, offset: int) -> None:
        with opened(tmp_path / "store") as store:
            fill(store, 40)
            before = hash_of(tmp_path / "store")
            assert not store.is_offset_aligned(offset)
            with pytest.raises(StoreError, match="cannot be truncated") as raised:
                store.truncate_to(offset)
            assert raised.value.detail
            assert hash_of(tmp_path / "store") == before

    def test_not_below_deleted_records(self, store: DefaultMessageStore) -> None:
        fill(store, 60)
        store.flush()
        for segment in store.commit_log.queue.drop_oldest(2):
            segment.destroy()
        with pytest.raises(StoreError) as raised:
            store.truncate_to(SEGMENT_BYTES)
        assert str(2 * SEGMENT_BYTES) in (raised.value.detail or "")
        store.truncate_to(2 * SEGMENT_BYTES)
        assert store.min_physical_offset == store.max_physical_offset == 2 * SEGMENT_BYTES

    def test_not_while_puts_are_in_progress(self, tmp_path: Path) -> None:
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

    def test_truncating_to_the_end_changes_nothing(
        self, store: DefaultMessageStore, tmp_path: Path
    ) -> None:
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

    def test_a_failing_disk_is_reported(self, tmp_path: Path) -> None:
        files = FaultyFiles(only=frozenset({"zero_range"}), error=errno.EIO)
        store = open_store(tmp_path / "store", files=files)
        fill(store, 5)
        starts = self.offsets(store)
        files.fail_at = len(files.calls) + 1
        with pytest.raises(OSError, match="Input/output"):
            store.truncate_to(starts[2])
        store.lifecycle.abandon()
        with opened(tmp_path / "store") as store:
            assert self.offsets(store)[:2] == starts[:2]
