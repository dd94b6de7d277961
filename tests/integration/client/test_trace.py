"""Traces in upstream's text form, and hooks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from roquet.client import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeHook,
    ConsumeReturn,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendContext,
    SendHook,
    SendResult,
    TraceConsumeHook,
    TraceDispatcher,
    TransactionState,
)
from roquet.client import trace as trace_module
from roquet.client.trace import TraceRecord
from roquet.errors import BrokerRefused
from roquet.model.message_id import UniqueId
from roquet.model.properties import encode_properties
from roquet.remoting.codes import ResponseCode
from roquet.testing.broker import RunningBroker, broker
from tests.integration.client.server_kit import stored, stored_soon
from tests.patience import NEVER_MS, TIMEOUT_MS
from tests.unit.client.client_kit import until
from tests.unit.client.fake_cluster import fake_cluster

TOPIC = "Orders"
TRACE = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture(autouse=True)
def no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let records be sent together when their number or the end says so, not after a time."""
    monkeypatch.setattr(trace_module, "FLUSH_INTERVAL_MS", NEVER_MS)


@pytest.fixture
async def a_broker() -> AsyncIterator[RunningBroker]:
    async with broker({"traceTopicEnable": True}) as running:
        await running.create_topic(TOPIC, queues=1)
        yield running


def rows(message: ReceivedMessage) -> list[list[str]]:
    text = message.body.decode()
    assert text.endswith("\x02")
    return [row.split("\x01") for row in text[:-1].split("\x02")]


async def test_sends_are_traced(a_broker: RunningBroker) -> None:
    async with Producer(a_broker.namesrv, group="g", trace=True) as producer:
        full = await producer.send(Message(TOPIC, b"x" * 10, tags="t", keys=["1", "2"]))
        bare = await producer.send(Message(TOPIC, b"y", delay_level=1))
        await producer.send_oneway(Message(TOPIC, b"never known"))
        address = a_broker.address
    (told,) = await stored_soon(a_broker, TRACE, 1)
    first, second = rows(told)
    assert first[0] == "Pub"
    assert int(first[1]) <= told.born_timestamp_ms
    assert first[2:10] == [
        "DefaultRegion",
        "g",
        TOPIC,
        full.message_id,
        "t",
        "1 2",
        address,
        "10",
    ]
    assert int(first[10]) >= 0
    assert first[11:] == ["0", full.offset_message_id, "true"]
    assert second[5:8] == [bare.message_id, "null", "null"]
    assert second[11] == "3"
    assert set(told.keys) == {full.message_id, bare.message_id, "1", "2"}


async def test_batches_and_transactions_are_traced(a_broker: RunningBroker) -> None:
    async with Producer(
        a_broker.namesrv, group="g", trace=True, check=lambda _: TransactionState.COMMIT
    ) as producer:
        batch = await producer.send_batch([Message(TOPIC, b"a", tags="t"), Message(TOPIC, b"b")])
        ended = await producer.send_in_transaction(
            Message(TOPIC, b"c", keys="k"), lambda *_: TransactionState.COMMIT
        )
    (told,) = await stored_soon(a_broker, TRACE, 1)
    whole, half, end = rows(told)
    ids = [each.message_id for each in batch]
    assert whole[5:8] == [",".join(ids), "null", "null"]
    assert (half[0], half[11]) == ("Pub", "1")
    sent = ended.send_result
    assert end[0] == "EndTransaction"
    assert end[2:8] == ["DefaultRegion", "g", TOPIC, sent.message_id, "null", "k"]
    assert end[8:] == [
        a_broker.address,
        "2",
        sent.transaction_id,
        "COMMIT_MESSAGE",
        "false",
    ]


async def test_full_batches_are_sent_before_the_close(a_broker: RunningBroker) -> None:
    async with Producer(a_broker.namesrv, group="g", trace=True) as producer:
        for _ in range(trace_module.BATCH_RECORDS):
            await producer.send(Message(TOPIC, b"x"))
        (told,) = await stored_soon(a_broker, TRACE, 1)
        assert len(rows(told)) == trace_module.BATCH_RECORDS


async def test_traces_that_cannot_be_sent_are_harmless() -> None:
    async with fake_cluster() as cluster:
        cluster.unknown.add(TRACE)
        async with Producer(cluster.namesrv, group="g", trace=True) as producer:
            assert (await producer.send(Message(TOPIC, b"x"))).queue_offset == 0
        assert TRACE in cluster.asked
        assert len(cluster.sent_to) == 1


async def test_closing_does_not_wait_long_for_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "SEND_TIMEOUT_MS", 50)
    async with fake_cluster() as cluster:
        async with Producer(cluster.namesrv, group="g", trace=True) as producer:
            await producer.send(Message(TOPIC, b"x"))
            dispatcher = producer._started.trace
            assert dispatcher is not None
            for _ in range(100):
                dispatcher.append(TraceRecord(TOPIC, ("id",), "x\x02"))
            cluster.hangs = True
            cluster.unknown.add(TRACE)
        assert len(dispatcher._records) == 0
        cluster.hangs = False


async def test_traces_are_bounded() -> None:
    async with fake_cluster() as cluster, Producer(cluster.namesrv, group="g") as producer:
        dispatcher = TraceDispatcher(producer.client, "g", "PRODUCE")
        for _ in range(trace_module.RECORDS_MAX + 3):
            dispatcher.append(TraceRecord(TOPIC, ("id",), "x\x02"))
        assert dispatcher.dropped == 3
        await dispatcher.close()
        bodies = [request.body for _, request in cluster[0].sends]
        assert b"".join(bodies) == b"x\x02" * trace_module.RECORDS_MAX


async def test_consumption_is_traced(a_broker: RunningBroker) -> None:
    async with Producer(a_broker.namesrv, group="g") as producer:
        dispatcher = TraceDispatcher(producer.client, "readers", "CONSUME")
        hook = TraceConsumeHook(dispatcher)

        def received(number: int, **properties: str) -> ReceivedMessage:
            properties["UNIQ_KEY"] = f"id-{number}"
            return ReceivedMessage(
                topic=TOPIC,
                raw_body=b"x",
                reconsume_times=number,
                properties_data=encode_properties(properties),
            )

        context = ConsumeContext(
            group="readers",
            messages=[
                received(0, KEYS="a b", MSG_REGION="r"),
                received(1, TRACE_ON="false"),
                received(2),
            ],
            queue=MessageQueue(TOPIC, "broker-a", 0),
            started_ms=producer.client.clock.now_ms(),
        )
        hook.before_consume(context)
        context.is_success, context.returned = False, ConsumeReturn.EXCEPTION
        hook.after_consume(context)
        await dispatcher.close()
    (told,) = await stored_soon(a_broker, TRACE, 1)
    before, before_too, after, after_too = rows(told)
    request_id = before[4]
    UniqueId.parse(request_id)
    assert [before[0], *before[2:]] == [
        "SubBefore",
        "r",
        "readers",
        request_id,
        "id-0",
        "0",
        "a b",
    ]
    assert before_too[4:] == [request_id, "id-2", "2", "null"]
    assert [*after[:3], *after[4:7], after[8]] == [
        "SubAfter",
        request_id,
        "id-0",
        "false",
        "a b",
        "2",
        "readers",
    ]
    assert after_too[2] == "id-2"
    assert set(told.keys) == {"id-0", "a", "b", "id-2"}


class Remember(SendHook):
    """Marks messages, and remembers their outcome."""

    def __init__(self) -> None:
        self.ended: list[tuple[SendResult | None, BaseException | None]] = []

    def before_send(self, context: SendContext) -> None:
        context.properties["traceparent"] = f"00-{len(self.ended)}"

    def after_send(self, context: SendContext) -> None:
        self.ended.append((context.result, context.error))


class Broken(SendHook):
    def before_send(self, context: SendContext) -> None:
        raise KeyError(context.group)

    def after_send(self, context: SendContext) -> None:
        raise KeyError(context.group)


async def test_hooks_see_and_mark_messages(a_broker: RunningBroker) -> None:
    hook = Remember()
    async with Producer(a_broker.namesrv, group="g", hooks=[Broken(), hook]) as producer:
        message = Message(TOPIC, b"x", properties={"a": "b"})
        result = await producer.send(message)
        await producer.send_oneway(message)
        found = await stored_soon(a_broker, TOPIC, 2)
    assert found[0].properties["traceparent"] == "00-0"
    assert message.properties == {"a": "b"}
    assert hook.ended == [(result, None), (None, None)]
    assert stored(a_broker, TRACE) == []


async def test_hooks_see_every_attempt() -> None:
    hook = Remember()
    async with fake_cluster("a", "b") as cluster:
        cluster[0].code = cluster[1].code = ResponseCode.SYSTEM_BUSY
        async with Producer(
            cluster.namesrv, group="g", hooks=[hook], send_timeout_ms=TIMEOUT_MS
        ) as producer:
            with pytest.raises(BrokerRefused):
                await producer.send(Message(TOPIC, b"x"))
    assert [type(error).__name__ for _, error in hook.ended] == ["BrokerBusy"] * 3


async def test_hooks_that_make_a_message_unsendable_change_nothing(
    a_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    class Greedy(SendHook):
        def before_send(self, context: SendContext) -> None:
            context.properties["baggage"] = "x" * 40_000

        def into_batch(self, message: Message) -> Message:
            raise KeyError(message.topic)

    async with Producer(a_broker.namesrv, group="g", hooks=[Greedy()]) as producer:
        await producer.send(Message(TOPIC, b"one"))
        await producer.send_batch([Message(TOPIC, b"two"), Message(TOPIC, b"three")])
    found = stored(a_broker, TOPIC)
    assert [each.body for each in found] == [b"one", b"two", b"three"]
    assert "baggage" not in found[0].properties
    assert "cannot be sent" in caplog.text
    assert "Greedy failed" in caplog.text


# --------------------------------------------------------------------------------- consumers


class Consumed(ConsumeHook):
    """Remembers what consumers got."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bool, bool]] = []

    def after_consume(self, context: ConsumeContext) -> None:
        for each in context.messages:
            body = each.body.decode()
            self.seen.append((context.group, body, context.is_polled, context.is_success))


async def send(running: RunningBroker, *bodies: bytes) -> list[SendResult]:
    async with Producer(running.namesrv, group="g") as producer:
        return [await producer.send(Message(TOPIC, body, keys="k")) for body in bodies]


async def test_a_push_consumer_traces_and_has_hooks(a_broker: RunningBroker) -> None:
    hook = Consumed()

    async def handle(message: ReceivedMessage) -> None:
        assert message.body

    (sent,) = await send(a_broker, b"one")
    consumer = PushConsumer(
        a_broker.namesrv,
        group="readers",
        handler=handle,
        hooks=[hook],
        trace=True,
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await until(lambda: bool(hook.seen))
    assert hook.seen == [("readers", "one", False, True)]
    (told,) = await stored_soon(a_broker, TRACE, 1)
    before, after = rows(told)
    assert [before[0], before[3], before[5]] == ["SubBefore", "readers", sent.message_id]
    assert [after[0], after[2], after[4]] == ["SubAfter", sent.message_id, "true"]


async def test_a_lite_pull_consumer_traces_and_has_hooks(a_broker: RunningBroker) -> None:
    hook = Consumed()
    first, second = await send(a_broker, b"one", b"two")
    async with LitePullConsumer(
        a_broker.namesrv,
        group="readers",
        hooks=[hook],
        trace=True,
        trace_topic=TRACE,
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ) as consumer:
        await consumer.subscribe(TOPIC)
        got = [await anext(consumer), await anext(consumer)]
    assert [each.body for each in got] == [b"one", b"two"]
    assert hook.seen == [("readers", "one", True, True), ("readers", "two", True, True)]
    (told,) = await stored_soon(a_broker, TRACE, 1)
    ids = {first.message_id, second.message_id}
    found = rows(told)
    assert [row[0] for row in found] == ["SubBefore"] * 2 + ["SubAfter"] * 2
    assert {row[5] for row in found[:2]} == ids
    assert set(told.keys) == {*ids, "k"}
