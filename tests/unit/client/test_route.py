"""The cache of routes, with name servers that respond as a test wants."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from roquet.client.name_servers import NameServers
from roquet.client.route import RouteCache, vip_address
from roquet.errors import BrokerRefused, ConfigError, ConnectFailed, NoRoute, ProtocolError
from roquet.model.message_queue import MessageQueue
from roquet.model.topic_queue_mapping import TopicQueueMappingInfo
from roquet.remoting.bodies.route import TopicRouteData
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.namesrv import GetRouteInfoRequestHeader
from roquet.runtime.randomness import seeded
from tests.patience import PATIENT, TIMEOUT_MS
from tests.unit.client.client_kit import FakeServer, fake_server, route_of, until

NOBODY = "127.0.0.1:1"


@asynccontextmanager
async def cache_of(*addresses: str, timeout_ms: int = TIMEOUT_MS) -> AsyncIterator[RouteCache]:
    async with RemotingClient(config=PATIENT) as remoting:
        servers = NameServers(addresses, remoting, randomness=seeded(1), timeout_ms=timeout_ms)
        cache = RouteCache(servers)
        yield cache
        await cache.close()


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with fake_server() as running:
        yield running


@pytest.fixture
async def cache(server: FakeServer) -> AsyncIterator[RouteCache]:
    async with cache_of(server.address) as made:
        yield made


# ---------------------------------------------------------------------------------- routes


@pytest.mark.parametrize("standard_json", [True, False])
async def test_a_route_in_both_dialects(
    server: FakeServer, cache: RouteCache, *, standard_json: bool
) -> None:
    server.standard_json = standard_json
    server.routes["T"] = route_of(("b", {0: "h:3"}), ("a", {0: "h:1", 1: "h:2"}))
    route = await cache.route("T")
    assert route.brokers == {"a": {0: "h:1", 1: "h:2"}, "b": {0: "h:3"}}
    assert route.subscribe_queues[0] == MessageQueue("T", "a", 0)
    assert len(route.subscribe_queues) == 4
    assert cache.topics == ["T"]


async def test_a_known_route_is_not_requested_again(server: FakeServer, cache: RouteCache) -> None:
    server.routes["T"] = route_of(("a", {0: "h:1"}))
    first = await cache.route("T")
    assert await cache.route("T") is first
    assert server.asked == ["T"]


async def test_an_unchanged_route_stays_the_same_object(
    server: FakeServer, cache: RouteCache
) -> None:
    server.routes["T"] = route_of(("b", {0: "h:2"}), ("a", {0: "h:1"}))
    route, publish = await cache.route("T"), await cache.publish("T")
    server.routes["T"] = route_of(("a", {0: "h:1"}), ("b", {0: "h:2"}))
    assert await cache.route("T", refresh=True) is route
    assert await cache.publish("T", refresh=True) is publish
    assert len(server.asked) == 3


async def test_a_changed_route_is_adopted(server: FakeServer, cache: RouteCache) -> None:
    server.routes["T"] = route_of(("a", {0: "h:1"}))
    await cache.route("T")
    server.routes["T"] = route_of(("a", {0: "h:9"}), queues=3)
    await cache.refresh(["T"])
    assert cache.broker_address("a") == "h:9"
    assert len((await cache.publish("T")).queues) == 3
    assert len(await cache.subscribe_queues("T")) == 3


async def test_concurrent_callers_share_one_request(server: FakeServer, cache: RouteCache) -> None:
    server.routes["T"] = route_of(("a", {0: "h:1"}))
    routes = await asyncio.gather(*(cache.route("T") for _ in range(20)))
    assert all(route is routes[0] for route in routes)
    assert server.asked == ["T"]


async def test_a_cancelled_caller_does_not_cancel_the_others(
    server: FakeServer, cache: RouteCache
) -> None:
    server.routes["T"] = route_of(("a", {0: "h:1"}))
    server.gate = asyncio.Event()
    hasty, patient = (asyncio.ensure_future(cache.route("T")) for _ in range(2))
    while not server.asked:  # noqa: ASYNC110 - lists have no event
        await asyncio.sleep(0)
    hasty.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hasty
    server.gate.set()
    assert (await patient).topic == "T"


async def test_no_route_is_an_error_with_a_hint(cache: RouteCache) -> None:
    with pytest.raises(NoRoute) as caught:
        await cache.route("T")
    assert "T" in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 3


async def test_a_refusal_is_an_error_with_its_code(server: FakeServer, cache: RouteCache) -> None:
    server.code = ResponseCode.SYSTEM_BUSY
    with pytest.raises(BrokerRefused) as caught:
        await cache.route("T")
    assert (caught.value.response_code, caught.value.remark) == (2, "told to")
    assert caught.value.retriable


async def test_nonsense_from_a_name_server_is_an_error(
    server: FakeServer, cache: RouteCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.routes["T"] = route_of(("a", {0: "h:1"}))
    monkeypatch.setattr("tests.unit.client.client_kit.encode_body", lambda *_, **__: b"[7]")
    with pytest.raises(ProtocolError):
        await cache.route("T")


async def test_a_known_route_survives_its_topic_and_every_fault(
    server: FakeServer, cache: RouteCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.routes["T"] = route_of(("a", {0: "h:1"}))
    route = await cache.route("T")
    server.routes["U"] = server.routes.pop("T")
    assert await cache.route("T", refresh=True) is route
    assert (await cache.publish("T", refresh=True)).queues
    server.code = ResponseCode.SYSTEM_ERROR
    assert await cache.route("T", refresh=True) is route
    server.code = ResponseCode.SUCCESS
    server.routes["T"] = server.routes["U"]
    monkeypatch.setattr("tests.unit.client.client_kit.encode_body", lambda *_, **__: b"{{")
    assert await cache.route("T", refresh=True) is route
    await cache.refresh(["T"])
    assert await cache.route("T") is route


# --------------------------------------------------------------------------------- publish


async def test_a_topic_that_does_not_exist_gets_the_queues_it_would_have(
    server: FakeServer, cache: RouteCache
) -> None:
    server.routes["TBW102"] = route_of(("a", {0: "h:1"}), queues=8)
    publish = await cache.publish("New")
    assert publish.is_default
    assert publish.queues == tuple(MessageQueue("New", "a", queue_id) for queue_id in range(4))
    assert cache.broker_address("a") == "h:1"
    assert cache.known_publish("New") is publish
    with pytest.raises(NoRoute):
        await cache.route("New")


async def test_a_topic_that_was_created_gets_its_own_queues(
    server: FakeServer, cache: RouteCache
) -> None:
    server.routes["TBW102"] = route_of(("a", {0: "h:1"}), queues=8)
    await cache.publish("New")
    assert (await cache.publish("New", refresh=True)).is_default
    server.routes["New"] = route_of(("a", {0: "h:1"}), queues=6)
    await cache.refresh(["New"])
    publish = await cache.publish("New")
    assert (publish.is_default, len(publish.queues)) == (False, 6)


async def test_few_queues_of_the_pattern_topic_stay_few(
    server: FakeServer, cache: RouteCache
) -> None:
    server.routes["TBW102"] = route_of(("a", {0: "h:1"}), queues=2)
    assert len((await cache.publish("New")).queues) == 2
    assert len((await cache.publish("TBW102")).queues) == 2


async def test_without_the_pattern_topic_or_when_not_wanted_there_is_no_route(
    server: FakeServer, cache: RouteCache
) -> None:
    with pytest.raises(NoRoute):
        await cache.publish("New")
    server.routes["TBW102"] = route_of(("a", {0: "h:1"}))
    with pytest.raises(NoRoute):
        await cache.publish("New", create=False)
    assert cache.known_publish("New") is None


async def test_a_topic_without_a_queue_to_write_has_no_route(
    server: FakeServer, cache: RouteCache
) -> None:
    server.routes["T"] = route_of(("a", {1: "h:1"}))
    with pytest.raises(NoRoute, match="can be written"):
        await cache.publish("T")
    assert len(await cache.subscribe_queues("T")) == 2


# --------------------------------------------------------------------------------- brokers


async def test_addresses_by_the_rules_of_java(server: FakeServer, cache: RouteCache) -> None:
    server.routes["T"] = route_of(
        ("a", {0: "m:1", 1: "s:1", 3: "s:3"}), ("b", {2: "s:2", 5: "s:5"})
    )
    await cache.route("T")
    assert cache.broker_address("a") == "m:1"
    assert cache.broker_address("a", broker_id=1) == "s:1"
    assert cache.broker_address("a", broker_id=2) == "s:3"
    assert cache.broker_address("a", broker_id=9) == "m:1"
    assert cache.broker_address("a", broker_id=1, master_only=True) == "m:1"
    assert cache.broker_address("b") == "s:2"
    assert cache.broker_address("b", master_only=True) is None
    assert cache.broker_address("c") is None


async def test_brokers_without_a_topic_are_forgotten(server: FakeServer, cache: RouteCache) -> None:
    server.routes["T"] = route_of(("a", {0: "h:1"}), ("b", {0: "h:2", 1: "h:3"}))
    server.routes["U"] = route_of(("b", {0: "h:2"}))
    await cache.refresh(["T", "U"])
    assert set(cache.brokers) == {"a", "b"}
    server.routes["T"] = route_of(("c", {0: "h:4"}))
    await cache.refresh(["T"])
    assert cache.brokers == {"b": {0: "h:2"}, "c": {0: "h:4"}}


async def test_the_broker_of_a_static_queue(server: FakeServer, cache: RouteCache) -> None:
    server.routes["T"] = TopicRouteData(
        topic_queue_mapping_by_broker={
            "a": TopicQueueMappingInfo(broker_name="a", current_ids={0: 0}, total_queues=1)
        }
    )
    (queue,) = await cache.subscribe_queues("T")
    assert (queue.broker_name, cache.broker_name_of(queue)) == ("__syslo__global__", "a")
    assert cache.broker_name_of(MessageQueue("U", "b", 0)) == "b"


def test_the_second_port() -> None:
    assert vip_address("[::1]:10911") == "[::1]:10909"
    with pytest.raises(ConfigError):
        vip_address("nowhere")


# ---------------------------------------------------------------------------- name servers


async def test_a_dead_name_server_is_skipped_and_not_queried_again(
    server: FakeServer,
) -> None:
    server.routes["T"] = route_of(("a", {0: "h:1"}))
    async with cache_of(NOBODY, server.address) as cache:
        await cache.route("T")
        servers = cache._name_servers
        assert servers.addresses[servers._current] == server.address
        await cache.refresh(["T"])
    assert server.asked == ["T", "T"]


async def test_a_silent_name_server_is_skipped(server: FakeServer) -> None:
    server.routes["T"] = route_of(("a", {0: "h:1"}))
    async with fake_server() as silent:
        silent.gate = asyncio.Event()
        async with cache_of(silent.address, server.address, timeout_ms=200) as cache:
            cache._name_servers._current = 0
            asking = asyncio.ensure_future(cache.route("T"))
            await until(lambda: silent.asked == ["T"])
            cache._name_servers._timeout_ms = TIMEOUT_MS
            assert (await asking).topic == "T"
        assert silent.asked == ["T"]


async def test_known_routes_work_while_all_name_servers_are_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fake_server() as server:
        server.routes["T"] = route_of(("a", {0: "h:1"}))
        server.routes["U"] = route_of(("a", {0: "h:1"}))
        async with cache_of(server.address) as cache:
            await cache.refresh(["T", "U"])
            port = server.port
            await server.stop()
            with caplog.at_level(logging.WARNING):
                await cache.refresh(["T", "U"])
            assert [each.levelname for each in caplog.records] == ["WARNING"]
            assert (await cache.route("T", refresh=True)).topic == "T"
            assert (await cache.publish("T", refresh=True)).queues
            assert len(await cache.subscribe_queues("T", refresh=True)) == 2
            with pytest.raises(ConnectFailed) as caught:
                await cache.route("V")
            assert caught.value.retriable
            assert server.address in (caught.value.detail or "")
            async with fake_server(port=port) as again:
                again.routes["V"] = route_of(("a", {0: "h:1"}))
                assert (await cache.route("V")).topic == "V"


async def test_ask_raises_unless_successful(server: FakeServer, cache: RouteCache) -> None:
    servers = cache._name_servers
    header = GetRouteInfoRequestHeader(topic="T")
    with pytest.raises(BrokerRefused) as caught:
        await servers.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    assert server.address in caught.value.message
    assert caught.value.response_code == ResponseCode.TOPIC_NOT_EXIST
    server.routes["T"] = route_of(("a", {0: "h:1"}))
    assert (await servers.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)).body
