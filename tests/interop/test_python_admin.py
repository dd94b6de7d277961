"""Python's admin against servers of Roquet and of Apache RocketMQ; each scenario is the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count

import pytest

from roquet.admin import Admin, StatsName, TrackType
from roquet.client import ClientInstance, ClientOptions, Message, Producer, SendResult
from roquet.errors import BrokerRefused, ConfigError, NoRoute, NotFound
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.client import CMResult
from tests.interop.cluster import APACHE, ROQUET, Cluster
from tests.unit.client.client_kit import Consumer, until

pytestmark = pytest.mark.interop

TIMEOUT_MS = 30_000
LATER_MS = 4_102_444_800_000
QUEUES = 2

_numbers = count(1)


@pytest.fixture(scope="module", params=[ROQUET, APACHE])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    if request.param == APACHE:
        request.getfixturevalue("java_toolkit")
    folder = tmp_path_factory.mktemp(f"python-admin-{request.param}")
    with Cluster(request.param, request.param, folder) as started:
        yield started


def options_of(servers: Cluster, **changes: str) -> ClientOptions:
    return ClientOptions(namesrv=servers.namesrv, request_timeout_ms=TIMEOUT_MS, **changes)  # type: ignore[arg-type]


async def eventually(work: Callable[[], Awaitable[object]]) -> None:
    """Retry until the condition holds; the test's time-out bounds it."""
    while not await work():  # noqa: ASYNC110 - other processes have no event to wait for
        await asyncio.sleep(0.05)


@pytest.fixture
async def admin(servers: Cluster) -> AsyncIterator[Admin]:
    async with Admin(options_of(servers)) as running:
        await eventually(running.clusters.brokers)
        yield running


@pytest.fixture
async def topic(admin: Admin) -> str:
    name = f"PythonAdmin_{next(_numbers)}"
    await admin.topics.create(name, queues=QUEUES)
    return name


@pytest.fixture
async def group(admin: Admin) -> str:
    name = f"python_admin_{next(_numbers)}"
    await admin.groups.create(name, retry_max_times=5)
    return name


async def send(servers: Cluster, topic: str, *bodies: bytes, keys: str = "k") -> list[SendResult]:
    """Messages in the first queue."""
    queue = MessageQueue(topic, servers.broker_name, 0)
    async with Producer(
        options_of(servers), group="python_admin_sales", send_timeout_ms=TIMEOUT_MS
    ) as producer:
        return [
            await producer.send(Message(topic, body, keys=keys), queue=queue) for body in bodies
        ]


async def wait_stored(admin: Admin, queue: MessageQueue, count: int) -> None:
    """Wait until a queue has so many messages: a Java broker acknowledges them before that."""

    async def is_stored() -> bool:
        return (await admin.offsets.bounds(queue)).max_offset == count

    await eventually(is_stored)


@asynccontextmanager
async def consuming(servers: Cluster, consumer: Consumer) -> AsyncIterator[ClientInstance]:
    options = options_of(servers, instance_name=f"blue{next(_numbers)}")
    async with await ClientInstance.open(options) as client:
        for topic in consumer.topics:
            await client.routes.route(topic)
        client.register_consumer(consumer.group, consumer)
        await client.heartbeat()
        yield client


async def test_clusters(servers: Cluster, admin: Admin) -> None:
    (broker,) = await admin.clusters.brokers()
    assert (broker.name, broker.address) == (servers.broker_name, servers.broker.address)
    assert await admin.clusters.names() == {broker.cluster: [broker.name]}
    members = await admin.clusters.members(broker.cluster, broker.name)
    assert members.broker_addrs == {0: broker.address}

    async def has_figures() -> bool:
        # A Java broker has none in its first second, and fails.
        return not (await admin.clusters.runtime()).failures

    await eventually(has_figures)
    runtime = (await admin.clusters.runtime()).complete("Reading")[broker.name]
    assert {"brokerVersionDesc", "putTps", "commitLogMaxOffset"} <= runtime.keys()
    replication = (await admin.clusters.replication(broker=broker.address)).answers
    assert replication[broker.address].master
    assert await admin.clusters.clean_unused_topics() == [broker.name]
    assert await admin.clusters.clean_expired_queues() == [broker.name]


async def test_write_permission(servers: Cluster, admin: Admin, topic: str) -> None:
    assert await admin.clusters.forbid_writes(servers.broker_name) > 0
    assert [each.perm for each in (await admin.topics.route(topic)).queue_datas] == [4]
    assert await admin.clusters.allow_writes(servers.broker_name) > 0
    assert [each.perm for each in (await admin.topics.route(topic)).queue_datas] == [6]


async def test_topics(servers: Cluster, admin: Admin, topic: str) -> None:
    name = servers.broker_name
    assert topic in await admin.topics.names()
    (broker,) = await admin.clusters.brokers()
    assert topic in await admin.topics.names(cluster=broker.cluster)
    assert {"TBW102", name} <= set(await admin.topics.system_names())
    config = (await admin.topics.config(topic)).complete("Reading")[name]
    assert (config.read_queue_nums, config.perm, config.order) == (QUEUES, 6, False)
    config.perm, config.order = 4, True
    assert await admin.topics.put(config) == [name]
    assert (await admin.topics.configs()).complete("Reading")[name][topic].perm == 4
    assert await admin.kv.get("ORDER_TOPIC_CONFIG", topic) == f"{name}:{QUEUES}"
    assert await admin.topics.delete(topic) == [name]
    assert topic not in (await admin.topics.configs()).complete("Reading")[name]
    assert await admin.kv.get("ORDER_TOPIC_CONFIG", topic) is None
    with pytest.raises(NoRoute):
        await admin.topics.route(topic)


async def test_groups(servers: Cluster, admin: Admin, topic: str, group: str) -> None:
    name = servers.broker_name
    assert group in await admin.groups.names()
    config = (await admin.groups.config(group)).complete("Reading")[name]
    assert (config.group_name, config.retry_max_times) == (group, 5)
    config.consume_broadcast_enable = False
    await admin.groups.put(config)
    found = (await admin.groups.configs()).complete("Reading")[name][group]
    assert not found.consume_broadcast_enable
    assert (await admin.groups.readable(group, topic)).answers == {name: True}
    await admin.groups.set_readable(group, topic, readable=False)
    assert (await admin.groups.readable(group, topic)).answers == {name: False}
    assert await admin.groups.delete(group, with_topics=True) == [name]
    assert group not in await admin.groups.names()


async def test_settings_and_values(servers: Cluster, admin: Admin) -> None:
    name = servers.broker_name
    assert (await admin.settings.brokers()).complete("Reading")[name]["brokerName"] == name
    await admin.settings.set_brokers({"fileReservedTime": "47"})
    assert (await admin.settings.brokers()).answers[name]["fileReservedTime"] == "47"
    with pytest.raises(BrokerRefused):
        await admin.settings.set_brokers({"brokerConfigPath": "elsewhere"})
    found = (await admin.settings.name_servers()).complete("Reading")[servers.namesrv]
    assert "kvConfigPath" in found
    with pytest.raises(BrokerRefused):
        await admin.settings.set_name_servers({"kvConfigPath": "elsewhere"})
    await admin.kv.set("colours", "sky", "blue")
    assert await admin.kv.items("colours") == {"sky": "blue"}
    await admin.kv.delete("colours", "sky")
    assert await admin.kv.get("colours", "sky") is None


async def test_messages(servers: Cluster, admin: Admin, topic: str) -> None:
    first, second = await send(servers, topic, b"one", b"two", keys="k17")
    queue = first.queue

    async def is_indexed() -> bool:
        return len((await admin.messages.by_key(topic, "k17")).messages) == 2

    await eventually(is_indexed)
    for message in (
        await admin.messages.by_id(topic, second.message_id),
        await admin.messages.by_id(topic, second.offset_message_id),
        await admin.messages.by_offset_id(second.offset_message_id),
        *await admin.messages.at(queue, 1),
    ):
        assert (message.body, message.message_id) == (b"two", second.message_id)
        assert message.offset_message_id == second.offset_message_id
    found = await admin.messages.by_time(topic, 0, LATER_MS)
    assert [each.body for each in found.messages] == [b"one", b"two"]
    assert (await admin.messages.by_time(topic, LATER_MS - 1, LATER_MS)).messages == []
    assert (await admin.messages.by_key(topic, "k18")).messages == []
    entries = await admin.messages.queue_entries(queue, 0)
    assert entries.queue_data is not None
    assert len(entries.queue_data) == 2
    with pytest.raises(NotFound):
        await admin.messages.by_id(topic, "7F00000100002A9F0000000000000001")
    with pytest.raises(NotFound):
        await admin.messages.queue_entries(queue, 2)
    stats = await admin.topics.stats(topic)
    assert (stats.messages, len(stats.queues)) == (2, QUEUES)


async def test_offsets_of_a_group_without_clients(
    servers: Cluster, admin: Admin, topic: str, group: str
) -> None:
    await send(servers, topic, b"1", b"2", b"3")
    first, other = (MessageQueue(topic, servers.broker_name, each) for each in range(QUEUES))
    await wait_stored(admin, first, 3)
    assert await admin.offsets.committed(group, first) is None
    plan = await admin.offsets.plan_reset(group, topic, "latest")
    assert [(each.queue, each.committed_offset, each.target_offset) for each in plan] == [
        (first, -1, 3),
        (other, -1, 0),
    ]
    for server_side in ("true", "false"):
        await admin.settings.set_brokers({"useServerSideResetOffset": server_side})
        assert await admin.offsets.reset(group, topic, "latest") == {first: 3, other: 0}
        assert (await admin.offsets.progress(group)).lag == 0
        await admin.offsets.reset_queue(group, first, 1)
        assert await admin.offsets.committed(group, first) == 1
        assert (await admin.offsets.progress(group, topic)).lag == 2
        moved = await admin.offsets.reset(group, topic, 0)
        assert moved == {first: 0, other: 0}
    assert await admin.offsets.committed(group, first) == 0
    assert (await admin.groups.topics(group)).answers == {servers.broker_name: [topic]}
    assert (await admin.topics.groups(topic)).answers == {servers.broker_name: [group]}
    spans = (await admin.offsets.time_spans(group, topic)).complete("Reading")
    assert len(spans[servers.broker_name]) == QUEUES
    assert (await admin.offsets.all_progress()).complete("Reading")
    await admin.groups.create(f"{group}_2")
    await admin.offsets.reset_queue(group, first, 2)
    await admin.offsets.clone(group, f"{group}_2", topic)
    assert await admin.offsets.committed(f"{group}_2", first) == 2
    with pytest.raises(ConfigError):
        await admin.offsets.reset_queue(group, first, 4)


async def test_running_clients(servers: Cluster, admin: Admin, topic: str, group: str) -> None:
    name = servers.broker_name
    await send(servers, topic, b"1")
    await wait_stored(admin, MessageQueue(topic, name, 0), 1)
    await admin.settings.set_brokers({"useServerSideResetOffset": "false"})
    await admin.offsets.reset(group, topic, "latest")
    assert await admin.clients.consumer_ids(group) == []
    assert (await admin.clients.producers("python_admin_nobody")).answers[name].connection_set == []
    consumer = Consumer(group, topic)
    async with consuming(servers, consumer) as client:
        assert await admin.clients.consumer_ids(group) == [client.client_id]
        info = await admin.clients.running_info(group, client.client_id)
        assert info.properties["PROP_CONSUMER_START_TIMESTAMP"] == "17"
        (message,) = await admin.messages.at(MessageQueue(topic, name, 0), 0)
        result = await admin.clients.consume(group, message)
        assert result.consume_result is CMResult.CR_SUCCESS
        assert [each.body for each, _ in consumer.consumed] == [b"1"]
        subscription = (await admin.groups.subscription(group, topic)).answers[name]
        assert subscription is not None
        (track,) = await admin.messages.tracks(message)
        assert (track.group, track.type) == (group, TrackType.CONSUMED)
        consumer.offsets[MessageQueue(topic, name, 0)] = 7
        found = (await admin.offsets.of_clients(group, topic)).complete("Reading")[name]
        assert found == {client.client_id: {MessageQueue(topic, name, 0): 7}}
        await admin.offsets.reset(group, topic, "earliest")
        await until(lambda: bool(consumer.resets))
        assert consumer.resets[0][1][MessageQueue(topic, name, 0)] == 0
        with pytest.raises(ConfigError):
            await admin.offsets.reset_queue(group, MessageQueue(topic, name, 0), 0)


async def test_producers_and_counters(servers: Cluster, admin: Admin, topic: str) -> None:
    name = servers.broker_name
    async with Producer(
        options_of(servers), group="python_admin_shop", send_timeout_ms=TIMEOUT_MS
    ) as producer:
        await producer.send(Message(topic, b"1"))

        async def is_seen() -> bool:
            found = (await admin.clients.producers("python_admin_shop")).answers[name]
            return bool(found.connection_set)

        await eventually(is_seen)
        everyone = (await admin.clients.all_producers()).complete("Reading")[name]
        assert "python_admin_shop" in everyone
    assert (await admin.stats.topic_puts(topic)).failures == {}
    assert (await admin.stats.view(StatsName.TOPIC_PUT_SIZE, "Nothing")).failures == {}


async def test_dead_letters(servers: Cluster, admin: Admin, topic: str, group: str) -> None:
    assert (await admin.dead_letters.messages(group)).messages == []
    await admin.topics.create(f"%DLQ%{group}", queues=1)
    await send(servers, f"%DLQ%{group}", b"lost")
    assert group in await admin.dead_letters.groups()

    async def is_there() -> bool:
        return (await admin.dead_letters.stats(group)).messages == 1

    await eventually(is_there)
    (letter,) = (await admin.dead_letters.messages(group)).messages
    consumer = Consumer(group, topic)
    async with consuming(servers, consumer):
        await admin.dead_letters.redeliver(group, letter)
    assert [each.body for each, _ in consumer.consumed] == [b"lost"]
