"""Two consumers share the queues, one is killed, the other takes all and misses nothing."""

from __future__ import annotations

import pytest

from tests.interop.agent import Agent, Consumer, ReceivedMessage, wait_until
from tests.interop.agents import GO, KINDS, AgentPool, together
from tests.interop.cluster import Cluster

pytestmark = pytest.mark.interop

QUEUES = frozenset(range(6))

# So many messages go round all queues several times.
ROUND = 60


def queues_of(messages: list[ReceivedMessage]) -> set[int]:
    return {message.queue_id for message in messages}


def wait_shared(one: Consumer, other: Consumer) -> None:
    """Waits until each gets messages of its own queues only and together they get all.

    Messages that arrive while the queues are reassigned are checked again from a later message on.
    """
    starts = [len(one.messages()), len(other.messages())]

    def is_shared() -> bool:
        since = [one.messages()[starts[0] :], other.messages()[starts[1] :]]
        if any(len(messages) < ROUND for messages in since):
            return False
        mine, yours = queues_of(since[0]), queues_of(since[1])
        if mine.isdisjoint(yours) and mine | yours == QUEUES:
            return True
        starts[:] = [len(one.messages()), len(other.messages())]
        return False

    wait_until(
        is_shared,
        lambda: one.agent.process.error(
            f"queues are not shared: {queues_of(one.messages()[starts[0] :])} and "
            f"{queues_of(other.messages()[starts[1] :])}"
        ),
    )


def test_the_other_consumer_takes_over_from_a_killed_one(
    cluster: Cluster, agents: AgentPool
) -> None:
    topic = cluster.create_topic(agents.get(GO), "Rebalance", queues=len(QUEUES))
    survivors = agents.all()
    victims = [agents.spawn(kind) for kind in KINDS]

    def consume(agent: Agent) -> Consumer:
        group = f"{topic}_{agent.kind.replace('.', '_')}"
        return agent.push(cluster.namesrv, topic, group)

    producer = agents.get(GO).producer(cluster.namesrv)
    load = producer.load(topic, broker=cluster.broker_name, queues=sorted(QUEUES), name=topic)
    try:
        staying = together(consume, survivors)
        for consumer in staying:
            consumer.wait(lambda got: queues_of(got) == QUEUES, "messages of all queues")
        killed = together(consume, victims)
        together(lambda pair: wait_shared(*pair), list(zip(staying, killed, strict=True)))
        counts = [len(consumer.messages()) for consumer in staying]
    finally:
        for victim in victims:
            victim.kill()

    for consumer, count in zip(staying, counts, strict=True):
        consumer.wait(
            lambda got, count=count: queues_of(got[count:]) == QUEUES,  # type: ignore[misc]
            "messages of the killed consumer's queues",
        )
    sent = [ack.body for ack in load.stop()]
    for consumer, gone in zip(staying, killed, strict=True):
        consumer.wait_for(sorted(set(sent) - set(gone.bodies())))
        assert set(sent) <= {*consumer.bodies(), *gone.bodies()}
    producer.stop()
    together(Consumer.stop, staying)
