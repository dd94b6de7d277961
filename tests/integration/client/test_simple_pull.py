"""Reading single queues of a broker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from roquet.client import ClientInstance, PullStatus, SimplePull, Sql
from roquet.errors import BadExpression, BadName, ClientClosed, ConfigError, OffsetOutOfRange
from roquet.model.message_queue import MessageQueue
from roquet.remoting.codes import ResponseCode
from roquet.testing.broker import RunningBroker, broker
from tests.integration.client.pull_kit import GROUP, TOPIC, opened, options_of, queue_of, store

FAR_MS = 60_000


@pytest.fixture
async def running() -> AsyncIterator[RunningBroker]:
    async with broker() as made:
        await made.create_topic(TOPIC, queues=2)
        yield made


@pytest.fixture
async def client(running: RunningBroker) -> AsyncIterator[ClientInstance]:
    async with opened(running) as made:
        yield made


@pytest.fixture
async def reader(running: RunningBroker) -> AsyncIterator[SimplePull]:
    async with SimplePull(running.namesrv, queue_of(running), group=GROUP) as made:
        yield made


async def bodies_of(reader: SimplePull, start: int, end: int) -> list[bytes]:
    return [each.body async for each in reader.read(start, end, batch=3)]


async def test_a_part_of_a_queue(
    running: RunningBroker, client: ClientInstance, reader: SimplePull
) -> None:
    await store(client, running, *(b"%d" % each for each in range(10)))
    await store(client, running, b"elsewhere", queue_id=1)
    assert (await reader.min_offset(), await reader.max_offset()) == (0, 10)
    assert await bodies_of(reader, 2, 9) == [b"%d" % each for each in range(2, 9)]
    assert await bodies_of(reader, 4, 4) == []
    first = (await reader.pull(0, max_messages=1)).messages[0]
    assert await reader.offset_at(first.store_timestamp_ms) == 0
    await reader.commit(7)
    assert await reader.committed() == 7


async def test_messages_that_do_not_exist_yet(
    running: RunningBroker, client: ClientInstance, reader: SimplePull
) -> None:
    await store(client, running, b"1", b"2")
    reading = reader.read(0, 5)
    assert [(await anext(reading)).body for _ in range(2)] == [b"1", b"2"]
    with pytest.raises(OffsetOutOfRange, match="not there yet"):
        await anext(reading)
    with pytest.raises(OffsetOutOfRange, match="not there yet"):
        await bodies_of(reader, 17, 18)


async def test_a_pull_waits(
    running: RunningBroker, client: ClientInstance, reader: SimplePull
) -> None:
    waiting = asyncio.ensure_future(reader.pull(0, wait_ms=FAR_MS))
    await store(client, running, b"late")
    assert [each.body for each in (await waiting).messages] == [b"late"]
    assert (await reader.pull(1)).status is PullStatus.NO_NEW_MESSAGE


async def test_filters_skip_the_rest(running: RunningBroker, client: ClientInstance) -> None:
    for each in range(8):
        tag = "odd" if each % 2 else "even"
        await store(client, running, b"%d" % each, properties={"TAGS": tag})
    queue = queue_of(running)
    async with SimplePull(running.namesrv, queue, group=GROUP, expression="odd") as reader:
        assert await bodies_of(reader, 0, 8) == [b"1", b"3", b"5", b"7"]
        assert await bodies_of(reader, 6, 7) == []


async def test_namespaces(running: RunningBroker, client: ClientInstance) -> None:
    await running.create_topic("shop%Orders", queues=1)
    await store(client, running, b"1", topic="shop%Orders")
    options = options_of(running, namespace="shop")
    async with SimplePull(options, queue_of(running), group=GROUP) as reader:
        (message,) = (await reader.pull(0)).messages
        await reader.commit(1)
    assert (message.topic, message.queue) == (TOPIC, queue_of(running))
    assert running.broker.groups.table.keys() >= {"shop%billing"}


async def test_removed_messages_are_not_skipped_silently(
    running: RunningBroker,
    client: ClientInstance,
    reader: SimplePull,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await store(client, running, b"0", b"1", b"2")
    real = client.remoting.__class__.invoke
    moved = []

    async def invoke(
        self: object, address: str, code: int, header: object, **rest: object
    ) -> object:
        answer = await real(self, address, code, header, **rest)  # type: ignore[arg-type]
        if getattr(header, "queue_offset", None) == 0:
            moved.append(answer)
            answer.code = ResponseCode.PULL_OFFSET_MOVED
            fields = dict(answer.ext_fields or {})
            answer.ext_fields = fields | {"nextBeginOffset": "2", "minOffset": "2"}
        return answer

    monkeypatch.setattr(client.remoting.__class__, "invoke", invoke)
    with pytest.raises(OffsetOutOfRange, match="removed") as caught:
        await bodies_of(reader, 0, 3)
    assert caught.value.detail == "offsets 0 to 2 were requested; the queue has 2 to 2"
    assert [each.body async for each in reader.read(0, 3, skip_lost=True)] == [b"2"]
    assert len(moved) == 2


async def test_bad_input(running: RunningBroker, reader: SimplePull) -> None:
    queue = queue_of(running)
    with pytest.raises(BadName):
        SimplePull(running.namesrv, MessageQueue("no topic!", "b", 0), group=GROUP)
    with pytest.raises(BadName):
        SimplePull(running.namesrv, queue, group="")
    with pytest.raises(BadExpression):
        SimplePull(running.namesrv, queue, group=GROUP, expression=Sql(""))
    with pytest.raises(ConfigError):
        SimplePull("", queue, group=GROUP)
    with pytest.raises(ConfigError, match="queue_offset"):
        await reader.pull(-1)
    with pytest.raises(ConfigError, match="max_messages"):
        await reader.pull(0, max_messages=0)


async def test_a_closed_reader(running: RunningBroker) -> None:
    reader = SimplePull(running.namesrv, queue_of(running), group=GROUP)
    with pytest.raises(ClientClosed):
        await reader.pull(0)
    await reader.start()
    await reader.start()
    await reader.close()
    await reader.close()
    with pytest.raises(ClientClosed):
        await reader.min_offset()
    with pytest.raises(ClientClosed):
        await reader.start()
