"""The broker restarts under load: nothing acknowledged is lost, queues keep their order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.agent import Agent, Consumer, Load, Producer
from tests.interop.agents import JAVA_4, KINDS, AgentPool, together
from tests.interop.arrival import check_arrival, check_log
from tests.interop.cluster import Cluster

pytestmark = pytest.mark.interop

QUEUES_EACH = 2
MESSAGES_A_ROUND = 50


def test_nothing_acknowledged_is_lost(server_side: str, agents: AgentPool, tmp_path: Path) -> None:
    """Stopped and killed in turn.

    Old clients and Go notice only half a minute later that their held pulls get no response.
    """
    clients = agents.all()
    with Cluster(server_side, server_side, tmp_path) as cluster:
        topic = cluster.create_topic(clients[0], "Restart", queues=QUEUES_EACH * len(clients))

        def start(agent: Agent) -> tuple[Consumer, Producer, Load]:
            group = f"{topic}_{agent.kind.replace('.', '_')}"
            listener = "concurrent" if agent.kind == JAVA_4 else "orderly"
            consumer = agent.push(cluster.namesrv, topic, group, listener=listener)
            producer = agent.producer(cluster.namesrv, retries=0, timeoutMs=1000)
            first = KINDS.index(agent.kind) * QUEUES_EACH
            load = producer.load(
                topic,
                broker=cluster.broker_name,
                queues=range(first, first + QUEUES_EACH),
                name=f"{topic}-{agent.kind}",
            )
            return consumer, producer, load

        consumers, producers, loads = zip(*together(start, clients), strict=True)
        together(lambda load: load.wait_more(MESSAGES_A_ROUND), loads)
        for end in ("stop", "kill", "kill", "stop"):
            cluster.broker.stop() if end == "stop" else cluster.broker.kill()
            cluster.start_broker()
            together(lambda load: load.wait_more(MESSAGES_A_ROUND), loads)
        acks = [ack for each in together(Load.stop, loads) for ack in each]
        assert max(ack.tries for ack in acks) > 1, "no message met the restart"

        bodies = [ack.body for ack in acks]
        for consumer in consumers:
            received = consumer.wait_for(bodies)
            check_log(acks, {message.position: message.body for message in received})
            if consumer.agent.kind != JAVA_4:
                check_arrival(received)
        together(Consumer.stop, consumers)
        together(Producer.stop, producers)
