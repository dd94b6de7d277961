"""Offsets: looking at them and moving groups, with and without clients."""

from __future__ import annotations

import pytest

from roquet.admin import Admin, QueueReset
from roquet.admin.results import QueueOffsets
from roquet.errors import BrokerRefused, BrokersFailed, ConfigError, NoRoute, NotFound
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.route import TopicRouteData
from roquet.testing.broker import RunningBroker
from tests.integration.admin.admin_kit import GROUP, TOPIC, consuming, send
from tests.unit.client.client_kit import Consumer, until


@pytest.fixture(autouse=True)
async def topic(admin: Admin, server: RunningBroker) -> None:
    """Three messages in the first of two queues, one in the other."""
    await server.create_topic(TOPIC, queues=2)
    await admin.groups.create(GROUP)
    for number in range(3):
        await send(server, b"%d" % number)
    await send(server, b"other", queue_id=1)


def queue_of(server: RunningBroker, queue_id: int = 0) -> MessageQueue:
    return MessageQueue(TOPIC, server.name, queue_id)


async def test_the_ends_of_a_queue(admin: Admin, server: RunningBroker) -> None:
    queue = queue_of(server)
    assert await admin.offsets.bounds(queue) == QueueOffsets(min_offset=0, max_offset=3)
    stored_ms = await admin.offsets.earliest_store_time_ms(queue)
    assert stored_ms == (await admin.messages.at(queue, 0))[0].store_timestamp_ms
    assert await admin.offsets.at_time(queue, 0) == 0
    assert await admin.offsets.at_time(queue, stored_ms + 3_600_000) == 3
    with pytest.raises(NotFound, match="no broker nobody"):
        await admin.offsets.bounds(MessageQueue(TOPIC, "nobody", 0))
    with pytest.raises(NoRoute):
        await admin.offsets.bounds(MessageQueue("Nothing", server.name, 0))


async def test_progress(admin: Admin, server: RunningBroker) -> None:
    queue = queue_of(server)
    assert await admin.offsets.committed(GROUP, queue) is None
    assert (await admin.offsets.progress(GROUP)).queues == {}
    server.broker.offsets.commit(GROUP, TOPIC, 0, 1)
    assert await admin.offsets.committed(GROUP, queue) == 1
    progress = await admin.offsets.progress(GROUP)
    assert {each: at.consumer_offset for each, at in progress.queues.items()} == {
        queue: 1,
        queue_of(server, 1): 0,
    }
    assert (progress.lag, progress.topics, progress.failures) == (3, [TOPIC], {})
    assert (await admin.offsets.progress(GROUP, TOPIC)).lag == 3
    everyone = (await admin.offsets.all_progress()).answers[server.name]
    assert everyone.total_diff == 3
    spans = (await admin.offsets.time_spans(GROUP, TOPIC)).answers[server.name]
    assert [each.message_queue for each in spans] == [queue, queue_of(server, 1)]


async def test_progress_names_unreachable_brokers(
    admin: Admin, server: RunningBroker, second: RunningBroker
) -> None:
    await admin.topics.create(TOPIC, queues=2)
    server.broker.offsets.commit(GROUP, TOPIC, 0, 1)
    route = await admin.topics.route(TOPIC)
    await second.stop_broker()

    async def old_route(topic: str) -> TopicRouteData:
        assert topic == TOPIC
        return route

    # Still registered, as after a crash.
    admin._calls.route = old_route  # type: ignore[method-assign]
    progress = await admin.offsets.progress(GROUP, TOPIC)
    assert list(progress.failures) == ["second"]
    assert progress.lag == 3
    with pytest.raises(BrokersFailed) as failed:
        await admin.offsets.reset(GROUP, TOPIC, "earliest")
    assert failed.value.succeeded == (server.name,)
    with pytest.raises(BrokersFailed):
        await admin.offsets.plan_reset(GROUP, TOPIC, "earliest")


async def test_a_group_without_clients_is_moved(admin: Admin, server: RunningBroker) -> None:
    first, other = queue_of(server), queue_of(server, 1)
    plan = await admin.offsets.plan_reset(GROUP, TOPIC, "latest")
    assert plan == [
        QueueReset(queue=first, committed_offset=-1, target_offset=3),
        QueueReset(queue=other, committed_offset=-1, target_offset=1),
    ]
    assert await admin.offsets.committed(GROUP, first) is None
    assert await admin.offsets.reset(GROUP, TOPIC, "latest") == {first: 3, other: 1}
    assert await admin.offsets.committed(GROUP, first) == 3
    assert await admin.offsets.reset(GROUP, TOPIC, "earliest") == {first: 0, other: 0}
    assert (await admin.offsets.progress(GROUP)).lag == 4
    second_ms = (await admin.messages.at(first, 1))[0].store_timestamp_ms
    moved = await admin.offsets.reset(GROUP, TOPIC, second_ms)
    assert moved[first] == await admin.offsets.at_time(first, second_ms)


@pytest.mark.parametrize("server_side", ["true", "false"])
async def test_both_ways_of_moving_without_clients(
    admin: Admin, server: RunningBroker, server_side: str
) -> None:
    await admin.settings.set_brokers({"useServerSideResetOffset": server_side})
    moved = await admin.offsets.reset(GROUP, TOPIC, "latest")
    assert sorted(moved.values()) == [1, 3]
    assert await admin.offsets.committed(GROUP, queue_of(server)) == 3
    await admin.offsets.reset_queue(GROUP, queue_of(server), 2)
    assert await admin.offsets.committed(GROUP, queue_of(server)) == 2
    assert await admin.offsets.committed(GROUP, queue_of(server, 1)) == 1


async def test_running_clients_are_notified(admin: Admin, server: RunningBroker) -> None:
    await admin.settings.set_brokers({"useServerSideResetOffset": "false"})
    for queue_id, at in ((0, 3), (1, 1)):
        server.broker.offsets.commit(GROUP, TOPIC, queue_id, at)
    consumer = Consumer(GROUP, TOPIC)
    async with consuming(server, consumer):
        await admin.offsets.reset(GROUP, TOPIC, "earliest")
        await until(lambda: bool(consumer.resets))
        assert consumer.resets == [(TOPIC, {queue_of(server): 0, queue_of(server, 1): 0})]
        with pytest.raises(ConfigError, match="Clients of the group"):
            await admin.offsets.reset_queue(GROUP, queue_of(server), 2)
        assert await admin.offsets.committed(GROUP, queue_of(server)) == 3


async def test_offsets_in_the_memory_of_clients(admin: Admin, server: RunningBroker) -> None:
    nobody = await admin.offsets.of_clients(GROUP, TOPIC)
    assert isinstance(nobody.failures[server.name], BrokerRefused)
    consumer = Consumer(GROUP, TOPIC)
    consumer.offsets[queue_of(server)] = 2
    async with consuming(server, consumer) as client:
        found = await admin.offsets.of_clients(GROUP, TOPIC)
        assert found.answers == {server.name: {client.client_id: {queue_of(server): 2}}}


async def test_bad_positions_are_refused(admin: Admin, server: RunningBroker) -> None:
    for bad in (-1, "yesterday"):
        with pytest.raises(ConfigError, match="Cannot reset to"):
            await admin.offsets.reset(GROUP, TOPIC, bad)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="Cannot reset to"):
            await admin.offsets.plan_reset(GROUP, TOPIC, bad)  # type: ignore[arg-type]
    for at in (-1, 4):
        with pytest.raises(ConfigError, match="no offset"):
            await admin.offsets.reset_queue(GROUP, queue_of(server), at)
    with pytest.raises(BrokerRefused):
        await admin.offsets.reset("unknown", TOPIC, "earliest")
    with pytest.raises(NoRoute):
        await admin.offsets.reset(GROUP, "Nothing", "earliest")


async def test_a_group_takes_the_offsets_of_another(admin: Admin, server: RunningBroker) -> None:
    with pytest.raises(NotFound, match="committed nothing"):
        await admin.offsets.clone(GROUP, "auditing", TOPIC)
    server.broker.offsets.commit(GROUP, TOPIC, 0, 2)
    await admin.groups.create("auditing")
    assert await admin.offsets.clone(GROUP, "auditing", TOPIC) == [server.name]
    assert await admin.offsets.committed("auditing", queue_of(server)) == 2
    least = await admin.offsets.least_of_others(TOPIC, GROUP, without=["auditing"])
    assert least.failures == {}
