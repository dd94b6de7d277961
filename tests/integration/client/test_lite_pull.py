"""Lite pull consumers of a broker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from roquet.client import ClientInstance, LitePullConsumer, MessageModel, PullApi, Sql
from roquet.client.lite_options import LitePullSettings
from roquet.errors import ConfigError, OffsetOutOfRange
from roquet.model.message_queue import MessageQueue
from roquet.testing.broker import RunningBroker, broker
from tests.integration.client.lite_kit import FIRST, numbers, polled, store_numbers
from tests.integration.client.pull_kit import GROUP, TOPIC, opened, options_of, queue_of, store
from tests.unit.client.client_kit import until

FAR_MS = 60_000


@pytest.fixture
async def running() -> AsyncIterator[RunningBroker]:
    async with broker({"enablePropertyFilter": True}) as made:
        await made.create_topic(TOPIC, queues=2)
        yield made


@pytest.fixture
async def client(running: RunningBroker) -> AsyncIterator[ClientInstance]:
    async with opened(running) as made:
        yield made


@pytest.fixture
async def consumer(running: RunningBroker) -> AsyncIterator[LitePullConsumer]:
    async with LitePullConsumer(running.namesrv, group=GROUP, **FIRST) as made:
        yield made


# ------------------------------------------------------------------------------ subscribing


async def test_messages_of_all_queues_in_order(
    running: RunningBroker, client: ClientInstance, consumer: LitePullConsumer
) -> None:
    await store_numbers(client, running, *range(50))
    await store_numbers(client, running, *range(50), queue_id=1)
    await consumer.subscribe(TOPIC)
    found = await polled(consumer, 100)
    for queue_id in (0, 1):
        assert numbers([each for each in found if each.queue_id == queue_id]) == list(range(50))
    assert consumer.assignment == await consumer.queues(TOPIC)
    assert await consumer.poll(0) == []


async def test_messages_that_arrive_later(
    running: RunningBroker, client: ClientInstance, consumer: LitePullConsumer
) -> None:
    await consumer.subscribe(TOPIC)
    waiting = asyncio.ensure_future(consumer.poll(FAR_MS))
    await store_numbers(client, running, 7)
    assert numbers(await waiting) == [7]


async def test_a_new_group_starts_at_the_end_and_keeps_its_offset(
    running: RunningBroker, client: ClientInstance
) -> None:
    api = PullApi(client, GROUP)
    queue = queue_of(running)
    running.broker.groups.find(GROUP)
    await store_numbers(client, running, 1, 2)
    await api.update_offset(queue, 2)
    async with LitePullConsumer(running.namesrv, group=GROUP) as consumer:
        await consumer.subscribe(TOPIC)
        await store_numbers(client, running, 3)
        assert numbers(await polled(consumer, 1)) == [3]
    assert await api.query_offset(queue) == 3
    assert await api.query_offset(queue_of(running, 1)) == 0


async def test_filters(
    running: RunningBroker, client: ClientInstance, consumer: LitePullConsumer
) -> None:
    for each in range(6):
        properties = {"TAGS": "odd" if each % 2 else "even", "n": str(each)}
        await store(client, running, b"%d" % each, properties=properties)
    await consumer.subscribe(TOPIC, "odd")
    assert numbers(await polled(consumer, 3)) == [1, 3, 5]
    await consumer.subscribe(TOPIC, Sql("n > 3"))
    await consumer.seek_to_begin(queue_of(running))
    assert numbers(await polled(consumer, 2)) == [4, 5]


async def test_filtered_messages_are_skipped_for_good(
    running: RunningBroker, client: ClientInstance, consumer: LitePullConsumer
) -> None:
    await store(client, running, b"1", b"2", properties={"TAGS": "other"})
    await consumer.subscribe(TOPIC, "mine")
    own = consumer._started.queues[queue_of(running)]
    await until(lambda: own.pull_offset == 2)
    await consumer.poll(0)
    await consumer.commit()
    assert await PullApi(client, GROUP).query_offset(queue_of(running)) == 2


async def test_two_clients_share_and_hand_over(
    running: RunningBroker, client: ClientInstance
) -> None:
    one = LitePullConsumer(running.namesrv, group=GROUP, **FIRST)
    await one.subscribe(TOPIC)
    async with one:
        assert len(one.assignment) == 2
        async with LitePullConsumer(running.namesrv, group=GROUP, **FIRST) as other:
            await other.subscribe(TOPIC)
            await until(lambda: len(one.assignment) == len(other.assignment) == 1)
            assert one.assignment != other.assignment
            queue_id = other.assignment[0].queue_id
            await store_numbers(client, running, 1, 2, queue_id=queue_id)
            assert numbers(await polled(other, 2)) == [1, 2]
        await until(lambda: len(one.assignment) == 2)
        await store_numbers(client, running, 3, queue_id=queue_id)
        assert numbers(await polled(one, 1)) == [3]


async def test_unsubscribing(
    running: RunningBroker, client: ClientInstance, consumer: LitePullConsumer
) -> None:
    await store_numbers(client, running, 1)
    await consumer.subscribe(TOPIC)
    own = consumer._started.queues[queue_of(running)]
    await until(lambda: own.cached_messages == 1)
    await consumer.unsubscribe(TOPIC)
    assert consumer.assignment == []
    assert await consumer.poll(0) == []


async def test_broadcasting_keeps_offsets_in_a_file(
    running: RunningBroker, client: ClientInstance, tmp_path: Path
) -> None:
    settings: LitePullSettings = {
        **FIRST,
        "message_model": MessageModel.BROADCASTING,
        "offsets_folder": tmp_path,
    }
    options = options_of(running)
    await store_numbers(client, running, 1, 2)
    async with LitePullConsumer(options, group=GROUP, **settings) as consumer:
        await consumer.subscribe(TOPIC)
        assert numbers(await polled(consumer, 2)) == [1, 2]
    assert (tmp_path / "127.0.0.1@DEFAULT" / GROUP / "offsets.json").exists()
    await store_numbers(client, running, 3)
    async with LitePullConsumer(options, group=GROUP, **settings) as consumer:
        await consumer.subscribe(TOPIC)
        assert numbers(await polled(consumer, 1)) == [3]


async def test_namespaces(running: RunningBroker, client: ClientInstance) -> None:
    await running.create_topic("shop%Orders", queues=1)
    await store(client, running, b"1", topic="shop%Orders")
    options = options_of(running, namespace="shop")
    async with LitePullConsumer(options, group=GROUP, **FIRST) as consumer:
        await consumer.subscribe(TOPIC)
        (message,) = await polled(consumer, 1)
        assert message.topic == TOPIC
        assert consumer.assignment == await consumer.queues(TOPIC) == [queue_of(running)]
        await consumer.commit()
        assert await consumer.committed(queue_of(running)) == 1


# -------------------------------------------------------------------------------- assigning


async def test_assigned_queues(
    running: RunningBroker, client: ClientInstance, consumer: LitePullConsumer
) -> None:
    await store_numbers(client, running, 1)
    await store_numbers(client, running, 2, queue_id=1)
    await consumer.assign([queue_of(running, 1)])
    assert numbers(await polled(consumer, 1)) == [2]
    assert consumer.assignment == [queue_of(running, 1)]
    await consumer.assign([queue_of(running)])
    assert numbers(await polled(consumer, 1)) == [1]
    with pytest.raises(ConfigError, match="either"):
        await consumer.subscribe(TOPIC)


async def test_queues_assigned_before_the_start(
    running: RunningBroker, client: ClientInstance
) -> None:
    await store(client, running, b"1", properties={"TAGS": "x"})
    await store(client, running, b"2", properties={"TAGS": "y"})
    consumer = LitePullConsumer(running.namesrv, group=GROUP, **FIRST)
    await consumer.assign([queue_of(running)], "y")
    async with consumer:
        assert numbers(await polled(consumer, 1)) == [2]


# ----------------------------------------------------------------------- commits and failures


async def test_messages_of_a_failed_caller_are_redelivered(
    running: RunningBroker, client: ClientInstance
) -> None:
    await store_numbers(client, running, 1, 2, 3)

    async def consume(fail_at: int) -> list[int]:
        seen: list[int] = []
        async with LitePullConsumer(running.namesrv, group=GROUP, **FIRST) as consumer:
            await consumer.subscribe(TOPIC)
            async for message in consumer:
                seen.append(int(message.body))
                if seen[-1] == fail_at:
                    raise ValueError(seen)
                if seen[-1] == 3:
                    break
        return seen

    with pytest.raises(ValueError, match="1, 2"):
        await consume(fail_at=2)
    assert await PullApi(client, GROUP).query_offset(queue_of(running)) == 1
    assert await consume(fail_at=0) == [2, 3]
    assert await PullApi(client, GROUP).query_offset(queue_of(running)) == 3


async def test_a_poll_continues_where_a_loop_ended(
    running: RunningBroker, client: ClientInstance, consumer: LitePullConsumer
) -> None:
    await store_numbers(client, running, 1, 2, 3)
    await consumer.subscribe(TOPIC)
    async for message in consumer:
        assert message.body == b"1"
        break
    assert numbers(await polled(consumer, 2)) == [2, 3]


async def test_commits_by_hand(running: RunningBroker, client: ClientInstance) -> None:
    queue = queue_of(running)
    api = PullApi(client, GROUP)
    await store_numbers(client, running, 1, 2, 3)
    settings: LitePullSettings = {**FIRST, "auto_commit": False, "pull_batch_max": 1}
    async with LitePullConsumer(running.namesrv, group=GROUP, **settings) as consumer:
        await consumer.assign([queue])
        assert numbers(await polled(consumer, 2)) == [1, 2]
        assert not await api.query_offset(queue)
        await consumer.commit()
        assert await api.query_offset(queue) == 2
        await consumer.commit({queue: 1})
        assert (await api.query_offset(queue), await consumer.committed(queue)) == (1, 1)
        consumer.commit_soon({queue: 3})
        assert (await api.query_offset(queue), await consumer.committed(queue)) == (1, 3)
        with pytest.raises(ConfigError, match="does not read"):
            await consumer.commit({queue_of(running, 1): 1})
    assert await api.query_offset(queue) == 3


async def test_a_broker_that_restarts(
    running: RunningBroker, client: ClientInstance, consumer: LitePullConsumer
) -> None:
    await consumer.subscribe(TOPIC)
    await store_numbers(client, running, 1)
    assert numbers(await polled(consumer, 1)) == [1]
    await running.restart()
    await store_numbers(client, running, 2)
    found = numbers(await polled(consumer, 1))
    while found[-1] != 2:
        found += numbers(await polled(consumer, 1))
    assert set(found) <= {1, 2}


# ---------------------------------------------------------------------------- moving about


async def test_seeking(
    running: RunningBroker, client: ClientInstance, consumer: LitePullConsumer
) -> None:
    queue = queue_of(running)
    await store_numbers(client, running, *range(5))
    await consumer.assign([queue])
    first = await polled(consumer, 5)
    assert numbers(first) == [0, 1, 2, 3, 4]
    await consumer.seek(queue, 3)
    assert numbers(await polled(consumer, 2)) == [3, 4]
    await consumer.seek_to_begin(queue)
    assert numbers(await polled(consumer, 5)) == [0, 1, 2, 3, 4]
    await consumer.seek_to_time(queue, first[0].store_timestamp_ms)
    assert numbers(await polled(consumer, 5)) == [0, 1, 2, 3, 4]
    await consumer.seek_to_begin(queue)
    await consumer.seek_to_end(queue)
    await store_numbers(client, running, 5)
    assert numbers(await polled(consumer, 1)) == [5]
    await consumer.seek(queue, 2)
    await consumer.commit()
    assert await PullApi(client, GROUP).query_offset(queue) == 2
    with pytest.raises(OffsetOutOfRange, match="no offset 7"):
        await consumer.seek(queue, 7)
    with pytest.raises(ConfigError, match="does not read"):
        await consumer.seek(queue_of(running, 1), 0)


async def test_a_seek_in_a_loop_discards_the_rest(
    running: RunningBroker, client: ClientInstance, consumer: LitePullConsumer
) -> None:
    await store_numbers(client, running, *range(5))
    await consumer.assign([queue_of(running)])
    seen = []
    async for message in consumer:
        seen.append(int(message.body))
        if seen == [0, 1]:
            await consumer.seek(queue_of(running), 4)
        if seen[-1] == 4:
            break
    assert seen == [0, 1, 4]


async def test_a_reset_by_a_broker(
    running: RunningBroker, client: ClientInstance, consumer: LitePullConsumer
) -> None:
    queue = queue_of(running)
    await store_numbers(client, running, 1, 2)
    await consumer.subscribe(TOPIC)
    await polled(consumer, 2)
    consumer._started.reset_offsets(TOPIC, {queue: 1, MessageQueue(TOPIC, "other", 0): 1})
    assert consumer._started.status(TOPIC)[queue] == 1
    assert numbers(await polled(consumer, 1)) == [2]


async def test_pausing(
    running: RunningBroker, client: ClientInstance, consumer: LitePullConsumer
) -> None:
    one, other = queue_of(running), queue_of(running, 1)
    await consumer.assign([one, other])
    consumer.pause([one])
    await consumer.seek_to_begin(one)  # which ends the pull that was under way
    await store_numbers(client, running, 1)
    await store_numbers(client, running, 2, queue_id=1)
    assert numbers(await polled(consumer, 1)) == [2]
    assert await consumer.poll(0) == []
    consumer.resume([one])
    assert numbers(await polled(consumer, 1)) == [1]


async def test_the_cache_is_bounded(running: RunningBroker, client: ClientInstance) -> None:
    await store_numbers(client, running, *range(40))
    settings: LitePullSettings = {**FIRST, "cached_messages_max": 4, "pull_batch_max": 5}
    async with LitePullConsumer(running.namesrv, group=GROUP, **settings) as consumer:
        await consumer.assign([queue_of(running)])
        own = consumer._started.queues[queue_of(running)]
        await until(lambda: own.cached_messages == 5)
        seen: list[int] = []
        while len(seen) < 40:
            assert own.cached_messages <= 9
            seen += numbers(await consumer.poll())
    assert seen == list(range(40))
