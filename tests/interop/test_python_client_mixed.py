"""Python clients and clients of other languages with the same topics and in the same groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import pytest

from roquet.admin import Admin
from roquet.client import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConsistentHash,
    AllocateStrategy,
    ConsumeResult,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    TransactionState,
    reply,
)
from roquet.client.group_share import members_of_group
from tests.interop.agent import Agent, Outgoing
from tests.interop.agents import GO, JAVA, JAVA_4, AgentPool
from tests.interop.arrival import Placed
from tests.interop.cluster import Cluster
from tests.interop.python_client import (
    TIMEOUT_MS,
    committed,
    eventually,
    group_of,
    new_queues,
    numbered,
    opened,
    options_of,
    producer_of,
    push_of,
    send,
)
from tests.interop.request_reply import request
from tests.interop.transactions import COMMIT, ROLLBACK, UNKNOWN, Transaction, TransactionProducer
from tests.unit.client.client_kit import until
from tests.unit.client.handler_kit import Seen

pytestmark = pytest.mark.interop

STRATEGIES = (AllocateAveragely(), AllocateAveragelyByCircle(), AllocateByConsistentHash())


@pytest.fixture
def java(agents: AgentPool) -> Agent:
    return agents.get(JAVA)


# ------------------------------------------------------------------------- what others send


@pytest.mark.parametrize("kind", [JAVA, JAVA_4, GO])
async def test_python_reads_all_kinds(servers: Cluster, agents: AgentPool, kind: str) -> None:
    agent = agents.get(kind)
    queues = await new_queues(servers, 2)
    topic = queues[0].topic
    seen = Seen()

    def send_all() -> dict[str, str]:
        producer = agent.producer(servers.namesrv, f"{topic}_senders")
        plain = Outgoing("plain ü", tags="T", keys=["k1", "k2"], properties={"colour": "blå"})
        sent = {"plain ü": producer.send(topic, [plain], "sync")[0].message_id}
        for mode, message in {
            "async": Outgoing("async"),
            "oneway": Outgoing("oneway"),
            "ordered": Outgoing("ordered", order="17"),
            "queue": Outgoing("queue", queue=(servers.broker_name, 1)),
        }.items():
            for result in producer.send(topic, [message], mode):
                sent[message.body] = result.message_id
        batch = [Outgoing(f"batch {number}") for number in range(3)]
        (result,) = producer.send(topic, batch, "batch")
        if kind != GO:  # it has one id for all
            ids = result.message_id.split(",")
            sent |= {each.body: found for each, found in zip(batch, ids, strict=True)}
        (result,) = producer.send(topic, [Outgoing("later", delay_level=1)], "sync")
        sent["later"] = result.message_id
        producer.stop()
        return sent

    async with push_of(servers, topic, seen):
        sent = await asyncio.to_thread(send_all)
        await seen.wait(9)
    got = {each.body.decode(): each for each in seen.messages}
    assert {body: got[body].message_id for body in sent} == sent
    plain = got["plain ü"]
    assert (plain.tags, plain.keys, plain.properties["colour"]) == ("T", ["k1", "k2"], "blå")
    assert got["queue"].queue_id == 1
    assert got.keys() == {*sent, "oneway", "batch 0", "batch 1", "batch 2"}
    assert len(seen.messages) == 9


async def test_python_reads_what_java_compressed(servers: Cluster, java: Agent) -> None:
    (queue,) = await new_queues(servers, 1)
    seen = Seen()
    bodies = {kind: f"{kind} ü " * 2_000 for kind in ("ZLIB", "LZ4", "ZSTD")}

    def send_all() -> None:
        for kind, body in bodies.items():
            producer = java.producer(servers.namesrv, f"{queue.topic}_{kind}", compress=kind)
            producer.send(queue.topic, [Outgoing(body)], "sync")
            producer.stop()

    async with push_of(servers, queue.topic, seen):
        await asyncio.to_thread(send_all)
        await seen.wait(3)
    assert {each.body.decode() for each in seen.messages} == set(bodies.values())
    assert all(len(each.raw_body) < len(each.body) for each in seen.messages)
    assert len({each.sys_flag for each in seen.messages}) == 3


async def test_python_replies_to_others(servers: Cluster, agents: AgentPool) -> None:
    (queue,) = await new_queues(servers, 1)
    clients = [agents.get(JAVA), agents.get(GO)]

    async with producer_of(servers) as producer:

        async def answer(message: ReceivedMessage) -> ConsumeResult | None:
            await producer.send(reply(message, message.body + b" pong"))
            return None

        def ask(agent: Agent) -> str:
            asker = agent.producer(servers.namesrv, f"{queue.topic}_asker")
            body = request(asker, queue.topic, agent.kind, timeout_ms=TIMEOUT_MS).body
            asker.stop()
            return body

        async with push_of(servers, queue.topic, answer):
            found = await asyncio.gather(*(asyncio.to_thread(ask, each) for each in clients))
            answered = await producer.request(Message(queue.topic, b"itself"))
    assert found == [f"{each.kind} pong" for each in clients]
    assert answered.body.decode() == "itself pong"


# ------------------------------------------------------------------------------ one group


class Group:
    """The clients of a group, and which queues each reports."""

    def __init__(self, servers: Cluster, queues: Sequence[MessageQueue]) -> None:
        self._servers = servers
        self._queues = queues
        self.topic = queues[0].topic
        self.name = group_of(self.topic)

    async def wait_shared(self, strategy: AllocateStrategy, clients: int) -> dict[str, set[int]]:
        """Wait until all have what the strategy assigns, no queue twice and none missing."""
        shares: dict[str, set[int]] = {}

        async def is_shared() -> bool:
            ids = await members_of_group(client, self.name, self.topic)
            if len(ids) != clients:
                return False
            shares.clear()
            for each in ids:
                info = await admin.clients.running_info(self.name, each)
                found = {
                    queue
                    for queue, state in info.queues.items()
                    if queue.topic == self.topic and not state.dropped
                }
                if found != set(strategy.allocate(each, self._queues, ids)):
                    return False
                shares[each] = {queue.queue_id for queue in found}
            return True

        async with opened(self._servers) as client, Admin(options_of(self._servers)) as admin:
            await eventually(is_shared)
        assert sorted(queue_id for share in shares.values() for queue_id in share) == [
            queue.queue_id for queue in self._queues
        ]
        return shares


@asynccontextmanager
async def stream(producer: Producer, queues: Sequence[MessageQueue]) -> AsyncIterator[list[bytes]]:
    """Messages to all queues in turn, without end; what was sent so far."""
    sent: list[bytes] = []
    is_over = False

    async def run() -> None:
        while not is_over:
            body = b"stream %d" % len(sent)
            await send(producer, [queues[len(sent) % len(queues)]], [body])
            sent.append(body)
            await asyncio.sleep(0.002)

    task = asyncio.create_task(run())
    try:
        yield sent
    finally:
        is_over = True
        await task  # one in flight is counted too


async def more(sent: Sequence[bytes], count: int = 40) -> None:
    end = len(sent) + count
    await until(lambda: len(sent) >= end)


def bodies_of(*sources: Iterable[bytes | str]) -> set[bytes]:
    return {each.encode() if isinstance(each, str) else each for part in sources for each in part}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: each.name)
async def test_a_mixed_group_shares_queues(
    servers: Cluster, java: Agent, strategy: AllocateStrategy
) -> None:
    queues = await new_queues(servers, 8)
    group = Group(servers, queues)
    one, two = Seen(), Seen()
    options = {"allocate": strategy.name}
    other = await asyncio.to_thread(java.push, servers.namesrv, group.topic, group.name, **options)

    def python(seen: Seen, name: str) -> PushConsumer:
        return push_of(
            servers, group.topic, seen, instance_name=f"{group.topic}-{name}", allocate=strategy
        )

    async with producer_of(servers) as producer, python(one, "staying") as staying:
        await group.wait_shared(strategy, 2)
        async with python(two, "leaving") as leaving:
            shares = await group.wait_shared(strategy, 3)
            ids = {leaving.client.client_id, staying.client.client_id}
            settled = numbered(80, "settled ")
            await send(producer, queues, settled)

            def got() -> set[bytes]:
                return bodies_of(one.bodies, two.bodies, other.bodies())

            await until(lambda: set(settled) <= got())
            assert len(one.messages) + len(two.messages) + len(other.messages()) == len(settled)
            for seen, consumer in ((one, staying), (two, leaving)):
                came = {each.queue_id for each in seen.messages}
                assert came == shares[consumer.client.client_id]
            (java_id,) = shares.keys() - ids
            assert {each.queue_id for each in other.messages()} == shares[java_id]
            async with stream(producer, queues) as sent:
                await more(sent)
                await leaving.close()
                await group.wait_shared(strategy, 2)
                await more(sent)
                await asyncio.to_thread(other.stop)
                await group.wait_shared(strategy, 1)
                await more(sent)
            await until(lambda: set(sent) <= got())

            async def is_committed() -> bool:
                return sum(await committed(servers, queues)) == len(settled) + len(sent)

            # A Java broker may take the commit of an older pull last, until the next commit.
            await eventually(is_committed)


async def test_a_mixed_group_keeps_the_order_of_queues(servers: Cluster, java: Agent) -> None:
    queues = await new_queues(servers, 4)
    group = Group(servers, queues)
    strategy = AllocateAveragely()
    seen = Seen()
    async with (
        producer_of(servers) as producer,
        push_of(servers, group.topic, seen, orderly=True) as consumer,
        stream(producer, queues) as sent,
    ):
        await seen.wait(20)
        other = await asyncio.to_thread(
            java.push, servers.namesrv, group.topic, group.name, listener="orderly"
        )
        await group.wait_shared(strategy, 2)
        await asyncio.to_thread(other.wait, lambda got: len(got) >= 20, "messages in order")
        await asyncio.to_thread(other.stop)
        await group.wait_shared(strategy, 1)
        assert consumer.assignment == queues
        count = len(sent)
        await until(lambda: set(sent[: count + 20]) <= bodies_of(seen.bodies, other.bodies()))
    for queue in queues:
        check_handed_over(seen.messages, other.messages(), queue.queue_id)


def offsets_of(messages: Iterable[Placed], queue_id: int) -> list[int]:
    return [each.queue_offset for each in messages if each.queue_id == queue_id]


def check_handed_over(mine: Sequence[Placed], yours: Sequence[Placed], queue_id: int) -> None:
    """Each had a queue's messages in order, without gaps; it went from one to the other and back.

    The last ones finished may be delivered again: a Java client that stops unlocks before it
    commits.
    """
    my_offsets, your_offsets = offsets_of(mine, queue_id), offsets_of(yours, queue_id)
    assert my_offsets == sorted(set(my_offsets))
    if your_offsets:
        first, last = your_offsets[0], your_offsets[-1]
        assert your_offsets == list(range(first, last + 1))
        assert [each for each in my_offsets if each < first] == list(range(first))
    together = sorted({*my_offsets, *your_offsets})
    assert together == list(range(len(together)))


async def test_python_ends_transactions_that_java_left_open_and_the_reverse(
    servers: Cluster, java: Agent
) -> None:
    """The broker checks another producer of the group, whatever its language."""
    (queue,) = await new_queues(servers, 1)
    topic = queue.topic
    group = f"{topic}_producers"
    asked: list[bytes] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        is_good = message.body.endswith(b"commit")
        return TransactionState.COMMIT if is_good else TransactionState.ROLLBACK

    async def leave_it_open(_: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    def leave_open() -> None:
        gone = TransactionProducer(java, servers.namesrv, group)
        verdicts = {"java, commit": COMMIT, "java, rollback": ROLLBACK}
        gone.transact(topic, [Transaction(each, UNKNOWN) for each in verdicts])
        gone.stop()

    seen = Seen()
    async with push_of(servers, topic, seen):
        async with Producer(options_of(servers), group=group, check=check) as heir:
            await heir.queues(topic)
            await asyncio.to_thread(leave_open)
            await until(lambda: {b"java, commit", b"java, rollback"} <= set(asked))
            await seen.wait_for(b"java, commit")
        second = await asyncio.to_thread(
            TransactionProducer, java, servers.namesrv, group, verdict=COMMIT
        )
        await asyncio.to_thread(second.make_known, topic)
        # The broker may check it before it is gone.
        async with Producer(options_of(servers), group=group, check=leave_it_open) as gone:
            message = Message(topic, b"python, commit")
            await gone.send_in_transaction(message, lambda *_: TransactionState.UNKNOWN)
        await asyncio.to_thread(second.wait_checked, "python, commit")
        await seen.wait_for(b"python, commit")
        await asyncio.to_thread(second.stop)
    assert b"java, rollback" not in seen.bodies
