"""The name server over loopback: brokers register, are notified, and disconnect."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import msgspec
import pytest

from roquet.errors import ConfigError
from roquet.namesrv import processor as namesrv_processor
from roquet.namesrv.config import NamesrvConfig
from roquet.namesrv.namesrv import Namesrv
from roquet.namesrv.registration import BrokerRegistration, RegisterBrokerResult
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.register import RegisterBrokerBody, encode_register_body
from roquet.remoting.bodies.route import TopicRouteData
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.ha import NotifyMinBrokerIdChangeRequestHeader
from roquet.remoting.headers.namesrv import (
    GetRouteInfoRequestHeader,
    PutKVConfigRequestHeader,
    RegisterBrokerRequestHeader,
    UnregisterBrokerRequestHeader,
)
from roquet.remoting.processor import (
    PUBLIC,
    ProcessorRegistry,
    RequestContext,
    processor,
)
from roquet.remoting.server import RemotingServer
from roquet.runtime.clock import ManualClock
from tests.patience import PATIENT
from tests.unit.namesrv.kit import register_body

LOOPBACK = "127.0.0.1"


def settings(path: Path, **changes: object) -> NamesrvConfig:
    values = {
        "bindAddress": LOOPBACK,
        "listenPort": 0,
        "kvConfigPath": str(path / "kvConfig.json"),
        "configStorePath": str(path / "namesrv.properties"),
        **changes,
    }
    return msgspec.convert(values, NamesrvConfig)


class Broker:
    """A broker as a name server sees it: it registers, and it can be notified."""

    def __init__(self, namesrv: Namesrv, *, broker_id: int = 0, acting: bool = False) -> None:
        self.client = RemotingClient(config=PATIENT)
        self.told: asyncio.Queue[NotifyMinBrokerIdChangeRequestHeader] = asyncio.Queue()
        self.address = ""
        self._namesrv = f"{LOOPBACK}:{namesrv.port}"
        self._id = broker_id
        self._acting = acting
        self._server = RemotingServer(ProcessorRegistry(self))

    @processor(
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        header=NotifyMinBrokerIdChangeRequestHeader,
        permission=PUBLIC,
    )
    def notify(
        self, _context: RequestContext, header: NotifyMinBrokerIdChangeRequestHeader
    ) -> None:
        self.told.put_nowait(header)

    async def start(self) -> Broker:
        self.address = f"{LOOPBACK}:{await self._server.start(LOOPBACK, 0)}"
        return self

    async def stop(self) -> None:
        await self.client.close()
        await self._server.stop()

    async def register(self) -> int:
        header = RegisterBrokerRequestHeader(
            broker_name="broker-a",
            broker_address=self.address,
            cluster_name="C",
            ha_server_address=f"ha-of-{self.address}",
            broker_id=self._id,
            enable_acting_master=self._acting,
        )
        body = encode_register_body(register_body("T", "U"))
        answer = await self.client.invoke(
            self._namesrv, RequestCode.REGISTER_BROKER, header, body=body
        )
        return answer.code

    async def unregister(self) -> None:
        header = UnregisterBrokerRequestHeader(
            broker_name="broker-a",
            broker_address=self.address,
            cluster_name="C",
            broker_id=self._id,
        )
        await self.client.invoke(self._namesrv, RequestCode.UNREGISTER_BROKER, header)

    async def route(self) -> TopicRouteData | None:
        header = GetRouteInfoRequestHeader(topic="T")
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        answer = await self.client.invoke(self._namesrv, code, header)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        return decode_body(TopicRouteData, answer.body)


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[Namesrv]:
    config = settings(tmp_path, supportActingMaster=True, notifyMinBrokerIdChanged=True)
    async with Namesrv(config, clock=ManualClock()) as server:
        yield server


async def test_a_broker_registers_and_is_found(namesrv: Namesrv) -> None:
    broker = await Broker(namesrv).start()
    assert await broker.route() is None
    assert await broker.register() == ResponseCode.SUCCESS
    route = await broker.route()
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: broker.address}
    await broker.unregister()
    assert await broker.route() is None
    await broker.stop()


async def test_a_slave_is_notified_that_its_masters_connection_is_gone(namesrv: Namesrv) -> None:
    master = await Broker(namesrv, acting=True).start()
    slave = await Broker(namesrv, broker_id=1, acting=True).start()
    await master.register()
    await slave.register()
    await slave.register()
    await master.stop()
    told = await slave.told.get()
    assert (told.min_broker_id, told.min_broker_address) == (1, slave.address)
    assert told.offline_broker_address == master.address
    route = await slave.route()
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: slave.address}
    await slave.stop()


async def test_a_silent_broker_is_dropped_and_its_connection_closed(tmp_path: Path) -> None:
    clock = ManualClock()
    config = settings(tmp_path, scanNotActiveBrokerInterval=1)
    async with Namesrv(config, clock=clock) as namesrv:
        broker = await Broker(namesrv).start()
        # Twice, because the timer must continue after it found one.
        for _ in range(2):
            await broker.register()
            connection = await broker.client.connect(f"{LOOPBACK}:{namesrv.port}")
            clock.advance(120_001)
            await connection.wait_closed()
            assert namesrv.routes.route("T") is None
        await broker.stop()


async def test_a_broker_that_cannot_be_notified_is_harmless(namesrv: Namesrv) -> None:
    slave = await Broker(namesrv, broker_id=2, acting=True).start()
    await slave.register()
    await slave._server.stop()
    other = await Broker(namesrv, broker_id=1, acting=True).start()
    assert await other.register() == ResponseCode.SUCCESS
    assert await other.route() is not None
    await other.stop()
    await slave.client.close()


async def test_changes_made_by_requests_survive_a_restart(tmp_path: Path) -> None:
    config = settings(tmp_path)
    put = PutKVConfigRequestHeader(namespace="ns", key="k", value="v")
    async with Namesrv(config) as first, RemotingClient(config=PATIENT) as client:
        address = f"{LOOPBACK}:{first.port}"
        await client.invoke(address, RequestCode.PUT_KV_CONFIG, put)
        answer = await client.invoke(
            address, RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true"
        )
        assert answer.code == ResponseCode.SUCCESS
        answer = await client.invoke(address, RequestCode.GET_NAMESRV_CONFIG)
        assert f"listenPort={first.port}\n" in answer.body.decode()
    async with Namesrv(config) as second:
        assert second.kv_config.get("ns", "k") == "v"
        assert second.configuration.current.order_message


async def test_damaged_files_are_reported_or_stop_the_start(tmp_path: Path) -> None:
    config = settings(tmp_path)
    async with Namesrv(config) as first:
        await first.kv_config.put("ns", "k", "1")
        await first.kv_config.put("ns", "k", "2")
    kv_file = tmp_path / "kvConfig.json"
    kv_file.write_text("{", "utf-8")
    second = Namesrv(config)
    (problem,) = await second.start()
    assert problem.code == "config_backup_used"
    await second.stop()
    kv_file.with_name("kvConfig.json.bak").unlink()
    with pytest.raises(ConfigError):
        await Namesrv(config).start()


async def test_a_port_in_use_is_reported(namesrv: Namesrv, tmp_path: Path) -> None:
    other = Namesrv(settings(tmp_path / "other", listenPort=namesrv.port))
    with pytest.raises(ConfigError, match="Cannot listen"):
        await other.start()
    await other.stop()


async def test_a_broker_whose_connection_closes_while_it_registers_is_dropped(
    namesrv: Namesrv, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await Broker(namesrv).start()
    other = await Broker(namesrv).start()
    assert await broker.register() == ResponseCode.SUCCESS
    is_reading, is_taken_in, go_on = asyncio.Event(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    read, take_in = namesrv_processor._register_body, namesrv.routes.register_in_steps

    def slowly(request: RemotingCommand, header: RegisterBrokerRequestHeader) -> RegisterBrokerBody:
        loop.call_soon_threadsafe(is_reading.set)
        go_on.wait()
        return read(request, header)

    def noting(
        registration: BrokerRegistration,
    ) -> Generator[None, None, RegisterBrokerResult | None]:
        is_taken_in.set()
        return take_in(registration)

    monkeypatch.setattr(namesrv.routes, "register_in_steps", noting)
    monkeypatch.setattr(namesrv_processor, "_register_body", slowly)
    monkeypatch.setattr(namesrv_processor, "READ_AT_ONCE_BYTES_MAX", 0)
    registering = asyncio.ensure_future(broker.register())
    await is_reading.wait()
    await broker.client.close()
    await asyncio.gather(registering, return_exceptions=True)
    while await other.route() is not None:
        pass
    go_on.set()
    await is_taken_in.wait()
    # It is registered although its connection is gone, and removed a few turns later.
    for _ in range(10):
        await other.route()
    assert await other.route() is None
    await broker.stop()
    await other.stop()
