"""``roquet mqadmin`` makes and moves static topics, and the Python client uses them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from queue import Queue

import pytest

from roquet.client import Message, Producer, PushConsumer, ReceivedMessage
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.client import ConsumeFromWhere
from roquet.testing.background import BackgroundBroker, background_broker
from tests.integration.cli.client_kit import call, done, of_json
from tests.integration.cli.server_kit import END_TIMEOUT_S

LOGICAL = "__syslo__global__"
BLOCK = 10_000

_numbers = count(1)


@pytest.fixture(scope="module")
def running() -> Iterator[BackgroundBroker]:
    with (
        background_broker() as first,
        background_broker({"brokerName": "second"}, namesrv=first.namesrv),
    ):
        yield first


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the commands put their files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def topic() -> str:
    return f"Static{next(_numbers)}"


def create(running: BackgroundBroker, topic: str, queues: int, *more: str) -> str:
    words = ("updateStaticTopic", "-t", topic, "-qn", str(queues), *(more or ("-b", "dev")))
    return done(running, "mqadmin", *words)


def remap(running: BackgroundBroker, topic: str, brokers: str, *more: str) -> str:
    return done(running, "mqadmin", "remappingStaticTopic", "-t", topic, "-b", brokers, *more)


def failure(running: BackgroundBroker, *words: str) -> str:
    """The error of a command that fails."""
    return call(running, "mqadmin", *words).stderr


def status(running: BackgroundBroker, topic: str) -> dict[tuple[str, int], tuple[int, int]]:
    """The first and next offset of each queue, as `topicStatus` shows them."""
    printed = done(running, "mqadmin", "topicStatus", "-t", topic)
    rows = re.findall(r"(?m)^(\S+) +(\d+) +(\d+) +(\d+)", printed)
    return {(name, int(queue)): (int(least), int(most)) for name, queue, least, most in rows}


def send(running: BackgroundBroker, topic: str, *bodies: str) -> list[int]:
    """The offsets of messages in the first logical queue."""

    async def work() -> list[int]:
        async with Producer(running.namesrv, group="p") as producer:
            queue = MessageQueue(topic, LOGICAL, 0)
            return [
                (await producer.send(Message(topic, body.encode()), queue=queue)).queue_offset
                for body in bodies
            ]

    return running.run(work)


@contextmanager
def consuming(running: BackgroundBroker, topic: str) -> Iterator[Queue[tuple[int, int, str]]]:
    """Queue, offset and body of the messages that a new group gets."""
    came: Queue[tuple[int, int, str]] = Queue()

    async def handler(message: ReceivedMessage) -> None:
        came.put_nowait((message.queue_id, message.queue_offset, message.body.decode()))

    consumer = PushConsumer(
        running.namesrv,
        group=f"{topic}_group",
        handler=handler,
        orderly=True,
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )

    async def start() -> None:
        consumer.subscribe(topic)
        await consumer.start()

    running.run(start)
    try:
        yield came
    finally:
        running.run(consumer.close)


def test_a_queue_moves(running: BackgroundBroker, topic: str) -> None:
    printed = create(running, topic, 1)
    assert printed.splitlines()[0].startswith("The old mapping data is written to file ")
    assert send(running, topic, "0", "1") == [0, 1]
    remap(running, topic, "second")
    assert send(running, topic, "2") == [BLOCK]
    assert status(running, topic) == {
        (LOGICAL, 0): (0, BLOCK + 1),
        ("dev", 0): (0, 2),
        ("second", 0): (0, 1),
    }
    with consuming(running, topic) as came:
        received = [came.get(timeout=END_TIMEOUT_S) for _ in range(3)]
    assert received == [(0, 0, "0"), (0, 1, "1"), (0, BLOCK, "2")]
    found = of_json(running, "mqadmin", "consumerProgress", "-g", f"{topic}_group", "-t", topic)
    assert LOGICAL in str(found)


def test_clients_follow_a_queue(running: BackgroundBroker, topic: str) -> None:
    create(running, topic, 1)
    queue = MessageQueue(topic, LOGICAL, 0)
    producer = Producer(running.namesrv, group="p")

    async def first() -> int:
        await producer.start()
        return (await producer.send(Message(topic, b"0"), queue=queue)).queue_offset

    async def second() -> int:
        try:
            return (await producer.send(Message(topic, b"1"), queue=queue)).queue_offset
        finally:
            await producer.close()

    with consuming(running, topic) as came:
        assert running.run(first) == 0
        assert came.get(timeout=END_TIMEOUT_S) == (0, 0, "0")
        remap(running, topic, "second")
        assert running.run(second) == BLOCK
        assert came.get(timeout=END_TIMEOUT_S) == (0, BLOCK, "1")


def test_more_queues_over_a_cluster(running: BackgroundBroker, topic: str) -> None:
    create(running, topic, 2)
    create(running, topic, 6, "-c", "DefaultCluster")
    names = [name for name, _ in status(running, topic)]
    assert sorted(set(names)) == [LOGICAL, "dev", "second"]
    assert (names.count(LOGICAL), names.count("dev"), names.count("second")) == (6, 3, 3)


def test_a_plan_is_carried_out_from_its_file(running: BackgroundBroker, topic: str) -> None:
    plan = create(running, topic, 1).splitlines()[1].rpartition(" ")[2]
    words = ("updateStaticTopic", "-t", topic, "-qn", "1", "-b", "dev", "-mf", plan)
    remap(running, topic, "second")
    assert "Can't accept data with small epoch" in failure(running, *words)
    done(running, "mqadmin", "deleteTopic", "-c", "DefaultCluster", "-t", topic)
    done(running, "mqadmin", *words)
    assert send(running, topic, "0") == [0]
    assert status(running, topic) == {(LOGICAL, 0): (0, 1), ("dev", 0): (0, 1)}


def test_what_is_refused(running: BackgroundBroker, topic: str) -> None:
    remapping = ("remappingStaticTopic", "-t", topic)
    updating = ("updateStaticTopic", "-t", topic)
    assert "No topic route to do the remapping" in failure(running, *remapping, "-b", "dev")
    assert "Can't find addr for broker nobody" in failure(running, *remapping, "-b", "nobody")
    nobody = failure(running, *updating, "-qn", "1", "-c", "Nowhere")
    assert "Find none brokers, do nothing" in nobody
    create(running, topic, 2)
    same = failure(running, *updating, "-qn", "2", "-b", "dev")
    assert "The topic queue num is equal the existed queue num, do nothing" in same
    assert "NumberFormatException" in failure(running, *updating, "-qn", "x", "-b", "dev")


def test_an_ordinary_topic_stays_one(running: BackgroundBroker, topic: str) -> None:
    done(running, "topic", "create", topic, "--broker", "dev")
    words = ("updateStaticTopic", "-t", topic, "-qn", "9", "-b", "dev")
    assert "Mapping info should not be null in broker dev" in failure(running, *words)
