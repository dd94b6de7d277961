"""A client instance: its life, its heartbeats, and real servers in this process."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from roquet.client import ClientInstance, ClientOptions
from roquet.errors import BrokerBusy, BrokerRefused, ClientClosed, ConfigError, PermissionRefused
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.namesrv import GetRouteInfoRequestHeader
from tests.unit.client.client_kit import (
    Consumer,
    FakeServer,
    Producer,
    fake_server,
    opened,
    options_of,
    route_of,
    until,
)

GROUP = "billing"
TOPIC = "TBW102"
NEVER_MS = 3_600_000


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with fake_server() as running:
        running.routes["T"] = route_of(("a", {0: running.address}))
        yield running


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[ClientInstance]:
    quiet = {"heartbeat_ms": NEVER_MS, "poll_namesrv_ms": NEVER_MS}
    async with opened(server.address, **quiet, persist_offsets_ms=NEVER_MS) as running:
        yield running


# -------------------------------------------------------------------------------- life cycle


async def test_clients_with_the_same_name_are_shared(server: FakeServer) -> None:
    one = await ClientInstance.open(options_of(server.address, instance_name="blue"))
    other = await ClientInstance.open(options_of(f"{server.address};", instance_name="blue"))
    assert one is other
    await one.close()
    await one.routes.route("T")
    await other.close()
    with pytest.raises(ClientClosed):
        await one.ask(server.address, RequestCode.HEART_BEAT)
    async with opened(server.address, instance_name="blue") as third:
        assert third is not one


async def test_clients_without_a_name_are_separate(server: FakeServer) -> None:
    async with opened(server.address) as one, opened(server.address) as other:
        assert one is not other
        assert one.client_id != other.client_id


async def test_one_name_with_two_settings_is_refused(server: FakeServer) -> None:
    async with opened(server.address, instance_name="blue", secret_key="s", access_key="k"):
        with pytest.raises(ConfigError, match="other settings") as caught:
            await ClientInstance.open(options_of("127.0.0.1:9", instance_name="blue"))
        assert "127.0.0.1:9" in str(caught.value)
        assert "secret_key='s'" not in str(caught.value)


async def test_a_client_that_is_closing_is_not_joined(server: FakeServer) -> None:
    old = await ClientInstance.open(options_of(server.address, instance_name="blue"))
    old.register_consumer(GROUP, Consumer(GROUP))
    await old.routes.route("T")
    closing = asyncio.ensure_future(old.close())
    await until(lambda: old.is_closed)
    async with opened(server.address, instance_name="blue") as new:
        assert new is not old
        assert closing.done()
        assert len(server.left) == 1


async def test_bad_options_are_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError):
        await ClientInstance.open(ClientOptions(namesrv="nowhere"))


async def test_a_closed_client_does_nothing(server: FakeServer) -> None:
    async with opened(server.address) as client:
        pass
    await client.close()
    with pytest.raises(ClientClosed):
        await client.ask(server.address, RequestCode.HEART_BEAT)
    with pytest.raises(ClientClosed):
        await client.routes.route("T")
    with pytest.raises(ClientClosed):
        client.register_consumer(GROUP, Consumer(GROUP))


async def test_nothing_is_left_running(server: FakeServer) -> None:
    before = asyncio.all_tasks()
    async with opened(server.address) as client:
        client.register_producer("sales", Producer("T"))
        await client.refresh_routes()
        await client.heartbeat()
        server.gate = asyncio.Event()
        waiting = asyncio.ensure_future(client.routes.route("T", refresh=True))
        await until(lambda: len(server.asked) == 2)
        server.gate.set()
    await asyncio.wait([waiting])
    waiting.exception()
    gc.collect()
    left = {task for task in asyncio.all_tasks() - before if "client" in repr(task.get_coro())}
    assert left == set()


# ------------------------------------------------------------------- producers and consumers


async def test_a_group_can_be_registered_once(client: ClientInstance) -> None:
    consumer, producer = Consumer(GROUP), Producer()
    client.register_consumer(GROUP, consumer)
    client.register_consumer(GROUP, consumer)
    client.register_producer(GROUP, producer)
    with pytest.raises(ConfigError, match="consumer of the group billing"):
        client.register_consumer(GROUP, Consumer(GROUP))
    with pytest.raises(ConfigError, match="producer of the group billing"):
        client.register_producer(GROUP, Producer())


async def test_members_that_leave_are_unregistered(
    client: ClientInstance, server: FakeServer
) -> None:
    await client.routes.route("T")
    client.register_consumer(GROUP, Consumer(GROUP))
    client.register_producer("sales", Producer())
    await client.unregister_consumer(GROUP)
    await client.unregister_consumer(GROUP)
    await client.unregister_producer("sales")
    found = [(each.client_id, each.producer_group, each.consumer_group) for each in server.left]
    assert found == [(client.client_id, None, GROUP), (client.client_id, "sales", None)]


async def test_closing_unregisters_all(server: FakeServer) -> None:
    async with opened(server.address) as client:
        await client.routes.route("T")
        client.register_consumer(GROUP, Consumer(GROUP))
        client.register_producer("sales", Producer())
    assert {each.producer_group or each.consumer_group for each in server.left} == {
        GROUP,
        "sales",
    }


async def test_a_heartbeat_in_flight_arrives_before_the_unregistration(
    client: ClientInstance, server: FakeServer
) -> None:
    await client.routes.route("T")
    client.register_consumer(GROUP, Consumer(GROUP))
    server.gate = asyncio.Event()
    beating = asyncio.ensure_future(client.heartbeat())
    await asyncio.sleep(0)
    leaving = asyncio.ensure_future(client.unregister_consumer(GROUP))
    await asyncio.sleep(0)
    server.gate.set()
    await asyncio.gather(beating, leaving)
    assert server.events == ["heartbeat", "unregister"]
    await client.heartbeat()
    assert server.events == ["heartbeat", "unregister"]


async def test_a_dead_broker_does_not_prevent_leaving(server: FakeServer) -> None:
    server.routes["T"] = route_of(("a", {0: "127.0.0.1:1"}), ("b", {0: server.address}))
    async with opened(server.address) as client:
        await client.routes.route("T")
        client.register_consumer(GROUP, Consumer(GROUP))
        await client.heartbeat()
    assert [each.consumer_group for each in server.left] == [GROUP]


# ------------------------------------------------------------------------------- heartbeats


async def test_a_heartbeat_lists_producers_and_consumers(
    client: ClientInstance, server: FakeServer
) -> None:
    await client.routes.route("T")
    await client.heartbeat()
    assert server.heartbeats == []
    client.register_consumer(GROUP, Consumer(GROUP, "T"))
    client.register_producer("sales", Producer())
    await client.heartbeat()
    (beat,) = server.heartbeats
    assert beat.client_id == client.client_id
    assert [each.group_name for each in beat.producer_data_set] == ["sales"]
    (consumer,) = beat.consumer_data_set
    assert consumer.group_name == GROUP
    assert [each.topic for each in consumer.subscription_data_set] == ["T"]


async def test_slaves_get_consumers_only(server: FakeServer) -> None:
    async with fake_server() as slave, opened(server.address) as client:
        server.routes["T"] = route_of(("a", {0: server.address, 1: slave.address}))
        await client.routes.route("T")
        client.register_producer("sales", Producer())
        await client.heartbeat()
        assert (len(server.heartbeats), len(slave.heartbeats)) == (1, 0)
        client.register_consumer(GROUP, Consumer(GROUP))
        await client.heartbeat()
        assert (len(server.heartbeats), len(slave.heartbeats)) == (2, 1)


async def test_a_refused_heartbeat_is_logged(
    client: ClientInstance, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    await client.routes.route("T")
    client.register_producer("sales", Producer())
    server.code = ResponseCode.SYSTEM_BUSY
    await client.heartbeat()
    assert "refused HEART_BEAT" in caplog.text
    assert "told to" in caplog.text


async def test_a_broker_that_lost_us_gets_a_heartbeat_at_once(
    client: ClientInstance, server: FakeServer
) -> None:
    await client.routes.route("T")
    consumer = Consumer(GROUP, "T")
    client.register_consumer(GROUP, consumer)
    server.connections[0].abort()
    await until(lambda: not client.remoting.connections)
    assert server.heartbeats == []
    header = GetRouteInfoRequestHeader(topic="T")
    await client.ask(server.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    await until(lambda: consumer.rebalances == 1)
    assert len(server.heartbeats) == 1


async def test_a_heartbeat_that_makes_the_connection_is_sent_once(server: FakeServer) -> None:
    async with fake_server() as other, opened(server.address) as client:
        server.routes["T"] = route_of(("a", {0: other.address}))
        await client.routes.route("T")
        client.register_producer("sales", Producer())
        await client.heartbeat()
        await client.ask(
            other.address,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            GetRouteInfoRequestHeader(topic="T"),
            accept={ResponseCode.TOPIC_NOT_EXIST},
        )
        assert len(other.heartbeats) == 1


# ------------------------------------------------------------------------------ what recurs


async def test_routes_offsets_and_heartbeats_recur(server: FakeServer) -> None:
    often = {"heartbeat_ms": 1, "poll_namesrv_ms": 1, "persist_offsets_ms": 1}
    server.routes["U"] = route_of(("a", {0: server.address}))
    async with opened(server.address, **often) as client:
        consumer = Consumer(GROUP, "T")
        client.register_consumer(GROUP, consumer)
        client.register_producer("sales", Producer("U"))
        await until(lambda: server.asked.count("T") > 2 and server.asked.count("U") > 2)
        await until(lambda: len(server.heartbeats) > 2)
        await until(lambda: consumer.persisted > 2)


async def test_a_consumer_that_fails_does_not_affect_others(
    client: ClientInstance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, refused, well = Consumer("a"), Consumer("b"), Consumer("c")

    async def fail() -> None:
        raise OSError("no such folder")

    async def refuse() -> None:
        raise BrokerRefused("The broker refused")

    monkeypatch.setattr(broken, "persist_offsets", fail)
    monkeypatch.setattr(refused, "persist_offsets", refuse)
    for each in (broken, refused, well):
        client.register_consumer(each.group, each)
    await client.persist_offsets()
    assert well.persisted == 1
    assert "no such folder" in caplog.text
    assert "The broker refused" in caplog.text


async def test_a_round_that_fails_is_followed_by_another(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(server.address, poll_namesrv_ms=1) as client:
        rounds = 0

        async def fail(*_: object) -> None:
            nonlocal rounds
            rounds += 1
            raise ValueError("odd")

        monkeypatch.setattr(client.routes, "refresh", fail)
        await until(lambda: rounds > 2)
    assert "a round failed" in caplog.text


# ---------------------------------------------------------------------------------- requests


@pytest.mark.parametrize(
    ("code", "kind", "retriable"),
    [
        (ResponseCode.SYSTEM_BUSY, BrokerBusy, True),
        (ResponseCode.GO_AWAY, BrokerBusy, True),
        (ResponseCode.NO_PERMISSION, PermissionRefused, False),
        (ResponseCode.MESSAGE_ILLEGAL, BrokerRefused, False),
        (31_415, BrokerRefused, False),
    ],
)
async def test_refusals_are_typed_errors(
    client: ClientInstance,
    server: FakeServer,
    code: int,
    kind: type[BrokerRefused],
    *,
    retriable: bool,
) -> None:
    server.code = code
    header = GetRouteInfoRequestHeader(topic="T")
    with pytest.raises(BrokerRefused) as caught:
        await client.ask(server.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    error = caught.value
    assert type(error) is kind
    assert (error.response_code, error.remark, error.retriable) == (code, "told to", retriable)
    assert str(code) in (error.detail or "")
    answer = await client.ask(
        server.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, accept={code}
    )
    assert answer.code == code


# ------------------------------------------------------------------------------ real servers
