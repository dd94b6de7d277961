"""Every way to consume, by every client."""

from __future__ import annotations

import time

import pytest

from tests.interop.agent import WAIT_TIMEOUT_S, Outgoing
from tests.interop.agents import GO, KINDS, AgentPool
from tests.interop.cluster import Cluster

pytestmark = pytest.mark.interop

QUEUES = 3


def numbered(name: str, count: int) -> list[Outgoing]:
    return [Outgoing(f"{name} {i}") for i in range(count)]


def bodies(messages: list[Outgoing]) -> list[str]:
    return [message.body for message in messages]


@pytest.mark.parametrize("kind", KINDS)
def test_broadcast_reaches_every_consumer(cluster: Cluster, agents: AgentPool, kind: str) -> None:
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "Broadcast", queues=QUEUES)
    consumers = [
        agent.push(cluster.namesrv, topic, f"{topic}_group", model="BROADCASTING") for _ in range(2)
    ]
    producer = agent.producer(cluster.namesrv)
    messages = numbered("for all", 30)
    producer.send(topic, messages, "sync")
    for consumer in consumers:
        received = consumer.wait_for(bodies(messages))
        assert sorted(message.body for message in received) == sorted(bodies(messages))
        consumer.stop()
    producer.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_tags_filter(cluster: Cluster, agents: AgentPool, kind: str) -> None:
    """The strings Aa and BB have the same hash, so the client must drop what the broker cannot.

    The Go client hashes bytes and not characters, so it can choose by ASCII tags only.
    """
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "Tags", queues=QUEUES)
    paid = "paid" if kind == GO else "订单-已支付"
    tags = ("Aa", "BB", "other", paid, None)
    messages = [Outgoing(f"{i} {tags[i % 5]}", tags=tags[i % 5]) for i in range(60)]
    producer = agent.producer(cluster.namesrv)
    producer.send(topic, messages, "sync")
    for expression, wanted in (
        ("Aa", {"Aa"}),
        (f"other || {paid}", {"other", paid}),
        ("*", set(tags)),
    ):
        group = f"{topic}_{len(wanted)}"
        consumer = agent.push(cluster.namesrv, topic, group, expression=expression)
        chosen = [message.body for message in messages if message.tags in wanted]
        received = consumer.wait_for(chosen)
        assert sorted(message.body for message in received) == sorted(chosen)
        consumer.stop()
    producer.stop()


@pytest.mark.parametrize("listener", ["concurrent", "orderly"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_group_continues_where_it_stopped(
    cluster: Cluster, agents: AgentPool, kind: str, listener: str
) -> None:
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "GoesOn", queues=QUEUES)
    group = f"{topic}_group"
    producer = agent.producer(cluster.namesrv)
    for round_name in ("first", "second"):
        messages = numbered(round_name, 30)
        producer.send(topic, messages, "sync")
        consumer = agent.push(cluster.namesrv, topic, group, listener=listener)
        received = consumer.wait_for(bodies(messages))
        assert sorted(message.body for message in received) == sorted(bodies(messages))
        cluster.wait_taken(group, topic)
        consumer.stop()
    producer.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_lite_pull_subscribes_and_commits(cluster: Cluster, agents: AgentPool, kind: str) -> None:
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "LitePull", queues=QUEUES)
    group = f"{topic}_group"
    producer = agent.producer(cluster.namesrv)
    for round_name in ("first", "second"):
        messages = numbered(round_name, 30)
        producer.send(topic, messages, "sync")
        consumer = agent.lite(cluster.namesrv, topic, group)
        received = consumer.wait_for(bodies(messages))
        assert sorted(message.body for message in received) == sorted(bodies(messages))
        # Those that arrive while it waits, too.
        late = numbered(f"{round_name} late", 5)
        producer.send(topic, late, "sync")
        consumer.wait_for(bodies(late))
        consumer.stop()
    producer.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_lite_pull_reads_from_an_offset(cluster: Cluster, agents: AgentPool, kind: str) -> None:
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "LiteSeek", queues=QUEUES)
    producer = agent.producer(cluster.namesrv)
    messages = [
        Outgoing(f"{i % QUEUES} {i // QUEUES}", queue=(cluster.broker_name, i % QUEUES))
        for i in range(30)
    ]
    producer.send(topic, messages, "queue")
    consumer = agent.lite(
        cluster.namesrv,
        topic,
        f"{topic}_group",
        seek={"0": "4", "2": "9"},
        broker=cluster.broker_name,
    )
    wanted = [f"0 {offset}" for offset in range(4, 10)] + ["2 9"]
    received = consumer.wait_for(wanted)
    assert sorted(message.body for message in received) == sorted(wanted)
    consumer.stop()
    producer.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_waiting_consumers_get_a_message_at_once(
    cluster: Cluster, agents: AgentPool, kind: str
) -> None:
    """A held pull completes on arrival, not by a timer.

    Each message is sent after the previous one has arrived. A broker that checked held pulls every
    few seconds would need more time for all of them than the test has.
    """
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "Arrival", queues=1)
    consumer = agent.push(cluster.namesrv, topic, f"{topic}_group")
    producer = agent.producer(cluster.namesrv)
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    for message in numbered("now", 20):
        producer.send(topic, [message], "sync")
        consumer.wait_for([message.body])
        assert time.monotonic() < deadline
    consumer.stop()
    producer.stop()
