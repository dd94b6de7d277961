"""Static topics: the same on Roquet's brokers as on Apache RocketMQ's, by either admin tool.

Java clients send and consume by logical queues while the queues move from broker to broker, of one
side or of both, and while brokers restart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.interop import javabuild
from tests.interop.agent import Ack, ReceivedMessage
from tests.interop.agents import JAVA, AgentPool
from tests.interop.arrival import number_of
from tests.interop.cluster import APACHE, ROQUET
from tests.interop.javaclient import JavaClient
from tests.interop.mqadmin_ours import OurTool
from tests.interop.static_pair import BLOCK, BROKER_A, BROKER_B, Pair, Seen, observe, start_pair

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("static-topic")]

LOGICAL = "__syslo__global__"
QUEUES = 2
MESSAGES_A_ROUND = 30

DIFFERENCES = {
    "SEARCH_OFFSET_BY_TIMESTAMP-0 timestamp=4000000000000": "upstream stops at the last item",
}
"""What Roquet answers otherwise, once: while the new leader has no message yet."""

OUR_DIFFERENCES = {"consumerProgress": "upstream's tool shows a physical offset beside logical"}


class _Anywhere:
    address = "127.0.0.1:1"


@pytest.fixture(scope="module")
def java_tool(
    java_toolkit: javabuild.JavaToolkit, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaClient]:
    with JavaClient(java_toolkit, tmp_path_factory.mktemp("static-tool"), _Anywhere()) as tool:
        yield tool


@pytest.fixture(scope="module")
def roquet_pair(java_tool: JavaClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("static-roquet")
    with start_pair((ROQUET, ROQUET), folder, java_tool) as pair:
        yield pair


def _differences(expected: Seen, found: Seen) -> list[str]:
    assert expected.keys() == found.keys()
    return [
        "\n".join(
            unified_diff(
                json.dumps(expected[name], indent=1).splitlines(),
                json.dumps(found[name], indent=1).splitlines(),
                name,
                lineterm="",
                n=1,
            )
        )
        for name in expected
        if expected[name] != found[name]
    ]


def test_same_as_apache_with_either_tool(java_tool: JavaClient, tmp_path: Path) -> None:
    with start_pair((APACHE, APACHE), tmp_path / "apache", java_tool) as pair:
        apache = observe(pair)
    with start_pair((ROQUET, ROQUET), tmp_path / "roquet", java_tool) as pair:
        roquet = observe(pair)
    differences = _differences(apache, roquet)
    assert len(differences) == len(DIFFERENCES), "\n".join(differences)
    assert all(name in text for name, text in zip(DIFFERENCES, differences, strict=True))
    with start_pair((ROQUET, ROQUET), tmp_path / "ours", OurTool(tmp_path / "tool")) as pair:
        ours = observe(pair)
    differences = _differences(roquet, ours)
    assert len(differences) == len(OUR_DIFFERENCES), "\n".join(differences)
    assert all(name in text for name, text in zip(OUR_DIFFERENCES, differences, strict=True))


def _check(acks: list[Ack], received: list[ReceivedMessage], moves: int) -> None:
    """Nothing is lost, and every logical queue has its messages in the order of the sends."""
    stored = {message.position: message.body for message in received}
    for ack in acks:
        # The logical offset of a message is not known before all know where the old leader ends.
        assert ack.queue_offset == -1 or stored[ack.queue_id, ack.queue_offset] == ack.body
    for queue_id in range(QUEUES):
        offsets = sorted(offset for queue, offset in stored if queue == queue_id)
        numbers = [number_of(stored[queue_id, offset]) for offset in offsets]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(numbers[-1] + 1))
        assert {offset // BLOCK for offset in offsets} == set(range(moves + 1))


def _arrive_in_order(received: list[ReceivedMessage]) -> None:
    seen: dict[int, int] = {}
    for message in received:
        last = seen.get(message.queue_id, -1)
        is_next = message.queue_offset <= last + 1
        assert is_next or message.queue_offset % BLOCK == 0, (message.position, last)
        seen[message.queue_id] = max(last, message.queue_offset)


def _moved(pair: Pair, agents: AgentPool, topic: str, *moves: str) -> None:
    """Send and consume in order while the queues of a topic move from broker to broker."""
    agent = agents.get(JAVA)
    namesrv = pair.cluster.namesrv
    pair.create(topic, QUEUES, BROKER_A)
    producer = agent.producer(namesrv, retries=0, timeoutMs=2000)
    consumer = agent.push(namesrv, topic, f"{topic}_group", listener="orderly")
    load = producer.load(topic, broker=LOGICAL, queues=range(QUEUES), name=topic)
    load.wait_more(MESSAGES_A_ROUND)
    for broker in moves:
        pair.remap(topic, broker)
        load.wait_more(MESSAGES_A_ROUND)
    acks = load.stop()
    received = consumer.wait_for([ack.body for ack in acks])
    _check(acks, received, len(moves))
    _arrive_in_order(received)
    consumer.stop()
    producer.stop()


def test_queues_move_under_load(roquet_pair: Pair, agents: AgentPool) -> None:
    _moved(roquet_pair, agents, "StaticMoved", BROKER_B, BROKER_A)
    # A group that starts now reads every stretch.
    agent = agents.get(JAVA)
    late = agent.push(roquet_pair.cluster.namesrv, "StaticMoved", "static_late")
    late.wait(
        lambda messages: {each.queue_offset // BLOCK for each in messages} == {0, 1, 2},
        "messages of all stretches",
    )
    late.stop()


def test_a_restart_keeps_the_mapping(roquet_pair: Pair, agents: AgentPool) -> None:
    agent, cluster, topic = agents.get(JAVA), roquet_pair.cluster, "StaticKept"
    roquet_pair.create(topic, QUEUES, BROKER_A)
    roquet_pair.remap(topic, BROKER_B)
    roquet_pair.remap(topic, BROKER_A)
    before = roquet_pair.mapping_file(BROKER_A)
    cluster.broker.stop()
    cluster.start_broker()
    cluster.wait_registered()
    assert roquet_pair.mapping_file(BROKER_A) == before
    producer = agent.producer(cluster.namesrv)
    found = producer.offsets(topic, LOGICAL, 0, 0)
    assert (found["minOffset"], found["maxOffset"]) == (0, 2 * BLOCK)
    producer.stop()


def test_queues_move_between_roquet_and_apache(
    java_tool: JavaClient, agents: AgentPool, tmp_path: Path
) -> None:
    with start_pair((ROQUET, APACHE), tmp_path, java_tool) as pair:
        _moved(pair, agents, "StaticMixed", BROKER_B, BROKER_A)
