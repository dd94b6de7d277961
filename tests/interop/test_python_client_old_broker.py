"""The Python client with servers of Apache RocketMQ 4.9."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from roquet.admin import Admin
from roquet.client import (
    ConsumeFromWhere,
    ConsumeResult,
    LitePullConsumer,
    Message,
    Producer,
    ReceivedMessage,
    Sql,
    TransactionState,
    reply,
)
from tests.interop import javabuild
from tests.interop.cluster import APACHE_4, HASTY_CONFIG, Cluster
from tests.interop.python_client import (
    TIMEOUT_MS,
    committed,
    eventually,
    group_of,
    new_queues,
    numbered,
    options_of,
    producer_of,
    push_of,
    send,
    wait_committed,
)
from tests.unit.client.client_kit import until
from tests.unit.client.handler_kit import Seen

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("python-client-old-broker")]


@pytest.fixture(scope="module")
def old_servers(
    java_toolkit: javabuild.JavaToolkit,  # noqa: ARG001 - skips where there is no Java
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("python-client-old")
    settings = {**HASTY_CONFIG, "enablePropertyFilter": "true"}
    with Cluster(APACHE_4, APACHE_4, folder, broker_settings=settings) as started:
        yield started


async def test_sends_and_pushes(old_servers: Cluster) -> None:
    queues = await new_queues(old_servers, 2)
    topic = queues[0].topic
    big = b"big " * 5_000

    async def answer(message: ReceivedMessage) -> ConsumeResult | None:
        is_new = message.reconsume_times == 0
        return ConsumeResult.retry(delay_level=1) if is_new and message.body == b"again" else None

    seen, in_order, wanted = Seen(answer), Seen(), Seen()
    async with (
        producer_of(old_servers) as producer,
        push_of(old_servers, topic, seen),
        push_of(old_servers, topic, in_order, group=f"{topic}_orderly", orderly=True),
        push_of(old_servers, topic, wanted, group=f"{topic}_sql", expression=Sql("price > 3")),
    ):
        await producer.send(Message(topic, b"plain", tags="T", properties={"price": "4"}))
        await producer.send_oneway(Message(topic, b"one-way"))
        await producer.send_batch([Message(topic, each) for each in numbered(3, "batch ")])
        await producer.send(Message(topic, b"later", delay_level=1))
        await producer.send(Message(topic, big))
        await send(producer, queues, [b"again"])
        expected = {b"plain", b"one-way", b"later", big, b"again", *numbered(3, "batch ")}
        for each in (seen, in_order):
            await each.wait_for(*expected)
        await seen.wait(9)
        await wanted.wait_for(b"plain")

        async def is_committed() -> bool:
            return sum(await committed(old_servers, queues)) == len(expected)

        await eventually(is_committed)
    assert sorted(seen.bodies) == sorted([*expected, b"again"])
    assert sorted(in_order.bodies) == sorted(expected)
    assert wanted.bodies == [b"plain"]


async def test_clients_share_queues_and_continue_where_others_stopped(old_servers: Cluster) -> None:
    queues = await new_queues(old_servers, 4)
    topic = queues[0].topic
    one, two = Seen(), Seen()
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    async with (
        producer_of(old_servers) as producer,
        Admin(options_of(old_servers)) as admin,
        push_of(old_servers, topic, one, orderly=True) as staying,
    ):
        async with push_of(old_servers, topic, two, orderly=True) as leaving:
            await until(lambda: len(staying.assignment) == len(leaving.assignment) == 2)
            await send(producer, queues, numbered(40))
            await until(lambda: len(one.messages) + len(two.messages) == 40)
        await until(lambda: staying.assignment == queues)
        await send(producer, queues, numbered(40, "more "))
        await one.wait_for(*numbered(40, "more "))
        await wait_committed(old_servers, queues, 20, 20, 20, 20)
        await admin.offsets.reset(group_of(topic), topic, "earliest")
        await until(lambda: {*numbered(40), *numbered(40, "more ")} <= set(one.bodies))
        await one.wait(len({*two.bodies}) + 80)
    lite = LitePullConsumer(options_of(old_servers), group=f"{topic}_lite", consume_from=first)
    async with lite:
        await lite.subscribe(topic)
        polled: list[ReceivedMessage] = []
        while len(polled) < 80:
            polled += await lite.poll()


async def test_transactions_and_requests(old_servers: Cluster) -> None:
    (queue,), (asking,) = await new_queues(old_servers, 1), await new_queues(old_servers, 1)
    topic = queue.topic
    seen = Seen()

    async def check(message: ReceivedMessage) -> TransactionState:
        is_good = message.body == b"found good"
        return TransactionState.COMMIT if is_good else TransactionState.ROLLBACK

    async with Producer(
        options_of(old_servers),
        group=f"{topic}_producers",
        check=check,
        send_timeout_ms=TIMEOUT_MS,
    ) as producer:

        async def answer(message: ReceivedMessage) -> ConsumeResult | None:
            await producer.send(reply(message, message.body + b" pong"))
            return None

        async with push_of(old_servers, topic, seen), push_of(old_servers, asking.topic, answer):
            for body, state in {
                b"good": TransactionState.COMMIT,
                b"bad": TransactionState.ROLLBACK,
                b"found good": TransactionState.UNKNOWN,
                b"found bad": TransactionState.UNKNOWN,
            }.items():
                await producer.send_in_transaction(Message(topic, body), lambda *_, s=state: s)
            answered = await producer.request(Message(asking.topic, b"ping"))
            await seen.wait_for(b"good", b"found good")
    assert answered.body == b"ping pong"
    assert set(seen.bodies) == {b"good", b"found good"}
