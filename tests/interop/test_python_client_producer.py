"""The Python producer against Roquet and Apache RocketMQ; Java's consumer reads what it sent."""

from __future__ import annotations

import asyncio

import pytest

from roquet.client import (
    ClientOptions,
    Compression,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
    SendResult,
    SendStatus,
    TransactionState,
)
from roquet.client import reply as reply_to
from roquet.client.recall import RecallHandle
from roquet.errors import BrokerRefused, PermissionRefused
from roquet.model.properties import encode_properties
from roquet.remoting.frame import SerializeType
from tests.interop.agent import Agent, Consumer, Outgoing
from tests.interop.agents import JAVA, AgentPool
from tests.interop.cluster import ROQUET, Cluster
from tests.interop.request_reply import asking, reply

pytestmark = pytest.mark.interop

TIMEOUT_MS = 30_000


@pytest.fixture
def java(agents: AgentPool) -> Agent:
    return agents.get(JAVA)


def python(servers: Cluster, **settings: object) -> Producer:
    options = ClientOptions(
        namesrv=servers.namesrv, client_ip="127.0.0.1", request_timeout_ms=TIMEOUT_MS
    )
    return Producer(options, group="python", send_timeout_ms=TIMEOUT_MS, **settings)  # type: ignore[arg-type]


async def wait_for(consumer: Consumer, *bodies: str) -> dict[str, str]:
    """The ids of the messages, by body, once Java's consumer got them."""
    found = await asyncio.to_thread(consumer.wait_for, bodies)
    return {each.body: each.message_id for each in found}


@pytest.mark.parametrize("serialize", [SerializeType.JSON, SerializeType.ROCKETMQ])
async def test_java_reads_all_kinds(
    servers: Cluster, java: Agent, serialize: SerializeType
) -> None:
    topic = servers.create_topic(java, "PythonSends", queues=2)
    consumer = java.push(servers.namesrv, topic, f"{topic}_group")
    options = ClientOptions(
        namesrv=servers.namesrv, serialize=serialize, request_timeout_ms=TIMEOUT_MS
    )
    sent: dict[str, SendResult] = {}
    async with Producer(options, group="python", send_timeout_ms=TIMEOUT_MS) as producer:
        plain = Message(topic, "plain ü".encode(), tags="T", keys=["k1", "k2"])
        plain.properties["colour"] = "blå"
        sent["plain ü"] = await producer.send(plain)
        await producer.send_oneway(Message(topic, b"one-way"))
        bodies = [f"batch {number}" for number in range(3)]
        results = await producer.send_batch([Message(topic, each.encode()) for each in bodies])
        sent |= dict(zip(bodies, results, strict=True))
        queue = MessageQueue(topic, servers.broker_name, 1)
        sent["queue"] = await producer.send(Message(topic, b"queue"), queue=queue)
        sent["later"] = await producer.send(Message(topic, b"later", delay_level=1))
        ids = await wait_for(consumer, "one-way", *sent)
    assert {result.status for result in sent.values()} == {SendStatus.SEND_OK}
    assert {body: ids[body] for body in sent} == {
        body: result.message_id for body, result in sent.items()
    }
    got = {each.body: each for each in consumer.messages()}
    assert (got["plain ü"].tags, got["plain ü"].keys) == ("T", "k1 k2")
    assert got["plain ü"].properties["colour"] == "blå"
    assert got["queue"].queue_id == 1
    for body in bodies:
        assert got[body].offset_message_id == sent[body].offset_message_id
        assert got[body].queue_offset == sent[body].queue_offset
    consumer.stop()


@pytest.mark.parametrize("kind", list(Compression))
async def test_java_reads_compressed_bodies(
    servers: Cluster, java: Agent, kind: Compression
) -> None:
    if kind is not Compression.ZLIB:
        pytest.importorskip("lz4.frame" if kind is Compression.LZ4 else "zstandard")
    topic = servers.create_topic(java, "PythonPacks", queues=1)
    consumer = java.push(servers.namesrv, topic, f"{topic}_group")
    body = f"{kind.value} " * 2_000
    async with python(servers, compression=kind) as producer:
        await producer.send(Message(topic, body.encode()))
        await wait_for(consumer, body)
    consumer.stop()


async def test_keys_go_where_java_sends_them(servers: Cluster, java: Agent) -> None:
    topic = servers.create_topic(java, "PythonKeys", queues=3)
    consumer = java.push(servers.namesrv, topic, f"{topic}_group")
    keys = ("a", "order-17", "ключ", "polygenelubricants")
    other = java.producer(servers.namesrv)
    theirs = other.send(topic, [Outgoing("x", order=key) for key in keys], "hashed")
    async with python(servers) as producer:
        ours = [await producer.send(Message(topic, key.encode()), sharding_key=key) for key in keys]
        await wait_for(consumer, *keys)
    assert [each.queue.queue_id for each in ours] == [each.queue_id for each in theirs]
    got = {each.body: each for each in consumer.messages()}
    assert [got[key].properties["__SHARDINGKEY"] for key in keys] == list(keys)
    other.stop()
    consumer.stop()


async def test_transactions(servers: Cluster, java: Agent) -> None:
    topic = servers.create_topic(java, "PythonTransactions", queues=1)
    consumer = java.push(servers.namesrv, topic, f"{topic}_group")
    asked: list[str] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body.decode())
        is_good = message.body == b"found good"
        return TransactionState.COMMIT if is_good else TransactionState.ROLLBACK

    states = {
        "good": TransactionState.COMMIT,
        "bad": TransactionState.ROLLBACK,
        "found bad": TransactionState.UNKNOWN,
        "found good": TransactionState.UNKNOWN,
    }
    async with python(servers, check=check) as producer:
        sent = {}
        for body, state in states.items():
            message = Message(topic, body.encode(), keys=body.replace(" ", "-"))
            result = await producer.send_in_transaction(message, lambda *_, s=state: s)
            assert (result.state, result.is_told) == (state, True)
            sent[body] = result.send_result.message_id
        ids = await wait_for(consumer, "good", "found good")
        while "found bad" not in asked:  # noqa: ASYNC110 - the broker checks at any time
            await asyncio.sleep(0.02)
    assert ids == {body: sent[body] for body in ("good", "found good")}
    assert set(consumer.bodies()) == {"good", "found good"}
    consumer.stop()


async def test_java_replies_to_python(servers: Cluster, java: Agent) -> None:
    topic = servers.create_topic(java, "PythonAsks", queues=1)
    consumer = java.push(servers.namesrv, topic, f"{topic}_group")
    replier = java.producer(servers.namesrv, "java_replier")
    async with python(servers) as producer:
        waiting = asyncio.ensure_future(producer.request(Message(topic, b"ping")))
        (asked,) = await asyncio.to_thread(consumer.wait_for, ["ping"])
        await asyncio.to_thread(reply, replier, asked, "pong ü")
        answer = await waiting
    assert answer.body.decode() == "pong ü"
    replier.stop()
    consumer.stop()


async def test_python_replies_to_java(servers: Cluster, java: Agent) -> None:
    topic = servers.create_topic(java, "JavaAsks", queues=1)
    consumer = java.push(servers.namesrv, topic, f"{topic}_group")
    asker = java.producer(servers.namesrv, "java_asker")
    async with python(servers) as producer:
        with asking(asker, topic, ["ping"], timeout_ms=TIMEOUT_MS) as answers:
            (asked,) = await asyncio.to_thread(consumer.wait_for, ["ping"])
            received = ReceivedMessage(
                topic=topic, raw_body=b"ping", properties_data=encode_properties(asked.properties)
            )
            result = await producer.send(reply_to(received, "pong ü".encode()))
            answer = await asyncio.wrap_future(answers["ping"])
    assert result.status is SendStatus.SEND_OK
    assert answer.body == "pong ü"
    asker.stop()
    consumer.stop()


async def test_traces(servers: Cluster, java: Agent) -> None:
    topic = servers.create_topic(java, "PythonTraces", queues=1)
    trace_topic = "RMQ_SYS_TRACE_TOPIC"
    reader = java.push(servers.namesrv, trace_topic, f"{topic}_reader")
    async with python(servers, trace=True) as producer:
        result = await producer.send(Message(topic, b"x", keys="k"))

    def is_told(_: object) -> bool:
        return any(result.message_id in each.keys.split() for each in reader.messages())

    await asyncio.to_thread(reader.wait, is_told, "the trace")
    found = [each for each in reader.messages() if result.message_id in each.keys.split()]
    fields = found[0].body.split("\x02")[0].split("\x01")
    assert [fields[0], *fields[3:6], *fields[6:10]] == [
        "Pub",
        "python",
        topic,
        result.message_id,
        "null",
        "k",
        servers.broker.address,
        "1",
    ]
    reader.stop()


async def test_a_message_is_recalled_before_it_is_due(servers: Cluster, java: Agent) -> None:
    topic = servers.create_topic(java, "PythonRecalls", queues=1)
    if servers.broker_side == ROQUET:
        async with python(servers) as producer:
            handle = RecallHandle(topic, servers.broker_name, "1", "AC11").text()
            with pytest.raises(PermissionRefused, match="RECALL_MESSAGE"):
                await producer.recall_message(topic, handle)
        return
    consumer = java.push(servers.namesrv, topic, f"{topic}_group")
    async with python(servers) as producer:
        # The timer of the broker must have both before one of them is recalled.
        gone = await producer.send(Message(topic, b"never", delay_ms=20_000))
        due = await producer.send(Message(topic, b"late", delay_ms=22_000))
        assert gone.recall_handle is not None
        assert due.recall_handle is not None
        called_back = await producer.recall_message(topic, gone.recall_handle)
        assert called_back == gone.message_id
        with pytest.raises(BrokerRefused, match="RECALL_MESSAGE") as caught:
            await producer.recall_message("TBW102", due.recall_handle)
        assert "topic not match" in caught.value.remark
        await wait_for(consumer, "late")
    assert {each.body for each in consumer.messages()} == {"late"}
    consumer.stop()
