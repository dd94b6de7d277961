"""Traces of real clients: what they did with a message, as messages of the trace topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.interop import javabuild
from tests.interop.agent import Agent, Consumer, Outgoing, SendResult
from tests.interop.agents import JAVA, JAVA_KINDS, KINDS, AgentPool
from tests.interop.cluster import Cluster
from tests.interop.javaclient import JavaClient

pytestmark = pytest.mark.interop

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
FIELD_END, ROW_END = "\x01", "\x02"
KINDS_OF_ROWS = ("Pub", "SubBefore", "SubAfter")
# In which field of a row the id of its message is.
ID_AT = {"Pub": 5, "SubBefore": 5, "SubAfter": 2}

Rows = dict[tuple[str, str], list[str]]


@pytest.fixture(scope="module")
def tracing(server_side: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker that has a topic for traces from its start."""
    folder = tmp_path_factory.mktemp("tracing")
    settings = {"traceTopicEnable": "true", "regionId": "North"}
    with Cluster(server_side, server_side, folder, broker_settings=settings) as started:
        yield started


@pytest.fixture(scope="module")
def admin(
    java_toolkit: javabuild.JavaToolkit,
    tracing: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[JavaClient]:
    with JavaClient(java_toolkit, tmp_path_factory.mktemp("mqadmin"), tracing) as client:
        yield client


@contextmanager
def traced(
    cluster: Cluster, agent: Agent, topic: str, **options: object
) -> Iterator[list[SendResult]]:
    """Three messages from a producer to a consumer that both send traces.

    They stay, because a client that leaves does not always send its last traces.
    """
    consumer = agent.push(cluster.namesrv, topic, f"{topic}_group", trace=True, **options)
    producer = agent.producer(cluster.namesrv, f"{topic}_producer", trace=True, **options)
    messages = [Outgoing(f"body {i}", tags="Traced", keys=[f"{topic}-{i}"]) for i in range(3)]
    results = producer.send(topic, messages, "sync")
    consumer.wait_for([message.body for message in messages])
    yield results
    producer.stop()
    consumer.stop()


def rows(reader: Consumer) -> Rows:
    """The rows so far, by their kind and the id of the message."""
    found: Rows = {}
    for message in reader.messages():
        for line in message.body.split(ROW_END):
            fields = line.split(FIELD_END)
            if fields[0] in ID_AT:
                found[fields[0], fields[ID_AT[fields[0]]]] = fields
    return found


def wait_rows(reader: Consumer, results: list[SendResult]) -> Rows:
    """Waits until every message has all its rows."""
    wanted = {(kind, result.message_id) for kind in KINDS_OF_ROWS for result in results}
    reader.wait(lambda _: wanted <= rows(reader).keys(), "the traces of all messages")
    return rows(reader)


@pytest.mark.parametrize("kind", KINDS)
def test_clients_send_traces(
    tracing: Cluster, agents: AgentPool, admin: JavaClient, kind: str
) -> None:
    agent = agents.get(kind)
    topic = tracing.create_topic(agent, "Traced", queues=1)
    (queues,) = agents.get(JAVA).route(tracing.namesrv, TRACE_TOPIC)["queues"]
    assert (queues["read"], queues["write"], queues["perm"]) == (1, 1, 6)
    reader = agents.get(JAVA).push(tracing.namesrv, TRACE_TOPIC, f"{topic}_reader")
    with traced(tracing, agent, topic) as results:
        told = wait_rows(reader, results)
    for i, result in enumerate(results):
        sent = told["Pub", result.message_id]
        assert sent[2:5] == ["North", f"{topic}_producer", topic]
        assert sent[6:8] == ["Traced", f"{topic}-{i}"]
        assert sent[8:10] == [tracing.broker.address, str(len(f"body {i}"))]
        assert sent[12:14] == [result.offset_message_id, "true"]
        before, after = told["SubBefore", result.message_id], told["SubAfter", result.message_id]
        assert before[2:4] == ["North", f"{topic}_group"]
        assert before[6:8] == ["0", f"{topic}-{i}"]
        assert after[1] == before[4], "the same delivery"
        assert (after[4], after[5], after[8]) == ("true", f"{topic}-{i}", f"{topic}_group")
    reader.stop()

    printed = admin.mqadmin("queryMsgTraceById", "-i", results[0].message_id)
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    assert [line[:2] for line in lines if line[0] == "Pub"] == [["Pub", f"{topic}_producer"]]
    assert [line[:2] for line in lines if line[0] == "Sub"] == [["Sub", f"{topic}_group"]]
    assert {line[-1] for line in lines if line[0] in {"Pub", "Sub"}} == {"success"}


@pytest.mark.parametrize("kind", JAVA_KINDS)
def test_a_custom_trace_topic(cluster: Cluster, agents: AgentPool, kind: str) -> None:
    """The broker has no topic for traces; a client's first one creates it."""
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "TracedElsewhere", queues=1)
    own = f"{topic}_traces"
    reader = agents.get(JAVA).push(cluster.namesrv, own, f"{topic}_reader")
    with traced(cluster, agent, topic, traceTopic=own) as results:
        told = wait_rows(reader, results)
    for result in results:
        assert told["Pub", result.message_id][2] == "DefaultRegion"
    reader.stop()
