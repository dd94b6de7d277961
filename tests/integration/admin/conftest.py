"""A cluster of one broker, and one of two, with an admin beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from roquet.admin import Admin
from roquet.client import ClientOptions
from roquet.testing.broker import RunningBroker, broker
from tests.patience import TIMEOUT_MS


@pytest.fixture
async def server() -> AsyncIterator[RunningBroker]:
    async with broker() as running:
        yield running


@pytest.fixture
async def admin(server: RunningBroker) -> AsyncIterator[Admin]:
    options = ClientOptions(namesrv=server.namesrv, request_timeout_ms=TIMEOUT_MS)
    async with Admin(options) as running:
        yield running


@pytest.fixture
async def second(server: RunningBroker) -> AsyncIterator[RunningBroker]:
    async with broker({"brokerName": "second"}, namesrv=server.namesrv) as running:
        yield running
