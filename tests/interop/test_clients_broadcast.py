"""Broadcast: every consumer gets everything, and keeps offsets in a file of its own."""

from __future__ import annotations

import re

import pytest

from tests.interop.agent import Agent, Consumer, Outgoing, Producer
from tests.interop.agents import KINDS, AgentPool
from tests.interop.cluster import Cluster

pytestmark = pytest.mark.interop

QUEUES = 2
ROUND = 10

# In a dialect of JSON the key of an offset is an object, or the text of one.
OFFSET = re.compile(r'queueId\\*":\s*(\d+)[^}]*}"?\s*:\s*(\d+)')


def send_round(producer: Producer, topic: str, name: str) -> dict[tuple[int, int], str]:
    """Sends messages and returns their bodies by queue and offset."""
    messages = [Outgoing(f"{name} {i}") for i in range(ROUND)]
    results = producer.send(topic, messages, "sync")
    return {
        (result.queue_id, result.queue_offset): message.body
        for result, message in zip(results, messages, strict=True)
    }


def saved_offsets(agents: AgentPool, instance: str) -> dict[int, int]:
    """Queue ids and offsets that a consumer has written; clients differ in the file's name."""
    return {
        int(queue_id): int(queue_offset)
        for path in agents.offsets.rglob("offset*.json")
        if f"@{instance}/" in path.as_posix()
        for queue_id, queue_offset in OFFSET.findall(path.read_text())
    }


def broadcast(cluster: Cluster, agent: Agent, topic: str, instance: str) -> Consumer:
    return agent.push(
        cluster.namesrv, topic, f"{topic}_group", model="BROADCASTING", instance=instance
    )


@pytest.mark.parametrize("kind", KINDS)
def test_consumers_continue_from_their_own_files(
    cluster: Cluster, agents: AgentPool, kind: str
) -> None:
    """One stays until its process ends, another misses the second round."""
    topic = cluster.create_topic(agents.get(kind), "Files", queues=QUEUES)
    instances = (f"steady-{topic}", f"absent-{topic}")
    with agents.spawn(kind) as first:
        producer = first.producer(cluster.namesrv)
        steady, absent = (broadcast(cluster, first, topic, each) for each in instances)
        sent = send_round(producer, topic, "first")
        for consumer in (steady, absent):
            consumer.wait_for(list(sent.values()))
        absent.stop()
        sent |= send_round(producer, topic, "second")
        received = steady.wait_for(list(sent.values()))
        assert {message.position: message.body for message in received} == sent
        assert len(received) == len(sent)
        steady.stop()  # Clients write the file first after ten seconds, or when they stop.
    assert len(absent.messages()) == ROUND

    producer = agents.get(kind).producer(cluster.namesrv)
    sent |= send_round(producer, topic, "third")
    for instance in instances:
        # A consumer that stopped may not have counted what its listener just took.
        offsets = saved_offsets(agents, instance)
        assert sum(offsets.values()) > 0
        wanted = {
            (queue_id, queue_offset): body
            for (queue_id, queue_offset), body in sent.items()
            if queue_offset >= offsets.get(queue_id, 0)
        }
        consumer = broadcast(cluster, agents.get(kind), topic, instance)
        received = consumer.wait_for(list(wanted.values()))
        assert {message.position: message.body for message in received} == wanted
        assert len(received) == len(wanted)
        consumer.stop()
    producer.stop()
