"""Closing in the middle of work: nothing is left behind, wherever a client is interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from roquet.client import (
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageModel,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
    SimplePull,
    group_share,
)
from roquet.client import rebalance as rebalance_module
from roquet.errors import ClientClosed
from roquet.remoting.processor import RequestContext
from roquet.testing.broker import RunningBroker, broker
from tests.unit.client.client_kit import until
from tests.unit.client.fake_cluster import fake_cluster

TOPIC = "Orders"
GROUP = "billing"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
async def running() -> AsyncIterator[RunningBroker]:
    async with broker() as made:
        await made.create_topic(TOPIC, queues=1)
        yield made


async def handle(message: ReceivedMessage) -> None:
    assert message.body


async def test_a_queue_that_is_being_started_is_unlocked(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked, wait = asyncio.Event(), asyncio.Event()
    start_offset = group_share.start_offset

    async def slow(*args: object, **settings: object) -> int:
        is_asked.set()
        await wait.wait()
        return await start_offset(*args, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(rebalance_module, "start_offset", slow)
    first = PushConsumer(running.namesrv, group=GROUP, handler=handle, orderly=True)
    first.subscribe(TOPIC)
    async with first:
        await is_asked.wait()
    wait.set()
    second = PushConsumer(running.namesrv, group=GROUP, handler=handle, orderly=True)
    second.subscribe(TOPIC)
    async with second:
        await until(lambda: bool(second.assignment))


def others() -> set[asyncio.Task[object]]:
    """The tasks that run, without the test's own."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def interrupted(closing: asyncio.Task[None]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await closing


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_cancelled_close_leaves_nothing_of_a_push_consumer(
    running: RunningBroker, *, orderly: bool
) -> None:
    async with Producer(running.namesrv, group="shop") as producer:
        await producer.send(Message(TOPIC, b"x"))
    before = others()
    is_begun = asyncio.Event()

    async def hang(_: ReceivedMessage) -> None:
        is_begun.set()
        await asyncio.Event().wait()

    consumer = PushConsumer(
        running.namesrv, group=GROUP, handler=hang, orderly=orderly, consume_from=FIRST
    )
    consumer.subscribe(TOPIC)
    await consumer.start()
    client = consumer.client
    await is_begun.wait()
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0.05)  # it waits for the handler by now; the test holds before that too
    closing.cancel()
    await interrupted(closing)
    assert client.is_closed
    assert not client.remoting.connections
    await until(lambda: others() <= before)


async def test_a_cancelled_close_leaves_nothing_of_a_producer() -> None:
    before = others()
    async with fake_cluster() as cluster:
        gate = asyncio.Event()

        async def wait(_: RequestContext) -> None:
            await gate.wait()

        cluster[0].script = wait
        producer = Producer(cluster.namesrv, group="shop", linger_ms=1, trace=True)
        await producer.start()
        client = producer.client
        sending = asyncio.create_task(producer.send(Message(TOPIC, b"x")))
        await until(lambda: bool(cluster[0].sends))
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.sleep(0)
        gate.set()
        await interrupted(closing)
        assert (await sending).status is SendStatus.SEND_OK
        assert client.is_closed
        assert not client.remoting.connections
    await until(lambda: others() <= before)


async def test_a_cancelled_close_leaves_nothing_of_a_lite_pull_consumer(
    running: RunningBroker,
) -> None:
    before = others()
    consumer = LitePullConsumer(running.namesrv, group=GROUP)
    await consumer.subscribe(TOPIC)
    await consumer.start()
    assert consumer.assignment
    client = consumer._started.client
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    closing.cancel()
    await interrupted(closing)
    assert client.is_closed
    assert not client.remoting.connections
    await until(lambda: others() <= before)


def made(kind: str, namesrv: str) -> Producer | PushConsumer | LitePullConsumer | SimplePull:
    match kind:
        case "producer":
            return Producer(namesrv, group=GROUP)
        case "push":
            consumer = PushConsumer(namesrv, group=GROUP, handler=handle)
            consumer.subscribe(TOPIC)
            return consumer
        case "lite":
            return LitePullConsumer(namesrv, group=GROUP)
        case _:
            return SimplePull(namesrv, MessageQueue(TOPIC, "dev", 0), group=GROUP)


KINDS = ["producer", "push", "lite", "reader"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_closed_during_its_start_does_not_run(
    running: RunningBroker, kind: str
) -> None:
    before = others()
    client = made(kind, running.namesrv)
    starting = asyncio.create_task(client.start())
    await asyncio.sleep(0)
    await client.close()
    await starting
    with pytest.raises(ClientClosed) as caught:
        _ = client._started
    assert caught.value.hint
    with pytest.raises(ClientClosed):
        await client.start()
    await until(lambda: others() <= before)


@pytest.mark.parametrize("kind", KINDS)
async def test_starting_twice_at_once_starts_once(running: RunningBroker, kind: str) -> None:
    before = others()
    client = made(kind, running.namesrv)
    await asyncio.gather(client.start(), client.start())
    await asyncio.gather(client.close(), client.close())
    await until(lambda: others() <= before)


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_handler_may_close_its_consumer(running: RunningBroker, *, orderly: bool) -> None:
    async with Producer(running.namesrv, group="shop") as producer:
        await producer.send(Message(TOPIC, b"x"))
    is_closed = asyncio.Event()

    async def close(_: ReceivedMessage) -> None:
        await consumer.close()
        is_closed.set()

    consumer = PushConsumer(
        running.namesrv,
        group=GROUP,
        handler=close,
        orderly=orderly,
        consume_from=FIRST,
        stop_timeout_ms=3_600_000,
    )
    consumer.subscribe(TOPIC)
    await consumer.start()
    await is_closed.wait()


async def test_a_consumer_that_broadcasts_finds_its_offsets_again(
    running: RunningBroker, tmp_path: Path
) -> None:
    seen: list[bytes] = []

    async def note(message: ReceivedMessage) -> None:
        seen.append(message.body)

    def has(count: int) -> bool:
        return len(seen) >= count

    async with Producer(running.namesrv, group="shop") as producer:
        for count, body in enumerate((b"first", b"second"), start=1):
            await producer.send(Message(TOPIC, body))
            consumer = PushConsumer(
                running.namesrv,
                group=GROUP,
                handler=note,
                message_model=MessageModel.BROADCASTING,
                consume_from=FIRST,
                offsets_folder=tmp_path,
            )
            consumer.subscribe(TOPIC)
            async with consumer:
                await until(partial(has, count))
    assert seen == [b"first", b"second"]


async def test_topics_subscribed_during_the_start_are_read(running: RunningBroker) -> None:
    await running.create_topic("Parcels", queues=1)
    consumer = LitePullConsumer(running.namesrv, group=GROUP)
    await consumer.subscribe(TOPIC)
    starting = asyncio.create_task(consumer.start())
    await asyncio.sleep(0)
    await consumer.subscribe("Parcels")
    await starting
    assert {queue.topic for queue in consumer.assignment} == {TOPIC, "Parcels"}
    await consumer.close()
