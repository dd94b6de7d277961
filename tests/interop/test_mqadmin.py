"""Apache RocketMQ's admin tool, as published, against the servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop import javabuild
from tests.interop.agent import Outgoing
from tests.interop.agents import JAVA, AgentPool
from tests.interop.cluster import Cluster
from tests.interop.javaclient import JavaClient

pytestmark = pytest.mark.interop

QUEUES = 2


@pytest.fixture
def admin(
    java_toolkit: javabuild.JavaToolkit,
    cluster: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[JavaClient]:
    with JavaClient(java_toolkit, tmp_path_factory.mktemp("mqadmin"), cluster) as client:
        yield client


def test_mqadmin(cluster: Cluster, agents: AgentPool, admin: JavaClient) -> None:
    # Something is registered by now, so that the name server knows the broker.
    agent = agents.get(JAVA)
    cluster.create_topic(agent, "Admin", queues=1)
    topic = "AdminMade"
    queues = str(QUEUES)
    printed = admin.mqadmin(
        "updateTopic", "-b", cluster.broker.address, "-t", topic, "-r", queues, "-w", queues
    )
    assert f"create topic to {cluster.broker.address} success." in printed
    assert f"readQueueNums={QUEUES}" in printed

    assert topic in admin.mqadmin("topicList").split()
    clusters = [line.split() for line in admin.mqadmin("clusterList").splitlines()]
    row = next(line for line in clusters if cluster.broker_name in line)
    assert row[:4] == ["DefaultCluster", cluster.broker_name, "0", cluster.broker.address]

    route = admin.mqadmin("topicRoute", "-t", topic)
    assert cluster.broker_name in route
    assert cluster.broker.address in route

    producer = agent.producer(cluster.namesrv)
    messages = [Outgoing(f"{i}", queue=(cluster.broker_name, i % QUEUES)) for i in range(6)]
    producer.send(topic, messages, "queue")
    producer.stop()
    status = [line.split() for line in admin.mqadmin("topicStatus", "-t", topic).splitlines()]
    rows = [line[:4] for line in status if line[:1] == [cluster.broker_name]]
    assert sorted(rows) == [[cluster.broker_name, str(i), "0", "3"] for i in range(QUEUES)]

    status_text = admin.mqadmin("brokerStatus", "-b", cluster.broker.address)
    assert "putMessageTimesTotal" in status_text or "msgPutTotalTodayNow" in status_text
