"""Recalls of messages at a broker without a timer."""

from __future__ import annotations

import pytest

from roquet.client import Producer
from roquet.client.recall import RecallHandle
from roquet.errors import PermissionRefused
from roquet.remoting.codes import ResponseCode
from roquet.testing.broker import broker

TOPIC = "Orders"


async def test_a_broker_without_a_timer_responds_as_upstream() -> None:
    async with broker() as running:
        await running.create_topic(TOPIC)
        async with Producer(running.namesrv, group="billing") as producer:
            text = RecallHandle(TOPIC, running.name, "1700000000000", "AC11").text()
            with pytest.raises(PermissionRefused) as caught:
                await producer.recall_message(TOPIC, text)
    assert caught.value.response_code == ResponseCode.NO_PERMISSION
    assert caught.value.remark == "recall failed, operation is forbidden"
