"""Messages that are delivered later: delayed ones, and those that a consumer failed on at first."""

from __future__ import annotations

from functools import partial

import pytest

from tests.interop.agent import AgentError, Consumer, Outgoing, wait_until
from tests.interop.agents import JAVA, KINDS, AgentPool
from tests.interop.cluster import Cluster

pytestmark = pytest.mark.interop


def bodies(messages: list[Outgoing]) -> list[str]:
    return [message.body for message in messages]


def has_got(consumer: Consumer, count: int) -> bool:
    return len(consumer.messages()) >= count


@pytest.mark.parametrize("kind", KINDS)
def test_delayed_messages_are_delivered_when_due(
    cluster: Cluster, agents: AgentPool, kind: str
) -> None:
    """Level 2 is five seconds, in which all are sent; such a message keeps all it was sent with."""
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "Delay", queues=1)
    consumer = agent.push(cluster.namesrv, topic, f"{topic}_group", expression="Late")
    producer = agent.producer(cluster.namesrv)
    late = [
        Outgoing(
            f"late {i}", tags="Late", keys=[f"k{i}"], properties={"seq": f"{i}"}, delay_level=2
        )
        for i in range(5)
    ]
    results = producer.send(topic, late, "sync")
    producer.send(topic, [Outgoing("now", tags="Late")], "sync")
    received = {message.body: message for message in consumer.wait_for([*bodies(late), "now"])}
    assert len(received) == len(consumer.messages()) == len(late) + 1
    assert received["now"].queue_offset == 0
    for i, result in enumerate(results):
        message = received[f"late {i}"]
        assert (message.topic, message.tags, message.keys) == (topic, "Late", f"k{i}")
        assert message.properties["seq"] == str(i)
        assert message.message_id == result.message_id
        assert message.store_timestamp_ms - message.born_timestamp_ms >= 5000
        assert message.queue_offset == i + 1
    consumer.stop()
    producer.stop()


@pytest.mark.parametrize("listener", ["concurrent", "orderly"])
@pytest.mark.parametrize("kind", KINDS)
def test_failed_messages_are_redelivered(
    cluster: Cluster, agents: AgentPool, kind: str, listener: str
) -> None:
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "Again", queues=1)
    consumer = agent.push(cluster.namesrv, topic, f"{topic}_group", listener=listener, failures=2)
    producer = agent.producer(cluster.namesrv)
    messages = [Outgoing(f"{i}", tags="Again", keys=[f"k{i}"]) for i in range(3)]
    results = producer.send(topic, messages, "sync")
    wait_until(
        partial(has_got, consumer, 3 * len(messages)),
        lambda: agent.process.error(f"not three times each: {consumer.messages()}"),
    )
    received = consumer.messages()
    for message, result in zip(messages, results, strict=True):
        tries = [item for item in received if item.body == message.body]
        assert [item.reconsume_times for item in tries] == [0, 1, 2]
        for item in tries:
            assert (item.topic, item.tags, item.keys) == (topic, "Again", message.keys[0])
            assert item.message_id == result.message_id
    consumer.stop()
    producer.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_messages_that_always_fail_become_dead_letters(
    cluster: Cluster, agents: AgentPool, kind: str
) -> None:
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "Dead", queues=1)
    group = f"{topic}_group"
    consumer = agent.push(cluster.namesrv, topic, group, failures=99, maxReconsumeTimes=1)
    producer = agent.producer(cluster.namesrv)
    messages = [Outgoing(f"{i}") for i in range(3)]
    producer.send(topic, messages, "sync")

    asker = agents.get(JAVA).producer(cluster.namesrv)

    def are_dead() -> bool:
        try:
            told = asker.offsets(f"%DLQ%{group}", cluster.broker_name, 0, 0)
        except AgentError:  # The topic is made with the first dead letter.
            return False
        return told["maxOffset"] == len(messages)

    wait_until(are_dead, lambda: agent.process.error("not all messages are dead letters"))
    received = sorted((message.body, message.reconsume_times) for message in consumer.messages())
    assert received == [(f"{i}", times) for i in range(3) for times in (0, 1)]
    asker.stop()
    consumer.stop()
    producer.stop()
