"""Administrators who reset groups and query live clients, with Apache RocketMQ's own admin tool."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest

from tests.interop.agent import Agent, Consumer, Outgoing, Producer, ReceivedMessage, wait_until
from tests.interop.agents import GO, JAVA, JAVA_BINARY, JAVA_KINDS, KINDS, AgentPool
from tests.interop.cluster import Cluster
from tests.interop.javaclient import JavaClient

pytestmark = pytest.mark.interop

QUEUES = 2
ROUND = 6
PER_QUEUE = ROUND // QUEUES

# How brokers reset a group whose clients are connected: this one responds to their next pulls with
# the new offset, the hasty one notifies them at once.
CLUSTERS = ("cluster", "hasty_cluster")


def send_round(producer: Producer, cluster: Cluster, topic: str, name: str) -> list[str]:
    """Sends messages, as many to each queue, and returns their bodies."""
    messages = [
        Outgoing(f"{name} {i}", queue=(cluster.broker_name, i % QUEUES)) for i in range(ROUND)
    ]
    producer.send(topic, messages, "queue")
    return [message.body for message in messages]


def times(messages: Sequence[ReceivedMessage]) -> Counter[str]:
    return Counter(message.body for message in messages)


def has_come_twice(bodies: Sequence[str], received: list[ReceivedMessage]) -> bool:
    came = times(received)
    return all(came[body] >= 2 for body in bodies)


def wait_later(messages: Sequence[ReceivedMessage]) -> None:
    """Waits until the clock shows a later millisecond than that of any of the messages."""
    last_ms = max(message.store_timestamp_ms for message in messages)
    while time.time_ns() // 1_000_000 <= last_ms:
        time.sleep(0.001)


def reset_rows(printed: str, broker_name: str) -> list[tuple[int, int]]:
    """Queue ids and offsets that the admin tool says a group was moved to."""
    lines = [line.split() for line in printed.splitlines()]
    return sorted((int(row[1]), int(row[2])) for row in lines if row[:1] == [broker_name])


def has_offset(
    admin: JavaClient, cluster: Cluster, *, group: str, topic: str, client_id: str
) -> bool:
    """Whether a client reports that it has consumed two messages of the only queue."""
    return admin.client_offsets(cluster, group=group, topic=topic) == {(client_id, 0): 2}


class LiveGroup:
    """A topic with two rounds of messages and a group that has consumed them.

    Attributes:
        old, new: Bodies of the rounds.
        since_ms: A time between them.
    """

    def __init__(self, cluster: Cluster, agent: Agent, name: str) -> None:
        self.cluster = cluster
        self.topic = cluster.create_topic(agent, name, queues=QUEUES)
        self.group = f"{self.topic}_group"
        self.producer = agent.producer(cluster.namesrv)
        self.consumer = agent.push(cluster.namesrv, self.topic, self.group)
        self.old = self.send("old")
        wait_later(self.consumer.wait_for(self.old))
        self.new = self.send("new")
        received = self.consumer.wait_for(self.new)
        self.since_ms = min(
            message.store_timestamp_ms for message in received if message.body in self.new
        )

    def send(self, name: str) -> list[str]:
        return send_round(self.producer, self.cluster, self.topic, name)

    def reset_to_time(self, admin: JavaClient) -> None:
        printed = admin.mqadmin(
            *("resetOffsetByTime", "-g", self.group, "-t", self.topic, "-s", str(self.since_ms)),
            at=self.cluster,
        )
        moved = reset_rows(printed, self.cluster.broker_name)
        assert moved == [(queue_id, PER_QUEUE) for queue_id in range(QUEUES)], printed

    def wait_twice(self, bodies: list[str], consumer: Consumer | None = None) -> None:
        (consumer or self.consumer).wait(
            partial(has_come_twice, bodies), f"{bodies} have come twice"
        )

    def check_moved_to_time(self) -> None:
        """Exactly what was stored since then was redelivered, and later messages come once."""
        self.wait_twice(self.new)
        after = self.send("after")
        came = times(self.consumer.wait_for(after))
        assert came == Counter([*self.old, *self.new, *self.new, *after])

    def stop(self) -> None:
        self.consumer.stop()
        self.producer.stop()


@pytest.mark.parametrize("kind", JAVA_KINDS)
def test_a_live_group_is_moved_when_it_pulls(
    cluster: Cluster, agents: AgentPool, admin: JavaClient, kind: str
) -> None:
    """To a time, to an offset of one queue, and to the end, past what it cannot consume.

    The Go client would learn of it too, but takes half a minute to continue.
    """
    agent = agents.get(kind)
    live = LiveGroup(cluster, agent, "MovedByPull")
    topic = live.topic
    groups = [f"{topic}_offset", f"{topic}_stuck"]
    exact = agent.push(cluster.namesrv, topic, groups[0])
    known = exact.wait_for([*live.old, *live.new])
    again = [message.body for message in known if message.position >= (1, 4)]
    polling = agent.lite(cluster.namesrv, topic, f"{topic}_polling")
    polling.wait_for([*live.old, *live.new])
    stuck = agent.push(cluster.namesrv, topic, groups[1], listener="orderly", failures=1_000_000)
    stuck.wait_for(live.old[:QUEUES])

    live.reset_to_time(admin)
    words = ("-b", cluster.broker.address, "-q", "1", "-o", "4", "-s", "0")
    printed = admin.mqadmin("resetOffsetByTime", "-g", groups[0], "-t", topic, *words)
    assert "reset consumer offset to 4" in printed
    printed = admin.mqadmin("skipAccumulatedMessage", "-g", groups[1], "-t", topic)
    assert reset_rows(printed, cluster.broker_name) == [(i, 2 * PER_QUEUE) for i in range(QUEUES)]

    since = ("-s", str(live.since_ms))
    admin.mqadmin("resetOffsetByTime", "-g", f"{topic}_polling", "-t", topic, *since)
    live.wait_twice(live.new, polling)
    live.wait_twice(again, exact)
    live.check_moved_to_time()
    after = [f"after {i}" for i in range(ROUND)]
    came = times(exact.wait_for(after))
    assert came == Counter([*live.old, *live.new, *again, *after])
    came = times(polling.wait_for(after))
    assert came == Counter([*live.old, *live.new, *live.new, *after])
    assert set(times(stuck.wait_for(after[:QUEUES]))) == {*live.old[:QUEUES], *after[:QUEUES]}
    exact.stop()
    polling.stop()
    stuck.stop()
    live.stop()


def test_live_groups_are_notified_of_a_reset(
    hasty_cluster: Cluster, agents: AgentPool, admin: JavaClient
) -> None:
    """All clients wait for ten seconds before they continue, so they do it at the same time."""
    groups = [LiveGroup(hasty_cluster, agents.get(kind), "MovedByNews") for kind in KINDS]
    for live in groups:
        live.reset_to_time(admin)
    for live in groups:
        live.check_moved_to_time()
        live.stop()


@pytest.mark.parametrize("cluster_name", CLUSTERS)
def test_an_offline_group_is_moved(
    request: pytest.FixtureRequest, agents: AgentPool, admin: JavaClient, cluster_name: str
) -> None:
    """It starts there when it comes back: first at the end, then at a time."""
    cluster: Cluster = request.getfixturevalue(cluster_name)
    agent = agents.get(JAVA)
    live = LiveGroup(cluster, agent, "MovedAway")
    live.consumer.stop()
    live.send("missed")
    admin.mqadmin("skipAccumulatedMessage", "-g", live.group, "-t", live.topic, at=cluster)
    after = live.send("after")
    live.consumer = agent.push(cluster.namesrv, live.topic, live.group)
    assert times(live.consumer.wait_for(after)) == Counter(after)
    live.consumer.stop()
    admin.mqadmin(
        "resetOffsetByTime", "-g", live.group, "-t", live.topic, "-s", str(live.since_ms),
        at=cluster,
    )  # fmt: skip
    live.consumer = agent.push(cluster.namesrv, live.topic, live.group)
    missed = [f"missed {i}" for i in range(ROUND)]
    wanted = [*live.new, *missed, *after]
    assert times(live.consumer.wait_for(wanted)) == Counter(wanted)
    live.stop()


@pytest.mark.parametrize("kind", [*KINDS, JAVA_BINARY])
def test_live_clients_are_queried(
    cluster: Cluster, agents: AgentPool, admin: JavaClient, kind: str
) -> None:
    """Their running info, their progress, and direct consumption of a message in between."""
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "Asked", queues=1)
    group = f"{topic}_group"
    instance = f"asked-{topic}"
    consumer = agent.push(cluster.namesrv, topic, group, instance=instance)
    producer = agent.producer(cluster.namesrv)
    results = producer.send(topic, [Outgoing("first"), Outgoing("second")], "sync")
    consumer.wait_for(["first", "second"])
    connections = admin.mqadmin("consumerConnection", "-g", group).split()
    (client_id,) = [word for word in connections if word.endswith(f"@{instance}")]

    printed = admin.mqadmin("consumerStatus", "-g", group, "-i", client_id)
    words = [line.split() for line in printed.splitlines()]
    assert any(row[1:3] == ["Topic:", topic] for row in words), printed
    assert any(row[:3] == [topic, cluster.broker_name, "0"] for row in words), printed
    if kind != GO:
        printed = admin.mqadmin("consumerStatus", "-g", group, "-i", client_id, "-s")
        assert "PullMessageService" in printed, printed
    wait_until(
        partial(has_offset, admin, cluster, group=group, topic=topic, client_id=client_id),
        lambda: agent.process.error("the client does not say that it is at offset 2"),
    )

    printed = admin.mqadmin(
        "queryMsgById", "-t", topic, "-i", results[0].offset_message_id, "-g", group,
        "-d", client_id,
    )  # fmt: skip
    assert "consumeResult=CR_SUCCESS" in printed, printed
    consumer.wait(partial(has_come_twice, ["first"]), "the first message has come twice")
    assert times(consumer.messages()) == Counter(["first", "first", "second"])
    consumer.stop()
    producer.stop()


def test_a_group_takes_the_offsets_of_another(
    cluster: Cluster, agents: AgentPool, admin: JavaClient
) -> None:
    """By the admin tool, which copies queue by queue, and by the request for that purpose."""
    agent = agents.get(JAVA)
    live = LiveGroup(cluster, agent, "Cloned")
    live.consumer.stop()
    # It may not have committed all that its listener got.
    admin.mqadmin("skipAccumulatedMessage", "-g", live.group, "-t", live.topic)
    targets = [f"{live.topic}_copied", f"{live.topic}_cloned"]
    admin.mqadmin("updateSubGroup", "-b", cluster.broker.address, "-g", targets[0])
    admin.mqadmin("cloneGroupOffset", "-s", live.group, "-d", targets[0], "-t", live.topic)
    admin.clone_offsets(cluster, source=live.group, target=targets[1], topic=live.topic)
    after = live.send("after")
    for target in targets:
        consumer = agent.push(cluster.namesrv, live.topic, target)
        assert times(consumer.wait_for(after)) == Counter(after)
        consumer.stop()
    live.producer.stop()
