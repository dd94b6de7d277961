"""Requests from brokers to a client, and which producer or consumer responds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from roquet.client import ClientInstance, ClientOptions
from roquet.model.message import BrokerMessage
from roquet.model.message_queue import MessageQueue
from roquet.model.properties import encode_properties
from roquet.remoting.bodies.client import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
)
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.offset import GetConsumerStatusBody, ResetOffsetBody
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.connection import Connection
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from roquet.remoting.headers.offset import (
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from roquet.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    ReplyMessageRequestHeader,
)
from tests.unit.client.client_kit import (
    Consumer,
    FakeServer,
    Producer,
    fake_server,
    record_of,
    until,
)

TIMEOUT_MS = 60_000
QUEUE = MessageQueue("shop%Orders", "broker-a", 3)
NOT_HERE = "The Consumer Group <nobody> not exist in this consumer"


class Scene(NamedTuple):
    """A client with one producer and one consumer, and the broker that sends it requests."""

    server: FakeServer
    client: ClientInstance
    producer: Producer
    consumer: Consumer
    connection: Connection

    async def ask(self, code: int, header: Header, body: bytes = b"") -> RemotingCommand:
        return await self.connection.send_request(code, header, body=body, timeout_ms=TIMEOUT_MS)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with fake_server() as server:
        options = ClientOptions(namesrv=server.address, namespace="shop")
        async with await ClientInstance.open(options) as client:
            producer, consumer = Producer(), Consumer("billing", "Orders")
            client.register_producer("sales", producer)
            client.register_consumer("billing", consumer)
            await client.remoting.connect(server.address)
            await until(lambda: bool(server.connections))
            yield Scene(server, client, producer, consumer, server.connections[0])


def half_message(group: str) -> bytes:
    properties = encode_properties({"PGROUP": group, "UNIQ_KEY": "AA"})
    return record_of(BrokerMessage("shop%Orders", 3, b"half", properties))


def check_header() -> CheckTransactionStateRequestHeader:
    return CheckTransactionStateRequestHeader(
        half_queue_offset=7, physical_offset=777, msg_id="AA", broker_name="broker-a"
    )


async def test_a_transaction_check_reaches_the_producer_of_the_group(scene: Scene) -> None:
    scene.connection.send_oneway(
        RequestCode.CHECK_TRANSACTION_STATE, check_header(), body=half_message("sales")
    )
    await until(lambda: bool(scene.producer.checks))
    ((message, header, address),) = scene.producer.checks
    assert (message.topic, message.body, message.transaction_id) == ("Orders", b"half", "AA")
    assert message.broker_name == "broker-a"
    assert header.half_queue_offset == 7
    assert address == scene.server.address


async def test_a_transaction_check_for_an_unknown_group_is_logged(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for body in (half_message("others"), record_of(BrokerMessage("T", 0, b"x"))):
        scene.connection.send_oneway(RequestCode.CHECK_TRANSACTION_STATE, check_header(), body=body)
    await until(lambda: len(caplog.records) == 2)
    assert "others" in caplog.text
    assert scene.producer.checks == []


async def test_a_check_whose_body_is_not_a_record_is_harmless(scene: Scene) -> None:
    answer = await scene.ask(RequestCode.CHECK_TRANSACTION_STATE, check_header(), b"junk" * 30)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "no message" in (answer.remark or "")


async def test_a_changed_group_is_rebalanced(scene: Scene) -> None:
    for group in ("others", "billing"):
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
        scene.connection.send_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
    await until(lambda: scene.consumer.rebalances > 0)
    assert scene.consumer.rebalances == 1


@pytest.mark.parametrize("offsets", [{}, {QUEUE: 17}])
async def test_offsets_are_reset(scene: Scene, offsets: dict[MessageQueue, int]) -> None:
    header = ResetOffsetRequestHeader(topic="shop%Orders", group="billing")
    body = encode_body(ResetOffsetBody(offset_table=offsets)) if offsets else b""
    scene.connection.send_oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body=body)
    await until(lambda: bool(scene.consumer.resets))
    assert scene.consumer.resets == [("shop%Orders", offsets)]


async def test_a_reset_for_an_unknown_group_is_logged(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    header = ResetOffsetRequestHeader(topic="T", group="nobody")
    with caplog.at_level(logging.WARNING):
        scene.connection.send_oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header)
        await until(lambda: "nobody" in caplog.text)
    assert scene.consumer.resets == []


async def test_the_status_of_a_consumer(scene: Scene) -> None:
    scene.consumer.offsets = {QUEUE: 17, MessageQueue("U", "b", 0): 1}
    header = GetConsumerStatusRequestHeader(topic="shop%Orders", group="billing")
    answer = await scene.ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
    assert decode_body(GetConsumerStatusBody, answer.body).message_queue_table == {QUEUE: 17}
    header = GetConsumerStatusRequestHeader(topic="T", group="nobody")
    answer = await scene.ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
    assert answer.code == ResponseCode.SUCCESS
    assert decode_body(GetConsumerStatusBody, answer.body).message_queue_table == {}


@pytest.mark.parametrize("with_stacks", [False, True])
async def test_the_running_info_of_a_consumer(scene: Scene, *, with_stacks: bool) -> None:
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group="billing", client_id="c", jstack_enable=with_stacks
    )
    answer = await scene.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    info = decode_body(ConsumerRunningInfo, answer.body)
    assert info.properties == {"PROP_CONSUMER_START_TIMESTAMP": "17"}
    assert (info.jstack is not None) is with_stacks
    if info.jstack is not None:
        assert "ClientInstance._repeat" in info.jstack


async def test_an_unknown_group_is_refused_in_upstreams_words(scene: Scene) -> None:
    running = GetConsumerRunningInfoRequestHeader(consumer_group="nobody", client_id="c")
    directly = ConsumeMessageDirectlyRequestHeader(consumer_group="nobody")
    for answer in (
        await scene.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, running),
        await scene.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, directly, half_message("g")),
    ):
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, NOT_HERE)


async def test_a_message_is_consumed_directly(scene: Scene) -> None:
    header = ConsumeMessageDirectlyRequestHeader(
        consumer_group="billing", stored_broker_name="broker-a", msg_id="AA"
    )
    answer = await scene.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, half_message("g"))
    result = decode_body(ConsumeMessageDirectlyResult, answer.body)
    assert result.consume_result is CMResult.CR_SUCCESS
    ((message, broker_name),) = scene.consumer.consumed
    assert (message.topic, message.body) == ("Orders", b"half")
    assert (message.broker_name, broker_name) == ("broker-a", "broker-a")


async def test_a_consumer_that_fails_gets_a_response(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> ConsumeMessageDirectlyResult:
        raise ValueError("secret")

    monkeypatch.setattr(scene.consumer, "consume_directly", fail)
    header = ConsumeMessageDirectlyRequestHeader(consumer_group="billing")
    answer = await scene.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, half_message("g"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "secret" not in (answer.remark or "")


def reply_header(**changes: str) -> ReplyMessageRequestHeader:
    hosts = {"born_host": "10.0.0.1:5", "store_host": "/10.0.0.2:10911"} | changes
    return ReplyMessageRequestHeader(
        producer_group="answers",
        topic="shop%CLUSTER_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=0,
        born_timestamp_ms=5,
        flag=3,
        properties="CORRELATION_ID\x01c-1\x02",
        store_timestamp_ms=6,
        born_host=hosts["born_host"],
        store_host=hosts["store_host"],
    )


async def test_a_reply_reaches_the_producer_that_waits(scene: Scene) -> None:
    deaf = Producer(takes_replies=False)
    scene.client.register_producer("another", deaf)
    answer = await scene.ask(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, reply_header(), b"answer")
    assert answer.code == ResponseCode.SUCCESS
    (message,) = scene.producer.replies
    assert (message.topic, message.body, message.flag) == (
        "CLUSTER_REPLY_TOPIC",
        b"answer",
        3,
    )
    assert message.properties["CORRELATION_ID"] == "c-1"
    assert int(message.properties["ARRIVE_TIME"]) > 1_700_000_000_000
    assert str(message.store_host) == "10.0.0.2:10911"


async def test_an_unexpected_reply_is_logged_and_accepted(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.producer.takes_replies = False
    header = reply_header(born_host="not an address")
    answer = await scene.ask(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, b"answer")
    assert answer.code == ResponseCode.SUCCESS
    assert "matches no request" in caplog.text


async def test_concurrent_requests_all_get_responses(scene: Scene) -> None:
    header = GetConsumerRunningInfoRequestHeader(consumer_group="billing", client_id="c")
    answers = await asyncio.gather(
        *(scene.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header) for _ in range(50))
    )
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
