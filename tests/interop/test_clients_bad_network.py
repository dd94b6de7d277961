"""Real clients behind the proxy for faults: nothing acknowledged is lost on a bad network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from roquet.testing.background import background_broker
from roquet.testing.fault_proxy import FaultProxy
from tests.interop.agent import Agent, Load, Producer
from tests.interop.agents import KINDS, AgentPool, together

pytestmark = pytest.mark.interop

TOPIC = "BadNetwork"
QUEUES_EACH = 2
MESSAGES_A_ROUND = 30

FAULTS: list[Callable[[FaultProxy], None]] = [
    lambda proxy: proxy.reset(),
    lambda proxy: proxy.cut(),
    lambda proxy: proxy.to_client.reset_after(10),
    lambda proxy: proxy.to_client.cut_after(1000),
    lambda proxy: proxy.to_server.reset_after(100),
    lambda proxy: proxy.to_client.delay(5),
    lambda proxy: proxy.to_server.dribble(100, every_ms=0.1),
]


def test_nothing_acknowledged_is_lost(agents: AgentPool) -> None:
    clients = agents.all()
    with background_broker(proxied=True) as b:
        b.create_topic(TOPIC, queues=QUEUES_EACH * len(clients))
        proxy = b.running.proxy

        def start(agent: Agent) -> tuple[Producer, Load]:
            producer = agent.producer(b.namesrv, retries=0, timeoutMs=1000)
            first = KINDS.index(agent.kind) * QUEUES_EACH
            load = producer.load(
                TOPIC,
                broker=b.name,
                queues=range(first, first + QUEUES_EACH),
                name=f"{TOPIC}-{agent.kind}",
            )
            return producer, load

        producers, loads = zip(*together(start, clients), strict=True)
        for fault in FAULTS:
            together(lambda load: load.wait_more(MESSAGES_A_ROUND), loads)
            b.call(partial(fault, proxy))
        together(lambda load: load.wait_more(MESSAGES_A_ROUND), loads)
        acks = [ack for each in together(Load.stop, loads) for ack in each]
        together(Producer.stop, producers)

        assert max(ack.tries for ack in acks) > 1, "no message met a fault"
        stored = {
            (each.queue_id, each.queue_offset): each.body.decode() for each in b.messages(TOPIC)
        }
        for ack in acks:
            assert stored[ack.queue_id, ack.queue_offset] == ack.body
