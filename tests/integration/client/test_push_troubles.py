"""Push consumers in trouble: too much to do, handlers that hang, bodies that cannot be read."""

from __future__ import annotations

import asyncio
import threading
import zlib
from random import Random
from typing import Any

import pytest

from roquet.client import (
    AllocateStrategy,
    ClientInstance,
    ClientOptions,
    ConsumeFromWhere,
    ConsumeHook,
    ConsumeResult,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    compression,
    group_share,
)
from roquet.client import rebalance as rebalance_module
from roquet.errors import BadBody, NoRoute
from roquet.model import sys_flag as flags
from roquet.model.topic import dlq_topic, retry_topic
from roquet.remoting.bodies.client import ProcessQueueInfo
from roquet.testing.broker import RunningBroker
from tests.integration.client import pull_kit
from tests.integration.client.push_kit import GROUP, TOPIC, committed, consumer_of, send
from tests.unit.client.client_kit import until
from tests.unit.client.handler_kit import Seen

pytestmark = pytest.mark.timeout(180)


async def test_a_hanging_handler_is_given_up_and_its_message_redelivered(
    a_broker: RunningBroker, producer: Producer
) -> None:
    async def hang(message: ReceivedMessage) -> ConsumeResult | None:
        if message.body == b"hang":
            await asyncio.Event().wait()
        return None

    await send(producer, b"hang", b"fine", queue_id=0)
    seen = Seen(hang)
    async with consumer_of(a_broker, seen, consume_timeout_ms=300, stop_timeout_ms=0) as consumer:
        await until(lambda: len(a_broker.messages("SCHEDULE_TOPIC_XXXX")) >= 1)
        await until(lambda: len(seen.messages) >= 2)
        # It closes without waiting for the response to what it sent back.
        await until(lambda: info_of(consumer, a_broker, 0).commit_offset == 2)
    assert committed(a_broker) == 2
    assert a_broker.messages("SCHEDULE_TOPIC_XXXX")[0].body == b"hang"


async def test_a_queue_with_too_many_unfinished_messages_is_not_pulled(
    a_broker: RunningBroker, producer: Producer
) -> None:
    gate = asyncio.Event()

    async def answer(_: ReceivedMessage) -> ConsumeResult | None:
        await gate.wait()
        return None

    await send(producer, *(b"%d" % number for number in range(100)), queue_id=3)
    seen = Seen(answer)
    async with consumer_of(
        a_broker, seen, concurrency=1, pull_batch_max=10, cached_messages_max_of_topic=60
    ) as consumer:
        queue = MessageQueue(TOPIC, a_broker.name, 3)
        running = consumer._started

        def cached() -> int:
            info = running.running_info().queues.get(queue)
            return 0 if info is None else info.cached_msg_count

        await until(lambda: cached() == 20)
        await asyncio.sleep(0.05)
        assert cached() == 20
        gate.set()
        await seen.wait(100)
    assert committed(a_broker) == 100


def info_of(consumer: PushConsumer, a_broker: RunningBroker, queue_id: int) -> ProcessQueueInfo:
    queue = MessageQueue(TOPIC, a_broker.name, queue_id)
    return consumer._started.running_info().queues.get(queue, ProcessQueueInfo())


@pytest.mark.parametrize("limit", ["cached_mib_max", "cached_mib_max_of_topic"])
async def test_a_queue_with_too_many_unfinished_bytes_is_not_pulled(
    a_broker: RunningBroker, producer: Producer, limit: str
) -> None:
    random = Random(17)
    # One MiB for the queue; the topic's four are shared by its four queues.
    most = 4 if limit.endswith("of_topic") else 1
    await send(producer, *(random.randbytes(300 * 1024) for _ in range(8)), queue_id=0)
    gate = asyncio.Event()

    async def hold(_: ReceivedMessage) -> ConsumeResult | None:
        await gate.wait()
        return None

    seen = Seen(hold)
    settings: dict[str, Any] = {"concurrency": 1, "pull_batch_max": 1, limit: most}
    async with consumer_of(a_broker, seen, **settings) as consumer:
        await until(lambda: info_of(consumer, a_broker, 0).cached_msg_count == 4)
        await asyncio.sleep(0.05)
        assert info_of(consumer, a_broker, 0).cached_msg_count == 4
        gate.set()
        await seen.wait(8)
    assert committed(a_broker) == 8


@pytest.mark.parametrize(("orderly", "cached"), [(False, 20), (True, 39)])
async def test_a_queue_whose_unfinished_messages_are_far_apart_is_not_pulled(
    a_broker: RunningBroker, producer: Producer, *, orderly: bool, cached: int
) -> None:
    """Orderly consumers have no gaps: messages are finished from the front, one at a time."""
    await send(producer, *(b"%d" % number for number in range(40)), queue_id=0)
    gate = asyncio.Event()

    async def hold(_: ReceivedMessage) -> ConsumeResult | None:
        await gate.wait()
        return None

    seen = Seen(hold)
    async with consumer_of(
        a_broker, seen, concurrency=1, pull_batch_max=4, span_max=15, orderly=orderly
    ) as consumer:
        await until(lambda: info_of(consumer, a_broker, 0).cached_msg_count == cached)
        await asyncio.sleep(0.05)
        assert info_of(consumer, a_broker, 0).cached_msg_count == cached
        gate.set()
        await seen.wait(40)
    assert committed(a_broker) == 40


async def test_a_body_that_does_not_decompress_fails_its_handler_and_is_redelivered(
    a_broker: RunningBroker,
) -> None:
    errors: list[BadBody] = []

    async def read(message: ReceivedMessage) -> None:
        try:
            assert message.body
        except BadBody as error:
            errors.append(error)
            raise

    async with pull_kit.opened(a_broker) as client:
        await pull_kit.store(client, a_broker, b"no zlib at all", sys_flag=flags.COMPRESSED)
    async with consumer_of(a_broker, read):
        await until(lambda: len(a_broker.messages("SCHEDULE_TOPIC_XXXX")) == 1)
    (waiting,) = a_broker.messages("SCHEDULE_TOPIC_XXXX")
    assert (waiting.raw_body, waiting.reconsume_times) == (b"no zlib at all", 1)
    assert len(errors) == 1
    assert errors[0].hint
    assert committed(a_broker) == 1


def bomb(size_bytes: int) -> bytes:
    return zlib.compress(bytes(size_bytes))


@pytest.mark.parametrize(
    "settings",
    [{}, {"orderly": True}, {"hooks": [ConsumeHook()]}],
    ids=["concurrent", "orderly", "hooks"],
)
async def test_long_bodies_are_decompressed_beside_the_loop(
    a_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    threads: dict[int, set[int]] = {}
    whole = compression.decompress

    def noted(data: bytes, sys_flag: int, *, max_bytes: int) -> bytes:
        body = whole(data, sys_flag, max_bytes=max_bytes)
        threads.setdefault(len(body), set()).add(threading.get_ident())
        return body

    monkeypatch.setattr("roquet.client.message.decompress", noted)
    sizes = [10_000, 4 << 20]
    async with pull_kit.opened(a_broker) as client:
        for size in sizes:
            await pull_kit.store(client, a_broker, bomb(size), sys_flag=flags.COMPRESSED)
    seen = Seen()
    async with consumer_of(a_broker, seen, **settings):
        await seen.wait(2)
    assert sorted(len(body) for body in seen.bodies) == sizes
    here = threading.get_ident()
    assert threads[10_000] == {here}
    assert here not in threads[4 << 20]


async def test_a_body_that_grows_too_long_is_an_error_of_its_message(
    a_broker: RunningBroker,
) -> None:
    errors: list[BadBody] = []
    fine: list[bytes] = []

    async def read(message: ReceivedMessage) -> None:
        try:
            fine.append(message.body)
        except BadBody as error:
            errors.append(error)
            raise

    async with pull_kit.opened(a_broker) as client:
        for size in (3 << 20, 2 << 20):
            await pull_kit.store(client, a_broker, bomb(size), sys_flag=flags.COMPRESSED)
    options = ClientOptions(namesrv=a_broker.namesrv, max_body_bytes=2 << 20)
    consumer = PushConsumer(
        options,
        group=GROUP,
        handler=read,
        max_reconsume_times=0,
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await until(lambda: len(a_broker.messages(dlq_topic(GROUP))) == 1)
        await until(lambda: len(fine) == 1)
    assert fine == [bytes(2 << 20)]
    assert "more than 2097152 bytes" in (errors[0].detail or "")
    assert a_broker.messages(dlq_topic(GROUP))[0].raw_body == bomb(3 << 20)


async def test_a_retry_topic_without_a_route_is_soon_looked_up_again(
    a_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_of_queues = group_share.share_of_queues
    lookups = 0

    async def share(
        client: ClientInstance, group: str, topic: str, strategy: AllocateStrategy
    ) -> list[MessageQueue] | None:
        nonlocal lookups
        if topic == retry_topic(GROUP):
            lookups += 1
            if lookups == 1:
                raise NoRoute("not yet")
        return await share_of_queues(client, group, topic, strategy)

    monkeypatch.setattr(rebalance_module, "share_of_queues", share)
    monkeypatch.setattr(rebalance_module, "REBALANCE_AGAIN_MS", 10)
    monkeypatch.setattr(rebalance_module, "REBALANCE_MS", pull_kit.NEVER_MS)
    async with consumer_of(a_broker, Seen()) as consumer:
        retries = MessageQueue(retry_topic(GROUP), a_broker.name, 0)
        await until(lambda: retries in consumer._started.rebalancer.queues)


async def test_a_topic_that_does_not_exist_yet_is_logged_once(
    a_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        lines = [each.getMessage() for each in caplog.records]
        return [each for each in lines if "rebalancing of Later failed" in each]

    consumer = consumer_of(a_broker, Seen())
    consumer.subscribe("Later")
    async with consumer:
        rebalancer = consumer._started.rebalancer
        for _ in range(3):
            assert not await rebalancer.rebalance()
        assert len(told()) == 1
        await a_broker.create_topic("Later", queues=1)
        await rebalancer.rebalance()
        assert MessageQueue("Later", "dev", 0) in rebalancer.queues
    assert len(told()) == 1
