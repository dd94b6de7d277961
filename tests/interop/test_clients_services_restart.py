"""The broker restarts while messages wait in it: for their time, their retry or their producer."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.interop.agent import Outgoing, ReceivedMessage, wait_until
from tests.interop.agents import JAVA, AgentPool
from tests.interop.cluster import HASTY_CONFIG, Cluster
from tests.interop.transactions import COMMIT, ROLLBACK, UNKNOWN, Transaction, TransactionProducer

pytestmark = pytest.mark.interop

RETRIES = 2
UNSURE_TIMES = 3
DELAY_MS = 3_000
# The first level is that of retries, the second that of messages during the restart.
SETTINGS = {**HASTY_CONFIG, "messageDelayLevel": "1s 3s", "transactionCheckMax": 100}


def is_tried_enough(bodies: list[str], messages: list[ReceivedMessage]) -> bool:
    tried = {(message.body, message.reconsume_times) for message in messages}
    return all((body, RETRIES) in tried for body in bodies)


def is_asked_enough(checks: list[ReceivedMessage]) -> bool:
    """Checks count even while no producer can be checked."""
    times = [int(message.properties["TRANSACTION_CHECK_TIMES"]) for message in checks]
    return max(times) > UNSURE_TIMES


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_pending_messages_survive_a_restart(
    server_side: str, agents: AgentPool, tmp_path: Path, end: str
) -> None:
    """Nothing is lost, nothing is delivered early, and open transactions are still checked.

    Other clients notice only half a minute later that their held pulls get no response.
    """
    agent = agents.get(JAVA)
    with Cluster(server_side, server_side, tmp_path, broker_settings=SETTINGS) as cluster:
        topic = cluster.create_topic(agent, "Outlives", queues=1)
        consumer = agent.push(
            cluster.namesrv, topic, f"{topic}_group", failures=RETRIES, failing="retry"
        )
        transactional = TransactionProducer(agent, cluster.namesrv, f"{topic}_producers")
        transactional.make_known(topic)
        producer = agent.producer(cluster.namesrv)
        late = [Outgoing(f"late {i}", delay_level=2) for i in range(5)]
        retried = [Outgoing(f"retry {i}") for i in range(5)]
        producer.send(topic, [*late, *retried], "sync")
        unsure = [UNKNOWN] * UNSURE_TIMES
        transactional.transact(
            topic,
            [
                Transaction("commit", COMMIT),
                Transaction("rollback", ROLLBACK),
                Transaction("open to commit", UNKNOWN, [*unsure, COMMIT]),
                Transaction("open to roll back", UNKNOWN, [*unsure, ROLLBACK]),
            ],
        )
        consumer.wait_for([*(message.body for message in retried), "commit"])
        transactional.wait_checked("open to roll back")
        cluster.broker.stop() if end == "stop" else cluster.broker.kill()
        cluster.start_broker()

        received = consumer.wait_for([*(message.body for message in late), "open to commit"])
        consumer.wait(
            partial(is_tried_enough, [message.body for message in retried]),
            f"every retry was tried {RETRIES} times",
        )
        for message in received:
            if message.body.startswith("late"):
                assert message.store_timestamp_ms - message.born_timestamp_ms >= DELAY_MS
        wait_until(
            lambda: is_asked_enough(transactional.checks("open to roll back")),
            lambda: agent.process.error("not asked again about what was open"),
        )
        last = Outgoing("last")
        producer.send(topic, [last], "sync")
        consumer.wait_for([last.body])
        came = set(consumer.bodies())
        sent = {message.body for message in (*late, *retried, last)}
        assert came == {*sent, "commit", "open to commit"}
        consumer.stop()
        producer.stop()
        transactional.stop()
