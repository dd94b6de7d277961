"""Whole brokers as master and slave: what producers are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import ResponseCode
from roquet.testing.broker import RunningBroker, broker
from tests.integration.testing.wire_kit import TOPIC, send
from tests.patience import PATIENT
from tests.unit.client.client_kit import until

FAST = {"haSendHeartbeatInterval": 200, "haHousekeepingInterval": 5000}
MASTER = {**FAST, "brokerRole": "SYNC_MASTER"}


@asynccontextmanager
async def slave_of(master: RunningBroker, **options: object) -> AsyncIterator[RunningBroker]:
    """A slave that follows a master."""
    address = f"127.0.0.1:{master.broker.components.ha.listen_port}"
    settings = {
        **FAST,
        "brokerRole": "SLAVE",
        "brokerId": 1,
        "brokerName": master.name,
        "haMasterAddress": address,
        **options,
    }
    async with broker(settings, namesrv=master.namesrv) as slave:
        await until(lambda: slave.broker.components.ha.status().is_connected)
        await until(lambda: master.broker.components.ha.status().in_sync_slaves > 0)
        yield slave


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_acknowledged_sends_are_on_the_slave(flush: str) -> None:
    async with (
        broker({**MASTER, "flushDiskType": flush}) as master,
        RemotingClient(config=PATIENT) as client,
    ):
        await master.create_topic(TOPIC)
        async with slave_of(master, flushDiskType=flush) as slave:
            log = slave.broker.components.log_store
            for number in range(5):
                code = await send(client, master.address, b"%d" % number)
                assert code == ResponseCode.SUCCESS
                assert log.max_physical_offset == master.broker.store.max_physical_offset
            codes = await asyncio.gather(
                *(send(client, master.address, b"together") for _ in range(50))
            )
            assert set(codes) == {ResponseCode.SUCCESS}
            assert log.max_offset_in_queue(TOPIC, 0) == 55
        await until(lambda: not master.broker.components.ha.status().slaves)
        assert await send(client, master.address, b"alone") == ResponseCode.SLAVE_NOT_AVAILABLE
        assert master.store.max_offset_in_queue(TOPIC, 0) == 56


async def test_a_send_times_out_when_the_slave_stops_reporting() -> None:
    async with (
        broker({**MASTER, "slaveTimeout": 300}) as master,
        RemotingClient(config=PATIENT) as client,
    ):
        await master.create_topic(TOPIC)
        async with slave_of(master) as slave:
            assert await send(client, master.address, b"one") == ResponseCode.SUCCESS
            slave.broker.components.ha.update_ha_master_address("127.0.0.1:9")
            await until(lambda: not master.broker.components.ha.status().slaves)
            _, writer = await asyncio.open_connection(
                "127.0.0.1", master.broker.components.ha.listen_port
            )
            writer.write(bytes(8))
            await until(lambda: master.broker.components.ha.status().in_sync_slaves > 0)
            code = await send(client, master.address, b"two")
            assert code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            writer.close()


async def test_sends_are_refused_below_min_in_sync_replicas() -> None:
    options = {**MASTER, "inSyncReplicas": 2, "minInSyncReplicas": 2}
    async with broker(options) as master, RemotingClient(config=PATIENT) as client:
        await master.create_topic(TOPIC)
        assert await send(client, master.address, b"no") == ResponseCode.SYSTEM_ERROR
        assert master.store.max_offset_in_queue(TOPIC, 0) == 0
        async with slave_of(master):
            assert await send(client, master.address, b"yes") == ResponseCode.SUCCESS


async def test_a_clean_stop_waits_for_the_slave_to_catch_up() -> None:
    async with (
        broker({**FAST, "brokerRole": "ASYNC_MASTER"}) as master,
        RemotingClient(config=PATIENT) as client,
    ):
        await master.create_topic(TOPIC)
        async with slave_of(master) as slave:
            await asyncio.gather(*(send(client, master.address, bytes(3000)) for _ in range(200)))
            end = master.broker.store.max_physical_offset
            await master.stop_broker()
            assert slave.broker.components.log_store.max_physical_offset == end
