"""Offsets of consumers, at brokers and in files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from roquet.client import (
    ClientInstance,
    LocalFileOffsetStore,
    OffsetStore,
    PullApi,
    ReadOffset,
    RemoteBrokerOffsetStore,
)
from roquet.client.group_share import start_offset
from roquet.errors import ConfigError, NoRoute, StoreError
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.client import ConsumeFromWhere
from roquet.testing.broker import RunningBroker, broker
from tests.integration.client.pull_kit import GROUP, TOPIC, opened, queue_of, store
from tests.unit.client.client_kit import until

QUEUE = MessageQueue(TOPIC, "broker-a", 0)
OTHER = MessageQueue(TOPIC, "broker-a", 1)

JAVA = """{
	"offsetTable":{
		{
			"brokerName":"broker-a",
			"queueId":1,
			"topic":"Orders"
		}:3,
		{
			"brokerName":"broker-a",
			"queueId":0,
			"topic":"Orders"
		}:17
	}
}"""
"""As Apache RocketMQ 5.4.0 writes it."""


@pytest.fixture
async def running() -> AsyncIterator[RunningBroker]:
    async with broker() as made:
        await made.create_topic(TOPIC, queues=2)
        made.broker.groups.find(GROUP)  # which makes it
        yield made


@pytest.fixture
async def client(running: RunningBroker) -> AsyncIterator[ClientInstance]:
    async with opened(running) as made:
        yield made


def file_store(folder: Path) -> LocalFileOffsetStore:
    return LocalFileOffsetStore("10.0.0.7@blue", GROUP, folder=folder)


@pytest.fixture(params=["file", "broker"])
def offsets(request: pytest.FixtureRequest, tmp_path: Path, client: ClientInstance) -> OffsetStore:
    if request.param == "file":
        return file_store(tmp_path)
    return RemoteBrokerOffsetStore(PullApi(client, GROUP))


async def test_offsets_are_cached_then_stored(running: RunningBroker, offsets: OffsetStore) -> None:
    queue, other = queue_of(running), queue_of(running, 1)
    await offsets.load()
    assert await offsets.read(queue, ReadOffset.MEMORY) is None
    offsets.update(queue, 5, increase_only=False)
    offsets.update(queue, 3, increase_only=True)
    assert await offsets.read(queue, ReadOffset.MEMORY) == 5
    offsets.update(queue, 4, increase_only=False)
    offsets.update(other, 9, increase_only=True)
    await offsets.persist([queue])
    assert await offsets.read(queue, ReadOffset.STORE) == 4
    assert offsets.offsets(TOPIC) == {queue: 4, other: 9}
    assert offsets.offsets("Elsewhere") == {}
    offsets.remove(queue)
    assert await offsets.read(queue, ReadOffset.MEMORY) is None
    assert await offsets.read(queue) == 4
    assert await offsets.read(queue, ReadOffset.MEMORY) == 4
    offsets.remove(other)
    assert not await offsets.read(other, ReadOffset.STORE)


async def test_a_frozen_offset_stays(running: RunningBroker, offsets: OffsetStore) -> None:
    queue = queue_of(running)
    offsets.update_and_freeze(queue, 2)
    offsets.update(queue, 8, increase_only=False)
    assert offsets.offsets() == {queue: 2}
    offsets.remove(queue)
    offsets.update(queue, 8, increase_only=False)
    assert offsets.offsets() == {queue: 8}


async def test_members_of_a_group_share_offsets(
    running: RunningBroker, client: ClientInstance
) -> None:
    await store(client, running, b"1", b"2", b"3")
    api = PullApi(client, GROUP)
    mine, others = RemoteBrokerOffsetStore(api), RemoteBrokerOffsetStore(api)
    mine.update(queue_of(running), 2)
    await mine.persist([queue_of(running)])
    assert await others.read(queue_of(running)) == 2


async def test_an_unreachable_broker_does_not_affect_the_others(
    running: RunningBroker, client: ClientInstance
) -> None:
    api = PullApi(client, GROUP)
    offsets = RemoteBrokerOffsetStore(api)
    away = MessageQueue(TOPIC, "away", 0)
    offsets.update(away, 1)
    offsets.update(queue_of(running), 0)
    offsets.update(MessageQueue(TOPIC, "gone", 0), 1)
    with pytest.raises(NoRoute):
        await offsets.persist([away, queue_of(running), MessageQueue(TOPIC, "gone", 0)])
    assert await api.query_offset(queue_of(running)) == 0
    assert await offsets.read(away) == 1
    with pytest.raises(NoRoute):
        await offsets.read(away, ReadOffset.STORE)


# --------------------------------------------------------------------------------- the file


async def test_a_java_file_round_trips(tmp_path: Path) -> None:
    offsets = file_store(tmp_path)
    assert offsets.path == tmp_path / "10.0.0.7@blue" / GROUP / "offsets.json"
    offsets.path.parent.mkdir(parents=True)
    offsets.path.write_text(JAVA)
    await offsets.load()
    assert offsets.offsets() == {QUEUE: 17, OTHER: 3}
    offsets.update(QUEUE, 3)
    offsets.update(OTHER, 17)
    await offsets.persist([QUEUE, OTHER])
    swapped = JAVA.replace('"queueId":1', '"queueId":-').replace('"queueId":0', '"queueId":1')
    assert offsets.path.read_text() == swapped.replace('"queueId":-', '"queueId":0')
    assert offsets.path.with_name("offsets.json.bak").read_text() == JAVA


async def test_entries_of_others_are_kept(tmp_path: Path) -> None:
    mine, others = file_store(tmp_path), file_store(tmp_path)
    mine.update(QUEUE, 1)
    others.update(OTHER, 2)
    await mine.persist([QUEUE])
    await others.persist([OTHER])
    await mine.persist([])
    again = file_store(tmp_path)
    await again.load()
    assert again.offsets() == {QUEUE: 1, OTHER: 2}


async def test_a_damaged_file(tmp_path: Path) -> None:
    offsets = file_store(tmp_path)
    offsets.update(QUEUE, 1)
    await offsets.persist([QUEUE])
    offsets.update(QUEUE, 2)
    await offsets.persist([QUEUE])
    offsets.path.write_text("{")
    again = file_store(tmp_path)
    await again.load()
    assert again.offsets() == {QUEUE: 1}
    offsets.path.with_name("offsets.json.bak").write_text("{")
    with pytest.raises(ConfigError):
        await file_store(tmp_path).load()


def test_names_stay_inside_the_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        LocalFileOffsetStore("../elsewhere", GROUP, folder=tmp_path)


async def test_an_older_offset_is_never_sent_after_a_newer_one(
    running: RunningBroker, client: ClientInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers handle concurrent requests in any order, so the second waits for the first."""
    api = PullApi(client, GROUP)
    told: list[int] = []
    answers = asyncio.Event()

    async def update_offset(_: MessageQueue, queue_offset: int) -> None:
        told.append(queue_offset)
        await answers.wait()

    monkeypatch.setattr(api, "update_offset", update_offset)
    offsets = RemoteBrokerOffsetStore(api)
    queue = queue_of(running)
    offsets.update(queue, 1)
    first = asyncio.create_task(offsets.persist([queue]))
    await until(lambda: told == [1])
    second = asyncio.create_task(offsets.persist([queue]))
    await asyncio.sleep(0)
    offsets.update(queue, 2)
    assert told == [1]
    answers.set()
    await asyncio.gather(first, second)
    assert told == [1, 2]


async def test_a_first_message_that_arrives_during_the_lookup_is_not_skipped(
    running: RunningBroker, client: ClientInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = PullApi(client, GROUP)
    queue = queue_of(running)
    ask = api.max_offset

    async def store_and_ask(asked: MessageQueue) -> int:
        await store(client, running, b"first")
        return await ask(asked)

    monkeypatch.setattr(api, "max_offset", store_and_ask)
    offsets = RemoteBrokerOffsetStore(api)
    assert await offsets.read(queue) is None
    where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    assert await start_offset(queue, offsets, api, where=where, timestamp_ms=0) == 0
