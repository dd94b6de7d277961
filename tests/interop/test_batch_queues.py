"""Topics with batch consume queues: Java clients with Roquet, and one store on both sides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from roquet.broker.broker import Broker
from roquet.broker.config import BrokerConfig
from roquet.format.batch_consume_queue import BATCH_UNIT_BYTES
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from roquet.store.config import MessageStoreConfig
from tests.interop.agent import Outgoing, wait_until
from tests.interop.agents import JAVA, AgentPool
from tests.interop.asker import Ask, Asker, make_ask
from tests.interop.batch_queue_steps import BATCH, clean_sends, reads, topic_ask, topics
from tests.interop.cluster import Cluster
from tests.interop.javabroker import JavaNamesrv, start_broker
from tests.interop.javabuild import JavaToolkit
from tests.interop.oracle import JAVA_CONFIG, SMALL_FILES
from tests.interop.roquetstore import verify_store
from tests.patience import PATIENT

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

FILE_BYTES = {"mapperFileSizeBatchConsumeQueue": 4 * BATCH_UNIT_BYTES}
CONFIG = msgspec.convert({**SMALL_FILES, **FILE_BYTES}, MessageStoreConfig)


async def ask_all(address: str, asks: Iterable[Ask]) -> list[RemotingCommand]:
    async with RemotingClient(config=PATIENT) as client:
        asker = Asker(await client.connect(address))
        return [await asker.ask(ask) for ask in asks]


def test_java_clients_batch_and_get_messages_back(cluster: Cluster, agents: AgentPool) -> None:
    agent = agents.get(JAVA)
    topic = "InnerBatches"
    made = topic_ask("create", topic, "+queue.type=BatchCQ")
    (answer,) = asyncio.run(ask_all(cluster.broker.address, [made]))
    assert answer.code == 0
    wait_until(partial(cluster.is_routed, agent, topic), lambda: AssertionError("no route"))
    consumer = agent.push(cluster.namesrv, topic, f"{topic}_group")
    producer = agent.producer(cluster.namesrv)
    places: dict[str, tuple[int, int]] = {}
    for number, size in enumerate((1, 2, 5, 3)):
        batch = [Outgoing(f"{number}-{index}", keys=[f"k{index}"]) for index in range(size)]
        (result,) = producer.send(topic, batch, "batch")
        assert result.status == "SEND_OK"
        assert len(result.message_id.split(",")) == len(result.offset_message_id.split(",")) == 1
        for index, message in enumerate(batch):
            places[message.body] = (result.queue_id, result.queue_offset + index)
        (single,) = producer.send(topic, [Outgoing(f"single {number}")], "sync")
        places[f"single {number}"] = (single.queue_id, single.queue_offset)
    assert len(set(places.values())) == len(places)
    received = consumer.wait_for(list(places))
    assert {message.body: message.position for message in received} == places
    consumer.stop()
    producer.stop()


def max_offset(address: str) -> str:
    """Where the first queue ends; Java acknowledges messages before they are in it."""
    ask = make_ask(RequestCode.GET_MAX_OFFSET, "", topic=BATCH, queueId=0)
    (answer,) = asyncio.run(ask_all(address, [ask]))
    assert answer.ext_fields is not None
    return answer.ext_fields["offset"]


def told(answers: Iterable[RemotingCommand]) -> list[tuple[object, ...]]:
    """What both sides must report of a store: everything but the names of brokers."""
    return [
        (answer.code, answer.ext_fields, b"" if answer.body[:1] == b"{" else answer.body)
        for answer in answers
    ]


async def roquet_turn(store: Path, asks: Iterable[Ask]) -> list[RemotingCommand]:
    config = BrokerConfig(store_root=str(store), listen_port=0, bind_address="127.0.0.1")
    broker = Broker(config, CONFIG)
    await broker.start()
    try:
        return await ask_all(broker.address, asks)
    finally:
        await broker.stop()


def test_a_store_is_handed_to_java_and_back(
    java_toolkit: JavaToolkit, java_namesrv: JavaNamesrv, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    ours = asyncio.run(roquet_turn(store, [*topics(), *clean_sends(), *reads(BATCH, 36)]))
    first = len([*topics(), *clean_sends()])
    java_config = {**JAVA_CONFIG, **FILE_BYTES, "longPollingEnable": "false"}
    with start_broker(java_toolkit, tmp_path, java_namesrv, store, java_config) as broker:
        theirs = asyncio.run(ask_all(broker.address, [*reads(BATCH, 36), *clean_sends(20)]))
        wait_until(
            lambda: max_offset(broker.address) == "72",
            lambda: broker.error("not all messages are in the queue"),
        )
        theirs += asyncio.run(ask_all(broker.address, reads(BATCH, 72)))
        broker.stop()
    assert told(theirs[: len(ours) - first]) == told(ours[first:])
    again = asyncio.run(roquet_turn(store, reads(BATCH, 72)))
    assert told(again) == told(theirs[-len(again) :])
    assert verify_store(store).faults == []
