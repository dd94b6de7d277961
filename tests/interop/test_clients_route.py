"""Routes: Roquet's broker at Apache's name server and the reverse, with new and old clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.agent import Agent, AgentError, Outgoing, wait_until
from tests.interop.agents import GO, JAVA, JAVA_OLD, KINDS, AgentPool, together
from tests.interop.cluster import APACHE, ROQUET, Cluster

pytestmark = pytest.mark.interop

QUEUES = 3


def check_route(agent: Agent, cluster: Cluster, topic: str) -> None:
    route = agent.route(cluster.namesrv, topic)
    if agent.kind == GO:
        assert topic in agent.topics(cluster.namesrv)
        # All that this client shows of a route.
        queues = sorted((queue["broker"], queue["queueId"]) for queue in route["publish"])
        assert queues == [(cluster.broker_name, i) for i in range(QUEUES)]
        return
    assert route["queues"] == [
        {"broker": cluster.broker_name, "read": QUEUES, "write": QUEUES, "perm": 6}
    ]
    assert route["brokers"] == [
        {
            "cluster": "DefaultCluster",
            "name": cluster.broker_name,
            "addresses": [{"id": 0, "address": cluster.broker.address}],
        }
    ]


def send_and_consume(agent: Agent, cluster: Cluster, topic: str) -> None:
    messages = [Outgoing(f"{agent.kind} {i}") for i in range(6)]
    consumer = agent.push(cluster.namesrv, topic, f"{topic}_{agent.kind.replace('.', '_')}")
    producer = agent.producer(cluster.namesrv)
    results = producer.send(topic, messages, "sync")
    assert [result.status for result in results] == ["SEND_OK"] * len(messages)
    consumer.wait_for([message.body for message in messages])
    consumer.stop()
    producer.stop()


@pytest.mark.parametrize(
    ("namesrv_side", "broker_side"),
    [(APACHE, ROQUET), (ROQUET, APACHE), (ROQUET, ROQUET)],
    ids=["apache-namesrv", "apache-broker", "all-roquet"],
)
def test_a_route_is_the_same_for_all(
    server_side: str, agents: AgentPool, tmp_path: Path, namesrv_side: str, broker_side: str
) -> None:
    if server_side == APACHE:
        namesrv_side = broker_side = APACHE
    clients = agents.all([*KINDS, JAVA_OLD])
    with Cluster(namesrv_side, broker_side, tmp_path) as cluster:
        topic = cluster.create_topic(agents.get(JAVA), "Route", queues=QUEUES)
        together(lambda agent: check_route(agent, cluster, topic), clients)
        together(lambda agent: send_and_consume(agent, cluster, topic), clients)

        with pytest.raises(AgentError):
            agents.get(JAVA).route(cluster.namesrv, "NoSuchTopic")
        # A broker that is stopped removes its routes.
        cluster.broker.stop()
        for agent in clients:
            wait_until(
                lambda agent=agent: not cluster.is_routed(agent, topic),  # type: ignore[misc]
                lambda: AssertionError("the route of a stopped broker is still there"),
            )


def test_a_cluster_of_both_kinds(server_side: str, agents: AgentPool, tmp_path: Path) -> None:
    """Messages go to both brokers in turn and come from both; clients treat them alike."""
    clients = agents.all()
    with (
        Cluster(server_side, server_side, tmp_path) as cluster,
        cluster.start_other_broker(APACHE) as other,
    ):
        names = {cluster.broker_name, other.broker_name}
        java = agents.get(JAVA)
        topic = ""

        def is_everywhere() -> bool:
            nonlocal topic
            topic = cluster.create_topic(java, "Mixed", queues=QUEUES)
            route = java.route(cluster.namesrv, topic)
            return {queue["broker"] for queue in route["queues"]} == names

        wait_until(is_everywhere, lambda: other.error("it did not register"))

        def send_to_both(agent: Agent) -> None:
            group = f"{topic}_{agent.kind.replace('.', '_')}"
            consumer = agent.push(cluster.namesrv, topic, group)
            producer = agent.producer(cluster.namesrv)
            messages = [Outgoing(f"{agent.kind} {i}") for i in range(4 * QUEUES)]
            results = producer.send(topic, messages, "sync")
            assert {result.broker_name for result in results} == names
            consumer.wait_for([message.body for message in messages])
            consumer.stop()
            producer.stop()

        together(send_to_both, clients)


def test_a_restarted_name_server_learns_its_brokers(
    server_side: str, agents: AgentPool, tmp_path: Path
) -> None:
    agent = agents.get(JAVA)
    settings = {"registerNameServerPeriod": 10_000}
    with Cluster(server_side, server_side, tmp_path, broker_settings=settings) as cluster:
        topic = cluster.create_topic(agent, "Learns", queues=QUEUES)
        cluster.restart_namesrv()
        wait_until(
            lambda: cluster.is_routed(agent, topic),
            lambda: cluster.broker.error("it did not register again"),
        )
        check_route(agent, cluster, topic)
        send_and_consume(agent, cluster, topic)
