"""Every way to send, by every client, and every client gets every message."""

from __future__ import annotations

from functools import partial

import pytest

from tests.interop.agent import (
    Agent,
    Consumer,
    Outgoing,
    Producer,
    ReceivedMessage,
    SendResult,
    wait_until,
)
from tests.interop.agents import GO, JAVA, JAVA_4, JAVA_BINARY, KINDS, AgentPool, together
from tests.interop.cluster import Cluster

pytestmark = pytest.mark.interop

QUEUES = 4
ORDERS = ("alpha", "beta", "gamma", "delta", "epsilon")

# Above 4 KiB clients compress the body.
LARGE_BODY = "compress me, " * 1000


def outgoing(name: str, count: int) -> list[Outgoing]:
    return [
        Outgoing(
            f"{name} {i} 雪",
            tags=f"Tag{i % 3}",
            keys=[f"{name}-{i}", f"{name}-all"],
            properties={"seq": str(i), "note": "žluť → 雪"},
        )
        for i in range(count)
    ]


def check_results(sent: list[Outgoing], results: list[SendResult], cluster: Cluster) -> None:
    assert len(results) == len(sent)
    for result in results:
        assert result.status == "SEND_OK"
        assert result.broker_name == cluster.broker_name
        assert 0 <= result.queue_id < QUEUES
    assert len({result.message_id for result in results}) == len(sent)
    assert len({result.offset_message_id for result in results}) == len(sent)
    assert len({(result.queue_id, result.queue_offset) for result in results}) == len(sent)


def check_received(
    message: ReceivedMessage, sent: Outgoing, result: SendResult | None, topic: str
) -> None:
    assert message.topic == topic
    assert message.body == sent.body
    assert message.tags == (sent.tags or "")
    assert message.keys == " ".join(sent.keys)
    for name, value in sent.properties.items():
        assert message.properties[name] == value
    if result is not None:
        assert message.position == (result.queue_id, result.queue_offset)
        assert message.message_id == (result.message_id or message.message_id)
        assert message.offset_message_id in {"", result.offset_message_id}


def send_batch(
    producer: Producer, topic: str, batch: list[Outgoing]
) -> dict[str, SendResult | None]:
    """The one response holds the ids of all, which lie one after the other in one queue.

    The Go client reports only the ids that the broker gave.
    """
    (result,) = producer.send(topic, batch, "batch")
    assert result.status == "SEND_OK"
    offset_ids = result.offset_message_id.split(",")
    assert len(offset_ids) == len(batch)
    ids = result.message_id.split(",") if result.message_id else [""] * len(batch)
    assert len(ids) == len(batch)
    return {
        message.body: SendResult(
            result.status,
            result.broker_name,
            result.queue_id,
            result.queue_offset + i,
            ids[i],
            offset_ids[i],
        )
        for i, message in enumerate(batch)
    }


@pytest.mark.parametrize("kind", [*KINDS, JAVA_BINARY])
def test_every_way_to_send(cluster: Cluster, agents: AgentPool, kind: str) -> None:
    sender = agents.get(kind)
    topic = cluster.create_topic(sender, "Sends", queues=QUEUES)

    def consume(agent: Agent) -> Consumer:
        return agent.push(cluster.namesrv, topic, f"{topic}_{agent.kind.replace('.', '_')}")

    consumers = together(consume, agents.all(list(dict.fromkeys([*KINDS, kind]))))
    producer = sender.producer(cluster.namesrv)
    sent: dict[str, Outgoing] = {}
    results: dict[str, SendResult | None] = {}

    for mode in ("sync", "async"):
        messages = [*outgoing(mode, 12), Outgoing(f"{mode} {LARGE_BODY}")]
        answers = producer.send(topic, messages, mode)
        check_results(messages, answers, cluster)
        sent |= {message.body: message for message in messages}
        results |= {message.body: answer for message, answer in zip(messages, answers, strict=True)}

    messages = outgoing("one-way", 12)
    assert producer.send(topic, messages, "oneway") == []
    sent |= {message.body: message for message in messages}
    results |= dict.fromkeys((message.body for message in messages), None)

    batch = outgoing("batch", 9)
    sent |= {message.body: message for message in batch}
    results |= send_batch(producer, topic, batch)

    messages = [
        Outgoing(f"to queue {i}", queue=(cluster.broker_name, i % QUEUES)) for i in range(8)
    ]
    answers = producer.send(topic, messages, "queue")
    check_results(messages, answers, cluster)
    assert [answer.queue_id for answer in answers] == [i % QUEUES for i in range(8)]
    sent |= {message.body: message for message in messages}
    results |= {message.body: answer for message, answer in zip(messages, answers, strict=True)}

    producer.stop()
    for consumer in consumers:
        received = consumer.wait_for(list(sent))
        assert sorted(message.body for message in received) == sorted(sent), consumer.agent.kind
        for message in received:
            check_received(message, sent[message.body], results[message.body], topic)
    check_queues_are_whole(consumers[0].messages())
    together(Consumer.stop, consumers)


def check_queues_are_whole(messages: list[ReceivedMessage]) -> None:
    positions = sorted(message.position for message in messages)
    by_queue: dict[int, list[int]] = {}
    for queue_id, queue_offset in positions:
        by_queue.setdefault(queue_id, []).append(queue_offset)
    for offsets in by_queue.values():
        assert offsets == list(range(len(offsets)))
    physical = [message.physical_offset for message in messages]
    assert len(set(physical)) == len(physical)


@pytest.mark.parametrize("kind", KINDS)
def test_ordered_sends_are_consumed_in_order(
    cluster: Cluster, agents: AgentPool, kind: str
) -> None:
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "Ordered", queues=QUEUES)
    consumer = agent.push(cluster.namesrv, topic, f"{topic}_group", listener="orderly")
    producer = agent.producer(cluster.namesrv)
    messages = [
        Outgoing(f"{ORDERS[i % len(ORDERS)]} {i}", order=ORDERS[i % len(ORDERS)])
        for i in range(120)
    ]
    results = producer.send(topic, messages, "ordered")
    check_results(messages, results, cluster)
    producer.stop()

    received = consumer.wait_for([message.body for message in messages])
    assert len(received) == len(messages)
    for order in ORDERS:
        mine = [message.body for message in messages if message.order == order]
        assert [message.body for message in received if message.body.startswith(order)] == mine
        assert len({message.queue_id for message in received if message.body in mine}) == 1
    for queue_id in range(QUEUES):
        offsets = [message.queue_offset for message in received if message.queue_id == queue_id]
        assert offsets == list(range(len(offsets)))
    consumer.stop()


@pytest.mark.parametrize("kind", [JAVA, JAVA_4, GO])
def test_a_topic_is_created_by_the_first_send(
    cluster: Cluster, agents: AgentPool, kind: str
) -> None:
    agent = agents.get(kind)
    cluster.create_topic(agent, "Registered", queues=1)
    topic = f"Automatic_{kind.replace('.', '_')}"
    producer = agent.producer(cluster.namesrv)
    messages = outgoing("first", 8)
    results = producer.send(topic, messages, "sync")
    # Clients request four queues, whatever the template topic has.
    check_results(messages, results, cluster)
    consumer = agent.push(cluster.namesrv, topic, f"{topic}_group")
    received = consumer.wait_for([message.body for message in messages])
    assert len(received) == len(messages)
    producer.stop()
    consumer.stop()


def has_got(consumer: Consumer, count: int) -> bool:
    return len(consumer.messages()) >= count


@pytest.mark.parametrize("listener", ["concurrent", "orderly"])
@pytest.mark.parametrize("kind", KINDS)
def test_clients_that_use_the_fast_port(
    cluster: Cluster, agents: AgentPool, kind: str, listener: str
) -> None:
    """Such a client sends, locks and commits by the fast port, and pulls by the usual one."""
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "Fast", queues=QUEUES)
    group = f"{topic}_group"
    producer = agent.producer(cluster.namesrv, vip=True)
    for round_name in ("first", "second"):
        messages = outgoing(round_name, 12)
        for mode in ("sync", "async", "oneway", "batch"):
            producer.send(topic, messages, mode)
        consumer = agent.push(cluster.namesrv, topic, group, listener=listener, vip=True)
        wanted = [message.body for message in messages]
        wait_until(
            partial(has_got, consumer, 4 * len(wanted)),
            partial(agent.process.error, "not all messages came"),
        )
        assert sorted(consumer.bodies()) == sorted(4 * wanted)
        cluster.wait_taken(group, topic)
        consumer.stop()
    producer.stop()
