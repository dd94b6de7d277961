"""Queries of the Java clients about messages and queues; the Go client has none of them."""

from __future__ import annotations

import time

import pytest

from tests.interop.agent import AgentError, Outgoing, wait_until
from tests.interop.agents import JAVA_KINDS, AgentPool
from tests.interop.cluster import Cluster

pytestmark = pytest.mark.interop

QUEUES = 2
COUNT = 20


@pytest.mark.parametrize("kind", JAVA_KINDS)
def test_messages_are_found(cluster: Cluster, agents: AgentPool, kind: str) -> None:
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "Query", queues=QUEUES)
    producer = agent.producer(cluster.namesrv)
    messages = [
        Outgoing(
            f"{topic} {i}",
            keys=[f"key-{i}", f"shared-{i % 4}"],
            queue=(cluster.broker_name, i % QUEUES),
        )
        for i in range(COUNT)
    ]
    results = producer.send(topic, messages, "queue")

    def is_indexed() -> bool:
        # A Java broker acknowledges a message before it is in its index.
        try:
            return bool(producer.query(topic, f"key-{COUNT - 1}"))
        except AgentError:
            return False

    wait_until(is_indexed, lambda: cluster.broker.error("not all messages are in the index"))
    for i in (0, 7, COUNT - 1):
        (found,) = producer.query(topic, f"key-{i}")
        assert found.body == messages[i].body
        assert found.position == (results[i].queue_id, results[i].queue_offset)
        for message_id in (results[i].message_id, results[i].offset_message_id):
            found = producer.view(topic, message_id)
            assert found.body == messages[i].body
            assert found.position == (results[i].queue_id, results[i].queue_offset)
            assert found.keys == " ".join(messages[i].keys)
    shared = producer.query(topic, "shared-3")
    assert sorted(message.body for message in shared) == sorted(
        message.body for message in messages if "shared-3" in message.keys
    )
    with pytest.raises(AgentError, match="query message by key finished, but no message"):
        producer.query(topic, "no-such-key")
    producer.stop()


@pytest.mark.parametrize("kind", JAVA_KINDS)
def test_offsets_are_reported(cluster: Cluster, agents: AgentPool, kind: str) -> None:
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "Offsets", queues=QUEUES)
    producer = agent.producer(cluster.namesrv)
    before_ms = int(time.time() * 1000)
    messages = [Outgoing(f"{i}", queue=(cluster.broker_name, 1)) for i in range(COUNT)]
    producer.send(topic, messages, "queue")
    after_ms = int(time.time() * 1000) + 1
    cluster.wait_stored(topic, COUNT)

    told = producer.offsets(topic, cluster.broker_name, 1, before_ms)
    assert (told["minOffset"], told["maxOffset"], told["searchOffset"]) == (0, COUNT, 0)
    assert before_ms <= told["earliestTime"] <= after_ms
    later = producer.offsets(topic, cluster.broker_name, 1, after_ms + 60_000)
    assert later["searchOffset"] == COUNT
    empty = producer.offsets(topic, cluster.broker_name, 0, before_ms)
    assert (empty["minOffset"], empty["maxOffset"]) == (0, 0)
    producer.stop()
