"""Messages, dead letters, connected clients and counters."""

from __future__ import annotations

import pytest
from msgspec import structs

from roquet.admin import Admin, StatsName, TrackType
from roquet.errors import BrokerRefused, ConfigError, NoRoute, NotFound, ProtocolError
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.remoting.bodies.broker import BrokerStatsData
from roquet.remoting.bodies.client import CMResult, ConsumerData, ConsumeType, MessageModel
from roquet.testing.broker import RunningBroker
from tests.integration.admin.admin_kit import GROUP, TOPIC, consuming, producing, send
from tests.unit.client.client_kit import Consumer

IDS = [f"7F00000100002A9F{number:016X}" for number in range(4)]
LATER_MS = 4_102_444_800_000


@pytest.fixture(autouse=True)
async def topic(admin: Admin, server: RunningBroker) -> None:
    await server.create_topic(TOPIC, queues=2)
    await admin.groups.create(GROUP)


# ------------------------------------------------------------------------------------ messages


async def test_by_either_id(admin: Admin, server: RunningBroker) -> None:
    await send(server, b"zero", message_id=IDS[0])
    sent = await send(server, b"one", message_id=IDS[1])
    for found in (
        await admin.messages.by_id(TOPIC, IDS[1]),
        await admin.messages.by_id(TOPIC, sent.offset_message_id),
        await admin.messages.by_offset_id(sent.offset_message_id),
    ):
        assert (found.body, found.message_id, found.broker_name) == (b"one", IDS[1], server.name)


async def test_unknown_ids(admin: Admin, server: RunningBroker) -> None:
    sent = await send(server, b"one", message_id=IDS[0])
    beyond = sent.offset_message_id[:16] + f"{1 << 40:016X}"
    for wrong in (IDS[3], beyond, "short"):
        with pytest.raises(NotFound, match="There is no message"):
            await admin.messages.by_id(TOPIC, wrong)
    with pytest.raises(NotFound):
        await admin.messages.by_offset_id(beyond)
    with pytest.raises(NotFound, match="No broker of the cluster"):
        await admin.messages.by_offset_id(IDS[0])
    with pytest.raises(ProtocolError):
        await admin.messages.by_offset_id("short")
    with pytest.raises(NoRoute):
        await admin.messages.by_id("Nothing", IDS[0])


async def test_by_key_on_all_brokers(
    admin: Admin, server: RunningBroker, second: RunningBroker
) -> None:
    await admin.topics.create(TOPIC, queues=2)
    await send(server, b"here", keys="17 18")
    await send(second, b"there", keys="17")
    await send(second, b"else", keys="19")
    found = await admin.messages.by_key(TOPIC, "17")
    assert sorted((each.broker_name, each.body) for each in found.messages) == [
        (server.name, b"here"),
        ("second", b"there"),
    ]
    assert (found.failures, found.is_cut) == ({}, False)
    assert (await admin.messages.by_key(TOPIC, "20")).messages == []
    last_ms = max(each.store_timestamp_ms for each in found.messages)
    assert (await admin.messages.by_key(TOPIC, "17", begin_ms=last_ms + 60_000)).messages == []
    with pytest.raises(ConfigError):
        await admin.messages.by_key(TOPIC, "17", max_messages=0)


async def test_by_time_and_offset(admin: Admin, server: RunningBroker) -> None:
    for number in range(40):
        await send(server, b"%d" % number, queue_id=number % 2)
    found = await admin.messages.by_time(TOPIC, 0, LATER_MS)
    assert sorted(int(each.body) for each in found.messages) == list(range(40))
    times = [each.store_timestamp_ms for each in found.messages]
    assert times == sorted(times)
    cut = await admin.messages.by_time(TOPIC, 0, LATER_MS, max_messages=5)
    assert (len(cut.messages), cut.is_cut) == (5, True)
    assert {each.queue_offset < 5 for each in cut.messages} == {True}
    assert (await admin.messages.by_time(TOPIC, 0, times[0] - 1)).messages == []
    assert (await admin.messages.by_time(TOPIC, times[-1] + 1, LATER_MS)).messages == []
    with pytest.raises(ConfigError, match="ends before"):
        await admin.messages.by_time(TOPIC, 2, 1)
    queue = MessageQueue(TOPIC, server.name, 1)
    assert [each.body for each in await admin.messages.at(queue, 18, max_messages=9)] == [
        b"37",
        b"39",
    ]
    assert len(await admin.messages.at(queue, 0, max_messages=40)) == 20
    assert await admin.messages.at(queue, 20) == []
    assert server.broker.offsets.table == {}


async def test_entries_of_a_queue(admin: Admin, server: RunningBroker) -> None:
    for number in range(3):
        await send(server, b"%d" % number)
    queue = MessageQueue(TOPIC, server.name, 0)
    entries = await admin.messages.queue_entries(queue, 1)
    assert (entries.min_queue_index, entries.max_queue_index) == (0, 3)
    assert entries.queue_data is not None
    messages = await admin.messages.at(queue, 1, max_messages=2)
    assert [each.physical_offset for each in entries.queue_data] == [
        each.physical_offset for each in messages
    ]
    with pytest.raises(NotFound, match="no offset 3"):
        await admin.messages.queue_entries(queue, 3)


async def test_only_half_messages_are_resumed(admin: Admin, server: RunningBroker) -> None:
    await send(server, b"whole")
    (message,) = await admin.messages.at(MessageQueue(TOPIC, server.name, 0), 0)
    with pytest.raises(BrokerRefused):
        await admin.messages.resume_check(message)


async def test_the_track_of_a_message(admin: Admin, server: RunningBroker) -> None:
    await send(server, b"one")
    (message,) = await admin.messages.at(MessageQueue(TOPIC, server.name, 0), 0)
    assert await admin.messages.tracks(message) == []
    server.broker.offsets.commit(GROUP, TOPIC, 0, 0)

    async def track() -> TrackType:
        (found,) = await admin.messages.tracks(message)
        assert (found.group, found.failure) == (GROUP, None)
        return found.type

    assert await track() is TrackType.NOT_ONLINE
    async with consuming(server, Consumer(GROUP, TOPIC)):
        assert await track() is TrackType.NOT_CONSUMED_YET
        server.broker.offsets.commit(GROUP, TOPIC, 0, 1)
        assert await track() is TrackType.CONSUMED


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"message_model": MessageModel.BROADCASTING}, TrackType.CONSUME_BROADCASTING),
        ({"consume_type": ConsumeType.CONSUME_ACTIVELY}, TrackType.PULL),
        (
            {
                "subscription_data_set": [
                    SubscriptionData(topic=TOPIC, sub_string="eu", tags_set=["eu"])
                ]
            },
            TrackType.CONSUMED_BUT_FILTERED,
        ),
    ],
)
async def test_the_track_of_a_message_in_other_groups(
    admin: Admin, server: RunningBroker, changes: dict[str, object], expected: TrackType
) -> None:
    class Other(Consumer):
        def heartbeat_data(self) -> ConsumerData:
            return structs.replace(super().heartbeat_data(), **changes)

    await send(server, b"one")
    server.broker.offsets.commit(GROUP, TOPIC, 0, 1)
    (message,) = await admin.messages.at(MessageQueue(TOPIC, server.name, 0), 0)
    async with consuming(server, Other(GROUP, TOPIC)):
        (found,) = await admin.messages.tracks(message)
        assert found.type is expected


# ------------------------------------------------------------------------------------- clients


async def test_no_client_is_connected(admin: Admin, server: RunningBroker) -> None:
    assert (await admin.clients.consumers(GROUP)).answers[server.name].connection_set == []
    assert (await admin.clients.producers("shop")).answers[server.name].connection_set == []
    assert (await admin.clients.all_producers()).answers == {server.name: {}}
    assert await admin.clients.consumer_ids(GROUP) == []
    with pytest.raises(NotFound, match="No client of the group"):
        await admin.clients.running_info(GROUP, "10.0.0.7@blue")


async def test_consumers_respond(admin: Admin, server: RunningBroker) -> None:
    consumer = Consumer(GROUP, TOPIC)
    async with consuming(server, consumer):
        assert await admin.clients.consumer_ids(GROUP) == ["10.0.0.7@blue"]
        found = (await admin.clients.consumers(GROUP)).answers[server.name]
        assert list(found.subscription_table) == [TOPIC]
        subscription = (await admin.groups.subscription(GROUP, TOPIC)).answers[server.name]
        assert subscription is not None
        assert subscription.sub_string == "*"
        info = await admin.clients.running_info(GROUP, "10.0.0.7@blue", with_stacks=True)
        assert info.properties["PROP_CONSUMER_START_TIMESTAMP"] == "17"
        assert info.jstack
        await send(server, b"again")
        (message,) = await admin.messages.at(MessageQueue(TOPIC, server.name, 0), 0)
        result = await admin.clients.consume(GROUP, message)
        assert result.consume_result is CMResult.CR_SUCCESS
        assert [each.body for each, _ in consumer.consumed] == [b"again"]
        with pytest.raises(NotFound):
            await admin.clients.consume(GROUP, message, client_id="10.0.0.7@green")
        with pytest.raises(NotFound):
            await admin.clients.running_info(GROUP, "10.0.0.7@green")


async def test_producers_are_listed(admin: Admin, server: RunningBroker) -> None:
    async with producing(server, "shop", TOPIC):
        found = (await admin.clients.producers("shop")).answers[server.name]
        assert [each.client_id for each in found.connection_set] == ["10.0.0.8@red"]
        everyone = (await admin.clients.all_producers()).answers[server.name]
        assert [each.client_id for each in everyone["shop"]] == ["10.0.0.8@red"]


# -------------------------------------------------------------------------------- dead letters


async def test_dead_letters(admin: Admin, server: RunningBroker) -> None:
    assert await admin.dead_letters.groups() == []
    assert (await admin.dead_letters.stats(GROUP)).messages == 0
    assert (await admin.dead_letters.messages(GROUP)).messages == []
    await server.create_topic(f"%DLQ%{GROUP}", queues=1)
    await send(server, b"lost", topic=f"%DLQ%{GROUP}")
    assert await admin.dead_letters.groups() == [GROUP]
    assert (await admin.dead_letters.stats(GROUP)).messages == 1
    (letter,) = (await admin.dead_letters.messages(GROUP)).messages
    assert letter.body == b"lost"
    with pytest.raises(NotFound):
        await admin.dead_letters.redeliver(GROUP, letter)
    consumer = Consumer(GROUP, TOPIC)
    async with consuming(server, consumer):
        await admin.dead_letters.redeliver(GROUP, letter)
    assert [each.body for each, _ in consumer.consumed] == [b"lost"]


# -------------------------------------------------------------------------------------- counters


async def test_counters(admin: Admin, server: RunningBroker) -> None:
    unknown = await admin.stats.view("TOPIC_PUT_NUMS", "Nothing")
    assert unknown.answers == {server.name: BrokerStatsData()}
    await send(server, b"one")
    list(server.broker.stats.sampling())
    found = (await admin.stats.topic_puts(TOPIC)).answers[server.name]
    assert found.stats_minute is not None
    assert (await admin.stats.group_gets(GROUP, TOPIC)).failures == {}
    whole = await admin.stats.view(StatsName.BROKER_PUT_NUMS, server.cluster)
    assert whole.answers[server.name].stats_minute is not None
