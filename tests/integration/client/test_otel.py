"""Spans around sends and consumption, and their context in the messages."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from types import ModuleType

import pytest
from opentelemetry import context, propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from roquet.client import (
    ConsumeFromWhere,
    ConsumeResult,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    TransactionState,
)
from roquet.client.otel import OpenTelemetryConsumeHook, OpenTelemetrySendHook
from roquet.client.push_options import PushSettings
from roquet.errors import BrokerRefused, ConfigError
from roquet.remoting.codes import ResponseCode
from roquet.testing.broker import RunningBroker, broker
from tests.integration.client.server_kit import stored
from tests.patience import TIMEOUT_MS
from tests.unit.client.client_kit import until
from tests.unit.client.fake_cluster import fake_cluster

TOPIC = "Orders"
FIRST: PushSettings = {"consume_from": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}


class Spans:
    """A tracer provider whose spans stay in memory."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.send_hook = OpenTelemetrySendHook(self.provider)
        self.consume_hook = OpenTelemetryConsumeHook(self.provider)

    def all(self, name: str) -> list[ReadableSpan]:
        return [each for each in self._exporter.get_finished_spans() if each.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.all(name)
        return found


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
async def running() -> AsyncIterator[RunningBroker]:
    async with broker() as made:
        await made.create_topic(TOPIC, queues=1)
        yield made


def parent_text(span: ReadableSpan) -> str:
    """How W3C writes the context of a span."""
    found = span.context
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


def attributes_of(span: ReadableSpan) -> Mapping[str, object]:
    assert span.attributes is not None
    return span.attributes


def linked(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


# --------------------------------------------------------------------------------- producers


async def test_a_send_is_a_span_whose_context_the_message_carries(
    running: RunningBroker, spans: Spans
) -> None:
    tracer = spans.provider.get_tracer("test")
    async with Producer(running.namesrv, group="shop", hooks=[spans.send_hook]) as producer:
        with tracer.start_as_current_span("checkout") as checkout:
            result = await producer.send(Message(TOPIC, b"paid", tags="eu", keys=["1", "2"]))
    span = spans.one(f"send {TOPIC}")
    assert span.kind is SpanKind.PRODUCER
    assert span.parent is not None
    assert span.parent.span_id == checkout.get_span_context().span_id
    assert dict(attributes_of(span)) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": TOPIC,
        "messaging.destination.partition.id": "0",
        "messaging.message.id": result.message_id,
        "messaging.message.body.size": 4,
        "messaging.rocketmq.message.tag": "eu",
        "messaging.rocketmq.message.keys": ("1", "2"),
        "messaging.rocketmq.message.type": "normal",
        "server.address": "127.0.0.1",
        "server.port": int(running.address.rpartition(":")[2]),
    }
    (message,) = stored(running, TOPIC)
    assert message.properties["traceparent"] == parent_text(span)


async def test_kinds_of_messages(running: RunningBroker, spans: Spans) -> None:
    async with Producer(
        running.namesrv,
        group="shop",
        hooks=[spans.send_hook],
        check=lambda _: TransactionState.COMMIT,
    ) as producer:
        await producer.send(Message(TOPIC, b"later", delay_level=3))
        await producer.send(Message(TOPIC, b"in order", sharding_key="17"))
        await producer.send_in_transaction(
            Message(TOPIC, b"half"), lambda _, __: TransactionState.ROLLBACK
        )
        await producer.send_oneway(Message(TOPIC, b"never known"))
    found = [attributes_of(each) for each in spans.all(f"send {TOPIC}")]
    kinds = [each["messaging.rocketmq.message.type"] for each in found]
    assert kinds == ["delay", "fifo", "transaction", "normal"]
    assert found[0]["messaging.rocketmq.message.delay_time_level"] == 3
    assert found[1]["messaging.rocketmq.message.group"] == "17"


async def test_messages_of_a_batch_have_contexts_of_their_own(
    running: RunningBroker, spans: Spans
) -> None:
    async with Producer(running.namesrv, group="shop", hooks=[spans.send_hook]) as producer:
        await producer.send_batch([Message(TOPIC, b"a", tags="eu"), Message(TOPIC, b"b")])
    created = spans.all(f"create {TOPIC}")
    assert [each.kind for each in created] == [SpanKind.PRODUCER] * 2
    assert attributes_of(created[0])["messaging.rocketmq.message.tag"] == "eu"
    parents = [each.properties["traceparent"] for each in stored(running, TOPIC)]
    assert parents == [parent_text(each) for each in created]
    span = spans.one(f"send {TOPIC}")
    assert span.kind is SpanKind.CLIENT
    assert attributes_of(span)["messaging.batch.message_count"] == 2
    assert linked(span) == {each.context.span_id for each in created}


async def test_messages_that_gather_have_the_context_of_their_sender(
    running: RunningBroker, spans: Spans
) -> None:
    tracer = spans.provider.get_tracer("test")

    async def checkout(producer: Producer, body: bytes) -> int:
        with tracer.start_as_current_span("checkout") as span:
            await producer.send(Message(TOPIC, body))
        return span.get_span_context().trace_id

    async with Producer(
        running.namesrv, group="shop", hooks=[spans.send_hook], linger_ms=20
    ) as producer:
        traces = await asyncio.gather(*(checkout(producer, b"%d" % each) for each in range(3)))
    found = {each.body: each.properties["traceparent"] for each in stored(running, TOPIC)}
    assert [int(found[b"%d" % each].split("-")[1], 16) for each in range(3)] == traces


async def test_an_existing_context_is_kept(running: RunningBroker, spans: Spans) -> None:
    first = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    message = Message(TOPIC, b"handed on", properties={"traceparent": first})
    async with Producer(running.namesrv, group="shop", hooks=[spans.send_hook]) as producer:
        await producer.send(message)
        await producer.send_batch([message, message])
    assert [each.properties["traceparent"] for each in stored(running, TOPIC)] == [first] * 3
    assert not spans.all(f"create {TOPIC}")
    for span in spans.all(f"send {TOPIC}"):
        assert span.kind is SpanKind.CLIENT
        assert linked(span) == {0xB7AD6B7169203331}


async def test_a_failed_attempt_is_a_span_with_an_error(spans: Spans) -> None:
    async with fake_cluster() as cluster:
        cluster[0].code = ResponseCode.SYSTEM_ERROR
        async with Producer(
            cluster.namesrv, group="shop", hooks=[spans.send_hook], send_timeout_ms=TIMEOUT_MS
        ) as producer:
            with pytest.raises(BrokerRefused):
                await producer.send(Message("T", b"x"))
    found = spans.all("send T")
    assert len(found) == 3
    for span in found:
        assert span.status.status_code is StatusCode.ERROR
        assert attributes_of(span)["error.type"] == "broker_refused"


# --------------------------------------------------------------------------------- consumers


async def test_a_handler_runs_in_a_span_of_the_trace_that_the_message_began(
    running: RunningBroker, spans: Spans
) -> None:
    seen: list[trace.SpanContext] = []
    done = asyncio.Event()

    async def handle(_: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        seen.append(trace.get_current_span().get_span_context())
        done.set()

    async with Producer(running.namesrv, group="shop", hooks=[spans.send_hook]) as producer:
        result = await producer.send(Message(TOPIC, b"paid", tags="eu"))
    consumer = PushConsumer(
        running.namesrv, group="billing", handler=handle, hooks=[spans.consume_hook], **FIRST
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await done.wait()
    sent, span = spans.one(f"send {TOPIC}"), spans.one(f"process {TOPIC}")
    assert span.kind is SpanKind.CONSUMER
    assert span.parent is not None
    assert span.parent.span_id == sent.context.span_id
    assert [each.span_id for each in seen] == [span.context.span_id]
    assert span.context.trace_id == sent.context.trace_id
    attributes = attributes_of(span)
    assert attributes["messaging.consumer.group.name"] == "billing"
    assert attributes["messaging.message.id"] == result.message_id
    assert attributes["messaging.operation.type"] == "process"
    assert span.status.status_code is StatusCode.UNSET


async def test_a_handler_in_a_thread_sees_its_span(running: RunningBroker, spans: Spans) -> None:
    seen: list[int] = []
    done = threading.Event()

    def handle(_: ReceivedMessage) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)
        done.set()

    async with Producer(running.namesrv, group="shop") as producer:
        await producer.send(Message(TOPIC, b"without a context"))
    consumer = PushConsumer(
        running.namesrv, group="billing", handler=handle, hooks=[spans.consume_hook], **FIRST
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await asyncio.to_thread(done.wait)
    span = spans.one(f"process {TOPIC}")
    assert seen == [span.context.span_id]
    assert span.parent is None


async def test_a_handler_of_several_messages_links_to_them(
    running: RunningBroker, spans: Spans
) -> None:
    sizes: list[int] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        sizes.append(len(messages))

    async with Producer(running.namesrv, group="shop", hooks=[spans.send_hook]) as producer:
        for body in (b"a", b"b"):
            await producer.send(Message(TOPIC, body))
    consumer = PushConsumer(
        running.namesrv, group="billing", batch_handler=handle, hooks=[spans.consume_hook], **FIRST
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await until(lambda: sum(sizes) == 2)
    assert sizes == [2]
    span = spans.one(f"process {TOPIC}")
    assert span.parent is None
    assert linked(span) == {each.context.span_id for each in spans.all(f"send {TOPIC}")}
    assert attributes_of(span)["messaging.batch.message_count"] == 2


@pytest.mark.parametrize(
    ("answer", "name"), [(ConsumeResult.RETRY, "failed"), (ValueError("no"), "exception")]
)
async def test_a_handler_that_fails_is_a_span_with_an_error(
    running: RunningBroker, spans: Spans, answer: ConsumeResult | Exception, name: str
) -> None:
    async def handle(_: ReceivedMessage) -> ConsumeResult:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with Producer(running.namesrv, group="shop") as producer:
        await producer.send(Message(TOPIC, b"x"))
    consumer = PushConsumer(
        running.namesrv, group="billing", handler=handle, hooks=[spans.consume_hook], **FIRST
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await until(lambda: bool(spans.all(f"process {TOPIC}")))
    span = spans.all(f"process {TOPIC}")[0]
    assert span.status.status_code is StatusCode.ERROR
    assert attributes_of(span)["error.type"] == name


async def test_the_span_of_an_aborted_handler_ends(running: RunningBroker, spans: Spans) -> None:
    began = asyncio.Event()

    async def handle(_: ReceivedMessage) -> None:
        began.set()
        await asyncio.Event().wait()

    async with Producer(running.namesrv, group="shop") as producer:
        await producer.send(Message(TOPIC, b"x"))
    consumer = PushConsumer(
        running.namesrv,
        group="billing",
        handler=handle,
        hooks=[spans.consume_hook],
        stop_timeout_ms=0,
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await began.wait()
    assert spans.one(f"process {TOPIC}").status.status_code is StatusCode.ERROR


async def test_a_poll_is_a_span_and_the_work_on_a_message_another(
    running: RunningBroker, spans: Spans
) -> None:
    async with Producer(running.namesrv, group="shop", hooks=[spans.send_hook]) as producer:
        for body in (b"a", b"b"):
            await producer.send(Message(TOPIC, body))
    async with LitePullConsumer(
        running.namesrv,
        group="billing",
        hooks=[spans.consume_hook],
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ) as consumer:
        await consumer.subscribe(TOPIC)
        messages = await consumer.poll()
        with spans.consume_hook.processing(messages[0]) as work:
            assert trace.get_current_span() is work
        assert not trace.get_current_span().get_span_context().is_valid
    sent = spans.all(f"send {TOPIC}")
    received = spans.one(f"receive {TOPIC}")
    assert received.kind is SpanKind.CLIENT
    assert linked(received) == {each.context.span_id for each in sent}
    span = spans.one(f"process {TOPIC}")
    assert span.parent is not None
    assert span.parent.span_id == sent[0].context.span_id


# ------------------------------------------------------------------------------- the package


def fresh_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it is without OpenTelemetry installed."""
    for name in [each for each in sys.modules if each.split(".")[0] == "opentelemetry"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    found = importlib.util.find_spec("roquet.client.otel")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_without_the_package_the_hooks_name_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = fresh_module(monkeypatch)
    for hook in (module.OpenTelemetrySendHook, module.OpenTelemetryConsumeHook):
        with pytest.raises(ConfigError) as caught:
            hook()
        assert caught.value.code == "otel_missing"
        assert "roquet[otel]" in (caught.value.hint or "")


async def test_without_an_sdk_nothing_is_recorded_and_a_context_is_propagated(
    running: RunningBroker,
) -> None:
    first = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    hook = OpenTelemetrySendHook(trace.NoOpTracerProvider())
    parent = propagate.extract({"traceparent": first})
    async with Producer(running.namesrv, group="shop", hooks=[hook]) as producer:
        await producer.send(Message(TOPIC, b"without"))
        token = context.attach(parent)
        await producer.send(Message(TOPIC, b"with"))
        context.detach(token)
    found = [each.properties.get("traceparent") for each in stored(running, TOPIC)]
    assert found == [None, first]
