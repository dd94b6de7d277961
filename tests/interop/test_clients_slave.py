"""Java consumers read from a slave while the master is away, and return to the master.

Go consumers request their offsets from masters only, so none can start meanwhile.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from roquet.client import Message, Producer
from tests.interop.agent import Agent, Consumer, wait_until
from tests.interop.agents import JAVA_KINDS, AgentPool, together
from tests.interop.cluster import ROQUET
from tests.interop.ha_pair import HaPair
from tests.interop.slave_tables import TOPIC, make_topic, table_of
from tests.patience import TIMEOUT_MS

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

COUNT = 30


async def send(pair: HaPair, first: int) -> list[str]:
    bodies = [f"m/{number}" for number in range(first, first + COUNT)]
    async with Producer(pair.namesrv, group="Writers", send_timeout_ms=TIMEOUT_MS) as producer:
        for body in bodies:
            await producer.send(Message(TOPIC, body.encode()))
    return bodies


def has_topic(pair: HaPair) -> bool:
    return TOPIC in table_of(pair, 1, "topics.json", "topicConfigTable")


async def test_consumers_go_to_the_slave_and_come_back(agents: AgentPool, tmp_path: Path) -> None:
    clients = agents.all(JAVA_KINDS)
    with HaPair(tmp_path, (ROQUET, ROQUET), {"slaveReadEnable": "true"}) as pair:
        for number in (0, 1):
            await asyncio.to_thread(pair.start, number)
        make_topic(pair, TOPIC)
        bodies = await send(pair, 0)
        await asyncio.to_thread(pair.wait_same)
        await asyncio.to_thread(
            wait_until, lambda: has_topic(pair), lambda: pair.broker(1).error("has no topic")
        )
        await asyncio.to_thread(pair.stop, 0)

        def start(agent: Agent) -> Consumer:
            return agent.push(pair.namesrv, TOPIC, f"group_{agent.kind.replace('.', '_')}")

        consumers = await asyncio.to_thread(together, start, clients)
        await asyncio.to_thread(together, lambda each: each.wait_for(bodies), consumers)
        await asyncio.to_thread(pair.start, 0)
        bodies += await send(pair, COUNT)
        await asyncio.to_thread(together, lambda each: each.wait_for(bodies), consumers)
        await asyncio.to_thread(together, Consumer.stop, consumers)
