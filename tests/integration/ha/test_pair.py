"""A master and its slaves over loopback: the same log, whatever is restarted."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from roquet.format.ha_frames import encode_report
from roquet.ha import sender
from roquet.store.config import BrokerRole, FlushDiskType
from tests.integration.ha.ha_kit import caught_up, replica, same_files
from tests.interop.process import find_free_port
from tests.unit.client.client_kit import until
from tests.unit.store.kit import SEGMENT_BYTES, bodies

SYNC: dict[str, object] = {"broker_role": BrokerRole.SYNC_MASTER}


def texts(first: int, count: int) -> list[bytes]:
    return [b"%d" % number * (number % 97) for number in range(first, first + count)]


async def test_a_slaves_files_equal_its_masters(tmp_path: Path) -> None:
    async with (
        replica(tmp_path / "master") as master,
        replica(tmp_path / "slave", master=master.address) as slave,
    ):
        await until(lambda: master.ha.status().in_sync_slaves == 1)
        for first in range(0, 300, 30):
            master.submit(*texts(first, 30))
            await asyncio.sleep(0)
        await caught_up(slave, master)
        assert slave.end > 3 * SEGMENT_BYTES
        assert slave.log_bytes() == master.log_bytes()
        for queue_id in (0, 1):
            assert bodies(slave.store, queue_id=queue_id) == bodies(master.store, queue_id=queue_id)
        status = master.ha.status()
        assert (status.is_master, status.in_sync_slaves) == (True, 1)
        assert status.slaves[0].behind_bytes == 0
        status = slave.ha.status()
        assert (status.is_master, status.is_connected, status.fault) == (False, True, "")
        assert status.master_address == master.address
        assert status.last_read_ms > 0
        assert status.last_write_ms > 0
        assert master.store.slave_behind_bytes() == 0
    same_files(tmp_path / "master", tmp_path / "slave", "commitlog", "consumequeue")


async def test_replication_continues_after_a_restart_of_either_side(tmp_path: Path) -> None:
    port = find_free_port()
    async with replica(tmp_path / "master", port=port) as master:
        address = master.address
        async with replica(tmp_path / "slave", master=address) as slave:
            master.submit(*texts(0, 50))
            await caught_up(slave, master)
        master.submit(*texts(50, 50))
        async with replica(tmp_path / "slave", master=address) as slave:
            await caught_up(slave, master)
            assert slave.log_bytes() == master.log_bytes()
    async with replica(tmp_path / "slave", master=address) as slave:
        await until(lambda: slave.ha.status().fault != "")
        async with replica(tmp_path / "master", port=port) as master:
            master.submit(*texts(100, 50))
            await caught_up(slave, master)
            assert slave.log_bytes() == master.log_bytes()
            assert slave.ha.status().fault == ""
    same_files(tmp_path / "master", tmp_path / "slave", "commitlog", "consumequeue")


async def test_a_promoted_slave_replicates_to_its_former_master(tmp_path: Path) -> None:
    async with (
        replica(tmp_path / "one") as one,
        replica(tmp_path / "two", master=one.address) as two,
    ):
        one.submit(*texts(0, 40))
        await caught_up(two, one)
    async with (
        replica(tmp_path / "two") as two,
        replica(tmp_path / "one", master=two.address) as one,
    ):
        two.submit(*texts(40, 40))
        await caught_up(one, two)
        assert one.log_bytes() == two.log_bytes()
        assert bodies(one.store) == texts(0, 80)[::2]


async def test_an_empty_slave_starts_at_the_last_segment(tmp_path: Path) -> None:
    async with replica(tmp_path / "master") as master:
        master.submit(*texts(0, 150))
        begin = master.end - master.end % SEGMENT_BYTES
        assert begin > 0
        async with replica(tmp_path / "slave", master=master.address) as slave:
            await caught_up(slave, master)
            assert slave.store.min_physical_offset == begin
            assert slave.log_bytes() == master.log_bytes()[begin:]
            found = bodies(slave.store)
            assert found == bodies(master.store)[-len(found) :]
            assert found
        master.submit(*texts(150, 50))
        async with replica(tmp_path / "slave", master=master.address) as slave:
            await caught_up(slave, master)
            assert slave.log_bytes() == master.log_bytes()[begin:]


async def test_the_master_address_may_change_at_run_time(tmp_path: Path) -> None:
    async with (
        replica(tmp_path / "master") as master,
        replica(tmp_path / "slave", options={"broker_role": BrokerRole.SLAVE}) as slave,
    ):
        master.submit(*texts(0, 10))
        assert slave.ha.ha_master_address == ""
        slave.ha.update_ha_master_address(master.address)
        await caught_up(slave, master)
        slave.ha.update_ha_master_address("")
        await until(lambda: not master.ha.status().slaves)
        assert slave.store.ha_master_address == ""
        slave.ha.reset_master_flush_offset(77)
        assert slave.ha.status().master_flush_offset == 77


async def test_several_slaves_and_a_chain(tmp_path: Path) -> None:
    async with (
        replica(tmp_path / "master") as master,
        replica(tmp_path / "one", master=master.address) as one,
        replica(tmp_path / "two", master=one.address) as two,
        replica(tmp_path / "three", master=master.address) as three,
    ):
        await until(lambda: master.ha.status().in_sync_slaves == 2)
        await until(lambda: one.ha.status().in_sync_slaves == 1)
        master.submit(*texts(0, 100))
        for slave in (one, two, three):
            await until(lambda slave=slave: slave.end == master.end)  # type: ignore[misc]
            assert slave.log_bytes() == master.log_bytes()


async def test_sends_wait_for_a_slave(tmp_path: Path) -> None:
    async with (
        replica(tmp_path / "master", options=SYNC) as master,
        replica(tmp_path / "slave", master=master.address) as slave,
    ):
        await until(lambda: master.ha.status().in_sync_slaves == 1)
        results = master.submit(*texts(0, 20))
        assert results == []
        end = master.end
        await until(lambda: len(results) == 20)
        assert slave.end >= end
        assert {each.status.value for each in results} == {"PUT_OK"}
        assert [each.is_ok for each in master.submit(b"x", wait=False)] == [True]


async def test_sends_without_a_slave_are_answered_at_once(tmp_path: Path) -> None:
    async with replica(tmp_path / "master", options=SYNC) as master:
        results = master.submit(b"a", b"b")
        assert [each.status.value for each in results] == ["SLAVE_NOT_AVAILABLE"] * 2
        assert all(each.is_stored for each in results)
        assert bodies(master.store) == [b"a"]


async def test_sends_time_out_when_the_slave_is_silent(tmp_path: Path) -> None:
    async with replica(tmp_path / "master", options={**SYNC, "slave_timeout_ms": 200}) as master:
        _, writer = await asyncio.open_connection("127.0.0.1", master.ha.listen_port)
        writer.write(encode_report(0))
        await until(lambda: master.ha.status().in_sync_slaves == 1)
        results = master.submit(b"a")
        assert results == []
        await until(lambda: len(results) == 1)
        assert results[0].status.value == "FLUSH_SLAVE_TIMEOUT"
        assert results[0].is_stored
        writer.close()
        await until(lambda: not master.ha.status().slaves)
        assert master.submit(b"b")[0].status.value == "SLAVE_NOT_AVAILABLE"


async def test_a_new_slave_confirms_nothing_from_before_its_first_segment(tmp_path: Path) -> None:
    async with replica(tmp_path / "master", options=SYNC) as master:
        _, silent = await asyncio.open_connection("127.0.0.1", master.ha.listen_port)
        silent.write(encode_report(0))
        await until(lambda: master.ha.status().in_sync_slaves == 1)
        results = master.submit(*texts(0, 150))
        assert master.end > SEGMENT_BYTES
        _, fresh = await asyncio.open_connection("127.0.0.1", master.ha.listen_port)
        fresh.write(encode_report(0))
        await until(
            lambda: [s.transfer_from_offset for s in master.ha.status().slaves][1:] == [master.end]
        )
        fresh.write(encode_report(master.end))
        await until(lambda: master.ha.status().slaves[1].behind_bytes == 0)
        assert results == []
        silent.close()
        fresh.close()


async def test_a_host_name_that_cannot_be_encoded_is_a_fault(tmp_path: Path) -> None:
    async with (
        replica(tmp_path / "master") as master,
        replica(tmp_path / "slave", master="a..b:1") as slave,
    ):
        await until(lambda: "label" in slave.ha.status().fault)
        slave.ha.update_ha_master_address(master.address)
        master.submit(*texts(0, 10))
        await caught_up(slave, master)


async def test_in_sync_replicas_and_their_minimum(tmp_path: Path) -> None:
    three = {**SYNC, "in_sync_replicas": 3, "min_in_sync_replicas": 2}
    async with replica(tmp_path / "master", options=three) as master:
        refused = master.submit(b"a")[0]
        assert refused.status.value == "IN_SYNC_REPLICAS_NOT_ENOUGH"
        assert not refused.is_stored
        assert master.submit(b"a", wait=False)[0].is_ok
        async with replica(tmp_path / "one", master=master.address):
            await until(lambda: master.ha.status().in_sync_slaves == 1)
            assert master.submit(b"b")[0].status.value == "SLAVE_NOT_AVAILABLE"
            async with replica(tmp_path / "two", master=master.address):
                await until(lambda: master.ha.status().in_sync_slaves == 2)
                results = master.submit(b"c")
                await until(lambda: len(results) == 1)
                assert results[0].is_ok


async def test_sync_flush_on_both_sides_acknowledges_flushed_bytes(tmp_path: Path) -> None:
    flush = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
    async with (
        replica(tmp_path / "master", options={**SYNC, **flush}) as master,
        replica(tmp_path / "slave", master=master.address, options=flush) as slave,
    ):
        await until(lambda: master.ha.status().in_sync_slaves == 1)
        results = master.submit(*texts(0, 20))
        end = master.end
        await until(lambda: len(results) == 20)
        assert {each.status.value for each in results} == {"PUT_OK"}
        assert master.store.flushed_offset >= end
        assert slave.store.flushed_offset >= end


async def test_a_master_that_lost_its_tail_is_not_followed(tmp_path: Path) -> None:
    async with replica(tmp_path / "master") as master:
        async with replica(tmp_path / "slave", master=master.address) as slave:
            master.submit(*texts(0, 50))
            await caught_up(slave, master)
        master.store.truncate_to(0)
        master.submit(*texts(0, 20))
        async with replica(tmp_path / "slave", master=master.address) as slave:
            before = slave.log_bytes()
            await until(lambda: slave.ha.status().fault != "")
            assert not slave.ha.status().is_connected
            assert slave.log_bytes() == before
            assert master.ha.status().in_sync_slaves == 0
            # The master grows beyond the slave's end; the slave notices that as well.
            master.submit(*texts(500, 100))
            assert master.end > slave.end
            await until(lambda: "differs" in slave.ha.status().fault)
            assert slave.log_bytes() == before


async def test_a_master_with_another_history_is_not_followed(tmp_path: Path) -> None:
    async with (
        replica(tmp_path / "master") as master,
        replica(tmp_path / "other") as other,
        replica(tmp_path / "slave", master=master.address) as slave,
    ):
        other.submit(*texts(1000, 300))
        master.submit(*texts(0, 50))
        await caught_up(slave, master)
        before = slave.log_bytes()
        slave.ha.update_ha_master_address(other.address)
        await until(lambda: "differs" in slave.ha.status().fault)
        assert slave.log_bytes() == before
        slave.ha.update_ha_master_address(master.address)
        master.submit(b"more")
        await caught_up(slave, master)
        assert slave.ha.status().fault == ""


async def test_a_different_segment_size_stops_the_slave(tmp_path: Path) -> None:
    options: dict[str, object] = {"commit_log_file_bytes": 2 * SEGMENT_BYTES}
    async with (
        replica(tmp_path / "master") as master,
        replica(tmp_path / "slave", master=master.address, options=options) as slave,
    ):
        await until(lambda: master.ha.status().in_sync_slaves == 1)
        master.submit(*texts(0, 150))
        await until(lambda: "segment ends" in slave.ha.status().fault)
        await until(lambda: "accepts no replicated data" in slave.ha.status().fault)
        assert slave.end <= 2 * SEGMENT_BYTES


@pytest.mark.parametrize(
    "data",
    [encode_report(-1), encode_report(0) + encode_report(1), encode_report(1 << 40), b"GET "],
)
async def test_invalid_reports_are_disconnected(data: bytes, tmp_path: Path) -> None:
    options: dict[str, object] = {**SYNC, "ha_housekeeping_interval_ms": 300}
    async with replica(tmp_path / "master", options=options) as master:
        reader, writer = await asyncio.open_connection("127.0.0.1", master.ha.listen_port)
        writer.write(data)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert master.store.acks.slave_offset == 0
        assert not master.store.acks.has_slaves


async def test_connections_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "CONNECTIONS_MAX", 2)
    async with replica(tmp_path / "master") as master:
        port = master.ha.listen_port
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await until(lambda: len(master.ha.status().slaves) == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        assert len(master.ha.status().slaves) == 2
        for _, each in [*kept, (reader, writer)]:
            each.close()


async def test_a_slow_slave_does_not_fill_the_masters_memory(tmp_path: Path) -> None:
    async with replica(tmp_path / "master") as master:
        master.submit(*[bytes(8000) for _ in range(1500)])
        reader, writer = await asyncio.open_connection("127.0.0.1", master.ha.listen_port)
        writer.write(encode_report(1))
        await until(lambda: master.ha.status().in_sync_slaves == 1)
        (side,) = [each.side for each in master.ha._sender.connections]
        sent = -1
        while sent != side.next_offset:
            sent = side.next_offset
            await asyncio.sleep(0.05)
        assert sent < master.end, "the rest waits until it reads"
        received = 0
        while received < master.end - 1:
            received += len(await reader.read(1 << 20))
        writer.close()


async def test_a_transient_pool_replicates_committed_bytes(tmp_path: Path) -> None:
    options: dict[str, object] = {
        **SYNC,
        "transient_store_pool": True,
        "transient_store_pool_size": 3,
        "commit_interval_ms": 5,
        "commit_thorough_interval_ms": 5,
    }
    async with (
        replica(tmp_path / "master", options=options) as master,
        replica(tmp_path / "slave", master=master.address) as slave,
    ):
        await until(lambda: master.ha.status().in_sync_slaves == 1)
        results = master.submit(*texts(0, 100))
        end = master.end
        await until(lambda: len(results) == 100)
        assert {each.status.value for each in results} == {"PUT_OK"}
        assert slave.end >= end
        assert slave.log_bytes() == master.log_bytes()
