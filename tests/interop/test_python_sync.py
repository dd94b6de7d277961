"""The blocking client, and the programs of examples/, against Roquet and Apache RocketMQ."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue

import pytest

from roquet.sync import (
    Admin,
    ClientOptions,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SimplePull,
    TransactionProducer,
    TransactionState,
    reply,
)
from tests.interop.agent import wait_until
from tests.interop.cluster import Cluster

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[2]

# They need pytest, or Spark.
NOT_PLAIN = ("test_", "spark_")
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
TIMEOUT_MS = 30_000


def options_of(servers: Cluster) -> ClientOptions:
    return ClientOptions(
        namesrv=servers.namesrv, client_ip="127.0.0.1", request_timeout_ms=TIMEOUT_MS
    )


def topic_of(servers: Cluster, name: str) -> str:
    with Admin(options_of(servers)) as admin:
        admin.topics.create(name, queues=1)
    return name


def sender(servers: Cluster) -> Producer:
    return Producer(options_of(servers), group="SyncSenders", send_timeout_ms=TIMEOUT_MS)


def test_messages_are_sent_pushed_and_replied_to(servers: Cluster) -> None:
    topic, answers = topic_of(servers, "SyncPush"), topic_of(servers, "SyncAnswers")
    seen: SimpleQueue[bytes] = SimpleQueue()
    with sender(servers) as producer:

        def handle(message: ReceivedMessage) -> None:
            if message.body == b"fails once" and message.reconsume_times == 0:
                raise ValueError(message.body)
            producer.send(Message(answers, message.body))
            if message.body == b"asked":
                producer.send(reply(message, b"answered"))
            seen.put(message.body)

        consumer = PushConsumer(
            options_of(servers), group="SyncPush", handler=handle, consume_from=FIRST
        )
        consumer.subscribe(topic)
        producer.send_batch([Message(topic, b"one"), Message(topic, b"fails once")])
        with consumer:
            assert {seen.get(), seen.get()} == {b"one", b"fails once"}
            asked = producer.request(Message(topic, b"asked"), timeout_ms=TIMEOUT_MS)
            assert (asked.body, seen.get()) == (b"answered", b"asked")
        (queue,) = producer.queues(answers)
    with SimplePull(options_of(servers), queue, group="SyncAudit") as reader:
        # A Java broker acknowledges a message before it is in its queue.
        wait_until(lambda: reader.max_offset() == 3, lambda: AssertionError("not all are stored"))
        found = [message.body for message in reader.read(0, reader.max_offset())]
    assert sorted(found) == [b"asked", b"fails once", b"one"]


def test_transactions(servers: Cluster) -> None:
    topic = topic_of(servers, "SyncPayments")
    states = {
        b"paid": TransactionState.COMMIT,
        b"refused": TransactionState.ROLLBACK,
        b"hangs": TransactionState.UNKNOWN,
    }

    class Payments:
        def execute(self, message: Message, transaction_id: str) -> TransactionState:
            assert transaction_id
            return states[message.body]

        def check(self, message: ReceivedMessage) -> TransactionState:
            known = states[message.body]
            return TransactionState.COMMIT if known is TransactionState.UNKNOWN else known

    with (
        TransactionProducer(
            options_of(servers),
            group="SyncPayments",
            listener=Payments(),
            send_timeout_ms=TIMEOUT_MS,
        ) as producer,
        LitePullConsumer(options_of(servers), group="SyncLedger", consume_from=FIRST) as consumer,
    ):
        for body, state in states.items():
            assert producer.send_transaction(Message(topic, body)).state is state
        consumer.subscribe(topic)
        seen: set[bytes] = set()
        for message in consumer:
            seen.add(message.body)
            if {b"paid", b"hangs"} <= seen:
                break
        assert seen == {b"paid", b"hangs"}


PROGRAMS = sorted(
    path.name for path in (ROOT / "examples").glob("*.py") if not path.name.startswith(NOT_PLAIN)
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_runs(servers: Cluster, name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), servers.namesrv],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
