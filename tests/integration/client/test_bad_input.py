"""Bad input gives typed errors with code, detail and hint, and nothing is lost silently."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from roquet.client import (
    ClientOptions,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SimplePull,
    Sql,
)
from roquet.client.lite_options import LitePullSettings
from roquet.errors import (
    BadBody,
    BadExpression,
    BadMessage,
    BadName,
    BrokerRefused,
    ClientError,
    ConfigError,
    ConnectFailed,
    MessageTooLarge,
    NoRoute,
    PermissionRefused,
    RoquetError,
    SendFailed,
)
from roquet.model import sys_flag as flags
from roquet.remoting.codes import ResponseCode
from roquet.runtime.network import reserve_port
from roquet.testing.broker import RunningBroker, broker
from tests.integration.client.pull_kit import opened, store
from tests.unit.client.client_kit import until

TOPIC = "Orders"
GROUP = "billing"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
HASTY: LitePullSettings = {"consume_from": FIRST, "retry_ms": 10}


@pytest.fixture
async def running() -> AsyncIterator[RunningBroker]:
    async with broker({"autoCreateTopicEnable": False}) as made:
        await made.create_topic(TOPIC, queues=1)
        yield made


async def handle(message: ReceivedMessage) -> None:
    assert message.body


def consumer_of(
    namesrv: str, handler: Callable[[ReceivedMessage], Awaitable[None]] = handle, **more: object
) -> PushConsumer:
    return PushConsumer(namesrv, group=GROUP, handler=handler, consume_from=FIRST, **more)  # type: ignore[arg-type]


async def send_to(namesrv: str, topic: str = TOPIC, body: bytes = b"x") -> None:
    async with Producer(namesrv, group="shop") as producer:
        await producer.send(Message(topic, body))


async def poll_of(namesrv: str, topic: str = TOPIC) -> list[ReceivedMessage]:
    async with LitePullConsumer(namesrv, group=GROUP, **HASTY) as consumer:
        await consumer.subscribe(topic)
        return await consumer.poll()


async def pull_of(namesrv: str, topic: str = TOPIC) -> object:
    async with SimplePull(namesrv, MessageQueue(topic, "dev", 0), group=GROUP) as reader:
        return await reader.pull(0)


USES = [send_to, poll_of, pull_of]


def is_told(error: RoquetError, *facts: str) -> None:
    """Check that an error names the problem, the object and the remedy."""
    assert error.code not in {"", "error", "client"}
    assert error.hint
    for fact in facts:
        assert fact in f"{error.message} {error.detail}"


# ----------------------------------------------------------------------- routes and addresses


@pytest.mark.parametrize("use", USES)
async def test_no_route(
    running: RunningBroker, use: Callable[[str, str], Awaitable[object]]
) -> None:
    with pytest.raises(NoRoute) as caught:
        await use(running.namesrv, "Nowhere")
    is_told(caught.value, "Nowhere")


async def test_no_route_for_a_push_consumer_is_logged_until_there_is_one(
    running: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    got = asyncio.Event()

    async def note(_: ReceivedMessage) -> None:
        got.set()

    consumer = consumer_of(running.namesrv, note)
    consumer.subscribe("Nowhere")
    async with consumer:
        await until(lambda: "There is no route for the topic Nowhere" in caplog.text)
        await running.create_topic("Nowhere", queues=1)
        await send_to(running.namesrv, "Nowhere")
        await got.wait()


@pytest.mark.parametrize("address", ["", "localhost", "localhost:none", "localhost:70000", ":1"])
def test_malformed_addresses(address: str) -> None:
    for make in (
        lambda: Producer(address, group=GROUP),
        lambda: consumer_of(address),
        lambda: LitePullConsumer(address, group=GROUP),
        lambda: SimplePull(address, MessageQueue(TOPIC, "dev", 0), group=GROUP),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        assert caught.value.hint


@pytest.mark.parametrize("use", USES)
async def test_nothing_listens_at_the_address(
    use: Callable[[str], Awaitable[object]],
) -> None:
    with reserve_port("127.0.0.1") as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(ConnectFailed) as caught:
            await use(address)
    is_told(caught.value, address)
    assert caught.value.retriable


@pytest.mark.parametrize("use", USES)
async def test_another_program_listens_at_the_address(
    use: Callable[[str], Awaitable[object]],
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        with pytest.raises(ClientError) as caught:
            await use(f"{host}:{port}")
        is_told(caught.value, f"{host}:{port}")
    finally:
        server.close()
        await server.wait_closed()


async def test_a_broker_is_at_the_address_of_a_name_server(running: RunningBroker) -> None:
    uses: list[Callable[[str], Awaitable[object]]] = [send_to, poll_of, pull_of]
    for use in uses:
        with pytest.raises(BrokerRefused) as caught:
            await use(running.address)
        is_told(caught.value, running.address, "REQUEST_CODE_NOT_SUPPORTED")


async def test_a_broker_that_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with broker() as made:
        await made.create_topic(TOPIC, queues=1)
        producer = Producer(ClientOptions(namesrv=made.namesrv), group="shop")
        reader = SimplePull(made.namesrv, MessageQueue(TOPIC, made.name, 0), group=GROUP)
        await producer.start()
        await reader.start()
        await producer.send(Message(TOPIC, b"x"))
        await reader.pull(0)
        address = made.address
    for use in (lambda: producer.send(Message(TOPIC, b"y")), lambda: reader.pull(0)):
        with pytest.raises((ConnectFailed, SendFailed)) as caught:
            await use()
        is_told(caught.value, address)
        assert caught.value.retriable
    await producer.close()
    await reader.close()
    assert address in caplog.text


# -------------------------------------------------------------------------------- permissions


async def test_a_topic_that_cannot_be_written(running: RunningBroker) -> None:
    await running.create_topic("ReadOnly", queues=1, perm=4)
    with pytest.raises(NoRoute) as caught:
        await send_to(running.namesrv, "ReadOnly")
    is_told(caught.value, "ReadOnly")


async def test_a_topic_that_cannot_be_read(
    running: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await running.create_topic("WriteOnly", queues=1, perm=2)
    with pytest.raises(NoRoute) as caught:
        await poll_of(running.namesrv, "WriteOnly")
    is_told(caught.value, "WriteOnly")
    with pytest.raises(PermissionRefused) as refused:
        await pull_of(running.namesrv, "WriteOnly")
    is_told(refused.value, running.address)
    consumer = consumer_of(running.namesrv)
    consumer.subscribe("WriteOnly")
    async with consumer:
        await until(lambda: "No queue of WriteOnly can be read" in caplog.text)


# ----------------------------------------------------------------------------------- messages


async def test_a_message_that_is_too_large_for_the_producer(running: RunningBroker) -> None:
    async with Producer(running.namesrv, group="shop", max_message_bytes=100) as producer:
        for send in (
            producer.send,
            producer.send_oneway,
            lambda message: producer.send_batch([Message(TOPIC, b"x"), message]),
        ):
            with pytest.raises(MessageTooLarge) as caught:
                await send(Message(TOPIC, b"x" * 101))
            is_told(caught.value, "101", "100")
    assert running.messages(TOPIC) == []


async def test_a_message_that_is_too_large_for_the_broker() -> None:
    async with broker({"maxMessageSize": 10_000}) as made:
        await made.create_topic(TOPIC, queues=1)
        async with Producer(made.namesrv, group="shop", compress_over_bytes=1_000_000) as producer:
            with pytest.raises(BrokerRefused) as caught:
                await producer.send(Message(TOPIC, b"x" * 20_000))
            is_told(caught.value, "MESSAGE_ILLEGAL", made.address)
            assert caught.value.response_code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("body", [b"", "text", None])
async def test_a_missing_body(running: RunningBroker, body: object) -> None:
    async with Producer(running.namesrv, group="shop") as producer:
        with pytest.raises(BadMessage) as caught:
            await producer.send(Message(TOPIC, body))  # type: ignore[arg-type]
    is_told(caught.value)


@pytest.mark.parametrize("topic", ["", "a b", "x" * 128, "größe", "SCHEDULE_TOPIC_XXXX"])
async def test_an_invalid_topic_name(running: RunningBroker, topic: str) -> None:
    with pytest.raises(BadName) as caught:
        await send_to(running.namesrv, topic)
    is_told(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "x" * 128, "größe"])
def test_a_name_invalid_for_groups_and_topics(name: str) -> None:
    for make in (
        lambda: Producer("127.0.0.1:9876", group=name),
        lambda: PushConsumer("127.0.0.1:9876", group=name, handler=handle),
        lambda: LitePullConsumer("127.0.0.1:9876", group=name),
        lambda: consumer_of("127.0.0.1:9876").subscribe(name),
        lambda: SimplePull("127.0.0.1:9876", MessageQueue(name, "dev", 0), group=GROUP),
    ):
        with pytest.raises(BadName) as caught:
            make()
        is_told(caught.value)


# -------------------------------------------------------------------------------- expressions


@pytest.mark.parametrize("expression", [" ", " || ", Sql(""), Sql("  ")])
async def test_an_empty_expression(expression: str | Sql) -> None:
    for subscribe in (
        lambda: consumer_of("127.0.0.1:9876").subscribe(TOPIC, expression),
        lambda: SimplePull(
            "127.0.0.1:9876", MessageQueue(TOPIC, "dev", 0), group=GROUP, expression=expression
        ),
    ):
        with pytest.raises(BadExpression) as caught:
            subscribe()
        is_told(caught.value, TOPIC)


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_sql_that_a_broker_cannot_parse(*, is_allowed: bool) -> None:
    async with broker({"enablePropertyFilter": is_allowed}) as made:
        await made.create_topic(TOPIC, queues=1)
        text = "price >" if is_allowed else "price > 1"
        consumer = consumer_of(made.namesrv)
        consumer.subscribe(TOPIC, Sql(text))
        with pytest.raises(BadExpression) as caught:
            await consumer.start()
        is_told(caught.value, TOPIC, text)
        async with LitePullConsumer(made.namesrv, group=GROUP, **HASTY) as lite:
            with pytest.raises(BadExpression) as caught:
                await lite.subscribe(TOPIC, Sql(text))
            is_told(caught.value, TOPIC, text)
            await lite.subscribe(TOPIC, "paid")
            assert await lite.poll(timeout_ms=1) == []


async def test_sql_that_a_running_consumer_cannot_use_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with broker({"enablePropertyFilter": True}) as made:
        await made.create_topic(TOPIC, queues=1)
        consumer = consumer_of(made.namesrv)
        consumer.subscribe(TOPIC)
        async with consumer:
            consumer.subscribe(TOPIC, Sql("price >"))
            await until(lambda: "price >" in caplog.text)
    assert any(each.levelno >= logging.ERROR for each in caplog.records)


# ----------------------------------------------------------------------- handlers and bodies


async def test_a_body_that_does_not_decompress(
    running: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(running) as client:
        await store(client, running, b"no zlib", sys_flag=flags.COMPRESSED)
        await store(client, running, b"good")
    got: list[bytes] = []

    async def read(message: ReceivedMessage) -> None:
        got.append(message.body)

    consumer = consumer_of(running.namesrv, read)
    consumer.subscribe(TOPIC)
    async with consumer:
        await until(lambda: got == [b"good"] and "the handler failed" in caplog.text)
        await until(lambda: bool(running.messages("SCHEDULE_TOPIC_XXXX")))
    (kept,) = running.messages("SCHEDULE_TOPIC_XXXX")
    assert kept.raw_body == b"no zlib"
    bad, good = await poll_two(running)
    assert (bad.raw_body, good.body) == (b"no zlib", b"good")
    with pytest.raises(BadBody) as caught:
        _ = bad.body
    is_told(caught.value)


async def poll_two(running: RunningBroker) -> list[ReceivedMessage]:
    async with LitePullConsumer(running.namesrv, group="others", **HASTY) as lite:
        await lite.subscribe(TOPIC)
        return [await anext(lite), await anext(lite)]


async def test_a_handler_that_raises_and_one_that_hangs(
    running: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    for body in (b"raises", b"hangs", b"good"):
        await send_to(running.namesrv, body=body)
    got: list[bytes] = []

    async def work(message: ReceivedMessage) -> None:
        if message.body == b"raises":
            raise ValueError("no such order")
        if message.body == b"hangs":
            await asyncio.Event().wait()
        got.append(message.body)

    def kept() -> set[bytes]:
        return {each.body for each in running.messages("SCHEDULE_TOPIC_XXXX")}

    consumer = consumer_of(running.namesrv, work, consume_timeout_ms=300, stop_timeout_ms=0)
    consumer.subscribe(TOPIC)
    async with consumer:
        # One that is sent back for longer than the time-out is sent back twice.
        await until(lambda: bool(got) and kept() == {b"raises", b"hangs"})
    assert got == [b"good"]
    assert "no such order" in caplog.text
    assert "for too long" in caplog.text
