"""Lite pull consumers with bad input, when they are closed, and their running info."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator

import pytest

from roquet.client import ClientInstance, LitePullConsumer, Sql
from roquet.errors import BadExpression, BadName, ClientClosed, ConfigError, NoRoute
from roquet.model import sys_flag as flags
from roquet.remoting.bodies.client import CMResult
from roquet.testing.broker import RunningBroker, broker
from tests.integration.client.lite_kit import FIRST, numbers, polled, store_numbers
from tests.integration.client.pull_kit import GROUP, TOPIC, opened, options_of, queue_of, store
from tests.unit.client.client_kit import until

FAR_MS = 60_000


@pytest.fixture
async def running() -> AsyncIterator[RunningBroker]:
    async with broker({"enablePropertyFilter": True}) as made:
        await made.create_topic(TOPIC, queues=2)
        yield made


@pytest.fixture
async def client(running: RunningBroker) -> AsyncIterator[ClientInstance]:
    async with opened(running) as made:
        yield made


@pytest.fixture
async def consumer(running: RunningBroker) -> AsyncIterator[LitePullConsumer]:
    async with LitePullConsumer(running.namesrv, group=GROUP, **FIRST) as made:
        yield made


async def test_permanent_problems_are_raised(
    running: RunningBroker, client: ClientInstance, consumer: LitePullConsumer
) -> None:
    await consumer.subscribe("Nowhere")
    with pytest.raises(NoRoute, match="Nowhere"):
        await consumer.poll(FAR_MS)
    await running.create_topic("Nowhere", queues=1)
    await store(client, running, b"1", topic="Nowhere")
    while True:
        try:
            found = await consumer.poll(FAR_MS)
            break
        except NoRoute:
            continue
    assert numbers(found) == [1]


async def test_a_condition_that_cannot_be_parsed(consumer: LitePullConsumer) -> None:
    with pytest.raises(BadExpression) as caught:
        await consumer.subscribe(TOPIC, Sql("n >"))
    assert "n >" in (caught.value.detail or "")
    assert consumer.assignment == []


async def test_bad_input(running: RunningBroker, consumer: LitePullConsumer) -> None:
    with pytest.raises(BadName):
        LitePullConsumer(running.namesrv, group="no group!")
    with pytest.raises(ConfigError, match="pull_batch_max"):
        LitePullConsumer(running.namesrv, group=GROUP, pull_batch_max=0)
    with pytest.raises(BadName):
        await consumer.subscribe("no topic!")
    with pytest.raises(BadExpression):
        await consumer.subscribe(TOPIC, "||")
    with pytest.raises(ConfigError, match="No queues"):
        await consumer.assign([])
    await consumer.subscribe(TOPIC)
    with pytest.raises(ConfigError, match="either"):
        await consumer.assign([queue_of(running)])


async def test_two_consumers_of_one_group_and_client(running: RunningBroker) -> None:
    options = options_of(running, instance_name="blue")
    async with LitePullConsumer(options, group=GROUP) as consumer:
        await consumer.subscribe(TOPIC)
        with pytest.raises(ConfigError, match="has a consumer"):
            await LitePullConsumer(options, group=GROUP).start()
        assert len(consumer.assignment) == 2


async def test_life_cycle(running: RunningBroker) -> None:
    consumer = LitePullConsumer(running.namesrv, group=GROUP, **FIRST)
    with pytest.raises(ClientClosed):
        await consumer.poll()
    await consumer.subscribe(TOPIC)
    await consumer.start()
    await consumer.start()
    waiting = asyncio.ensure_future(consumer.poll(FAR_MS))
    await asyncio.sleep(0)
    await consumer.close()
    await consumer.close()
    assert await waiting == []
    assert [each async for each in consumer] == []
    with pytest.raises(ClientClosed):
        await consumer.poll()
    with pytest.raises(ClientClosed):
        await consumer.start()
    assert running.broker.components.consumers.find(GROUP) is None


async def test_the_running_info(
    running: RunningBroker, client: ClientInstance, consumer: LitePullConsumer
) -> None:
    await store_numbers(client, running, 1, 2)
    await consumer.subscribe(TOPIC)
    started = consumer._started
    await until(lambda: started.queues[queue_of(running)].cached_messages == 2)
    info = started.running_info()
    assert [each.topic for each in info.subscription_set] == [TOPIC]
    cached = info.queues[queue_of(running)]
    assert (cached.cached_msg_count, cached.cached_msg_max_offset) == (2, 1)
    (message, _) = await polled(consumer, 2)
    answer = await started.consume_directly(message, running.name)
    assert answer.consume_result is CMResult.CR_THROW_EXCEPTION


async def test_a_topic_that_does_not_exist_yet_is_logged_once(
    consumer: LitePullConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    await consumer.subscribe("Nowhere")
    for _ in range(3):
        assert not await consumer._started.share()
    told = [each.getMessage() for each in caplog.records]
    assert len([each for each in told if "Nowhere is not shared" in each]) == 1


async def test_a_poll_that_is_cancelled_while_a_body_is_decompressed_loses_nothing(
    running: RunningBroker,
    client: ClientInstance,
    consumer: LitePullConsumer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began = asyncio.Event()

    async def hang(*_: object) -> None:
        began.set()
        await asyncio.Event().wait()

    await store(client, running, zlib.compress(bytes(2 << 20)), sys_flag=flags.COMPRESSED)
    await consumer.subscribe(TOPIC)
    with monkeypatch.context() as slow:
        slow.setattr(asyncio, "to_thread", hang)
        polling = asyncio.ensure_future(consumer.poll(FAR_MS))
        await began.wait()
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
    (found,) = await consumer.poll(FAR_MS)
    assert found.body == bytes(2 << 20)
