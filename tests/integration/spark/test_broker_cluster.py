"""The driver's queries of a cluster, while parts of it are unreachable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from roquet.client import Message, MessageQueue, Producer
from roquet.errors import BrokerRefused, ConnectFailed, NoRoute, SparkOptionError
from roquet.spark.broker import cluster
from roquet.spark.broker.cluster import Cluster
from roquet.spark.broker.read_options import read_options
from roquet.testing.broker import RunningBroker, broker

TOPIC = "Orders"


@pytest.fixture
async def a_broker() -> AsyncIterator[RunningBroker]:
    async with broker() as running:
        await running.create_topic(TOPIC, 2)
        yield running


def asking(running: RunningBroker, **given: str) -> Cluster:
    options = {
        "namesrv": running.namesrv,
        "subscribe": TOPIC,
        "fetchOffset.retryIntervalMs": "20",
        **given,
    }
    return Cluster(read_options({name: value for name, value in options.items() if value}))


def queue(running: RunningBroker, queue_id: int) -> MessageQueue:
    return MessageQueue(TOPIC, running.name, queue_id)


async def test_queues_and_offsets(a_broker: RunningBroker) -> None:
    first, second = queue(a_broker, 0), queue(a_broker, 1)
    async with Producer(a_broker.namesrv, group="tests") as producer:
        sent = [await producer.send(Message(TOPIC, b"x"), queue=first) for _ in range(3)]
    assert sent[-1].queue_offset == 2
    async with asking(a_broker) as found:
        assert await found.queues() == [first, second]
        assert await found.first_offsets([first, second]) == {first: 0, second: 0}
        assert await found.latest_offsets([first, second]) == {first: 3, second: 0}
        assert await found.offsets_at({first: 0, second: 0}) == {first: 0, second: 0}
        late_ms = 4_000_000_000_000
        assert await found.offsets_at({first: late_ms}) == {first: 3}
        await found.probe(first, 0)


async def test_an_unreachable_name_server_does_not_matter(a_broker: RunningBroker) -> None:
    async with asking(a_broker) as found:
        queues = await found.queues()
        await a_broker.stop_namesrv()
        assert await found.queues(known=queues) == queues
        assert set(await found.latest_offsets(queues)) == set(queues)


async def test_a_broker_that_restarts_is_waited_for(a_broker: RunningBroker) -> None:
    async with asking(a_broker) as found:
        queues = await found.queues()
        await a_broker.stop_broker()
        waiting = asyncio.create_task(found.latest_offsets(queues))
        await asyncio.sleep(0)
        await a_broker.start_broker()
        assert await waiting == dict.fromkeys(queues, 0)
        assert await found.queues(known=queues) == queues


async def test_a_broker_that_stays_unreachable_is_named(a_broker: RunningBroker) -> None:
    async with asking(a_broker, **{"fetchOffset.numRetries": "1"}) as found:
        queues = await found.queues()
        await a_broker.stop_broker()
        with pytest.raises((ConnectFailed, NoRoute), match="The offsets of queue 0 of Orders on"):
            await found.latest_offsets(queues)


async def test_a_wrong_topic_is_reported_at_once_and_a_wrong_address_soon(
    a_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "RETRIES_AT_FIRST", 2)
    async with asking(a_broker, subscribe="Nothing") as found:
        with pytest.raises(NoRoute, match="no route for the topic Nothing"):
            await found.queues()
    async with asking(a_broker, namesrv="127.0.0.1:1") as found:
        with pytest.raises(ConnectFailed, match="No name server responds"):
            await found.queues()


async def test_assigned_queues_must_exist(a_broker: RunningBroker) -> None:
    name = a_broker.name
    given = {"subscribe": "", "assign": f'{{"{TOPIC}":{{"{name}":[1]}}}}'}
    async with asking(a_broker, **given) as found:
        assert await found.queues() == [queue(a_broker, 1)]
    given["assign"] = f'{{"{TOPIC}":{{"{name}":[1,2]}}}}'
    async with asking(a_broker, **given) as found:
        with pytest.raises(SparkOptionError, match="does not have queue 2") as caught:
            await found.queues()
    assert f"It has: queue 0 of Orders on {name}" in (caught.value.hint or "")


async def test_a_pattern_sees_topics_of_users_only(a_broker: RunningBroker) -> None:
    await a_broker.create_topic("Refunds", 1)
    await a_broker.create_topic("%RETRY%group", 1)
    async with asking(a_broker, subscribe="", subscribePattern=".*") as found:
        assert {each.topic for each in await found.queues()} == {TOPIC, "Refunds"}
    async with asking(a_broker, subscribe="", subscribePattern="Order") as found:
        with pytest.raises(SparkOptionError, match="No topic matches 'Order'") as caught:
            await found.queues()
    assert caught.value.hint == "There are: Orders, Refunds."


async def test_a_probe_reports_what_the_broker_refuses(a_broker: RunningBroker) -> None:
    given = {"subExpression": "n > 1", "subExpressionType": "SQL92"}
    async with asking(a_broker, **given) as found:
        with pytest.raises(BrokerRefused):
            await found.probe(queue(a_broker, 0), 0)
