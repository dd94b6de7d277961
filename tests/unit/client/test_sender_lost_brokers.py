"""Sends to brokers that hang up, are unreachable or do not respond."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from roquet.client import ClientOptions, Message, MessageQueue, Producer, sender
from roquet.errors import (
    AnswerLost,
    BrokerBusy,
    BrokerRefused,
    ClientError,
    ConnectFailed,
    NoRoute,
    RequestTimeout,
    SendFailed,
)
from roquet.remoting.codes import ResponseCode
from roquet.remoting.processor import RequestContext, Response
from roquet.runtime.clock import ManualClock
from tests.patience import TIMEOUT_MS
from tests.unit.client.fake_cluster import FakeCluster, fake_cluster
from tests.unit.client.sender_kit import TOPIC, hang_up, never, refuse_at
from tests.unit.client.waits_kit import Waits

UNREACHABLE = "127.0.0.1:1"


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with fake_cluster("broker-a", "broker-b") as running:
        yield running


@pytest.fixture
async def producer(cluster: FakeCluster) -> AsyncIterator[Producer]:
    options = ClientOptions(namesrv=cluster.namesrv, request_timeout_ms=TIMEOUT_MS)
    async with Producer(options, group="g", send_timeout_ms=TIMEOUT_MS + 3_000) as running:
        yield running


async def test_a_broker_that_hangs_up(
    cluster: FakeCluster, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster[0].script = hang_up
    for _ in range(4):
        assert (await producer.send(Message(TOPIC, b"x"))).queue.broker_name == "broker-b"
    cluster[1].script = hang_up
    Waits(producer, monkeypatch)
    with pytest.raises(SendFailed) as caught:
        await producer.send(Message(TOPIC, b"x"))
    assert caught.value.retriable


@pytest.mark.parametrize("retry_times", [0, 1, 2])
async def test_lost_responses_use_up_the_attempts(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, retry_times: int
) -> None:
    cluster[0].script = cluster[1].script = hang_up
    async with Producer(
        cluster.namesrv, group="g", retry_times=retry_times, send_timeout_ms=TIMEOUT_MS + 3_000
    ) as producer:
        Waits(producer, monkeypatch)
        with pytest.raises(AnswerLost):
            await producer.send(Message(TOPIC, b"x"))
    assert len(cluster.sent_to) == 1 + retry_times


async def test_a_pause_precedes_the_next_attempt_at_a_lost_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        fake_cluster("broker-a") as cluster,
        Producer(cluster.namesrv, group="g", send_timeout_ms=TIMEOUT_MS + 3_000) as running,
    ):
        cluster[0].script = hang_up
        waits = Waits(running, monkeypatch)

        def recover() -> None:
            cluster[0].script = None

        waits.then = recover
        await running.send(Message(TOPIC, b"x"))
        assert len(cluster[0].sends) == 2
        assert len(waits.waits_ms) == 1


async def test_a_new_leader_is_looked_up_within_the_time_of_the_send(
    cluster: FakeCluster, producer: Producer
) -> None:
    clock = producer.client.clock = ManualClock()

    async def use_up_the_time(context: RequestContext) -> Response | None:
        cluster.hangs = True
        clock.advance(producer.options.send_timeout_ms)
        return context.response(ResponseCode.NOT_LEADER_FOR_QUEUE, remark="moved")

    cluster[0].script = use_up_the_time
    with pytest.raises(BrokerRefused) as caught:
        await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "broker-a", 0))
    assert caught.value.response_code == ResponseCode.NOT_LEADER_FOR_QUEUE
    assert len(cluster[0].sends) == 1


async def test_an_unreachable_broker(
    cluster: FakeCluster, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster[0].address = UNREACHABLE
    for _ in range(4):
        assert (await producer.send(Message(TOPIC, b"x"))).queue.broker_name == "broker-b"
    Waits(producer, monkeypatch)
    with pytest.raises(ConnectFailed):
        await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "broker-a", 0))
    with pytest.raises(NoRoute, match="broker-z"):
        await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "broker-z", 0))


@pytest.mark.parametrize("to", [None, MessageQueue(TOPIC, "broker-a", 0)])
async def test_unreachable_brokers_are_tried_until_the_timeout(
    cluster: FakeCluster,
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
    to: MessageQueue | None,
) -> None:
    cluster[0].address = cluster[1].address = UNREACHABLE
    waits = Waits(producer, monkeypatch)
    with pytest.raises(ConnectFailed) as caught:
        await producer.send(Message(TOPIC, b"x"), queue=to)
    tried = [25, 50, 100, 200, 400, 500, 500, 500, 500]
    assert all(least <= wait for least, wait in zip(tried, waits.waits_ms[:-1], strict=False))
    assert sum(waits.waits_ms) == producer.options.send_timeout_ms - sender.LAST_ATTEMPT_MS
    rounds = len(waits.waits_ms) + 1
    brokers = "broker-a" if to else "broker-a, broker-b"
    count = rounds if to else 2 * rounds
    found = caught.value.detail or ""
    assert f"{count} attempts: " in found
    assert sorted(found.rpartition(": ")[2].split(", ")) == brokers.split(", ")


@pytest.mark.parametrize("to", [None, MessageQueue(TOPIC, "broker-a", 0)])
async def test_a_send_waits_for_a_broker_that_comes_back(
    cluster: FakeCluster,
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
    to: MessageQueue | None,
) -> None:
    address = cluster[0].address
    cluster[0].address = cluster[1].address = UNREACHABLE
    waits = Waits(producer, monkeypatch)

    def come_back() -> None:
        if len(waits.waits_ms) == 3:
            cluster[0].address = address

    waits.then = come_back
    result = await producer.send(Message(TOPIC, b"x"), queue=to)
    assert result.queue.broker_name == "broker-a"
    assert len(cluster[0].sends) == 1


async def test_without_retries_an_unreachable_broker_is_an_error_at_once(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster[0].address = cluster[1].address = UNREACHABLE
    async with Producer(
        cluster.namesrv, group="g", retry_times=0, send_timeout_ms=TIMEOUT_MS + 3_000
    ) as producer:
        waits = Waits(producer, monkeypatch)
        with pytest.raises(ConnectFailed) as caught:
            await producer.send(Message(TOPIC, b"x"))
        assert "attempts" not in (caught.value.detail or "")
        with pytest.raises(ConnectFailed):
            await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "broker-a", 0))
    assert waits.waits_ms == []


async def test_refusals_are_not_waited_for(
    cluster: FakeCluster, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_at(cluster, ResponseCode.SYSTEM_BUSY)
    waits = Waits(producer, monkeypatch)
    with pytest.raises(BrokerBusy):
        await producer.send(Message(TOPIC, b"x"))
    assert waits.waits_ms == []


async def test_a_broker_that_does_not_respond(cluster: FakeCluster) -> None:
    async with Producer(cluster.namesrv, group="g", send_timeout_ms=TIMEOUT_MS) as producer:
        await producer.send(Message(TOPIC, b"the route is known"))
        cluster[0].script = cluster[1].script = never
        with pytest.raises(RequestTimeout) as caught:
            await producer.send(Message(TOPIC, b"x"), timeout_ms=60)
        assert caught.value.retriable
        assert producer.in_flight == 0
        with pytest.raises(RequestTimeout):
            await producer.send(Message(TOPIC, b"x"), timeout_ms=1)


async def test_a_limit_for_each_attempt_leaves_time_for_others(cluster: FakeCluster) -> None:
    cluster[0].script = never
    async with Producer(
        cluster.namesrv, group="g", attempt_timeout_ms=1_000, send_timeout_ms=TIMEOUT_MS
    ) as producer:
        for _ in range(2):
            assert (await producer.send(Message(TOPIC, b"x"))).queue.broker_name == "broker-b"


async def test_no_name_server() -> None:
    async with Producer("127.0.0.1:1", group="g") as producer:
        with pytest.raises(ClientError) as caught:
            await producer.send(Message(TOPIC, b"x"))
        assert isinstance(caught.value, ConnectFailed)


async def test_a_name_server_that_does_not_respond(cluster: FakeCluster) -> None:
    cluster.hangs = True
    async with Producer(cluster.namesrv, group="g", send_timeout_ms=50) as producer:
        with pytest.raises(RequestTimeout, match="route of Orders"):
            await producer.send(Message(TOPIC, b"x"))
