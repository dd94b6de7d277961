"""What a broker knows of the clients that are connected to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from roquet.broker.broker import Broker
from roquet.client import ClientInstance
from roquet.remoting.bodies.client import GetConsumerListByGroupResponseBody
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.client import GetConsumerListByGroupRequestHeader
from roquet.testing.broker import broker as restartable_broker
from tests.integration.client.server_kit import broker, name_server
from tests.unit.client.client_kit import Consumer, opened, until

GROUP = "billing"
TOPIC = "TBW102"
NEVER_MS = 3_600_000


async def members(client: ClientInstance, address: str, group: str = GROUP) -> list[str]:
    answer = await client.ask(
        address,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        GetConsumerListByGroupRequestHeader(consumer_group=group),
        accept={ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR},
    )
    if answer.code != ResponseCode.SUCCESS:
        return []
    return decode_body(GetConsumerListByGroupResponseBody, answer.body).consumer_id_list or []


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[tuple[str, Broker]]:
    async with name_server(tmp_path) as namesrv:
        address = f"127.0.0.1:{namesrv.port}"
        async with broker(tmp_path, address) as running:
            yield address, running


async def test_a_broker_knows_its_consumers_until_they_leave(
    cluster: tuple[str, Broker],
) -> None:
    namesrv, running = cluster
    async with opened(namesrv) as one, opened(namesrv) as other:
        consumers = []
        for client in (one, other):
            consumers.append(Consumer(GROUP, TOPIC))
            await client.routes.route(TOPIC)
            client.register_consumer(GROUP, consumers[-1])
            await client.heartbeat()
        assert sorted(await members(one, running.address)) == sorted(
            [one.client_id, other.client_id]
        )
        # The broker notifies the first of them that the second joined.
        await until(lambda: consumers[0].rebalances > 0)
        await other.unregister_consumer(GROUP)
        assert await members(one, running.address) == [one.client_id]


async def test_a_restarted_broker_knows_us_again() -> None:
    async with (
        restartable_broker() as running,
        opened(running.namesrv, heartbeat_ms=NEVER_MS) as client,
    ):
        await client.routes.route(TOPIC)
        client.register_consumer(GROUP, Consumer(GROUP, TOPIC))
        await client.heartbeat()
        await running.stop_broker()
        port = running.address.rpartition(":")[2]
        await until(
            lambda: all(
                not each.remote_address.endswith(f":{port}") for each in client.remoting.connections
            )
        )
        await running.start_broker()
        found: list[str] = []
        while not found:
            found = await members(client, running.address)
        assert found == [client.client_id]
