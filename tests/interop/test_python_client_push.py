"""Push consumers of the Python client, each scenario the same on both sides."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from pathlib import Path

import pytest

from roquet.admin import Admin
from roquet.client import (
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageModel,
    MessageQueue,
    PushConsumer,
    ReceivedMessage,
    Sql,
    orderly,
    pulling,
)
from roquet.errors import BadExpression
from roquet.model.topic import SCHEDULE_TOPIC, TRACE_TOPIC
from roquet.remoting.bodies.client import (
    CMResult,
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.codes import RequestCode
from tests.interop.cluster import Cluster
from tests.interop.python_client import (
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
    wait_committed,
)
from tests.unit.client.client_kit import until
from tests.unit.client.handler_kit import Seen

pytestmark = pytest.mark.interop


async def test_coroutines_and_functions_get_every_message_once(servers: Cluster) -> None:
    queues = await new_queues(servers, 4)
    topic = queues[0].topic
    bodies = numbered(200)
    seen = Seen()
    in_threads: list[tuple[bytes, int]] = []

    def function(message: ReceivedMessage) -> None:
        in_threads.append((message.body, threading.get_ident()))

    async with producer_of(servers) as producer:
        await send(producer, queues, bodies[:100])
        async with (
            push_of(servers, topic, seen),
            push_of(servers, topic, function, group=f"{topic}_functions"),
        ):
            await send(producer, queues, bodies[100:])
            await seen.wait(200)
            await until(lambda: len(in_threads) >= 200)
            for group in (group_of(topic), f"{topic}_functions"):
                await wait_committed(servers, queues, 50, 50, 50, 50, group=group)
    assert sorted(seen.bodies) == sorted(body for body, _ in in_threads) == sorted(bodies)
    assert threading.get_ident() not in {thread for _, thread in in_threads}
    for group in (group_of(topic), f"{topic}_functions"):
        assert await committed(servers, queues, group=group) == [50] * 4


class Turns:
    """An orderly handler for several consumers, which detects whether they interfere."""

    def __init__(self) -> None:
        self.bodies: dict[int, list[bytes]] = defaultdict(list)
        self._busy: set[int] = set()
        self.is_disturbed = False

    async def __call__(self, message: ReceivedMessage) -> ConsumeResult | None:
        queue_id = message.queue_id
        self.is_disturbed |= queue_id in self._busy
        self._busy.add(queue_id)
        self.bodies[queue_id].append(message.body)
        await asyncio.sleep(0.002)
        self._busy.discard(queue_id)
        if message.body.endswith(b"7") and message.reconsume_times == 0:
            return ConsumeResult.suspend(10)
        return None

    def in_order(self, queue_id: int) -> list[bytes]:
        """The messages that arrived, each at its first arrival."""
        return list(dict.fromkeys(self.bodies[queue_id]))


async def test_queues_keep_their_order_while_consumers_join_and_leave(servers: Cluster) -> None:
    queues = await new_queues(servers, 4)
    topic = queues[0].topic
    turns = Turns()
    expected = {queue.queue_id: numbered(60, f"{queue.queue_id}/") for queue in queues}

    async def feed(start: int, end: int) -> None:
        for number in range(start, end):
            await send(producer, queues, [expected[each.queue_id][number] for each in queues])

    async with producer_of(servers) as producer:
        await feed(0, 20)
        async with push_of(servers, topic, turns, orderly=True) as staying:
            await until(lambda: staying.assignment == queues)
            async with push_of(servers, topic, turns, orderly=True) as leaving:
                sending = asyncio.create_task(feed(20, 40))
                await until(lambda: len(staying.assignment) == len(leaving.assignment) == 2)
                await sending
            await feed(40, 60)
            await until(lambda: all(len(turns.in_order(each)) == 60 for each in expected))
            await wait_committed(servers, queues, 60, 60, 60, 60)
    assert {each: turns.in_order(each) for each in expected} == expected
    assert not turns.is_disturbed
    # A message that failed was redelivered at once, before its followers.
    for queue_id in expected:
        came = turns.bodies[queue_id]
        failed = f"{queue_id}/7".encode()
        assert came.count(failed) >= 2
        assert came[came.index(failed) + 1] == failed
    assert await committed(servers, queues) == [60] * 4


async def test_broadcast_clients_get_everything_and_continue_from_their_own_offsets(
    servers: Cluster, tmp_path: Path
) -> None:
    queues = await new_queues(servers, 2)
    topic = queues[0].topic
    first, second, again = Seen(), Seen(), Seen()
    async with producer_of(servers) as producer:
        await send(producer, queues, [b"a", b"b"])

        async def run(name: str, seen: Seen, count: int) -> None:
            async with push_of(
                servers,
                topic,
                seen,
                instance_name=f"{topic}-{name}",
                message_model=MessageModel.BROADCASTING,
                offsets_folder=tmp_path,
            ):
                await seen.wait(count)

        await asyncio.gather(run("one", first, 2), run("two", second, 2))
        await send(producer, queues, [b"c"])
        await run("one", again, 1)
    assert sorted(first.bodies) == sorted(second.bodies) == [b"a", b"b"]
    assert again.bodies == [b"c"]
    place = tmp_path / f"127.0.0.1@{topic}-one" / group_of(topic) / "offsets.json"
    assert place.is_file()
    async with Admin(options_of(servers)) as admin:
        for queue in queues:
            assert not await admin.offsets.committed(group_of(topic), queue)


async def test_only_matching_messages_are_delivered(servers: Cluster) -> None:
    queues = await new_queues(servers, 2)
    topic = queues[0].topic
    by_tag, by_condition = Seen(), Seen()
    condition = Sql("price BETWEEN 15 AND 35 AND colour IS NOT NULL")
    async with producer_of(servers) as producer:
        for number, tag in enumerate(("eu", "us", "asia", "eu", "us")):
            properties = {"price": str(10 * number), "colour": "blue"}
            await producer.send(Message(topic, tag.encode(), tags=tag, properties=properties))
    async with (
        push_of(servers, topic, by_tag, expression="eu || asia"),
        push_of(servers, topic, by_condition, group=f"{topic}_sql", expression=condition),
    ):
        await by_tag.wait(3)
        await by_condition.wait(2)
    assert sorted(by_tag.bodies) == [b"asia", b"eu", b"eu"]
    assert sorted(by_condition.bodies) == [b"asia", b"eu"]


async def test_a_condition_that_cannot_be_parsed_is_an_error(servers: Cluster) -> None:
    (queue,) = await new_queues(servers, 1)
    consumer = push_of(servers, queue.topic, Seen(), expression=Sql("price >"))
    with pytest.raises(BadExpression) as caught:
        await consumer.start()
    assert "price >" in (caught.value.detail or "")


async def test_failed_messages_are_redelivered_until_they_are_dead_letters(
    servers: Cluster,
) -> None:
    (queue,) = await new_queues(servers, 1)
    topic = queue.topic
    level = 7

    async def refuse(message: ReceivedMessage) -> ConsumeResult | None:
        if message.body == b"late":
            return ConsumeResult.retry(delay_level=level) if not message.reconsume_times else None
        raise ValueError(message.body)

    seen = Seen(refuse)
    waiting = MessageQueue(SCHEDULE_TOPIC, servers.broker_name, level - 1)
    async with (
        opened(servers) as client,
        Admin(options_of(servers)) as admin,
        producer_of(servers) as producer,
    ):
        await client.routes.route(topic)
        before = await admin.offsets.bounds(waiting)
        sent = await producer.send(Message(topic, b"bad", keys="k", properties={"colour": "blue"}))
        await producer.send(Message(topic, b"late"))
        async with push_of(servers, topic, seen, max_reconsume_times=2):
            await seen.wait(5)

            async def is_dead() -> bool:
                return bool((await admin.dead_letters.messages(group_of(topic))).messages)

            await eventually(is_dead)
            await wait_committed(servers, [queue], 2)
        (dead,) = (await admin.dead_letters.messages(group_of(topic))).messages
        after = await admin.offsets.bounds(waiting)
    tries = [each for each in seen.messages if each.body == b"bad"]
    assert [each.reconsume_times for each in tries] == [0, 1, 2]
    assert {each.topic for each in seen.messages} == {topic}
    assert {each.message_id for each in tries} == {sent.message_id}
    assert tries[-1].properties["colour"] == "blue"
    assert (dead.body, dead.keys) == (b"bad", ["k"])
    assert after.max_offset - before.max_offset == 1
    assert await committed(servers, [queue]) == [2]


async def test_an_orderly_message_that_fails_too_often_becomes_a_dead_letter(
    servers: Cluster,
) -> None:
    (queue,) = await new_queues(servers, 1)
    topic = queue.topic

    async def refuse(message: ReceivedMessage) -> ConsumeResult | None:
        return ConsumeResult.suspend(10) if message.body == b"bad" else None

    seen = Seen(refuse)
    async with producer_of(servers) as producer, Admin(options_of(servers)) as admin:
        await send(producer, [queue], [b"first", b"bad", b"last"])
        async with push_of(servers, topic, seen, orderly=True, max_reconsume_times=2):
            await seen.wait_for(b"last")

            async def is_dead() -> bool:
                found = await admin.dead_letters.messages(group_of(topic))
                return [each.body for each in found.messages] == [b"bad"]

            await eventually(is_dead)
            await wait_committed(servers, [queue], 3)
    assert seen.bodies == [b"first", b"bad", b"bad", b"bad", b"last"]
    assert await committed(servers, [queue]) == [3]


async def test_batches_are_consumed_in_part(servers: Cluster) -> None:
    (queue,) = await new_queues(servers, 1)
    bodies = numbered(30)
    batches: list[list[bytes]] = []

    async def handler(messages: list[ReceivedMessage]) -> ConsumeResult:
        batches.append([each.body for each in messages])
        return ConsumeResult.first(2, delay_level=1) if len(batches) == 1 else ConsumeResult.SUCCESS

    consumer = PushConsumer(
        options_of(servers, persist_offsets_ms=500),
        group=group_of(queue.topic),
        batch_handler=handler,
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_batch_max=8,
    )
    consumer.subscribe(queue.topic)
    async with producer_of(servers) as producer:
        await producer.send_batch([Message(queue.topic, each) for each in bodies])
    async with consumer:
        await until(lambda: bool(batches))
        failed = batches[0][2:]
        await until(lambda: sum(map(len, batches)) >= 30 + len(failed))
        await wait_committed(servers, [queue], 30)
    assert batches[0] == bodies[: len(batches[0])]
    assert sorted(body for batch in batches for body in batch) == sorted(bodies + failed)
    assert all(len(batch) <= 8 for batch in batches)
    assert await committed(servers, [queue]) == [30]


async def test_a_live_group_is_reset(servers: Cluster) -> None:
    queues = await new_queues(servers, 2)
    topic = queues[0].topic
    bodies = numbered(10)
    seen = Seen()
    async with (
        producer_of(servers) as producer,
        Admin(options_of(servers)) as admin,
        push_of(servers, topic, seen),
    ):
        await send(producer, queues, bodies)
        await seen.wait(10)
        await wait_committed(servers, queues, 5, 5)
        await admin.offsets.reset(group_of(topic), topic, "earliest")
        await seen.wait(20)
        await wait_committed(servers, queues, 5, 5)
    assert sorted(seen.bodies) == sorted(bodies * 2)
    assert await committed(servers, queues) == [5, 5]


async def test_a_consumer_that_stops_finishes_and_commits(servers: Cluster) -> None:
    (queue,) = await new_queues(servers, 1)
    gate = asyncio.Event()

    async def hold(_: ReceivedMessage) -> ConsumeResult | None:
        await gate.wait()
        return None

    first, rest = Seen(hold), Seen()
    async with producer_of(servers) as producer:
        await send(producer, [queue], numbered(5))
    consumer = push_of(servers, queue.topic, first, concurrency=2)
    await consumer.start()
    await first.wait(2)
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    gate.set()
    await closing
    assert sorted(first.bodies) == numbered(2)
    assert await committed(servers, [queue]) == [2]
    async with push_of(servers, queue.topic, rest):
        await rest.wait(3)
        await wait_committed(servers, [queue], 5)
    assert sorted(rest.bodies) == numbered(5)[2:]
    assert await committed(servers, [queue]) == [5]


async def test_pauses_and_other_subscriptions(servers: Cluster) -> None:
    """A witness in another group gets meanwhile what the consumer must not get."""
    (queue,), (other,) = await new_queues(servers, 1), await new_queues(servers, 1)
    seen, witness = Seen(), Seen()
    consumer = push_of(servers, queue.topic, seen)
    watching = push_of(servers, queue.topic, witness, group=f"{queue.topic}_witness")
    watching.subscribe(other.topic)
    async with producer_of(servers) as producer, consumer, watching:
        await send(producer, [queue], [b"first"])
        await seen.wait_for(b"first")
        consumer.pause()
        # The pull held at the broker ends with the next message; none comes after it.
        await send(producer, [queue], [b"wakes"])
        await seen.wait_for(b"wakes")
        await send(producer, [queue], [b"held"])
        await witness.wait_for(b"held")
        assert b"held" not in seen.bodies
        consumer.resume()
        await seen.wait_for(b"held")

        consumer.subscribe(other.topic)
        await until(lambda: set(consumer.assignment) == {queue, other})
        await send(producer, [other], [b"of another topic"])
        await seen.wait_for(b"of another topic")
        consumer.unsubscribe(queue.topic)
        await until(lambda: consumer.assignment == [other])
        await send(producer, [queue], [b"unwanted"])
        await witness.wait_for(b"unwanted")
        await send(producer, [other], [b"last"])
        await seen.wait_for(b"last")
        await wait_committed(servers, [queue, other], 3, 2)
    assert b"unwanted" not in seen.bodies
    assert await committed(servers, [queue, other]) == [3, 2]


async def test_a_hanging_handler_is_passed_and_its_message_redelivered(servers: Cluster) -> None:
    (queue,) = await new_queues(servers, 1)

    async def hang(message: ReceivedMessage) -> ConsumeResult | None:
        if message.body == b"hangs" and message.reconsume_times == 0:
            await asyncio.Event().wait()
        return None

    seen = Seen(hang)
    async with producer_of(servers) as producer:
        await send(producer, [queue], [b"hangs", b"fine"])
        async with push_of(servers, queue.topic, seen, consume_timeout_ms=100, stop_timeout_ms=0):
            await seen.wait(3)
            await wait_committed(servers, [queue], 2)
    assert [each.reconsume_times for each in seen.messages if each.body == b"hangs"] == [0, 1]
    assert await committed(servers, [queue]) == [2]


async def test_an_administrator_has_a_message_consumed(servers: Cluster) -> None:
    (queue,) = await new_queues(servers, 1)
    seen = Seen()
    async with (
        producer_of(servers) as producer,
        Admin(options_of(servers)) as admin,
        push_of(servers, queue.topic, seen) as consumer,
    ):
        await send(producer, [queue], [b"once more"])
        await seen.wait(1)
        client_id = consumer.client.client_id
        (message,) = seen.messages
        result = await admin.clients.consume(group_of(queue.topic), message, client_id=client_id)
        info = await admin.clients.running_info(group_of(queue.topic), client_id)
    assert result.consume_result is CMResult.CR_SUCCESS
    assert seen.bodies == [b"once more"] * 2
    assert queue in info.queues
    assert info.properties["PROP_CONSUMEORDERLY"] == "false"


async def test_traces_of_consumption(servers: Cluster) -> None:
    (queue,) = await new_queues(servers, 1)
    topic = queue.topic
    seen, traces = Seen(), Seen()
    async with producer_of(servers) as producer:
        sent = await producer.send(Message(topic, b"x", keys="k"))
        async with push_of(servers, topic, seen, trace=True):
            await seen.wait(1)
    async with push_of(servers, TRACE_TOPIC, traces, group=f"{topic}_traces"):
        await until(lambda: any(sent.message_id in each.keys for each in traces.messages))
    text = "".join(each.body.decode() for each in traces.messages if sent.message_id in each.keys)
    before, after = (record.split("\x01") for record in text.split("\x02")[:-1])
    assert [before[0], *before[3:4], *before[5:]] == [
        "SubBefore", group_of(topic), sent.message_id, "0", "k"
    ]  # fmt: skip
    assert after[:3] == ["SubAfter", before[4], sent.message_id]
    assert [*after[4:7], after[8]] == ["true", "k", "0", group_of(topic)]


async def test_nothing_is_consumed_in_order_while_another_client_has_the_lock(
    servers: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((orderly, "LOCK_LATER_MS"), (pulling, "ERROR_MS")):
        monkeypatch.setattr(module, name, 50)
    (queue,) = await new_queues(servers, 1)
    seen, witness = Seen(), Seen()
    watching = push_of(servers, queue.topic, witness, group=f"{queue.topic}_witness")

    async def lock(client_id: str, *, is_wanted: bool = True) -> bool:
        kind = LockBatchRequestBody if is_wanted else UnlockBatchRequestBody
        group = group_of(queue.topic)
        body = encode_body(kind(client_id=client_id, consumer_group=group, queues=[queue]))
        code = RequestCode.LOCK_BATCH_MQ if is_wanted else RequestCode.UNLOCK_BATCH_MQ
        answer = await client.ask(servers.broker.address, code, body=body)
        if not is_wanted:
            return False
        return decode_body(LockBatchResponseBody, answer.body).locked_queues == [queue]

    async with (
        opened(servers) as client,
        producer_of(servers) as producer,
        watching,
        push_of(servers, queue.topic, seen, orderly=True) as consumer,
    ):
        await send(producer, [queue], [b"mine"])
        await seen.wait_for(b"mine")

        async def is_stolen() -> bool:
            # The consumer may renew its lock in between, as it does a second after its start.
            await lock(consumer.client.client_id, is_wanted=False)
            return await lock("thief")

        await eventually(is_stolen)
        locks = consumer._started.rebalancer

        async def is_lost() -> bool:
            # It happens every 20 seconds; a broker that is too slow to respond is asked again.
            await locks.lock_all()
            return not locks.queues[queue].is_locked

        await eventually(is_lost)
        await send(producer, [queue], [b"not mine"])
        await witness.wait_for(b"not mine")
        assert seen.bodies == [b"mine"]
        await lock("thief", is_wanted=False)
        await seen.wait_for(b"not mine")
        await wait_committed(servers, [queue], 2)
    assert seen.bodies == [b"mine", b"not mine"]
    assert await committed(servers, [queue]) == [2]
