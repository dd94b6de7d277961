"""How a task sends its rows: over bad networks, in order, and with bounded rows in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from roquet.client import Message, Producer
from roquet.errors import BadMessage, ConnectFailed, NoRoute
from roquet.model import properties as prop
from roquet.spark.broker import send
from roquet.spark.broker.outgoing import OutgoingRow
from roquet.spark.broker.send import Outbox
from roquet.spark.broker.write_options import WriteOptions, write_options
from roquet.testing.broker import RunningBroker, broker
from tests.patience import TIMEOUT_MS

TOPIC = "Out"
COUNT = 400


@pytest.fixture
async def a_broker() -> AsyncIterator[RunningBroker]:
    async with broker({"autoCreateTopicEnable": "false"}, proxied=True) as running:
        await running.create_topic(TOPIC, 4)
        yield running


def options(running: RunningBroker, **given: str) -> WriteOptions:
    return write_options({"namesrv": running.namesrv, "topic": TOPIC, "batchBytes": "4k", **given})


def row(
    number: int,
    *,
    topic: str = TOPIC,
    queue_id: int | None = None,
    sharding_key: str | None = None,
    delay_level: int = 0,
) -> OutgoingRow:
    message = Message(topic, b"%d" % number, sharding_key=sharding_key, delay_level=delay_level)
    return OutgoingRow(message, queue_id, None)


async def send_all(
    how: WriteOptions, rows: list[OutgoingRow], *, send_timeout_ms: int = TIMEOUT_MS
) -> send.Sent:
    async with Producer(how.client, group=how.group, send_timeout_ms=send_timeout_ms) as producer:
        outbox = Outbox(how, producer)
        try:
            for each in rows:
                await outbox.put(each)
            return await outbox.close()
        finally:
            await outbox.abort()


def numbers(running: RunningBroker) -> list[int]:
    return [int(each.body) for each in running.messages(TOPIC)]


async def test_every_row_is_acknowledged(a_broker: RunningBroker) -> None:
    sent = await send_all(options(a_broker), [row(number) for number in range(COUNT)])
    assert sent.rows == COUNT
    assert sent.less_safe == 0
    assert sorted(numbers(a_broker)) == list(range(COUNT))
    assert {each.queue_id for each in a_broker.messages(TOPIC)} == {0, 1, 2, 3}


@pytest.mark.parametrize("way", ["queue_id", "sharding_key"])
async def test_order_is_kept_over_broken_connections(a_broker: RunningBroker, way: str) -> None:
    a_broker.proxy.to_client.cut_after(2_000)
    is_by_queue = way == "queue_id"
    rows = [
        row(
            number,
            queue_id=number % 3 if is_by_queue else None,
            sharding_key=None if is_by_queue else f"key {number % 3}",
        )
        for number in range(COUNT)
    ]
    sent = await send_all(options(a_broker), rows)
    assert sent.rows == COUNT
    stored = a_broker.messages(TOPIC)
    for key in range(3):
        # What was sent twice arrives twice, but nothing overtakes an earlier row.
        mine = [
            int(each.body)
            for each in sorted(stored, key=lambda each: each.queue_offset)
            if (each.properties.get(prop.SHARDING_KEY) or f"key {each.queue_id}") == f"key {key}"
        ]
        first_times = list(dict.fromkeys(mine))
        assert first_times == list(range(key, COUNT, 3))


async def test_a_restart_of_the_broker_is_waited_for(a_broker: RunningBroker) -> None:
    how = options(a_broker)
    async with Producer(how.client, group=how.group, send_timeout_ms=TIMEOUT_MS) as producer:
        outbox = Outbox(how, producer)
        for number in range(100):
            await outbox.put(row(number))
        await a_broker.stop_broker()
        for number in range(100, 200):
            await outbox.put(row(number))
        closing = asyncio.create_task(outbox.close())
        await a_broker.start_broker()
        assert (await closing).rows == 200
    assert set(numbers(a_broker)) == set(range(200))


async def test_a_broker_that_stays_unreachable_is_an_error(a_broker: RunningBroker) -> None:
    await a_broker.proxy.refuse()
    with pytest.raises(ConnectFailed):
        await send_all(options(a_broker, retryTimeoutMs="1"), [row(1)], send_timeout_ms=1_000)


async def test_an_unknown_topic_is_an_error(
    a_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "NO_ROUTE_TIMEOUT_MS", 1)
    with pytest.raises(NoRoute, match="Nowhere"):
        await send_all(options(a_broker), [row(1, topic="Nowhere")])


async def test_an_unknown_queue_is_an_error(a_broker: RunningBroker) -> None:
    with pytest.raises(BadMessage, match="no queue 4 that can be written"):
        await send_all(options(a_broker), [row(1, queue_id=4)])


async def test_delayed_rows_are_sent_alone(a_broker: RunningBroker) -> None:
    rows = [row(number, delay_level=18 if number % 2 else 0) for number in range(20)]
    assert (await send_all(options(a_broker), rows)).rows == 20
    assert sorted(numbers(a_broker)) == list(range(0, 20, 2))
    assert len(a_broker.messages("SCHEDULE_TOPIC_XXXX")) == 10


async def test_rows_in_flight_are_bounded(
    a_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_the_way: list[int] = [0, 0]
    real = Producer.send_batch

    async def counted(self: Producer, *args: object, **named: object) -> object:
        on_the_way[0] += 1
        on_the_way[1] = max(on_the_way)
        try:
            return await real(self, *args, **named)  # type: ignore[arg-type]
        finally:
            on_the_way[0] -= 1

    monkeypatch.setattr(Producer, "send_batch", counted)
    how = options(a_broker, maxInFlight="3", batchBytes="1k")
    await send_all(how, [row(number) for number in range(COUNT)])
    assert on_the_way[1] == 3
