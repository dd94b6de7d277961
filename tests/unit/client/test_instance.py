"""A client instance against a real name server and broker in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from roquet.broker.broker import Broker
from roquet.client import ClientInstance, ClientOptions
from roquet.namesrv.namesrv import Namesrv
from roquet.remoting.bodies.client import GetConsumerListByGroupResponseBody
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.client import GetConsumerListByGroupRequestHeader
from tests.unit.client.client_kit import Consumer, broker, name_server

GROUP = "billing"
TOPIC = "TBW102"


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[Namesrv]:
    async with name_server(tmp_path / "namesrv") as running:
        yield running


@pytest.fixture
async def a_broker(tmp_path: Path, namesrv: Namesrv) -> AsyncIterator[Broker]:
    async with broker(tmp_path, f"127.0.0.1:{namesrv.port}") as running:
        yield running


@pytest.fixture
async def client(namesrv: Namesrv) -> AsyncIterator[ClientInstance]:
    options = ClientOptions(namesrv=f"127.0.0.1:{namesrv.port}", client_ip="127.0.0.1")
    async with await ClientInstance.open(options) as running:
        yield running


async def members(client: ClientInstance, broker: Broker, group: str = GROUP) -> list[str]:
    answer = await client.ask(
        broker.address,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        GetConsumerListByGroupRequestHeader(consumer_group=group),
        accept={ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR},
    )
    if answer.code != ResponseCode.SUCCESS:
        return []
    return decode_body(GetConsumerListByGroupResponseBody, answer.body).consumer_id_list or []


async def test_a_heartbeat_makes_a_consumer_known(client: ClientInstance, a_broker: Broker) -> None:
    await client.routes.route(TOPIC)
    client.register_consumer(GROUP, Consumer(GROUP, TOPIC))
    await client.heartbeat()
    assert await members(client, a_broker) == [client.client_id]
