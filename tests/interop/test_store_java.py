"""One store directory, handed back and forth between Roquet and Apache RocketMQ.

Each way of ending Roquet's first turn (clean, kill -9) is followed by the same turns: Java serves
and appends and stops; Roquet opens, appends and closes; Java serves again and is killed while it
appends; Roquet recovers. After each turn every message is where it was acknowledged.

`logwalk`, which belongs to neither side, reads what a log really holds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from pathlib import Path

import pytest

from roquet.errors import StoreLocked
from roquet.model.message import StoredMessage
from roquet.store.default_message_store import DefaultMessageStore
from tests.interop.javabroker import START_TIMEOUT_S, JavaBroker, write_topics
from tests.interop.javaclient import JavaMessage, JavaSendResult
from tests.interop.logwalk import (
    SYS_FLAG_COMPRESSED,
    LogRecord,
    tags_code,
    walk_commit_log,
    walk_consume_queue,
)
from tests.interop.oracle import JAVA_CONFIG, JavaOracle
from tests.interop.roquetstore import (
    TAGS,
    Ack,
    open_store,
    put_messages,
    query,
    read_queue,
    sha1,
    verify_store,
    visible_body,
)

# The first run on a machine downloads the jars within a test's setup.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parent.parent.parent
QUEUES = 4
ROQUET_SEED = 11
ROQUET_SEED_LATER = 12
ROQUET_SEED_LAST = 13
JAVA_SEED = 21
JAVA_SEED_LARGE = 22
JAVA_SEED_KILLED = 23

TRANSACTION_PREPARED = 0x4
# A consumer adds these to what is stored.
CONSUMER_PROPERTIES = {"MIN_OFFSET", "MAX_OFFSET"}

Position = tuple[str, int, int]


# -- turns ---------------------------------------------------------------------------------------


def roquet_writes(store: Path, topic: str, *, count: int, killed: bool) -> list[Ack]:
    """Runs the writer as a process of its own, to its end or until it is killed."""
    arguments = [str(store), topic, str(QUEUES), str(ROQUET_SEED), "0" if killed else str(count)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.interop.store_writer", *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines: list[str] = []
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if killed and len(lines) == count:
                process.kill()
    assert process.returncode == (-9 if killed else 0)
    return [Ack(*json.loads(line)) for line in lines if line.endswith("\n")]


def roquet_goes_on(store: Path, topic: str, *, seed: int, count: int) -> list[Ack]:
    """Opens the store, checks every queue against the log, appends, and closes cleanly."""
    before = list(walk_commit_log(store))
    with open_store(store) as opened:
        check_roquet_serves(opened, before, topic)
        acks = [
            ack
            for first in range(0, count, 7)
            for ack in put_messages(
                opened, topic, queues=QUEUES, seed=seed, first=first, count=min(7, count - first)
            )
        ]
        after = list(walk_commit_log(store))
        assert after[: len(before)] == before
        check_acks(acks, after[len(before) :])
        check_roquet_serves(opened, after, topic)
    check_files(store, topic)
    return acks


# -- checks --------------------------------------------------------------------------------------


def position(item: LogRecord | JavaMessage | JavaSendResult | StoredMessage | Ack) -> Position:
    return item.topic, item.queue_id, item.queue_offset


def in_queues(records: Iterable[LogRecord], topic: str) -> dict[Position, LogRecord]:
    """The records that have a place in a queue of the topic."""
    return {
        position(record): record
        for record in records
        if record.topic == topic and not record.sys_flag & TRANSACTION_PREPARED
    }


def by_queue(records: Iterable[LogRecord], topic: str) -> list[list[LogRecord]]:
    """The records of each queue, whose offsets must count from 0 without a gap."""
    queues: dict[int, list[LogRecord]] = defaultdict(list)
    for record in in_queues(records, topic).values():
        queues[record.queue_id].append(record)
    for queue in queues.values():
        assert [record.queue_offset for record in queue] == list(range(len(queue)))
    assert sorted(queues) == list(range(QUEUES))
    return [queues[queue_id] for queue_id in range(QUEUES)]


def sample(records: Iterable[LogRecord], topic: str, *, count: int) -> list[LogRecord]:
    """Records of a topic from all over the log, the last one among them."""
    of_topic = [record for record in records if record.topic == topic]
    return [*of_topic[:: max(1, len(of_topic) // count)], of_topic[-1]]


def check_acks(acks: Sequence[Ack], records: Iterable[LogRecord]) -> None:
    """Every acknowledged message is in the log where the acknowledgement says."""
    by_offset = {record.physical_offset: record for record in records}
    for ack in acks:
        record = by_offset[ack.physical_offset]
        assert position(record) == position(ack)
        assert record.body_sha1 == ack.body_sha1


def check_java_acks(sent: Sequence[JavaSendResult], records: Iterable[LogRecord]) -> None:
    """Every message that Java acknowledged is in the log with all that was sent."""
    by_position = {position(record): record for record in records}
    for result in sent:
        record = by_position[position(result)]
        assert record.physical_offset == int(result.offset_message_id[-16:], 16)
        assert record.body_sha1 == result.body_sha1
        assert record.flag == result.flag
        assert record.properties.items() >= result.properties.items()


def check_java_serves(
    java: JavaOracle, broker: JavaBroker, records: Sequence[LogRecord], topic: str
) -> None:
    """The Java consumer gets exactly the messages of the log, in order, with every field."""
    expected = [record for queue in by_queue(records, topic) for record in queue]
    served = java.client.consume(broker, [topic], queues=QUEUES)
    assert [position(message) for message in served] == [position(record) for record in expected]
    for message, record in zip(served, expected, strict=True):
        properties = {
            name: value
            for name, value in message.properties.items()
            if name not in CONSUMER_PROPERTIES
        }
        assert properties == record.properties
        assert message.tags == record.properties.get("TAGS")
        assert message.keys == record.properties.get("KEYS")
        assert message.message_id == record.properties["UNIQ_KEY"]
        for name in (
            "physical_offset",
            "body_sha1",
            "flag",
            "born_timestamp_ms",
            "store_timestamp_ms",
        ):
            assert getattr(message, name) == getattr(record, name), (name, message, record)
        # The consumer clears the flag when it decompresses.
        assert message.sys_flag == record.sys_flag & ~SYS_FLAG_COMPRESSED
        assert message.store_size == record.size
        assert _same_host(message.born_host, record.born_host)
        assert _same_host(message.store_host, record.store_host)
    check_java_filters(java, broker, expected, topic)
    check_java_offsets(java, broker, records, topic)


def check_java_filters(
    java: JavaOracle, broker: JavaBroker, expected: Sequence[LogRecord], topic: str
) -> None:
    """The broker's filter reads tag codes from the queue entries."""
    for tag in TAGS:
        served = java.client.consume(broker, [topic], queues=QUEUES, expression=tag)
        tagged = [record for record in expected if record.properties.get("TAGS") == tag]
        assert tagged
        assert [position(message) for message in served] == [position(item) for item in tagged]


def check_java_offsets(
    java: JavaOracle, broker: JavaBroker, records: Sequence[LogRecord], topic: str
) -> None:
    queues = by_queue(records, topic)
    middle_ms = records[len(records) // 2].store_timestamp_ms
    for offsets in java.client.offsets(broker, [topic], queues=QUEUES, timestamp_ms=middle_ms):
        queue = queues[offsets.queue_id]
        assert (offsets.minimum, offsets.maximum) == (0, len(queue))
        first = next((item for item in queue if item.store_timestamp_ms >= middle_ms), queue[-1])
        assert offsets.search is not None
        assert queue[offsets.search].store_timestamp_ms == first.store_timestamp_ms


def check_java_queries(java: JavaOracle, records: Sequence[LogRecord], topic: str) -> None:
    """Keys from all over the log find their message through the index files.

    Perhaps twice: Java's recovery indexes the record at the end of an index file again.
    """
    expected = sample(records, topic, count=25)
    for property_name, unique in (("KEYS", False), ("UNIQ_KEY", True)):
        offsets = {
            record.properties[property_name].split()[0]: [record.physical_offset]
            for record in expected
        }
        found = java.client.query(topic, [*offsets, "no-such-key"], unique=unique)
        assert found.pop("no-such-key") == []
        assert offsets == {
            key: sorted({message.physical_offset for message in messages})
            for key, messages in found.items()
        }


def check_roquet_serves(
    store: DefaultMessageStore, records: Sequence[LogRecord], topic: str
) -> None:
    """Roquet's reads give exactly the messages of the log, and its index finds them."""
    for queue_id, expected in enumerate(by_queue(records, topic)):
        messages = read_queue(store, topic, queue_id)
        assert [position(item) for item in messages] == [position(item) for item in expected]
        for message, record in zip(messages, expected, strict=True):
            assert message.physical_offset == record.physical_offset
            assert sha1(visible_body(message)) == record.body_sha1
            assert message.properties == record.properties
            assert str(message.born_host).replace("[", "").replace("]", "") == record.born_host
            for name in ("flag", "sys_flag", "born_timestamp_ms", "store_timestamp_ms"):
                assert getattr(message, name) == getattr(record, name)
    for record in sample(records, topic, count=50):
        for key in (record.properties["KEYS"].split()[0], record.properties["UNIQ_KEY"]):
            found = [message.physical_offset for message in query(store, topic, key)]
            assert found == [record.physical_offset], key


def check_files(store: Path, topic: str) -> None:
    """A closed store: no abort file, nothing to find fault with, queues that agree with the log."""
    assert not (store / "abort").exists()
    assert verify_store(store).faults == []
    for queue_id, expected in enumerate(by_queue(walk_commit_log(store), topic)):
        entries = list(walk_consume_queue(store, topic, queue_id))
        assert entries == [
            (record.physical_offset, record.size, tags_code(record.properties.get("TAGS")))
            for record in expected
        ]


def check_rolled(store: Path, topic: str) -> None:
    """The test is worth something only if every kind of file has rolled."""
    assert len(list((store / "commitlog").iterdir())) > 3
    assert len(list((store / "consumequeue" / topic / "0").iterdir())) > 2
    assert len(list((store / "index").iterdir())) > 3


def _same_host(java: str, ours: str) -> bool:
    """Java prints an IPv6 address without shortening its zeros."""
    java_ip, _, java_port = java.rpartition(":")
    our_ip, _, our_port = ours.rpartition(":")
    return (ip_address(java_ip), java_port) == (ip_address(our_ip), our_port)


# -- tests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed", [False, True], ids=["clean", "killed"])
def test_a_store_moves_back_and_forth(
    java: JavaOracle,
    tmp_path: Path,
    killed: bool,  # noqa: FBT001  a test parameter
) -> None:
    store = tmp_path / "store"
    topic = "InteropKilled" if killed else "InteropClean"

    acks = roquet_writes(store, topic, count=1200, killed=killed)
    records = list(walk_commit_log(store))
    check_acks(acks, records)
    if not killed:
        check_files(store, topic)
        assert len(in_queues(records, topic)) == len(acks)
    assert (store / "abort").exists() == killed
    check_rolled(store, topic)

    write_topics(store, {topic: QUEUES})
    with java.broker(store) as broker:
        check_java_serves(java, broker, records, topic)
        check_java_queries(java, records, topic)
        with pytest.raises(StoreLocked):
            DefaultMessageStore(store).load()
        sent = [
            *java.client.produce(
                broker, topic, queues=QUEUES, count=300, size=300, seed=JAVA_SEED, window=16
            ),
            *java.client.produce(
                broker, topic, queues=QUEUES, count=8, size=9000, seed=JAVA_SEED_LARGE
            ),
        ]
        broker.stop()
    after_java = list(walk_commit_log(store))
    assert after_java[: len(records)] == records
    assert len(sent) == 308
    check_java_acks(sent, after_java)
    check_files(store, topic)

    roquet_goes_on(store, topic, seed=ROQUET_SEED_LATER, count=100)
    records = list(walk_commit_log(store))

    with java.broker(store) as broker:
        check_java_serves(java, broker, records, topic)
        check_java_queries(java, records, topic)
        sent = []
        for result in java.client.produce(
            broker,
            topic,
            queues=QUEUES,
            count=100_000,
            size=300,
            seed=JAVA_SEED_KILLED,
            window=32,
            until_failure=True,
        ):
            sent.append(result)
            if len(sent) == 400:
                broker.kill()
    assert (store / "abort").exists()
    after_java = list(walk_commit_log(store))
    assert after_java[: len(records)] == records
    check_java_acks(sent, after_java)

    roquet_goes_on(store, topic, seed=ROQUET_SEED_LAST, count=100)
    assert list(walk_commit_log(store))[: len(after_java)] == after_java


def test_java_refuses_a_store_that_roquet_holds(java: JavaOracle, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with open_store(store) as opened:
        put_messages(opened, "InteropLock", queues=1, seed=ROQUET_SEED, first=0, count=1)
        with JavaBroker(java.toolkit, java.folder, java.namesrv, store, JAVA_CONFIG) as broker:
            broker.wait_log("Lock failed, MQ already started", START_TIMEOUT_S)
        acks = put_messages(opened, "InteropLock", queues=1, seed=ROQUET_SEED, first=1, count=1)
        check_acks(acks, walk_commit_log(store))
