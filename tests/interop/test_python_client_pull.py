"""Pulling Python consumers against servers of Roquet and of Apache RocketMQ; both sides alike."""

from __future__ import annotations

import pytest

from roquet.client import (
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageQueue,
    SimplePull,
)
from roquet.client.lite_options import LitePullSettings
from roquet.errors import OffsetOutOfRange
from tests.interop.cluster import Cluster
from tests.interop.python_client import (
    create_topic,
    eventually,
    opened,
    options_of,
    producer_of,
    routed,
    wait_stored,
)
from tests.unit.client.client_kit import until

pytestmark = pytest.mark.interop

COUNT = 60
FIRST: LitePullSettings = {
    "consume_from": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "retry_ms": 100,
}


async def filled(servers: Cluster) -> list[MessageQueue]:
    """The queues of a new topic, the first of which has messages, half of them tagged odd."""
    async with opened(servers) as client:
        await eventually(lambda: routed(client, "TBW102"))  # the broker is known
        (addresses,) = (await client.routes.route("TBW102")).brokers.values()
        topic = await create_topic(client, addresses[0])
        queues = await client.routes.subscribe_queues(topic)
    async with producer_of(servers) as producer:
        for each in range(COUNT):
            tags = "odd" if each % 2 else "even"
            await producer.send(Message(topic, b"%d" % each, tags=tags), queue=queues[0])
    await wait_stored(servers, queues[0], COUNT)
    return queues


async def test_one_queue(servers: Cluster) -> None:
    queue = (await filled(servers))[0]
    async with SimplePull(options_of(servers), queue, group="python-simple") as reader:
        assert (await reader.min_offset(), await reader.max_offset()) == (0, COUNT)
        found = [each async for each in reader.read(0, COUNT)]
        assert [int(each.body) for each in found] == list(range(COUNT))
        assert await reader.offset_at(found[0].store_timestamp_ms) == 0
        await reader.commit(7)
        assert await reader.committed() == 7
        beyond = reader.read(COUNT + 5, COUNT + 6)
        with pytest.raises(OffsetOutOfRange):
            await anext(beyond)


async def test_polls_continue_from_the_groups_offsets(servers: Cluster) -> None:
    queue = (await filled(servers))[0]
    seen: list[int] = []
    for end in (19, COUNT - 1):
        async with LitePullConsumer(options_of(servers), group="python-lite", **FIRST) as consumer:
            await consumer.subscribe(queue.topic, "odd")
            async for message in consumer:
                seen.append(int(message.body))
                if seen[-1] == end:
                    break
    assert seen == list(range(1, COUNT, 2))


async def test_clients_share_queues_and_seek(servers: Cluster) -> None:
    queues = await filled(servers)
    async with LitePullConsumer(options_of(servers), group="python-share", **FIRST) as one:
        await one.subscribe(queues[0].topic)
        async with LitePullConsumer(options_of(servers), group="python-share", **FIRST) as other:
            await other.subscribe(queues[0].topic)
            await until(lambda: {len(one.assignment), len(other.assignment)} == {1, 2})
            await until(lambda: sorted(one.assignment + other.assignment) == queues)
            assert {len(one.assignment), len(other.assignment)} == {1, 2}
        await until(lambda: one.assignment == queues)
        await one.seek(queues[0], COUNT - 3)
        seen: list[int] = []
        while seen[-3:] != [COUNT - 3, COUNT - 2, COUNT - 1]:
            seen += [int(each.body) for each in await one.poll()]
        await one.commit()
        assert await one.committed(queues[0]) == COUNT
