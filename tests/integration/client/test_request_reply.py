"""Requests and replies over a whole broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from roquet.client import (
    ClientOptions,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
    SendResult,
    SendStatus,
    reply,
)
from roquet.client.deadline import Deadline
from roquet.client.outgoing_message import OutgoingMessage
from roquet.errors import BadMessage, ClientClosed, RequestTimeout
from roquet.runtime.clock import ManualClock
from roquet.testing.broker import RunningBroker, broker
from tests.integration.client.server_kit import stored_soon
from tests.patience import TIMEOUT_MS
from tests.unit.client.client_kit import until

TOPIC = "Questions"


@pytest.fixture
async def a_broker() -> AsyncIterator[RunningBroker]:
    async with broker() as running:
        await running.create_topic(TOPIC, queues=1)
        await running.create_topic(f"shop%{TOPIC}", queues=1)
        yield running


@pytest.mark.parametrize("namespace", ["", "shop"])
async def test_a_reply_arrives(a_broker: RunningBroker, namespace: str) -> None:
    options = ClientOptions(namesrv=a_broker.namesrv, namespace=namespace)
    wire_topic = f"{namespace}%{TOPIC}" if namespace else TOPIC
    async with Producer(options, group="asks") as asks, Producer(options, group="says") as says:
        waiting = asyncio.ensure_future(
            asks.request(Message(TOPIC, b"how many?", keys="17"), timeout_ms=60_000)
        )
        (asked,) = await stored_soon(a_broker, wire_topic, 1)
        assert (asked.body, asked.keys) == (b"how many?", ["17"])
        assert asked.properties["TTL"] == "60000"
        assert asked.properties["REPLY_TO_CLIENT"] == asks.client.client_id
        sent = await says.send(reply(asked, b"seven " * 1_000))
        assert sent.status is SendStatus.SEND_OK
        answer = await waiting
        assert answer.body == b"seven " * 1_000
        assert answer.properties["CORRELATION_ID"] == asked.properties["CORRELATION_ID"]
        assert len(asks._started.requests) == 0


async def test_replies_find_their_requests(a_broker: RunningBroker) -> None:
    async with Producer(a_broker.namesrv, group="g") as producer:
        waiting = [
            asyncio.ensure_future(
                producer.request(Message(TOPIC, b"%d" % number), timeout_ms=60_000)
            )
            for number in range(5)
        ]
        for asked in reversed(await stored_soon(a_broker, TOPIC, 5)):
            await producer.send(reply(asked, b"answer to " + asked.body))
        answers = await asyncio.gather(*waiting)
    assert [each.body for each in answers] == [b"answer to %d" % number for number in range(5)]


async def test_no_reply_in_time(a_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Producer(a_broker.namesrv, group="g") as producer:
        await producer.send(Message(TOPIC, b"warm"))
        clock = producer.client.clock = ManualClock()
        send = producer._started.sender.send

        async def use_up_the_time(
            message: OutgoingMessage, deadline: Deadline, queue: MessageQueue | None
        ) -> SendResult:
            sent = await send(message, deadline, queue)
            clock.advance(TIMEOUT_MS)
            return sent

        monkeypatch.setattr(producer._started.sender, "send", use_up_the_time)
        with pytest.raises(RequestTimeout, match="No reply"):
            await producer.request(Message(TOPIC, b"?"), timeout_ms=TIMEOUT_MS)
        monkeypatch.undo()
        assert len(producer._started.requests) == 0
        late = (await stored_soon(a_broker, TOPIC, 2))[1]
        await producer.send(reply(late, b"too late"))
        assert not producer._started.requests.arrived(late)


async def test_closing_ends_requests(a_broker: RunningBroker) -> None:
    producer = Producer(a_broker.namesrv, group="g")
    await producer.start()
    waiting = asyncio.ensure_future(producer.request(Message(TOPIC, b"?"), timeout_ms=60_000))
    await stored_soon(a_broker, TOPIC, 1)
    await until(lambda: producer.in_flight == 0)
    await producer.close()
    with pytest.raises(ClientClosed):
        await waiting


async def test_invalid_requests() -> None:
    with pytest.raises(BadMessage, match="not a request"):
        reply(ReceivedMessage(topic=TOPIC, raw_body=b"x"), b"y")
