"""Long registrations delay no other broker, and no request of their own broker overtakes them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from roquet.namesrv import processor
from roquet.namesrv.processor import READ_AT_ONCE_BYTES_MAX
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.register import RegisterBrokerBody, encode_register_body
from roquet.remoting.bodies.route import QueueData, TopicRouteData
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetRouteInfoRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterTopicRequestHeader,
    UnregisterBrokerRequestHeader,
)
from roquet.remoting.server import RemotingServer
from roquet.remoting.turn_scheduler import DEFAULT_LIMITS, RequestClass
from tests.patience import PATIENT
from tests.unit.namesrv.kit import Server, register_body

WORKERS = DEFAULT_LIMITS[RequestClass.ADMIN].workers
MANY = [f"{'T' * 200}-{number}" for number in range(400)]


class Held:
    """A name server that reads large registrations only on demand, and its client."""

    def __init__(self, server: Server, client: RemotingClient, address: str) -> None:
        self.server = server
        self.go = threading.Event()
        self._client = client
        self._address = address

    async def ask(self, code: int, header: Header, body: bytes = b"") -> RemotingCommand:
        return await self._client.invoke(self._address, code, header, body=body)

    def register(
        self, topics: RegisterBrokerBody, name: str = "broker-a"
    ) -> asyncio.Task[RemotingCommand]:
        header = RegisterBrokerRequestHeader(
            broker_name=name,
            broker_address=f"{name}:10911",
            cluster_name="C",
            ha_server_address=f"{name}:20911",
            broker_id=0,
        )
        asked = self.ask(RequestCode.REGISTER_BROKER, header, encode_register_body(topics))
        return asyncio.create_task(asked)

    def unregister(self) -> asyncio.Task[RemotingCommand]:
        header = UnregisterBrokerRequestHeader(
            broker_name="broker-a", broker_address="broker-a:10911", cluster_name="C", broker_id=0
        )
        return asyncio.create_task(self.ask(RequestCode.UNREGISTER_BROKER, header))

    async def version_of(self, name: str) -> RemotingCommand:
        header = QueryDataVersionRequestHeader(
            broker_address=f"{name}:10911", broker_name=name, broker_id=0, cluster_name="C"
        )
        return await self.ask(RequestCode.QUERY_DATA_VERSION, header)


@pytest.fixture
async def held(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Held]:
    server = Server()
    listener = RemotingServer(server.registry)
    port = await listener.start("127.0.0.1", 0)
    async with RemotingClient(config=PATIENT) as client:
        made = Held(server, client, f"127.0.0.1:{port}")
        read = processor._register_body

        def read_when_told(
            request: RemotingCommand, header: RegisterBrokerRequestHeader
        ) -> RegisterBrokerBody:
            if len(request.body) > READ_AT_ONCE_BYTES_MAX:
                made.go.wait()
            return read(request, header)

        monkeypatch.setattr(processor, "_register_body", read_when_told)
        try:
            yield made
        finally:
            made.go.set()
    await listener.stop()


async def test_short_requests_do_not_wait_for_registrations(held: Held) -> None:
    await held.register(register_body("T", "U"), "broker-z")
    names = [f"broker-{number}" for number in range(WORKERS)]
    registrations = [held.register(register_body(*MANY), name) for name in names]
    waits = held.register(register_body("V", "W"), "broker-y")
    route = await held.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="T"))
    heartbeat = BrokerHeartbeatRequestHeader(
        cluster_name="C", broker_address="broker-z:10911", broker_name="broker-z"
    )
    topic = TopicRouteData(queue_datas=[QueueData(broker_name="broker-z")])
    others = [
        await held.version_of("broker-z"),
        await held.ask(RequestCode.BROKER_HEARTBEAT, heartbeat),
        await held.ask(
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            RegisterTopicRequestHeader(topic="X"),
            encode_body(topic),
        ),
    ]
    assert {each.code for each in (route, *others)} == {ResponseCode.SUCCESS}
    assert not any(each.done() for each in (*registrations, waits))
    held.go.set()
    answers = await asyncio.gather(*registrations, waits)
    assert {each.code for each in answers} == {ResponseCode.SUCCESS}


async def test_a_broker_that_unregisters_does_not_overtake_its_registration(held: Held) -> None:
    registered = held.register(register_body(*MANY))
    left = held.unregister()
    await held.version_of("broker-a")  # it is read after both
    held.go.set()
    answers = await asyncio.gather(registered, left)
    assert [each.code for each in answers] == [ResponseCode.SUCCESS] * 2
    assert held.server.routes.all_topics().topic_list == []
    assert not held.server.routes.cluster_info().broker_addr_table


async def test_a_short_registration_does_not_overtake_a_long_one(held: Held) -> None:
    first = held.register(register_body(*MANY))
    changed = register_body("new", "newer", counter=2)
    second = held.register(changed)
    await held.version_of("broker-a")
    held.go.set()
    answers = await asyncio.gather(first, second)
    assert [each.code for each in answers] == [ResponseCode.SUCCESS] * 2
    assert held.server.routes.all_topics().topic_list == [*MANY, "new", "newer"]
    version = changed.topic_config_serialize_wrapper.data_version
    assert held.server.routes.data_version("C", "broker-a:10911") == version
