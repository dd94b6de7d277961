"""What lite pull consumers get."""

from __future__ import annotations

from roquet.client import ClientInstance, ConsumeFromWhere, LitePullConsumer, ReceivedMessage
from roquet.client.lite_options import LitePullSettings
from roquet.testing.broker import RunningBroker
from tests.integration.client.pull_kit import store

FIRST: LitePullSettings = {
    "consume_from": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "retry_ms": 10,
}


async def polled(consumer: LitePullConsumer, count: int) -> list[ReceivedMessage]:
    """Poll that many messages; the test's time-out bounds it."""
    found: list[ReceivedMessage] = []
    while len(found) < count:
        found += await consumer.poll()
    return found


def numbers(found: list[ReceivedMessage]) -> list[int]:
    return [int(each.body) for each in found]


async def store_numbers(
    client: ClientInstance, running: RunningBroker, *values: int, queue_id: int = 0
) -> None:
    await store(client, running, *(b"%d" % each for each in values), queue_id=queue_id)
