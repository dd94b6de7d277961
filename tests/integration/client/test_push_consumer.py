"""Push consumers against a real name server and broker in this process."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from roquet.client import (
    ClientOptions,
    ConsumeContext,
    ConsumeHook,
    ConsumeResult,
    ConsumeReturn,
    Message,
    MessageModel,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Sql,
)
from roquet.errors import BadExpression, BadName, ClientClosed, ConfigError
from roquet.model.topic import dlq_topic, retry_topic
from roquet.remoting.bodies.client import CMResult
from roquet.testing.broker import RunningBroker
from tests.integration.client.push_kit import FIRST, GROUP, TOPIC, committed, consumer_of, send
from tests.unit.client.client_kit import until
from tests.unit.client.handler_kit import Seen

pytestmark = pytest.mark.timeout(180)


async def test_every_message_is_delivered_once_and_committed_at_the_end(
    a_broker: RunningBroker, producer: Producer
) -> None:
    bodies = [b"%d" % number for number in range(100)]
    await send(producer, *bodies[:50])
    seen = Seen()
    async with consumer_of(a_broker, seen) as consumer:
        await seen.wait(50)
        await send(producer, *bodies[50:])
        await seen.wait(100)
        assert len(consumer.assignment) == 4
    assert sorted(seen.bodies) == sorted(bodies)
    assert committed(a_broker) == 100
    again = Seen()
    async with consumer_of(a_broker, again):
        await send(producer, b"new")
        await again.wait(1)
    assert again.bodies == [b"new"]


async def test_waiting_handlers_run_concurrently_up_to_the_limit(
    a_broker: RunningBroker, producer: Producer
) -> None:
    await send(producer, *(b"%d" % number for number in range(12)))
    running = most = done = 0
    go_on = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        nonlocal running, most, done
        del message
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1
        done += 1

    async with consumer_of(a_broker, handle, concurrency=5):
        await until(lambda: running == 5)
        go_on.set()
        await until(lambda: done == 12)
    assert most == 5


async def test_a_failed_message_is_redelivered_with_its_topic_and_count(
    a_broker: RunningBroker, producer: Producer
) -> None:
    async def answer(message: ReceivedMessage) -> ConsumeResult | None:
        if message.body == b"raise" and message.reconsume_times == 0:
            return ConsumeResult.retry(delay_level=1)
        return None

    await send(producer, b"fine", b"raise")
    seen = Seen(answer)
    async with consumer_of(a_broker, seen):
        await seen.wait(3)
    last = seen.messages[-1]
    assert (last.body, last.topic, last.reconsume_times) == (b"raise", TOPIC, 1)
    assert last.message_id in {each.message_id for each in seen.messages[:2]}
    assert committed(a_broker) == 2
    assert committed(a_broker, topic=retry_topic(GROUP)) == 1


async def test_a_message_is_redelivered_if_its_handler_raises_or_returns_nonsense(
    a_broker: RunningBroker, producer: Producer
) -> None:
    def handler(message: ReceivedMessage) -> ConsumeResult | None:
        if message.body == b"raise":
            raise ValueError("no")
        return "yes"  # type: ignore[return-value]

    await send(producer, b"raise", b"nonsense")
    async with consumer_of(a_broker, handler, max_reconsume_times=3):
        await until(lambda: len(a_broker.messages("SCHEDULE_TOPIC_XXXX")) == 2)
    waiting = a_broker.messages("SCHEDULE_TOPIC_XXXX")
    assert {each.body for each in waiting} == {b"raise", b"nonsense"}
    assert {each.reconsume_times for each in waiting} == {1}
    assert committed(a_broker) == 2


async def test_a_message_that_fails_too_often_becomes_a_dead_letter(
    a_broker: RunningBroker, producer: Producer
) -> None:
    async def refuse(message: ReceivedMessage) -> ConsumeResult | None:
        if message.body == b"at once":
            return ConsumeResult.retry(delay_level=-1)
        raise ValueError(message.body)

    await send(producer, b"at once", b"later")
    async with consumer_of(a_broker, refuse, max_reconsume_times=0):
        await until(lambda: len(a_broker.messages(dlq_topic(GROUP))) == 2)
    assert committed(a_broker) == 2


async def test_a_message_that_cannot_be_sent_back_is_sent_to_the_retry_topic(
    a_broker: RunningBroker, producer: Producer
) -> None:
    async def refuse(message: ReceivedMessage) -> ConsumeResult | None:
        message.broker_name = "gone"
        return ConsumeResult.RETRY

    big = b"x" * 10_000
    await producer.send(Message(TOPIC, big, tags="eu", properties={"colour": "blue"}))
    seen = Seen(refuse)
    async with consumer_of(a_broker, seen):
        await until(lambda: len(a_broker.messages("SCHEDULE_TOPIC_XXXX")) == 1)
    (waiting,) = a_broker.messages("SCHEDULE_TOPIC_XXXX")
    assert (waiting.body, waiting.reconsume_times, waiting.tags) == (big, 1, "eu")
    properties = waiting.properties
    assert properties["REAL_TOPIC"] == retry_topic(GROUP)
    assert (properties["RETRY_TOPIC"], properties["DELAY"]) == (TOPIC, "3")
    assert properties["ORIGIN_MESSAGE_ID"] == seen.messages[0].message_id
    assert properties["colour"] == "blue"
    assert committed(a_broker) == 1


async def test_a_batch_handler_gets_runs_of_a_queue(
    a_broker: RunningBroker, producer: Producer
) -> None:
    await send(producer, *(b"%d" % number for number in range(40)), queue_id=1)
    batches: list[list[int]] = []
    again: list[list[bytes]] = []

    async def handler(messages: list[ReceivedMessage]) -> ConsumeResult:
        if messages[0].reconsume_times:  # perhaps before the last of the others
            again.append([each.body for each in messages])
            return ConsumeResult.SUCCESS
        batches.append([each.queue_offset for each in messages])
        if len(batches) == 1:
            return ConsumeResult.first(3, delay_level=1)
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(
        a_broker.namesrv,
        group=GROUP,
        batch_handler=handler,
        consume_from=FIRST,
        consume_batch_max=4,
        concurrency=1,
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await until(lambda: sum(map(len, batches)) >= 40 and bool(again))
    assert all(len(batch) <= 4 for batch in batches)
    assert batches[0] == [0, 1, 2, 3]
    assert [offset for batch in batches for offset in batch] == list(range(40))
    assert again == [[b"3"]]
    assert committed(a_broker) == 40


async def test_an_ordinary_function_runs_in_a_thread(
    a_broker: RunningBroker, producer: Producer
) -> None:
    threads: list[int] = []
    await send(producer, b"a", b"b")
    async with consumer_of(a_broker, lambda _: threads.append(threading.get_ident())):
        await until(lambda: len(threads) == 2)
    assert threading.get_ident() not in threads
    assert committed(a_broker) == 2


async def test_an_orderly_failure_holds_the_queue(
    a_broker: RunningBroker, producer: Producer
) -> None:
    bodies = [b"%d" % number for number in range(20)]
    await send(producer, *bodies, queue_id=2)

    async def answer(message: ReceivedMessage) -> ConsumeResult | None:
        await asyncio.sleep(0)
        if message.body == b"7" and message.reconsume_times < 2:
            return ConsumeResult.suspend(10)
        if message.body == b"9" and message.reconsume_times == 0:
            raise ValueError("not yet")
        return None

    seen = Seen(answer)
    async with consumer_of(a_broker, seen, orderly=True, suspend_ms=10):
        await seen.wait(23)
    expected = [*bodies[:8], b"7", b"7", b"8", b"9", b"9", *bodies[10:]]
    assert seen.bodies == expected
    assert committed(a_broker) == 20


async def test_an_orderly_message_that_fails_too_often_becomes_a_dead_letter(
    a_broker: RunningBroker, producer: Producer
) -> None:
    await send(producer, b"bad", b"good", queue_id=0)

    async def answer(message: ReceivedMessage) -> ConsumeResult | None:
        return ConsumeResult.SUSPEND if message.body == b"bad" else None

    seen = Seen(answer)
    async with consumer_of(a_broker, seen, orderly=True, suspend_ms=10, max_reconsume_times=2):
        await seen.wait(4)
        await until(lambda: len(a_broker.messages(dlq_topic(GROUP))) == 1)
    assert seen.bodies == [b"bad", b"bad", b"bad", b"good"]
    assert committed(a_broker) == 2


async def test_orderly_queues_are_locked_and_released(
    a_broker: RunningBroker, producer: Producer
) -> None:
    await send(producer, b"a")
    first, second = Seen(), Seen()
    async with consumer_of(a_broker, first, orderly=True):
        await first.wait(1)
    async with consumer_of(a_broker, second, orderly=True) as consumer:
        await until(lambda: len(consumer.assignment) == 4)
        await send(producer, b"b")
        await second.wait(1)
    assert second.bodies == [b"b"]


async def test_the_clients_of_a_group_share_the_queues(
    a_broker: RunningBroker, producer: Producer
) -> None:
    first, second = Seen(), Seen()
    one, two = consumer_of(a_broker, first), consumer_of(a_broker, second)
    async with one:
        await until(lambda: len(one.assignment) == 4)
        async with two:
            await until(lambda: len(one.assignment) == len(two.assignment) == 2)
            assert not set(one.assignment) & set(two.assignment)
            await send(producer, *(b"%d" % number for number in range(8)))
            await until(lambda: len(first.messages) + len(second.messages) == 8)
            assert len(first.messages) == len(second.messages) == 4
        await until(lambda: len(one.assignment) == 4)
    assert committed(a_broker) == 8


async def test_broadcast_clients_get_everything_and_keep_their_own_offsets(
    a_broker: RunningBroker, producer: Producer, tmp_path: Path
) -> None:
    await send(producer, b"a", b"b")

    def broadcast(name: str, seen: Seen) -> PushConsumer:
        consumer = PushConsumer(
            ClientOptions(namesrv=a_broker.namesrv, instance_name=name),
            group=GROUP,
            handler=seen,
            consume_from=FIRST,
            message_model=MessageModel.BROADCASTING,
            offsets_folder=tmp_path,
        )
        consumer.subscribe(TOPIC)
        return consumer

    async def fail(_: ReceivedMessage) -> ConsumeResult | None:
        return ConsumeResult.RETRY

    first, second, again = Seen(), Seen(fail), Seen()
    async with broadcast("one", first), broadcast("two", second):
        await first.wait(2)
        await second.wait(2)
    await send(producer, b"c")
    async with broadcast("one", again):
        await again.wait(1)
    assert sorted(first.bodies) == sorted(second.bodies) == [b"a", b"b"]
    assert again.bodies == [b"c"]
    assert committed(a_broker) == 0


async def test_closing_waits_for_handlers_and_commits_what_they_finished(
    a_broker: RunningBroker, producer: Producer
) -> None:
    gate = asyncio.Event()

    async def answer(_: ReceivedMessage) -> ConsumeResult | None:
        await gate.wait()
        return None

    await send(producer, b"a", b"b", b"c", queue_id=0)
    seen = Seen(answer)
    consumer = consumer_of(a_broker, seen, concurrency=2)
    await consumer.start()
    await seen.wait(2)
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    assert not closing.done()
    gate.set()
    await closing
    assert len(seen.messages) == 2
    assert committed(a_broker) == 2
    with pytest.raises(ClientClosed):
        await consumer.start()


async def test_only_subscribed_tags_are_delivered_and_others_skipped(
    a_broker: RunningBroker, producer: Producer
) -> None:
    for tag in ("eu", "us", "eu", "asia"):
        await producer.send(Message(TOPIC, tag.encode(), tags=tag))
    seen = Seen()
    consumer = PushConsumer(a_broker.namesrv, group=GROUP, handler=seen, consume_from=FIRST)
    consumer.subscribe(TOPIC, "eu || asia")
    async with consumer:
        await seen.wait(3)
        await until(lambda: committed_in_memory(consumer) == 4)
    assert sorted(seen.bodies) == [b"asia", b"eu", b"eu"]
    assert committed(a_broker) == 4


def committed_in_memory(consumer: PushConsumer) -> int:
    return sum(consumer._started.status(TOPIC).values())


async def test_a_condition_that_the_broker_cannot_parse_is_an_error(
    a_broker: RunningBroker,
) -> None:
    consumer = PushConsumer(a_broker.namesrv, group=GROUP, handler=Seen())
    consumer.subscribe(TOPIC, Sql("price >"))
    with pytest.raises(BadExpression) as caught:
        await consumer.start()
    assert "price >" in (caught.value.detail or "")


async def test_an_offset_outside_the_queue_is_corrected(
    a_broker: RunningBroker, producer: Producer
) -> None:
    await send(producer, b"old", queue_id=0)
    a_broker.broker.offsets.commit(GROUP, TOPIC, 0, 1_000)
    seen = Seen()
    async with consumer_of(a_broker, seen) as consumer:
        await until(lambda: committed(a_broker) < 1_000)
        await until(lambda: len(consumer.assignment) == 4)
        await send(producer, b"new", queue_id=0)
        await seen.wait(1)
    assert seen.bodies[-1] == b"new"


async def test_offsets_are_reset_while_the_consumer_runs(
    a_broker: RunningBroker, producer: Producer
) -> None:
    await send(producer, b"a", b"b", b"c", queue_id=0)
    seen = Seen()
    async with consumer_of(a_broker, seen) as consumer:
        await seen.wait(3)
        queue = MessageQueue(TOPIC, a_broker.name, 0)
        consumer._started.reset_offsets(TOPIC, {queue: 1})
        await seen.wait(5)
    assert sorted(seen.bodies[:3]) == [b"a", b"b", b"c"]
    assert sorted(seen.bodies[3:]) == [b"b", b"c"]
    assert committed(a_broker) == 3


async def test_a_broker_has_a_message_consumed_directly(a_broker: RunningBroker) -> None:
    async def answer(message: ReceivedMessage) -> ConsumeResult | None:
        if message.body == b"raise":
            raise ValueError("no")
        return ConsumeResult.RETRY if message.body == b"later" else None

    seen = Seen(answer)
    async with consumer_of(a_broker, seen) as consumer:
        running = consumer._started
        results = [
            await running.consume_directly(
                ReceivedMessage(
                    topic=retry_topic(GROUP),
                    raw_body=body,
                    properties_data=f"RETRY_TOPIC\x01{TOPIC}\x02".encode(),
                ),
                a_broker.name,
            )
            for body in (b"fine", b"later", b"raise")
        ]
    assert [each.consume_result for each in results] == [
        CMResult.CR_SUCCESS,
        CMResult.CR_LATER,
        CMResult.CR_THROW_EXCEPTION,
    ]
    assert results[2].remark == "ValueError: no"
    assert {each.topic for each in seen.messages} == {TOPIC}


async def test_the_running_info_shows_the_consumers_state(
    a_broker: RunningBroker, producer: Producer
) -> None:
    await send(producer, b"a", b"b")
    seen = Seen()
    async with consumer_of(a_broker, seen, orderly=True) as consumer:
        await until(lambda: committed_in_memory(consumer) == 2)
        await until(lambda: len(consumer.assignment) == 4)
        info = consumer._started.running_info()
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"
    assert {each.topic for each in info.subscription_set} == {TOPIC, retry_topic(GROUP)}
    ours = {queue: each for queue, each in info.queues.items() if queue.topic == TOPIC}
    assert len(ours) == 4
    assert all(each.locked for each in ours.values())
    assert info.status_table[TOPIC].consume_ok_tps > 0


async def test_hooks_see_each_call(a_broker: RunningBroker, producer: Producer) -> None:
    calls: list[tuple[str, ConsumeReturn]] = []

    class Note(ConsumeHook):
        def before_consume(self, context: ConsumeContext) -> None:
            calls.append(("before", context.returned))

        def after_consume(self, context: ConsumeContext) -> None:
            calls.append(("after", context.returned))

    def refuse(message: ReceivedMessage) -> None:
        raise ValueError(message.body)

    await send(producer, b"a")
    consumer = PushConsumer(
        a_broker.namesrv, group=GROUP, handler=refuse, hooks=[Note()], consume_from=FIRST
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await until(lambda: len(calls) == 2)
    assert calls == [("before", ConsumeReturn.SUCCESS), ("after", ConsumeReturn.EXCEPTION)]


async def test_the_group_and_topic_are_in_the_namespace(a_broker: RunningBroker) -> None:
    await a_broker.create_topic("eu%Orders", queues=1)
    options = ClientOptions(namesrv=a_broker.namesrv, namespace="eu")

    async def once(message: ReceivedMessage) -> ConsumeResult | None:
        return ConsumeResult.retry(delay_level=1) if message.reconsume_times == 0 else None

    seen = Seen(once)
    consumer = PushConsumer(options, group=GROUP, handler=seen, consume_from=FIRST)
    consumer.subscribe(TOPIC)
    async with Producer(options, group="shop") as producer, consumer:
        await producer.send(Message(TOPIC, b"a"))
        await seen.wait(2)
    assert {each.topic for each in seen.messages} == {TOPIC}
    assert committed(a_broker, group="eu%billing", topic="eu%Orders") == 1
    assert committed(a_broker, group="eu%billing", topic="%RETRY%eu%billing") == 1


async def test_consumption_continues_after_a_broker_restart(
    a_broker: RunningBroker, producer: Producer
) -> None:
    seen = Seen()
    async with consumer_of(a_broker, seen):
        await send(producer, b"before")
        await seen.wait(1)
        await a_broker.restart()
        await send(producer, b"after")
        await until(lambda: b"after" in seen.bodies)


async def test_invalid_options_are_refused(a_broker: RunningBroker) -> None:
    namesrv = a_broker.namesrv
    with pytest.raises(BadName):
        PushConsumer(namesrv, group="", handler=Seen())
    with pytest.raises(ConfigError):
        PushConsumer(namesrv, group=GROUP)
    with pytest.raises(ConfigError):
        PushConsumer(namesrv, group=GROUP, handler=Seen(), concurrency=0)
    with pytest.raises(ConfigError):
        PushConsumer(namesrv, group=GROUP, handler=Seen(), pull_batch_max=1_025)
    with pytest.raises(ConfigError):
        PushConsumer(namesrv, group=GROUP, handler=Seen(), cached_mib_max_of_topic=0)
    consumer = PushConsumer(namesrv, group=GROUP, handler=Seen())
    with pytest.raises(BadName):
        consumer.subscribe("no spaces")
    with pytest.raises(ConfigError):
        await consumer.start()
    with pytest.raises(ClientClosed):
        _ = consumer.assignment
