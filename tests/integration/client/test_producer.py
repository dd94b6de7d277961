"""A producer against a real name server and broker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from roquet.client import (
    ClientOptions,
    Compression,
    Message,
    MessageQueue,
    Producer,
    ProducerOptions,
    SendStatus,
    select_by_hash,
)
from roquet.client.producer_options import ProducerSettings
from roquet.errors import (
    BadMessage,
    BadName,
    ClientClosed,
    ConfigError,
    ConnectFailed,
    MessageTooLarge,
    NoRoute,
)
from roquet.model import properties as prop
from roquet.model.topic_config import PERM_READ
from roquet.testing.broker import RunningBroker
from tests.integration.client.push_kit import TOPIC
from tests.integration.client.server_kit import stored, stored_soon
from tests.patience import TIMEOUT_MS
from tests.unit.client.client_kit import until
from tests.unit.client.fake_cluster import fake_cluster
from tests.unit.client.waits_kit import Waits


@pytest.fixture
async def producer(a_broker: RunningBroker) -> AsyncIterator[Producer]:
    async with Producer(a_broker.namesrv, group="billing", send_timeout_ms=TIMEOUT_MS) as running:
        yield running


async def test_a_message_is_stored_unchanged(a_broker: RunningBroker, producer: Producer) -> None:
    message = Message(
        TOPIC, b"paid", tags="eu", keys=["17", "18"], properties={"colour": "blå"}, flag=7
    )
    result = await producer.send(message)
    assert result.status is SendStatus.SEND_OK
    assert (result.queue.topic, result.queue.broker_name) == (TOPIC, a_broker.name)
    (found,) = await stored_soon(a_broker, TOPIC, 1, result.queue.queue_id)
    assert (found.body, found.tags, found.keys, found.flag) == (b"paid", "eu", ["17", "18"], 7)
    assert found.properties["colour"] == "blå"
    assert found.message_id == result.message_id
    assert found.offset_message_id == result.offset_message_id
    assert found.queue_offset == result.queue_offset
    assert message.system_properties is None


async def test_queues_take_turns(a_broker: RunningBroker, producer: Producer) -> None:
    results = [await producer.send(Message(TOPIC, b"x")) for _ in range(8)]
    ids = [result.queue.queue_id for result in results]
    assert ids[:4] == ids[4:]
    assert sorted(ids[:4]) == [0, 1, 2, 3]
    assert await producer.queues(TOPIC) == [
        MessageQueue(TOPIC, a_broker.name, queue_id) for queue_id in range(4)
    ]


async def test_a_queue_is_chosen_by_id_selector_or_key(
    a_broker: RunningBroker, producer: Producer
) -> None:
    message = Message(TOPIC, b"x")
    queue = MessageQueue(TOPIC, a_broker.name, 2)
    assert (await producer.send(message, queue=queue)).queue == queue
    seen: list[object] = []

    def last(queues: Sequence[MessageQueue], given: Message, arg: object) -> MessageQueue:
        seen.extend((given is message, arg))
        return queues[-1]

    assert (await producer.send(message, selector=last, arg=5)).queue.queue_id == 3
    assert seen == [True, 5]
    queues = await producer.queues(TOPIC)
    wanted = select_by_hash(queues, message, "order-17")
    for _ in range(3):
        assert (await producer.send(message, sharding_key="order-17")).queue == wanted
    keyed = Message(TOPIC, b"x", sharding_key="order-17")
    assert (await producer.send(keyed)).queue == wanted
    found = await stored_soon(a_broker, TOPIC, 4, wanted.queue_id)
    assert found[-1].properties[prop.SHARDING_KEY] == "order-17"


async def test_a_selector_that_fails_is_a_typed_error(producer: Producer) -> None:
    def bad(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        del queues, message, arg
        raise KeyError("x")

    with pytest.raises(BadMessage, match="selector failed"):
        await producer.send(Message(TOPIC, b"x"), selector=bad)
    with pytest.raises(BadMessage, match="returned no queue"):
        await producer.send(Message(TOPIC, b"x"), selector=lambda *_: None)  # type: ignore[arg-type]
    with pytest.raises(BadMessage, match="different topics"):
        await producer.send(Message(TOPIC, b"x"), queue=MessageQueue("Other", "a", 0))


async def test_one_way(a_broker: RunningBroker, producer: Producer) -> None:
    queue = MessageQueue(TOPIC, a_broker.name, 1)
    await producer.send_oneway(Message(TOPIC, b"gone"), queue=queue)
    assert [each.body for each in await stored_soon(a_broker, TOPIC, 1, 1)] == [b"gone"]
    await producer.send_oneway(Message(TOPIC, b"anywhere"))


@pytest.mark.parametrize("kind", list(Compression))
async def test_long_bodies_are_compressed_and_read_back(
    a_broker: RunningBroker, kind: Compression
) -> None:
    if kind is not Compression.ZLIB:
        pytest.importorskip("lz4.frame" if kind is Compression.LZ4 else "zstandard")
    queue = MessageQueue(TOPIC, a_broker.name, 0)
    long, short = b"long " * 2_000, b"s" * 4_095
    async with Producer(a_broker.namesrv, group="g", compression=kind) as producer:
        await producer.send(Message(TOPIC, long), queue=queue)
        await producer.send(Message(TOPIC, short), queue=queue)
    packed, plain = await stored_soon(a_broker, TOPIC, 2)
    assert packed.sys_flag & kind.sys_flag == kind.sys_flag
    assert len(packed.raw_body) < len(long) // 10
    assert packed.body == long
    assert (plain.sys_flag, plain.raw_body) == (0, short)


async def test_bodies_that_compression_would_lengthen_are_sent_as_they_are(
    a_broker: RunningBroker,
) -> None:
    queue = MessageQueue(TOPIC, a_broker.name, 0)
    async with Producer(a_broker.namesrv, group="g", compress_over_bytes=1) as producer:
        await producer.send(Message(TOPIC, b"abc"), queue=queue)
    (found,) = await stored_soon(a_broker, TOPIC, 1)
    assert (found.sys_flag, found.raw_body) == (0, b"abc")


async def test_a_batch_is_stored_in_order(a_broker: RunningBroker, producer: Producer) -> None:
    messages = [Message(TOPIC, b"%d" % number, keys=f"k{number}") for number in range(5)]
    results = await producer.send_batch(messages)
    queue_id = results[0].queue.queue_id
    found = await stored_soon(a_broker, TOPIC, 5, queue_id)
    assert [each.body for each in found] == [each.body for each in messages]
    assert [each.message_id for each in found] == [each.message_id for each in results]
    assert [each.queue_offset for each in results] == [0, 1, 2, 3, 4]
    assert [each.offset_message_id for each in found] == [
        each.offset_message_id for each in results
    ]


async def test_a_long_batch_is_split(a_broker: RunningBroker) -> None:
    async with Producer(a_broker.namesrv, group="g", max_message_bytes=2_000) as producer:
        messages = [Message(TOPIC, b"x" * 600) for _ in range(7)]
        queue = MessageQueue(TOPIC, a_broker.name, 3)
        results = await producer.send_batch(messages, queue=queue)
        assert [each.queue_offset for each in results] == list(range(7))
        assert len(await stored_soon(a_broker, TOPIC, 7, 3)) == 7
        with pytest.raises(MessageTooLarge):
            await producer.send_batch([*messages[:3], Message(TOPIC, b"x" * 2_001)], queue=queue)
        assert len(stored(a_broker, TOPIC, 3)) == 7


async def test_a_batch_for_a_queue_may_have_several_sharding_keys(
    a_broker: RunningBroker, producer: Producer
) -> None:
    queue = MessageQueue(TOPIC, a_broker.name, 1)
    messages = [Message(TOPIC, b"x", sharding_key=key) for key in ("a", "b")]
    results = await producer.send_batch(messages, queue=queue)
    assert [result.queue for result in results] == [queue, queue]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "at least one"),
        ([Message(TOPIC, b"x"), Message("Other", b"x")], "the same topic"),
        ([Message(TOPIC, b"x", delay_level=1)], "delayed message"),
        ([Message(TOPIC, b"x", delay_ms=5)], "delayed message"),
        ([Message(TOPIC, b"x"), Message(TOPIC, b"x", wait_store_ok=False)], "wait_store_ok"),
        ([Message(TOPIC, b"x", sharding_key="a"), Message(TOPIC, b"x")], "the same sharding key"),
        ([Message("%RETRY%g", b"x")], "cannot be in a batch"),
        ([Message(TOPIC, b"x", keys=[1])], "type"),  # type: ignore[list-item]
        ([Message(TOPIC, "text")], "bytes"),  # type: ignore[arg-type]
    ],
)
async def test_invalid_batches(producer: Producer, messages: list[Message], words: str) -> None:
    with pytest.raises(BadMessage, match=words):
        await producer.send_batch(messages)


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        (Message("", b"x"), BadName, "blank"),
        (Message("no spaces", b"x"), BadName, "illegal"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), BadName, "forbidden"),
        (Message(TOPIC, b""), BadMessage, "non-empty"),
        (Message(TOPIC, "text"), BadMessage, "bytes"),  # type: ignore[arg-type]
        (Message(TOPIC, b"x", keys=[1, 2]), BadMessage, "type"),  # type: ignore[list-item]
        (Message(TOPIC, b"x", tags="a\x01b"), BadMessage, "separate"),
        (Message(TOPIC, b"x", properties={"KEYS": "a"}), BadMessage, "RocketMQ itself"),
        (Message(TOPIC, b"x", properties={"a": ""}), BadMessage, "non-blank"),
        (Message(TOPIC, b"x", properties={"a": 5}), BadMessage, "strings"),  # type: ignore[dict-item]
        (Message(TOPIC, b"x", tags="\ud800"), BadMessage, "UTF-8"),
        (Message(TOPIC, b"x" * (4 * 1024 * 1024 + 1)), MessageTooLarge, "body"),
        (Message(TOPIC, b"x", properties={"a": "é" * 16_384}), MessageTooLarge, "properties"),
    ],
)
async def test_messages_that_cannot_be_sent(
    a_broker: RunningBroker,
    producer: Producer,
    message: Message,
    kind: type[Exception],
    words: str,
) -> None:
    with pytest.raises(kind, match=words):
        await producer.send(message)
    with pytest.raises(kind, match=words):
        await producer.send_oneway(message)
    assert [stored(a_broker, TOPIC, queue_id) for queue_id in range(4)] == [[], [], [], []]


async def test_delays_reach_the_broker(a_broker: RunningBroker, producer: Producer) -> None:
    result = await producer.send(Message(TOPIC, b"later", delay_level=3))
    found = await stored_soon(a_broker, "SCHEDULE_TOPIC_XXXX", 1, 2)
    assert found[0].message_id == result.message_id


async def test_a_first_message_creates_its_topic(
    producer: Producer, a_broker: RunningBroker
) -> None:
    result = await producer.send(Message("New", b"x"))
    assert "New" in a_broker.broker.topics.table
    assert (await stored_soon(a_broker, "New", 1, result.queue.queue_id))[0].body == b"x"


async def test_a_topic_that_cannot_be_written(a_broker: RunningBroker, producer: Producer) -> None:
    await a_broker.create_topic("ReadOnly", perm=PERM_READ)
    with pytest.raises(NoRoute, match="can be written"):
        await producer.send(Message("ReadOnly", b"x"))


async def test_namespaces_stay_on_the_wire(a_broker: RunningBroker) -> None:
    options = ClientOptions(namesrv=a_broker.namesrv, namespace="shop")
    await a_broker.create_topic("shop%Orders", queues=1)
    async with Producer(options, group="g") as producer:
        result = await producer.send(Message(TOPIC, b"x"))
        assert result.queue == MessageQueue(TOPIC, a_broker.name, 0)
        assert (await producer.send(Message(TOPIC, b"y"), queue=result.queue)).queue_offset == 1
        assert a_broker.broker.components.producers.available_channel("shop%g") is not None
    found = await stored_soon(a_broker, "shop%Orders", 2)
    assert found[0].properties["INSTANCE_ID"] == "shop"


async def test_the_broker_knows_the_producer_until_it_leaves(a_broker: RunningBroker) -> None:
    producers = a_broker.broker.components.producers
    async with Producer(a_broker.namesrv, group="shown") as producer:
        await producer.send(Message(TOPIC, b"x"))
        await until(lambda: producers.available_channel("shown") is not None)
    assert producers.available_channel("shown") is None


async def test_life_cycle(a_broker: RunningBroker) -> None:
    producer = Producer(a_broker.namesrv, group="g")
    with pytest.raises(ClientClosed):
        await producer.send(Message(TOPIC, b"x"))
    await producer.start()
    await producer.start()
    client = producer.client
    await producer.close()
    await producer.close()
    assert client.is_closed
    with pytest.raises(ClientClosed):
        await producer.start()
    with pytest.raises(ClientClosed):
        await producer.send_oneway(Message(TOPIC, b"x"))


async def test_starting_twice_at_once_starts_once(a_broker: RunningBroker) -> None:
    producer = Producer(a_broker.namesrv, group="g")
    await asyncio.gather(producer.start(), producer.start())
    client = producer.client
    await producer.close()
    assert client.is_closed


async def test_two_producers_of_one_group_need_two_clients(a_broker: RunningBroker) -> None:
    options = ClientOptions(namesrv=a_broker.namesrv, instance_name="one")
    async with Producer(options, group="g") as first:
        async with Producer(options, group="h") as second:
            assert first.client is second.client
        with pytest.raises(ConfigError):
            await Producer(options, group="g").start()
        assert (await first.send(Message(TOPIC, b"x"))).status is SendStatus.SEND_OK


async def test_closing_waits_for_sends(a_broker: RunningBroker) -> None:
    producer = Producer(a_broker.namesrv, group="g")
    await producer.start()
    sends = [asyncio.ensure_future(producer.send(Message(TOPIC, b"x"))) for _ in range(50)]
    await asyncio.sleep(0)
    await producer.close()
    results = await asyncio.gather(*sends)
    assert {result.status for result in results} == {SendStatus.SEND_OK}


async def test_a_broker_that_restarts_is_found_again(
    a_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Producer(a_broker.namesrv, group="g", send_timeout_ms=TIMEOUT_MS + 100) as producer:
        await producer.send(Message(TOPIC, b"before"))
        await a_broker.stop_broker()
        with monkeypatch.context() as patch:
            Waits(producer, patch)
            with pytest.raises(ConnectFailed) as caught:
                await producer.send(Message(TOPIC, b"lost"))
        assert "attempts: " in (caught.value.detail or "")
        waiting = asyncio.ensure_future(producer.send(Message(TOPIC, b"x")))
        await asyncio.sleep(0)
        await a_broker.start_broker()
        assert (await waiting).status is SendStatus.SEND_OK
        assert (await producer.send(Message(TOPIC, b"after"))).status is SendStatus.SEND_OK


async def test_sending_continues_without_name_servers(a_broker: RunningBroker) -> None:
    async with Producer(a_broker.namesrv, group="g") as producer:
        await producer.send(Message(TOPIC, b"x"))
        await a_broker.stop_namesrv()
        assert (await producer.send(Message(TOPIC, b"y"))).status is SendStatus.SEND_OK


async def test_linger_gathers_batches(a_broker: RunningBroker) -> None:
    async with Producer(
        a_broker.namesrv, group="g", linger_ms=30_000, linger_bytes=1_000
    ) as producer:
        messages = [Message(TOPIC, b"%03d" % number + b"x" * 97) for number in range(10)]
        results = await asyncio.gather(*(producer.send(message) for message in messages))
        assert len({result.queue for result in results}) == 1
        found = await stored_soon(a_broker, TOPIC, 10, results[0].queue.queue_id)
        assert [each.body for each in found] == [each.body for each in messages]
        assert [each.message_id for each in found] == [each.message_id for each in results]
        waiting = asyncio.ensure_future(producer.send(Message(TOPIC, b"alone")))
        await asyncio.sleep(0)
        await producer.flush()
        assert (await waiting).status is SendStatus.SEND_OK
        with pytest.raises(BadMessage):
            await producer.send(Message(TOPIC, b""))
        last = asyncio.ensure_future(producer.send(Message(TOPIC, b"at the end")))
        await asyncio.sleep(0)
    assert (await last).status is SendStatus.SEND_OK


async def test_gathered_batches_never_exceed_the_limit() -> None:
    async with (
        fake_cluster() as cluster,
        Producer(
            cluster.namesrv, group="g", linger_ms=10, linger_bytes=1_500, max_message_bytes=2_000
        ) as producer,
    ):
        await asyncio.gather(*(producer.send(Message(TOPIC, b"x" * 1_400)) for _ in range(4)))
        sizes = [len(request.body) for _, request in cluster[0].sends]
    assert sum(sizes) >= 4 * 1_400
    assert max(sizes) <= 2_000


@pytest.mark.parametrize(
    "settings",
    [
        {"send_timeout_ms": 0},
        {"attempt_timeout_ms": 0},
        {"retry_times": -1},
        {"max_in_flight": 0},
        {"max_in_flight_bytes": 0},
        {"compression": "rar"},
        {"compress_level": 10},
        {"linger_ms": 30_001},
    ],
)
def test_settings_that_cannot_be_used(settings: ProducerSettings) -> None:
    with pytest.raises(ConfigError):
        Producer("127.0.0.1:9876", group="g", **settings)


def test_groups_and_addresses_that_cannot_be_used() -> None:
    with pytest.raises(BadName):
        Producer("127.0.0.1:9876", group="bad group")
    with pytest.raises(BadName):
        Producer("127.0.0.1:9876", group="DEFAULT_PRODUCER")
    with pytest.raises(ConfigError):
        Producer("nowhere", group="g")


def test_keyword_arguments_are_the_fields_of_the_options() -> None:
    assert ProducerSettings.__annotations__.keys() == set(ProducerOptions.__struct_fields__)
