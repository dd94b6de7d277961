"""Transactions: how their producers end them, and what happens to those that they leave open."""

from __future__ import annotations

import pytest

from tests.interop.agent import Agent, ReceivedMessage, wait_until
from tests.interop.agents import GO, JAVA, JAVA_BINARY, KINDS, AgentPool
from tests.interop.cluster import CHECKS_MAX, Cluster
from tests.interop.javaclient import JavaClient
from tests.interop.transactions import (
    COMMIT,
    ROLLBACK,
    THROW,
    UNKNOWN,
    Transaction,
    TransactionProducer,
)

pytestmark = pytest.mark.interop

GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


def by_body(messages: list[ReceivedMessage]) -> dict[str, ReceivedMessage]:
    """One message per body; none may be a duplicate."""
    found = {message.body: message for message in messages}
    assert len(found) == len(messages), [message.body for message in messages]
    return found


def start(cluster: Cluster, agent: Agent, topic: str, *, verdict: str = "") -> TransactionProducer:
    """A producer that the broker can check."""
    group = f"{topic}_producers"
    producer = TransactionProducer(agent, cluster.namesrv, group, verdict=verdict)
    producer.make_known(topic)
    return producer


@pytest.mark.parametrize("kind", [*KINDS, JAVA_BINARY])
def test_transactions_end_as_their_producer_decides(
    hasty_cluster: Cluster, agents: AgentPool, kind: str
) -> None:
    """When they are sent, or when the broker checks; uncommitted messages are never delivered."""
    agent = agents.get(kind)
    topic = hasty_cluster.create_topic(agent, "Ends", queues=1)
    producer = start(hasty_cluster, agent, topic)
    never = f"{topic} never"
    transactions = [
        Transaction("commit", COMMIT, keys=["k0"]),
        Transaction("rollback", ROLLBACK),
        Transaction("later commit", UNKNOWN, [COMMIT], keys=["k2"]),
        Transaction("later rollback", UNKNOWN, [ROLLBACK]),
        Transaction("last commit", UNKNOWN, [UNKNOWN, COMMIT], keys=["k4"]),
        Transaction("thrown", UNKNOWN if kind == GO else THROW, [COMMIT], keys=["k5"]),
        Transaction(never, UNKNOWN),
    ]
    results = producer.transact(topic, transactions)
    assert {result.status for result in results} == {"SEND_OK"}
    assert all(result.transaction_id == result.message_id for result in results)
    consumer = agent.push(hasty_cluster.namesrv, topic, f"{topic}_group")
    wait_until(
        lambda: hasty_cluster.is_routed(agent, GIVEN_UP_TOPIC),
        lambda: hasty_cluster.broker.error("nothing was given up"),
    )
    given_up = agent.push(hasty_cluster.namesrv, GIVEN_UP_TOPIC, f"{topic}_given_up")
    lost = by_body(given_up.wait_for([never]))
    assert lost[never].properties["REAL_TOPIC"] == topic
    assert not {transaction.body for transaction in transactions[:-1]} & lost.keys()
    asked = producer.wait_checked(never, CHECKS_MAX)
    times = [message.properties["TRANSACTION_CHECK_TIMES"] for message in asked]
    assert times == [str(i + 1) for i in range(CHECKS_MAX)]
    for message in asked:
        assert message.properties["UNIQ_KEY"] == results[-1].message_id
        assert (message.topic, message.tags, message.keys) == (topic, "Tag", "key")

    committed = [0, 2, 4, 5]
    received = by_body(consumer.wait_for([transactions[i].body for i in committed]))
    assert len(received) == len(committed)
    for i in committed:
        message = received[transactions[i].body]
        assert (message.topic, message.tags, message.keys) == (topic, "Tag", f"k{i}")
        assert message.message_id == results[i].message_id
        assert message.properties["PGROUP"] == f"{topic}_producers"
    asker = agents.get(JAVA).producer(hasty_cluster.namesrv)
    assert asker.offsets(topic, hasty_cluster.broker_name, 0, 0)["maxOffset"] == len(committed)
    asker.stop()
    consumer.stop()
    given_up.stop()
    producer.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_another_producer_of_the_group_is_checked(
    hasty_cluster: Cluster, agents: AgentPool, kind: str
) -> None:
    """When the one that left a transaction open stopped or was killed; languages may differ."""
    agent = agents.get(kind)
    topic = hasty_cluster.create_topic(agent, "Gone", queues=1)
    heir = start(hasty_cluster, agent, topic)
    group = f"{topic}_producers"
    # The broker may check these, too, before they are gone: only the heir knows how it ends.
    gone = TransactionProducer(agent, hasty_cluster.namesrv, group, verdict=UNKNOWN)
    with agents.spawn(GO) as killed_agent:
        killed = TransactionProducer(killed_agent, hasty_cluster.namesrv, group, verdict=UNKNOWN)
        for producer, name in ((gone, "gone"), (killed, "killed")):
            left = [
                Transaction(f"{name} to roll back", UNKNOWN, [UNKNOWN, ROLLBACK]),
                Transaction(f"{name} to commit", UNKNOWN, [UNKNOWN, COMMIT]),
            ]
            producer.transact(topic, left)
        gone.stop()
    for name in ("gone", "killed"):
        heir.wait_checked(f"{name} to commit")
    consumer = agent.push(hasty_cluster.namesrv, topic, f"{topic}_group")
    received = by_body(consumer.wait_for(["gone to commit", "killed to commit"]))
    assert len(received) == 2
    consumer.stop()
    heir.stop()


def test_an_administrator_resumes_a_transaction_check(
    hasty_cluster: Cluster, agents: AgentPool, admin: JavaClient
) -> None:
    """A transaction that the broker gave up, once there is a producer that knows how it ended."""
    agent = agents.get(JAVA)
    topic = hasty_cluster.create_topic(agent, "AskAgain", queues=1)
    silent = start(hasty_cluster, agent, topic)
    (result,) = silent.transact(topic, [Transaction(topic, UNKNOWN)])
    given_up = agent.push(hasty_cluster.namesrv, GIVEN_UP_TOPIC, f"{topic}_given_up")
    lost = by_body(given_up.wait_for([topic]))[topic]
    silent.stop()
    producer = start(hasty_cluster, agent, topic, verdict=COMMIT)
    assert admin.resume_check(hasty_cluster, GIVEN_UP_TOPIC, lost.offset_message_id)
    (asked,) = producer.wait_checked(topic)
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"
    consumer = agent.push(hasty_cluster.namesrv, topic, f"{topic}_group")
    received = by_body(consumer.wait_for([topic]))[topic]
    assert (received.topic, received.message_id) == (topic, result.message_id)
    consumer.stop()
    given_up.stop()
    producer.stop()
