"""Python producers and push consumers while servers die and come back, and with usual settings.

Servers are started by the main thread: they end with the thread that started them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import Random

import pytest

from roquet.admin import Admin
from roquet.client import (
    ConsumeFromWhere,
    Message,
    MessageQueue,
    Producer,
    PullApi,
    PushConsumer,
    SendStatus,
    SimplePull,
)
from roquet.errors import ClientError, ConnectFailed
from tests.interop.agent import Ack
from tests.interop.arrival import check_arrival, check_log
from tests.interop.cluster import BROKER_CONFIG, ROQUET, Cluster
from tests.interop.python_client import (
    TIMEOUT_MS,
    committed,
    committed_by,
    group_of,
    new_queues,
    numbered,
    opened,
    options_of,
    producer_of,
    push_of,
    send,
    wait_committed,
    wait_committed_by,
    wait_stored,
)
from tests.unit.client.client_kit import until
from tests.unit.client.handler_kit import Seen

pytestmark = pytest.mark.interop

MESSAGES_A_ROUND = 30

SEGMENT_BYTES = int(BROKER_CONFIG["mappedFileSizeCommitLog"])
BIG_BYTES = 3 << 20

EXPECTED = {
    ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET: [b"before", b"after", b"new"],
    ConsumeFromWhere.CONSUME_FROM_TIMESTAMP: [b"after", b"new"],
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET: [b"new"],
}


class Load:
    """For each queue one message after the other, each retried until it is acknowledged."""

    def __init__(self, producer: Producer, queues: Sequence[MessageQueue]) -> None:
        self.acks: list[Ack] = []
        self.failures = 0
        self._producer = producer
        self._queues = queues
        self._is_stopping = False
        self._tasks = [asyncio.create_task(self._run(queue)) for queue in queues]

    async def _run(self, queue: MessageQueue) -> None:
        number = 0
        while not self._is_stopping:
            body = f"{queue.topic}/{queue.queue_id}/{number}"
            tries = 1
            while not await self._is_sent(queue, body, number, tries):
                tries += 1
                await asyncio.sleep(0.05)
            number += 1
            await asyncio.sleep(0.002)

    async def _is_sent(self, queue: MessageQueue, body: str, number: int, tries: int) -> bool:
        try:
            result = await self._producer.send(Message(queue.topic, body.encode()), queue=queue)
        except ClientError:
            self.failures += 1
            return False
        if result.status is not SendStatus.SEND_OK:
            return False
        self.acks.append(Ack(body, queue.queue_id, result.queue_offset, number, tries))
        return True

    async def wait_more(self) -> None:
        """Wait until each queue has so many more acknowledgements than now."""
        before = self._counts()
        await until(
            lambda: all(
                now >= then + MESSAGES_A_ROUND
                for now, then in zip(self._counts(), before, strict=True)
            )
        )

    async def stop(self) -> None:
        self._is_stopping = True
        await asyncio.gather(*self._tasks)

    def _counts(self) -> list[int]:
        return [sum(ack.queue_id == each.queue_id for ack in self.acks) for each in self._queues]


async def test_a_killed_broker_loses_nothing_and_queues_keep_their_order(
    usual_servers: Cluster,
) -> None:
    servers = usual_servers
    queues = await new_queues(servers, 2)
    topic = queues[0].topic
    in_order, in_any_order = Seen(), Seen()
    async with (
        producer_of(servers, retry_times=0) as producer,
        push_of(servers, topic, in_order, orderly=True),
        push_of(servers, topic, in_any_order, group=f"{topic}_any"),
    ):
        load = Load(producer, queues)
        await load.wait_more()
        # Apache RocketMQ takes several seconds to start.
        for _ in range(2 if servers.broker_side == ROQUET else 1):
            servers.broker.kill()
            failures = load.failures
            await until(lambda: load.failures >= failures + len(queues))  # noqa: B023
            servers.start_broker()
            await load.wait_more()
            last = load.acks[-1].body.encode()
            await in_order.wait_for(last)
            await in_any_order.wait_for(last)
        await load.stop()
        bodies = {ack.body.encode() for ack in load.acks}
        await until(lambda: bodies <= set(in_order.bodies) and bodies <= set(in_any_order.bodies))
    assert max(ack.tries for ack in load.acks) > 1, "no message met the restart"
    for seen in (in_order, in_any_order):
        check_log(
            load.acks,
            {(each.queue_id, each.queue_offset): each.body.decode() for each in seen.messages},
        )
    check_arrival(in_order.messages)


async def test_where_a_new_group_starts(usual_servers: Cluster) -> None:
    """Brokers return 0 for a young queue; one that has lost messages leaves it to the client."""
    servers = usual_servers
    (queue,), (full,) = await new_queues(servers, 1), await new_queues(servers, 1)
    big = Random(17).randbytes(BIG_BYTES)
    async with producer_of(servers) as producer:
        await send(producer, [queue], [b"lost"])
        await send(producer, [full], [big] * (SEGMENT_BYTES // BIG_BYTES + 1))
        last = await producer.send(Message(queue.topic, b"before"))
    servers.broker.kill()
    first, *_ = sorted(servers.folder.glob("store/commitlog/*"))
    first.unlink()
    servers.start_broker()
    servers.wait_registered()
    found = {where: Seen() for where in EXPECTED}
    async with (
        producer_of(servers) as producer,
        SimplePull(options_of(servers), queue, group=f"{queue.topic}_look") as look,
    ):
        assert (await look.min_offset(), await look.max_offset()) == (1, last.queue_offset + 1)
        (before,) = [each async for each in look.read(1, 2)]
        clock = producer.client.clock
        await until(lambda: clock.now_ms() > before.store_timestamp_ms)
        middle_ms = clock.now_ms()
        await send(producer, [queue], [b"after"])
        await wait_stored(servers, queue, 3)
        async with AsyncExitStack() as stack:
            for where, seen in found.items():
                consumer = push_of(
                    servers,
                    queue.topic,
                    seen,
                    group=f"{queue.topic}_{where.name}",
                    consume_from=where,
                    consume_from_timestamp_ms=middle_ms,
                )
                await stack.enter_async_context(consumer)
                await until(lambda: consumer.assignment == [queue])  # noqa: B023
            await send(producer, [queue], [b"new"])
            for where, seen in found.items():
                await seen.wait_for(b"new")
                await wait_committed(servers, [queue], 4, group=f"{queue.topic}_{where.name}")
    assert {where: seen.bodies for where, seen in found.items()} == EXPECTED
    for where in EXPECTED:
        assert await committed(servers, [queue], group=f"{queue.topic}_{where.name}") == [4]


async def test_a_live_group_is_reset_by_its_broker(usual_servers: Cluster) -> None:
    """The clients learn of it when they pull."""
    servers = usual_servers
    queues = await new_queues(servers, 2)
    topic = queues[0].topic
    seen = Seen()
    bodies = numbered(10)
    async with (
        producer_of(servers) as producer,
        Admin(options_of(servers)) as admin,
        push_of(servers, topic, seen),
    ):
        await send(producer, queues, bodies)
        await seen.wait(10)
        await admin.offsets.reset(group_of(topic), topic, "earliest")
        await send(producer, queues, [b"ends the pulls", b"that wait"])
        await until(lambda: all(seen.bodies.count(each) >= 2 for each in bodies))
        await seen.wait_for(b"ends the pulls", b"that wait")
        await wait_committed(servers, queues, 6, 6)
    assert await committed(servers, queues) == [6, 6]


async def test_work_continues_without_a_name_server(
    usual_servers: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not respond, then it is gone for sixty rounds of polling; a minute has two of them.

    Then one comes back that knows nothing yet, as brokers register every half a minute.
    """
    servers = usual_servers
    queues = await new_queues(servers, 4)
    topic = queues[0].topic
    often = {"poll_namesrv_ms": 20, "heartbeat_ms": 20, "persist_offsets_ms": 500}
    patient = options_of(servers, **often)
    one, two = Seen(), Seen()

    def consumer_of(seen: Seen) -> PushConsumer:
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        made = PushConsumer(patient, group=group_of(topic), handler=seen, consume_from=first)
        made.subscribe(topic)
        return made

    caplog.set_level(logging.DEBUG, "roquet.client.route")

    def told(what: str) -> int:
        return sum(what in each.message for each in caplog.records)

    def rounds() -> int:
        return told("No route was refreshed")

    def unknown() -> int:
        return told(f"There is no route for the topic {topic}")

    bodies = numbered(120)
    async with (
        # Gives up soon on a name server that is frozen; the others would wait half a minute.
        opened(servers, **often, request_timeout_ms=1_000) as impatient,
        Producer(patient, group=f"{topic}_producers", send_timeout_ms=TIMEOUT_MS) as producer,
    ):
        await impatient.routes.route(topic)
        async with consumer_of(one) as staying, consumer_of(two) as leaving:
            await until(lambda: len(staying.assignment) == len(leaving.assignment) == 2)
            await send(producer, queues, bodies[:20])
            with servers.frozen_namesrv():
                await until(lambda: rounds() >= 3)
                await send(producer, queues, bodies[20:40])
                await until(lambda: set(bodies[:40]) <= {*one.bodies, *two.bodies})
            servers.kill_namesrv()
            try:
                await until(lambda: rounds() >= 3 + 60)
                with pytest.raises(ConnectFailed):
                    await producer.send(Message("Unknown", b"where to?"))
                await send(producer, queues, bodies[40:80])
                await leaving.close()
                await until(lambda: staying.assignment == queues)
            finally:
                servers.start_namesrv()
            seen = unknown()
            await until(lambda: unknown() > seen)
            await send(producer, queues, bodies[80:])
            await until(lambda: set(bodies) <= {*one.bodies, *two.bodies})
            # A new client would not find the broker before it registers again.
            api = PullApi(producer.client, group_of(topic))
            await wait_committed_by(api, queues, 30, 30, 30, 30)
        assert await committed_by(api, queues) == [30, 30, 30, 30]
