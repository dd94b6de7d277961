"""Closing in the middle of things: nothing is left behind, wherever a client is interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from roquet.client import PushConsumer, ReceivedMessage, group_share
from roquet.client import rebalance as rebalance_module
from roquet.testing.broker import RunningBroker, broker

TOPIC = "Orders"
GROUP = "billing"


@pytest.fixture
async def running() -> AsyncIterator[RunningBroker]:
    async with broker() as made:
        await made.create_topic(TOPIC, queues=1)
        yield made


async def handle(message: ReceivedMessage) -> None:
    assert message.body


async def test_a_queue_that_is_being_begun_is_unlocked(
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
        while not second.assignment:  # noqa: ASYNC110 - an assignment has no event
            await asyncio.sleep(0.001)
