"""Servers of tests of producers and push consumers; others need other ones, and make their own."""

from collections.abc import AsyncIterator

import pytest

from roquet.client import Producer
from roquet.testing.broker import RunningBroker, broker
from tests.integration.client.push_kit import TOPIC
from tests.patience import TIMEOUT_MS


@pytest.fixture
async def a_broker() -> AsyncIterator[RunningBroker]:
    async with broker() as running:
        await running.create_topic(TOPIC, queues=4)
        yield running


@pytest.fixture
async def producer(a_broker: RunningBroker) -> AsyncIterator[Producer]:
    async with Producer(a_broker.namesrv, group="shop", send_timeout_ms=TIMEOUT_MS) as running:
        yield running
