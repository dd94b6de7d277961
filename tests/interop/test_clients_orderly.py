"""Messages that fail: later ones wait or do not, and the group's settings apply."""

from __future__ import annotations

from functools import partial

import pytest

from tests.interop.agent import Outgoing, ReceivedMessage
from tests.interop.agents import GO, JAVA, JAVA_KINDS, KINDS, AgentPool
from tests.interop.cluster import Cluster
from tests.interop.javaclient import JavaClient

pytestmark = pytest.mark.interop


def in_queue(
    cluster: Cluster, queue_id: int, *bodies: str, keys: tuple[str, ...] = ()
) -> list[Outgoing]:
    queue = (cluster.broker_name, queue_id)
    return [Outgoing(body, queue=queue, keys=keys) for body in bodies]


def tries(messages: list[ReceivedMessage], queue_id: int) -> list[tuple[str, int]]:
    """Bodies of a queue in the order in which they came, and which try each was."""
    return [
        (message.body, message.reconsume_times)
        for message in messages
        if message.queue_id == queue_id
    ]


def has_tried(body: str, count: int, messages: list[ReceivedMessage]) -> bool:
    return sum(message.body == body for message in messages) >= count


@pytest.mark.parametrize("kind", KINDS)
def test_an_orderly_queue_waits_for_the_message_that_fails(
    cluster: Cluster, agents: AgentPool, kind: str
) -> None:
    """It is retried until it is taken; nothing overtakes it, and the other queue continues."""
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "OrderlyWait", queues=2)
    producer = agent.producer(cluster.namesrv)
    producer.send(topic, in_queue(cluster, 0, "a0", "fails", "a2", "a3"), "queue")
    producer.send(topic, in_queue(cluster, 1, "b0", "b1", "b2", "b3"), "queue")
    consumer = agent.push(
        cluster.namesrv, topic, f"{topic}_group", listener="orderly", failures=2, failing="fails"
    )
    received = consumer.wait_for(["a3", "b3"])
    failed = [("fails", 0), ("fails", 1), ("fails", 2)]
    assert tries(received, 0) == [("a0", 0), *failed, ("a2", 0), ("a3", 0)]
    assert tries(received, 1) == [("b0", 0), ("b1", 0), ("b2", 0), ("b3", 0)]
    consumer.stop()
    producer.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_an_orderly_message_that_always_fails_becomes_a_dead_letter(
    cluster: Cluster, agents: AgentPool, kind: str
) -> None:
    """Then the queue continues.

    The Go client tries it once more than configured. All of them retry it when storing the dead
    letter takes longer than their time-out.
    """
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "OrderlyDead", queues=1)
    group = f"{topic}_group"
    producer = agent.producer(cluster.namesrv)
    messages = in_queue(cluster, 0, "a0", "fails", "a2", keys=("k",))
    results = producer.send(topic, messages, "queue")
    consumer = agent.push(
        cluster.namesrv, topic, group, listener="orderly",
        failures=99, failing="fails", maxReconsumeTimes=1,
    )  # fmt: skip
    received = consumer.wait_for(["a2"])
    came = tries(received, 0)
    usual = 3 if kind == GO else 2
    failed = [("fails", times) for times in range(len(came) - 2)]
    assert came == [("a0", 0), *failed, ("a2", 0)]
    assert len(failed) in {usual, usual + 1}
    dead = agents.get(JAVA).lite(
        cluster.namesrv,
        f"%DLQ%{group}",
        f"{topic}_undertaker",
        seek={"0": "0"},
        broker=cluster.broker_name,
    )
    letters = dead.wait_for(["fails"])
    assert len(letters) <= 2
    for letter in letters:
        assert letter.keys == "k"
        assert letter.properties["RETRY_TOPIC"] == topic
        assert letter.properties["UNIQ_KEY"] == results[1].message_id
    dead.stop()
    consumer.stop()
    producer.stop()


@pytest.mark.parametrize("kind", JAVA_KINDS)
def test_settings_of_a_group_change_while_it_retries(
    cluster: Cluster, agents: AgentPool, admin: JavaClient, kind: str
) -> None:
    """A client decides how often it retries; the group decides whether it does.

    Without retry queues a message that fails is dropped. It and the next one would be redelivered
    after the same delay, so once the next one was, the first is known to be gone.
    """
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "GroupRetries", queues=1)
    group = f"{topic}_group"
    change = partial(admin.mqadmin, "updateSubGroup", "-b", cluster.broker.address, "-g", group)
    change("-r", "1")
    consumer = agent.push(cluster.namesrv, topic, group, failures=2, failing="f ", threads=1)
    producer = agent.producer(cluster.namesrv)
    producer.send(topic, [Outgoing("f often")], "sync")
    consumer.wait(partial(has_tried, "f often", 3), "the message was tried three times")
    change("-r", "1", "-q", "0")
    producer.send(topic, [Outgoing("f dropped")], "sync")
    # The only thread sends a message back before it takes the next.
    producer.send(topic, [Outgoing("taken")], "sync")
    consumer.wait_for(["taken"])
    change("-r", "0", "-q", "1")
    producer.send(topic, [Outgoing("f kept")], "sync")
    consumer.wait(partial(has_tried, "f kept", 3), "the message was tried three times")
    came = [(message.body, message.reconsume_times) for message in consumer.messages()]
    assert came == [
        *(("f often", times) for times in range(3)),
        ("f dropped", 0),
        ("taken", 0),
        *(("f kept", times) for times in range(3)),
    ]
    consumer.stop()
    producer.stop()
