"""Requests and replies of real clients: the requester gets the reply, or an error."""

from __future__ import annotations

import pytest

from tests.interop.agent import Agent, AgentError, Consumer, Producer, ReceivedMessage
from tests.interop.agents import GO, JAVA, JAVA_4, JAVA_BINARY, KINDS, AgentPool
from tests.interop.cluster import Cluster
from tests.interop.request_reply import asking, reply, request

pytestmark = pytest.mark.interop

PATIENT_MS = 30_000
SHORT_MS = 3_000
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"

# Java replies with header names of one letter (325), Go with the long ones (324).
PAIRS = [
    (JAVA, JAVA),
    (JAVA_4, JAVA_4),
    (GO, GO),
    (JAVA, GO),
    (GO, JAVA_4),
    (JAVA_BINARY, JAVA),
    (JAVA, JAVA_BINARY),
]


def start_asker(agent: Agent, cluster: Cluster, topic: str) -> Producer:
    """A producer that the broker knows.

    The Go library has itself known, beyond every half a minute, only with a topic that is new.
    """
    asker = agent.producer(cluster.namesrv, "interop_asking")
    if agent.kind == GO:
        with pytest.raises(AgentError):
            request(asker, f"{topic}_first", "hello", timeout_ms=1)
    return asker


def received(consumer: Consumer, *bodies: str) -> dict[str, ReceivedMessage]:
    return {message.body: message for message in consumer.wait_for(bodies)}


@pytest.mark.parametrize(("asker_kind", "replier_kind"), PAIRS)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_reply_reaches_its_requester(
    cluster: Cluster, agents: AgentPool, asker_kind: str, replier_kind: str, mode: str
) -> None:
    asker_agent, replier_agent = agents.get(asker_kind), agents.get(replier_kind)
    topic = cluster.create_topic(replier_agent, "Request", queues=2)
    consumer = replier_agent.push(cluster.namesrv, topic, f"{topic}_group")
    replier = replier_agent.producer(cluster.namesrv, "interop_replier")
    asker = start_asker(asker_agent, cluster, topic)
    with asking(asker, topic, ["ping"], timeout_ms=PATIENT_MS, mode=mode) as answers:
        asked = received(consumer, "ping")["ping"]
        result = reply(replier, asked, "pong ü")
        answer = answers["ping"].result()
    assert (result.status, result.queue_id) == ("SEND_OK", 0)
    assert (answer.body, answer.topic) == ("pong ü", REPLY_TOPIC)
    for name in ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"):
        assert answer.properties[name] == asked.properties[name]
    assert answer.properties["MSG_TYPE"] == "reply"
    assert int(answer.properties["PUSH_REPLY_TIME"]) <= int(answer.properties["ARRIVE_TIME"])
    told = agents.get(JAVA).producer(cluster.namesrv)
    stored = told.view(REPLY_TOPIC, result.offset_message_id)
    assert (stored.body, stored.queue_offset) == ("pong ü", result.queue_offset)
    assert stored.properties["CORRELATION_ID"] == asked.properties["CORRELATION_ID"]
    for each in (told, asker, replier, consumer):
        each.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_concurrent_requests_each_get_their_own_reply(
    cluster: Cluster, agents: AgentPool, kind: str
) -> None:
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "Requests", queues=4)
    consumer = agent.push(cluster.namesrv, topic, f"{topic}_group")
    replier = agent.producer(cluster.namesrv, "interop_replier")
    asker = start_asker(agent, cluster, topic)
    bodies = [f"question {i}" for i in range(20)]
    with asking(asker, topic, bodies, timeout_ms=PATIENT_MS) as answers:
        questions = received(consumer, *bodies)
        for body in reversed(bodies):
            reply(replier, questions[body], f"answer to {body}")
        for body in bodies:
            assert answers[body].result().body == f"answer to {body}"
    for each in (asker, replier, consumer):
        each.stop()


@pytest.mark.parametrize("kind", [JAVA, JAVA_4])
def test_a_request_to_a_chosen_queue(cluster: Cluster, agents: AgentPool, kind: str) -> None:
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "RequestQueue", queues=3)
    consumer = agent.push(cluster.namesrv, topic, f"{topic}_group")
    asker = agent.producer(cluster.namesrv, "interop_asking")
    with asking(asker, topic, ["ping"], timeout_ms=PATIENT_MS, mode="selector") as answers:
        asked = received(consumer, "ping")["ping"]
        assert asked.queue_id == 2
        # One client requests, consumes and replies, over one connection.
        assert reply(asker, asked, "pong").status == "SEND_OK"
        assert answers["ping"].result().body == "pong"
    asker.stop()
    consumer.stop()


# No library calls back in this case: Java's calls once, when the request is sent, and Go's looks
# for requests without a reply every ten minutes.
@pytest.mark.parametrize("kind", KINDS)
def test_no_reply(cluster: Cluster, agents: AgentPool, kind: str) -> None:
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "Unanswered", queues=1)
    consumer = agent.push(cluster.namesrv, topic, f"{topic}_group")
    replier = agent.producer(cluster.namesrv, "interop_replier")
    asker = start_asker(agent, cluster, topic)
    with pytest.raises(AgentError, match=r"(?i)time ?out"):
        request(asker, topic, "ping", timeout_ms=SHORT_MS)
    asked = received(consumer, "ping")["ping"]
    # The client is still connected and takes the reply, although nothing waits for it.
    assert reply(replier, asked, "too late").status == "SEND_OK"
    for each in (asker, replier, consumer):
        each.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_to_a_client_that_is_gone(cluster: Cluster, agents: AgentPool, kind: str) -> None:
    agent = agents.get(kind)
    topic = cluster.create_topic(agent, "Gone", queues=1)
    consumer = agent.push(cluster.namesrv, topic, f"{topic}_group")
    replier = agent.producer(cluster.namesrv, "interop_replier", retries=0)
    asker = start_asker(agent, cluster, topic)
    with pytest.raises(AgentError):
        request(asker, topic, "ping", timeout_ms=SHORT_MS)
    asked = received(consumer, "ping")["ping"]
    asker.stop()
    client_id = asked.properties["REPLY_TO_CLIENT"]
    with pytest.raises(AgentError) as raised:
        reply(replier, asked, "pong")
    # The broker may not have noticed the end of its connection yet.
    remarks = (f"channel of <{client_id}> not found.", f"push reply message to {client_id}fail.")
    assert any(remark in str(raised.value) for remark in remarks)
    replier.stop()
    consumer.stop()
