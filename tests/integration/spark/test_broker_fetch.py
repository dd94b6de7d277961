"""How a task gets its part of a queue, over bad networks, restarts and retention."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from roquet.client import Message, MessageQueue, Producer
from roquet.client.pull_api import PullApi, PulledRecords, PullStatus
from roquet.errors import BrokerRefused, ConnectFailed, DataLost
from roquet.spark.broker import fetch
from roquet.spark.broker.fetch import Fetch, FetchedRecords
from roquet.spark.broker.planning import QueueRange
from roquet.spark.broker.read_options import ReadOptions, read_options
from roquet.testing.broker import RunningBroker, broker

TOPIC = "Orders"
COUNT = 2_000


def options(namesrv: str, **given: str) -> ReadOptions:
    return read_options({"namesrv": namesrv, "subscribe": TOPIC, **given})


async def filled(
    running: RunningBroker, count: int = COUNT, *, body_bytes: int = 20, batch: int = 500
) -> None:
    await running.create_topic(TOPIC, 1)
    async with Producer(running.namesrv, group="tests") as producer:
        body = bytes(body_bytes)
        tags = ("odd", "even")
        for start in range(0, count, batch):
            numbers = range(start, min(start + batch, count))
            await producer.send_batch(
                [Message(TOPIC, body, tags=tags[number % 2]) for number in numbers]
            )


@pytest.fixture
async def a_broker() -> AsyncIterator[RunningBroker]:
    async with broker(proxied=True) as running:
        await filled(running)
        yield running


def offsets_of(pieces: list[FetchedRecords]) -> list[int]:
    found: list[int] = []
    for piece in pieces:
        assert piece.is_plain
        position = 0
        while position < len(piece.data):
            size, queue_offset = struct.unpack_from(">i16xq", piece.data, position)
            found.append(queue_offset)
            position += size
    return found


async def read(running: RunningBroker, start: int, end: int, **given: str) -> list[int]:
    queue = MessageQueue(TOPIC, running.name, 0)
    found: list[int] = []
    async with Fetch(options(running.namesrv, **given), QueueRange(queue, start, end)) as fetching:
        while (pieces := await fetching.next()) is not None:
            found += offsets_of(pieces)
    return found


async def test_exactly_the_wanted_offsets_in_order(a_broker: RunningBroker) -> None:
    assert await read(a_broker, 0, COUNT) == list(range(COUNT))
    assert await read(a_broker, 17, 1_801) == list(range(17, 1_801))
    assert await read(a_broker, 5, 6) == [5]
    assert await read(a_broker, 5, 5) == []


async def test_long_chunks_stop_and_continue(
    a_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "CHUNK_BYTES_MAX", 1)
    assert await read(a_broker, 0, COUNT) == list(range(COUNT))


async def test_messages_filtered_by_brokers_are_not_missing(a_broker: RunningBroker) -> None:
    found = await read(a_broker, 10, 1_000, subExpression="odd")
    assert found == list(range(10, 1_000, 2))


async def test_broken_connections_are_reopened(a_broker: RunningBroker) -> None:
    a_broker.proxy.to_client.cut_after(10_000)
    reading = asyncio.create_task(read(a_broker, 0, COUNT))
    await asyncio.sleep(0)
    assert await reading == list(range(COUNT))


async def test_a_restart_of_the_broker_is_waited_for(a_broker: RunningBroker) -> None:
    queue = MessageQueue(TOPIC, a_broker.name, 0)
    wanted = QueueRange(queue, 0, COUNT)
    async with Fetch(options(a_broker.namesrv, pullBatchSize="10"), wanted) as fetching:
        first = await fetching.next()
        assert first is not None
        found = offsets_of(first)
        await a_broker.stop_broker()
        going_on = asyncio.create_task(fetching.next())
        await a_broker.start_broker()
        pieces = await going_on
        while pieces is not None:
            found += offsets_of(pieces)
            pieces = await fetching.next()
    assert found == list(range(COUNT))


async def test_a_broker_that_stays_unreachable_is_an_error(a_broker: RunningBroker) -> None:
    await a_broker.proxy.refuse()
    with pytest.raises(ConnectFailed, match="Reading queue 0 of Orders on dev failed at offset 0"):
        await read(a_broker, 0, COUNT, pollTimeoutMs="1")


async def test_a_refusal_is_not_retried(a_broker: RunningBroker) -> None:
    with pytest.raises(BrokerRefused, match="Reading queue 0"):
        await read(a_broker, 0, 10, subExpression="a > 1", subExpressionType="SQL92")


async def test_offsets_that_never_appear_are_lost(a_broker: RunningBroker) -> None:
    with pytest.raises(DataLost, match=r"lacks 5 messages \(2000 to 2004\): the queue ends at"):
        await read(a_broker, 1_990, COUNT + 5, pollTimeoutMs="1")
    found = await read(a_broker, 1_990, COUNT + 5, pollTimeoutMs="1", failOnDataLoss="false")
    assert found == list(range(1_990, COUNT))


async def test_messages_removed_by_retention_during_a_read_are_reported() -> None:
    small = {
        "mappedFileSizeCommitLog": 64 << 10,
        "fileReservedTime": 0,
        "deleteCommitLogFilesInterval": 1,
    }
    async with broker(small) as running:
        await filled(running, 300, body_bytes=2_000, batch=20)
        await running.restart()  # which syncs all
        store = running.store
        first = store.min_offset_in_queue(TOPIC, 0)
        assert first == 0
        retention = store.retention  # type: ignore[attr-defined]
        retention.request_manual()
        await asyncio.to_thread(retention.run_once)
        first = store.min_offset_in_queue(TOPIC, 0)
        assert 0 < first < 300
        with pytest.raises(DataLost, match=r"lacks .* \(0 to .*removed by retention"):
            await read(running, 0, 300)
        found = await read(running, 0, 300, failOnDataLoss="false")
        assert found == list(range(first, 300))


async def test_a_response_that_skips_messages_is_not_trusted_at_once(
    a_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PullApi.pull_records
    lies = 0

    async def pull(self: PullApi, *args: object, **named: object) -> PulledRecords:
        nonlocal lies
        found = await real(self, *args, **named)  # type: ignore[arg-type]
        if lies < most:
            lies += 1
            return structs.replace(found, status=PullStatus.NO_MATCHED_MESSAGE, data=b"")
        return found

    monkeypatch.setattr(PullApi, "pull_records", pull)
    most = 2
    assert await read(a_broker, 0, 10) == list(range(10))
    lies, most = 0, 3
    with pytest.raises(DataLost, match=r"lacks 10 messages \(0 to 9\)"):
        await read(a_broker, 0, 10)


def test_a_gap_in_a_response_is_detected() -> None:
    def record(queue_offset: int) -> bytes:
        return struct.pack(">i16xq8xi", 100, queue_offset, 0) + bytes(60)

    puller = fetch._Puller.__new__(fetch._Puller)
    puller._queue = MessageQueue(TOPIC, "dev", 0)
    puller._is_filtered = False
    puller._options = options("127.0.0.1:1")
    answer = PulledRecords(
        status=PullStatus.FOUND,
        next_offset=9,
        min_offset=0,
        max_offset=9,
        offset_delta=0,
        data=record(4) + record(5) + record(8),
    )
    with pytest.raises(DataLost, match=r"lacks 2 messages \(6 to 7\)"):
        puller.cut(answer, 4, 100)
    (piece,) = puller.cut(answer, 4, 6)
    assert offsets_of([piece]) == [4, 5]
    puller._is_filtered = True
    assert offsets_of(puller.cut(answer, 5, 100)) == [5, 8]
