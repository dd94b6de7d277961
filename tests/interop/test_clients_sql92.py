"""Consumers that filter messages by SQL92 expressions over their properties."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from roquet.filter.bloom import BitsArray, BloomFilter
from tests.interop import javabuild
from tests.interop.agent import Agent, AgentError, Consumer, Outgoing, wait_until
from tests.interop.agents import JAVA, JAVA_BINARY, JAVA_KINDS, KINDS, AgentPool
from tests.interop.cluster import APACHE, ROQUET, Cluster
from tests.interop.javaclient import JavaClient

pytestmark = pytest.mark.interop

SQL92 = {"expressionType": "SQL92"}
EXPRESSION = "amount BETWEEN 3 AND 6 AND (region IN ('hz', 'sh') OR TAGS = 'Any')"

BY_RECORD = {"enablePropertyFilter": "true"}
BY_BITMAP = {
    **BY_RECORD,
    "enableCalcFilterBitMap": "true",
    "enableConsumeQueueExt": "true",
    "filterSupportRetry": "true",
}


@pytest.fixture(scope="module", params=[BY_RECORD, BY_BITMAP], ids=["by-record", "by-bitmap"])
def filtering(
    request: pytest.FixtureRequest, server_side: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A cluster whose broker filters; the second kind judges messages when they are stored."""
    folder = tmp_path_factory.mktemp("filtering")
    with Cluster(server_side, server_side, folder, broker_settings=request.param) as started:
        yield started


def offered(count: int = 10) -> list[Outgoing]:
    """Messages of all amounts and regions, and last one that matches."""
    messages = [
        Outgoing(
            f"{amount} {region}",
            tags="Any" if region == "bj" else "Some",
            properties={"amount": str(amount), **({"region": region} if region else {})},
        )
        for amount in range(count)
        for region in ("hz", "sh", "bj", "")
    ]
    return [*messages, Outgoing("last", properties={"amount": "3", "region": "hz"})]


def is_wanted(message: Outgoing) -> bool:
    """The expression in Python."""
    if not 3 <= int(message.properties["amount"]) <= 6:
        return False
    return message.properties.get("region") in {"hz", "sh"} or message.tags == "Any"


WANTED = sorted(message.body for message in offered() if is_wanted(message))


def has_got(consumer: Consumer, count: int) -> bool:
    return len(consumer.messages()) >= count


@pytest.mark.parametrize("kind", [*KINDS, JAVA_BINARY])
def test_messages_are_filtered(filtering: Cluster, agents: AgentPool, kind: str) -> None:
    """Those sent before the group was known, and those sent while it waits."""
    assert len(WANTED) == 13
    agent = agents.get(kind)
    topic = filtering.create_topic(agent, "Chosen", queues=1)
    producer = agent.producer(filtering.namesrv)
    producer.send(topic, offered(), "sync")
    consumer = agent.push(
        filtering.namesrv, topic, f"{topic}_group", expression=EXPRESSION, **SQL92
    )
    consumer.wait_for(WANTED)
    assert sorted(consumer.bodies()) == WANTED
    producer.send(topic, offered(), "sync")
    wait_until(
        partial(has_got, consumer, 2 * len(WANTED)),
        lambda: agent.process.error(f"not twice what is wanted: {consumer.bodies()}"),
    )
    assert sorted(consumer.bodies()) == sorted(2 * WANTED)
    consumer.stop()
    producer.stop()


@pytest.mark.parametrize("kind", JAVA_KINDS)
def test_lite_pulls_are_filtered(filtering: Cluster, agents: AgentPool, kind: str) -> None:
    agent = agents.get(kind)
    topic = filtering.create_topic(agent, "Lite", queues=1)
    producer = agent.producer(filtering.namesrv)
    producer.send(topic, offered(), "sync")
    consumer = agent.lite(
        filtering.namesrv, topic, f"{topic}_group", expression=EXPRESSION, **SQL92
    )
    consumer.wait_for(WANTED)
    assert sorted(consumer.bodies()) == WANTED
    consumer.stop()
    producer.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_failed_messages_are_redelivered(filtering: Cluster, agents: AgentPool, kind: str) -> None:
    """The retry topic is not filtered by properties, so matched messages are redelivered."""
    agent = agents.get(kind)
    topic = filtering.create_topic(agent, "AgainBySql", queues=1)
    consumer = agent.push(
        filtering.namesrv,
        topic,
        f"{topic}_group",
        expression="amount > 5 AND UNIQ_KEY IS NOT NULL",
        failures=2,
        **SQL92,
    )
    producer = agent.producer(filtering.namesrv)
    messages = [Outgoing(f"{i}", properties={"amount": f"{i}"}) for i in range(4, 9)]
    producer.send(topic, messages, "sync")
    wait_until(
        partial(has_got, consumer, 9),
        lambda: agent.process.error(f"not three times each: {consumer.messages()}"),
    )
    received = sorted((message.body, message.reconsume_times) for message in consumer.messages())
    assert received == [(f"{i}", times) for i in (6, 7, 8) for times in range(3)]
    assert all(message.properties["amount"] == message.body for message in consumer.messages())
    consumer.stop()
    producer.stop()


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("amount >", "Encountered"),
        ("amount > 'x'", "Value ''x'' cannot be compared"),
        ("amount BETWEEN 6 AND 3", "Illegal values of between"),
    ],
)
@pytest.mark.parametrize("kind", JAVA_KINDS)
def test_a_bad_expression_is_refused_when_the_consumer_starts(
    filtering: Cluster, agents: AgentPool, kind: str, expression: str, said: str
) -> None:
    agent = agents.get(kind)
    topic = filtering.create_topic(agent, "Bad", queues=1)
    with pytest.raises(AgentError) as refused:
        agent.push(filtering.namesrv, topic, f"{topic}_group", expression=expression, **SQL92)
    assert "CODE: 23" in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize("kind", JAVA_KINDS)
def test_expressions_are_refused_unless_they_are_allowed(
    cluster: Cluster, agents: AgentPool, kind: str
) -> None:
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "NotAllowed", queues=1)
    with pytest.raises(AgentError) as refused:
        agent.push(cluster.namesrv, topic, f"{topic}_group", expression="amount > 5", **SQL92)
    assert "CODE: 1 " in str(refused.value)
    said = "The broker does not support consumer to filter message by SQL92"
    assert said in str(refused.value)


def test_two_groups_of_a_topic_have_their_own_filters(
    filtering: Cluster, agents: AgentPool
) -> None:
    agent = agents.get(JAVA)
    topic = filtering.create_topic(agent, "Shared", queues=2)
    consumers = {
        rest: agent.push(
            filtering.namesrv, topic, f"{topic}_{rest}", expression=f"rest = {rest}", **SQL92
        )
        for rest in range(3)
    }
    producer = agent.producer(filtering.namesrv)
    bodies = [f"{i}" for i in range(60)]
    producer.send(
        topic, [Outgoing(i, properties={"rest": str(int(i) % 3)}) for i in bodies], "sync"
    )
    for rest, consumer in consumers.items():
        own = [i for i in bodies if int(i) % 3 == rest]
        consumer.wait_for(own)
        assert sorted(consumer.bodies()) == sorted(own)
        consumer.stop()
    producer.stop()


def start_and_end(
    cluster: Cluster, agent: Agent, topic: str, expression: str, expected: list[str]
) -> None:
    """Let a consumer of the group take what it gets, and leave."""
    consumer = agent.push(cluster.namesrv, topic, f"{topic}_group", expression=expression, **SQL92)
    consumer.wait_for(expected)
    assert sorted(consumer.bodies()) == sorted(expected)
    consumer.stop()


def is_written(path: Path, what: str | re.Pattern[str]) -> bool:
    return path.exists() and re.search(what, path.read_text()) is not None


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("other_side", [ROQUET, APACHE])
def test_filters_survive_a_restart(
    server_side: str, agents: AgentPool, tmp_path: Path, end: str, other_side: str
) -> None:
    """Both Roquet and Java know the filters of a store they continue, and trust its bit maps."""
    agent = agents.get(JAVA)
    with Cluster(server_side, server_side, tmp_path, broker_settings=BY_BITMAP) as cluster:
        topic = cluster.create_topic(agent, "Outlives", queues=1)
        producer = agent.producer(cluster.namesrv)

        def send(*amounts: int) -> list[str]:
            messages = [
                Outgoing(f"{amount}", properties={"amount": f"{amount}"}) for amount in amounts
            ]
            producer.send(topic, messages, "sync")
            return [f"{amount}" for amount in amounts if amount > 5]

        wanted = send(1, 6)
        start_and_end(cluster, agent, topic, "amount > 5", wanted)
        wanted = send(2, 7, 3, 8)
        kept = tmp_path / "store/config/consumerFilter.json"
        progress = tmp_path / "store/config/consumerOffset.json"
        consumed = re.compile(rf'"{topic}@{topic}_group":\{{\s*0:2\b')
        wait_until(
            lambda: is_written(kept, topic) and is_written(progress, consumed),
            lambda: cluster.broker.error("the filter or the offset was not written"),
        )
        cluster.broker.stop() if end == "stop" else cluster.broker.kill()
        cluster.broker_side = other_side
        cluster.start_broker()
        (known,) = json.loads(kept.read_text())["filterDataByTopic"][topic][
            "groupFilterData"
        ].values()
        assert known["expression"] == "amount > 5"
        wait_until(
            lambda: cluster.is_routed(agent, topic),
            lambda: cluster.broker.error("the broker did not register"),
        )
        start_and_end(cluster, agent, topic, "amount > 5", wanted)
        wanted = send(4, 9)
        start_and_end(cluster, agent, topic, "amount > 5", wanted)
        producer.stop()


def test_the_admin_tool_shows_filters_and_bit_maps(
    java_toolkit: javabuild.JavaToolkit, server_side: str, agents: AgentPool, tmp_path: Path
) -> None:
    agent = agents.get(JAVA)
    with (
        Cluster(server_side, server_side, tmp_path / "a", broker_settings=BY_BITMAP) as cluster,
        JavaClient(java_toolkit, tmp_path / "mqadmin", cluster) as admin,
    ):
        topic = cluster.create_topic(agent, "Shown", queues=1)
        group = f"{topic}_group"
        consumer = agent.push(cluster.namesrv, topic, group, expression="amount > 5", **SQL92)
        producer = agent.producer(cluster.namesrv)
        messages = [Outgoing(f"{i}", properties={"amount": f"{i}"}) for i in (4, 6)]
        producer.send(topic, messages, "sync")
        consumer.wait_for(["6"])
        words = ("-t", topic, "-q", "0", "-i", "0", "-c", "10")
        shown = admin.mqadmin("queryCq", *words, "-g", group)
        unasked = admin.mqadmin("queryCq", *words)
        absent = admin.mqadmin("queryCq", *words, "-g", "nobody")
        producer.stop()
        consumer.stop()
    bloom = BloomFilter(error_percent=20, expected_count=32)
    positions = bloom.positions(f"{group}#{topic}")
    bits = BitsArray.of_length(bloom.bit_count)
    bits.add(bloom.generate(f"{group}#{topic}"))
    signed = struct.unpack("14b", bytes(bits))
    for member in (
        f'"bitNum":112,\n\t\t"bitPos":[{",".join(map(str, positions))}]\n\t}},',
        f'\t"consumerGroup":"{group}",\n\t"dead":false,\n\t"deadTime":0,\n',
        f'\t"expression":"amount > 5",\n\t"expressionType":"SQL92",\n\t"topic":"{topic}"\n}}\n',
    ):
        assert member in shown
        assert member not in unasked
    assert f"nobody@{topic} is not online!" in absent
    for printed in (shown, unasked, absent):
        for numbers in ([0] * 14, signed):
            text = ",".join(map(str, numbers))
            assert f'"filterBitMap":[{text}],"msgStoreTime":' in printed
    (hit,) = re.findall(r"bitMap='([01\n]*1[01\n]*)'", unasked)
    digits = hit.replace("\n", "")[::-1]
    assert {at for at, digit in enumerate(digits) if digit == "1"} == set(positions)
    assert (shown.count("eval=true"), unasked.count("eval=true")) == (1, 0)
