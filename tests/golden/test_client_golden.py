"""What real brokers and name servers sent to clients, read by the client.

The frames are those of Apache RocketMQ 5.4.0 and its Java client.
"""

from __future__ import annotations

import asyncio

import pytest

from roquet.client.broker_requests import BrokerRequests
from roquet.client.callbacks import ConsumerCallbacks, ProducerCallbacks
from roquet.client.compression import Compression
from roquet.client.message import ReceivedMessage
from roquet.client.route_queues import publish_queues, subscribe_queues
from roquet.format.commit_log import decode_record
from roquet.model.message_id import UniqueId
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.route import TopicRouteData
from roquet.remoting.codec import decode_command
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.send import SendMessageRequestHeaderV2
from roquet.remoting.processor import Port, ProcessorRegistry, RequestContext
from roquet.runtime.clock import ManualClock
from tests.golden.wire_frames import GoldenFrame, golden_frames
from tests.unit.client.client_kit import Consumer, Producer

RUNS = ("json", "binary")


def frames(run: str) -> list[GoldenFrame]:
    return [each for each in golden_frames() if each.place.startswith(f"{run}.")]


def commands(run: str, code: RequestCode, *, responses: bool) -> list[RemotingCommand]:
    return [
        decode_command(each.frame)
        for each in frames(run)
        if each.request_code == code and each.is_response is responses and each.has_body
    ]


def records(body: bytes) -> list[ReceivedMessage]:
    found, position = [], 0
    while position < len(body):
        stored = decode_record(body, position, len(body))
        found.append(ReceivedMessage.of(stored, "broker-a"))
        position += stored.store_size
    return found


@pytest.mark.parametrize("run", RUNS)
def test_routes_have_queues(run: str) -> None:
    answers = [
        answer
        for answer in commands(run, RequestCode.GET_ROUTEINFO_BY_TOPIC, responses=True)
        if answer.code == ResponseCode.SUCCESS
    ]
    assert answers
    for answer in answers:
        data = decode_body(TopicRouteData, answer.body)
        queues, is_ordered = publish_queues("T", data)
        assert queues
        assert not is_ordered
        assert len(list(subscribe_queues("T", data))) == data.queue_datas[0].read_queue_nums


@pytest.mark.parametrize("run", RUNS)
def test_bodies_that_java_compressed_are_read(run: str) -> None:
    sent = commands(run, RequestCode.SEND_MESSAGE_V2, responses=False)
    compressed = [each for each in sent if int((each.ext_fields or {}).get("f", "0")) & 1]
    assert compressed
    for each in compressed:
        header = decode_header(SendMessageRequestHeaderV2, each.ext_fields)
        message = ReceivedMessage(topic="T", raw_body=each.body, sys_flag=header.sys_flag)
        assert header.sys_flag & 0x701 == Compression.ZLIB.sys_flag
        assert len(message.body) > 4096 > len(message.raw_body)


@pytest.mark.parametrize("run", RUNS)
def test_pulled_messages_are_read(run: str) -> None:
    bodies = [
        answer.body
        for answer in commands(run, RequestCode.PULL_MESSAGE, responses=True)
        if answer.code == ResponseCode.SUCCESS
    ]
    messages = [message for body in bodies for message in records(body)]
    assert len(messages) > 50
    assert all(message.body for message in messages)
    for message in messages:
        if message.transaction_id is not None:
            assert UniqueId.parse(message.message_id).millis_of_month < 31 * 86_400_000


class _Connection:
    """All that the processors need of a connection."""

    remote_address = "127.0.0.1:10911"


@pytest.mark.parametrize("run", RUNS)
async def test_requests_from_brokers_are_understood(run: str) -> None:
    producers: dict[str, ProducerCallbacks] = {}
    consumers: dict[str, ConsumerCallbacks] = {}
    registry = ProcessorRegistry(BrokerRequests(producers, consumers, "", ManualClock()))
    producer, consumer = Producer(), Consumer("any")

    served = registry.table(Port.MAIN)
    understood: dict[int, int] = {}
    for each in frames(run):
        if each.is_response or each.request_code not in served or not each.has_body:
            continue
        request = decode_command(each.frame)
        registration = registry.find(request.code, Port.MAIN)
        assert registration is not None
        fields = request.ext_fields or {}
        consumers[fields.get("consumerGroup") or fields.get("group") or ""] = consumer
        for message in _messages(request):
            producers[message.properties.get("PGROUP", "")] = producer
        producers[""] = producer
        context = RequestContext(_Connection(), request, registration.permission)  # type: ignore[arg-type]
        answer = registration.handle(context)
        if asyncio.iscoroutine(answer):
            answer = await answer
        assert answer is None or answer.code == ResponseCode.SUCCESS  # type: ignore[union-attr]
        understood[request.code] = understood.get(request.code, 0) + 1
    assert understood == {
        RequestCode.CHECK_TRANSACTION_STATE: len(producer.checks),
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: consumer.rebalances,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: len(producer.replies),
    }
    assert all(producer.checks)
    assert {message.properties["MSG_TYPE"] for message in producer.replies} == {"reply"}


def _messages(request: RemotingCommand) -> list[ReceivedMessage]:
    if request.code != RequestCode.CHECK_TRANSACTION_STATE:
        return []
    return records(request.body)
