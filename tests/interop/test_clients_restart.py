"""The broker restarts under load: nothing acknowledged is lost, queues keep their order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.agent import Ack, Agent, Consumer, Load, Producer, ReceivedMessage
from tests.interop.agents import JAVA_4, KINDS, AgentPool, together
from tests.interop.cluster import Cluster

pytestmark = pytest.mark.interop

QUEUES_EACH = 2
MESSAGES_A_ROUND = 50


def number_of(body: str) -> int:
    return int(body.rpartition("/")[2])


def check_log(acks: Sequence[Ack], received: Sequence[ReceivedMessage]) -> None:
    """Every acknowledged message is where the acknowledgement said, and queues are in order.

    A message that was stored but not acknowledged was sent again, so a number may repeat.
    """
    stored = {message.position: message.body for message in received}
    for ack in acks:
        assert stored[ack.queue_id, ack.queue_offset] == ack.body
    for queue_id in {ack.queue_id for ack in acks}:
        offsets = sorted(offset for queue, offset in stored if queue == queue_id)
        assert offsets == list(range(len(offsets)))
        numbers = [number_of(stored[queue_id, offset]) for offset in offsets]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(numbers[-1] + 1))


def check_arrival(received: Sequence[ReceivedMessage]) -> None:
    """An orderly consumer may get messages again, but sees new ones in order of their queue."""
    seen: dict[int, int] = {}
    for message in received:
        last = seen.get(message.queue_id, -1)
        assert message.queue_offset <= last + 1, (message, last)
        seen[message.queue_id] = max(last, message.queue_offset)


def test_nothing_acknowledged_is_lost(server_side: str, agents: AgentPool, tmp_path: Path) -> None:
    """Stopped and killed in turn.

    Old clients and Go notice half a minute later that nobody will answer their waiting pulls.
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
            check_log(acks, received)
            if consumer.agent.kind != JAVA_4:
                check_arrival(received)
        together(Consumer.stop, consumers)
        together(Producer.stop, producers)
