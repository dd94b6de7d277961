"""Apache RocketMQ's admin tool, as published, against the servers."""

from __future__ import annotations

import pytest

from tests.interop.agent import Outgoing, wait_until
from tests.interop.agents import JAVA, AgentPool
from tests.interop.cluster import Cluster
from tests.interop.javaclient import JavaClient

pytestmark = pytest.mark.interop

QUEUES = 2


def rows(printed: str, first: str) -> list[list[str]]:
    """The words of the lines that begin with `first`."""
    return [line.split() for line in printed.splitlines() if line.split()[:1] == [first]]


def test_topics_and_clusters(cluster: Cluster, agents: AgentPool, admin: JavaClient) -> None:
    agent = agents.get(JAVA)
    # It is registered by now, so that the name server knows the broker.
    cluster.create_topic(agent, "Admin", queues=1)
    address = cluster.broker.address
    topic = "AdminMade"
    printed = admin.mqadmin(
        "updateTopic", "-b", address, "-t", topic, "-r", str(QUEUES), "-w", str(QUEUES)
    )
    assert f"create topic to {address} success." in printed
    assert f"readQueueNums={QUEUES}, writeQueueNums={QUEUES}, perm=RW-" in printed
    assert topic in admin.mqadmin("topicList").split()
    (row,) = rows(admin.mqadmin("clusterList"), "DefaultCluster")
    assert row[1:5] == [cluster.broker_name, "0", address, "V5_4_0"]
    assert f'0:"{address}"' in admin.mqadmin("topicRoute", "-t", topic)

    producer = agent.producer(cluster.namesrv)
    messages = [
        Outgoing(f"{i}", keys=[f"admin-{i}"], queue=(cluster.broker_name, i % QUEUES))
        for i in range(6)
    ]
    results = producer.send(topic, messages, "queue")
    cluster.wait_stored(topic, len(messages))
    status = rows(admin.mqadmin("topicStatus", "-t", topic), cluster.broker_name)
    assert sorted(row[1:4] for row in status) == [[str(i), "0", "3"] for i in range(QUEUES)]
    found = admin.mqadmin("queryMsgByKey", "-t", topic, "-k", "admin-5")
    assert [row[1:3] for row in rows(found, results[5].message_id)] == [["1", "2"]]
    put_total = rows(admin.mqadmin("brokerStatus", "-b", address), "putMessageTimesTotal")
    assert int(put_total[0][-1]) >= len(messages)

    printed = admin.mqadmin("updateTopicPerm", "-b", address, "-t", topic, "-p", "4")
    assert f"update topic perm from 6 to 4 in {address} success." in printed
    (queues,) = agent.route(cluster.namesrv, topic)["queues"]
    assert queues["perm"] == 4
    producer.stop()
    printed = admin.mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", topic)
    assert f"delete topic [{topic}] from cluster [DefaultCluster] success." in printed
    assert topic not in admin.mqadmin("topicList").split()


def test_groups_and_clients(cluster: Cluster, agents: AgentPool, admin: JavaClient) -> None:
    agent = agents.get(JAVA)
    topic = cluster.create_topic(agent, "AdminGroups", queues=QUEUES)
    address = cluster.broker.address
    group = f"{topic}_group"
    printed = admin.mqadmin("updateSubGroup", "-b", address, "-g", group, "-r", "5")
    assert f"create subscription group to {address} success." in printed
    config = admin.mqadmin("getConsumerConfig", "-g", group)
    assert rows(config, "retryMaxTimes") == [["retryMaxTimes", "=", "5"]]

    consumer = agent.push(cluster.namesrv, topic, group, expression="TagA || TagB")
    connections = admin.mqadmin("consumerConnection", "-g", group)
    assert "ConsumeType: CONSUME_PASSIVELY" in connections
    assert rows(connections, topic) == [[topic, "TagA", "||", "TagB"]]
    producer = agent.producer(cluster.namesrv, "admin_producers")
    producer.send(topic, [Outgoing("x", tags="TagA")], "sync")

    def has_producer() -> bool:
        nonlocal connections
        connections = admin.mqadmin("producerConnection", "-g", "admin_producers", "-t", topic)
        return [row[-2:] for row in rows(connections, "0001")] == [["JAVA", "V5_4_0"]]

    # A producer is known from its first heartbeat on, a second after its start.
    wait_until(has_producer, lambda: AssertionError(connections))
    producer.stop()
    consumer.stop()
    printed = admin.mqadmin("deleteSubGroup", "-b", address, "-g", group)
    assert f"delete subscription group [{group}] from broker [{address}] success." in printed


def test_rates_of_what_is_produced_and_consumed(
    cluster: Cluster, agents: AgentPool, admin: JavaClient
) -> None:
    agent = agents.get(JAVA)
    topic = cluster.create_topic(agent, "AdminRates", queues=QUEUES)
    group = f"{topic}_group"
    consumer = agent.push(cluster.namesrv, topic, group)
    producer = agent.producer(cluster.namesrv)
    bodies = [f"{i}" for i in range(60)]
    producer.send(topic, [Outgoing(body) for body in bodies], "sync")
    consumer.wait_for(bodies)
    printed = ""

    def has_rates() -> bool:
        nonlocal printed
        printed = admin.mqadmin("statsAll", "-t", topic)
        (row,) = [row for row in rows(printed, topic) if row[1:2] == [group]]
        return float(row[-4]) > 0 and float(row[-3]) > 0

    # The counters are looked at every ten seconds.
    wait_until(has_rates, lambda: AssertionError(printed))
    progress = admin.mqadmin("consumerProgress", "-g", group)
    (line,) = [line for line in progress.splitlines() if line.startswith("Consume TPS:")]
    assert float(line.split(":")[1]) > 0
    producer.stop()
    consumer.stop()


def test_write_permission_of_a_broker(
    cluster: Cluster, agents: AgentPool, admin: JavaClient
) -> None:
    agent = agents.get(JAVA)
    topic = cluster.create_topic(agent, "AdminWipe", queues=QUEUES)
    printed = admin.mqadmin("wipeWritePerm", "-b", cluster.broker_name)
    assert f"wipe write perm of broker[{cluster.broker_name}]" in printed
    (queues,) = agent.route(cluster.namesrv, topic)["queues"]
    assert queues["perm"] == 4
    printed = admin.mqadmin("addWritePerm", "-b", cluster.broker_name)
    assert f"add write perm of broker[{cluster.broker_name}]" in printed
    (queues,) = agent.route(cluster.namesrv, topic)["queues"]
    assert queues["perm"] == 6
