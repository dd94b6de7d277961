"""Attempts, time-outs and back-pressure, against brokers that respond as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from roquet.client import ClientOptions, Message, MessageQueue, Producer, SendStatus, sender
from roquet.client.deadline import Deadline
from roquet.client.response_errors import RETRY_RESPONSE_CODES
from roquet.errors import (
    BrokerBusy,
    BrokerRefused,
    NoRoute,
    PartlySent,
    PermissionRefused,
    RequestTimeout,
)
from roquet.model.properties import decode_properties
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.endpoint import LogLimiter
from roquet.remoting.processor import RequestContext, Response
from roquet.runtime.clock import ManualClock
from tests.patience import TIMEOUT_MS
from tests.unit.client.client_kit import until
from tests.unit.client.fake_cluster import FakeCluster, fake_cluster
from tests.unit.client.sender_kit import TOPIC, never, refuse_at

UNTRIED_CODES = [
    ResponseCode.MESSAGE_ILLEGAL,
    ResponseCode.FLOW_CONTROL,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with fake_cluster("broker-a", "broker-b") as running:
        yield running


@pytest.fixture
async def producer(cluster: FakeCluster) -> AsyncIterator[Producer]:
    options = ClientOptions(namesrv=cluster.namesrv, request_timeout_ms=TIMEOUT_MS)
    async with Producer(options, group="g", send_timeout_ms=TIMEOUT_MS + 3_000) as running:
        yield running


@pytest.mark.parametrize("code", sorted(RETRY_RESPONSE_CODES))
async def test_another_broker_is_tried(
    cluster: FakeCluster, producer: Producer, code: ResponseCode
) -> None:
    cluster[0].code = code
    for _ in range(4):
        result = await producer.send(Message(TOPIC, b"x"))
        assert result.queue.broker_name == "broker-b"
    assert len(cluster[1].sends) == 4
    assert cluster[0].sends
    ids = [
        decode_properties((header.properties or "").encode())["UNIQ_KEY"]
        for each in cluster.brokers
        for header, _ in each.sends
    ]
    assert len(set(ids)) == 4


@pytest.mark.parametrize("code", sorted(RETRY_RESPONSE_CODES))
async def test_the_last_refusal_is_the_error(
    cluster: FakeCluster, producer: Producer, code: ResponseCode
) -> None:
    refuse_at(cluster, code, "too bad")
    with pytest.raises(BrokerRefused) as caught:
        await producer.send(Message(TOPIC, b"x"))
    assert caught.value.response_code == code
    assert caught.value.remark == "too bad"
    assert "3 attempts" in (caught.value.detail or "")
    if code != ResponseCode.GO_AWAY:  # then a broker is retried on a new connection, too
        assert sorted(len(each.sends) for each in cluster.brokers) == [1, 2]


@pytest.mark.parametrize("code", UNTRIED_CODES)
async def test_other_refusals_are_errors_at_once(
    cluster: FakeCluster, producer: Producer, code: ResponseCode
) -> None:
    refuse_at(cluster, code)
    with pytest.raises(BrokerRefused):
        await producer.send(Message(TOPIC, b"x"))
    assert len(cluster.sent_to) == 1


async def test_refusals_have_types(cluster: FakeCluster, producer: Producer) -> None:
    refuse_at(cluster, ResponseCode.SYSTEM_BUSY)
    with pytest.raises(BrokerBusy) as busy:
        await producer.send(Message(TOPIC, b"x"))
    assert busy.value.retriable
    refuse_at(cluster, ResponseCode.NO_PERMISSION)
    with pytest.raises(PermissionRefused) as caught:
        await producer.send(Message(TOPIC, b"x"))
    assert not caught.value.retriable
    assert caught.value.hint


async def test_a_chosen_queue_is_tried_once(cluster: FakeCluster, producer: Producer) -> None:
    refuse_at(cluster, ResponseCode.SYSTEM_BUSY)
    for name in ("broker-a", "broker-b"):
        with pytest.raises(BrokerBusy):
            await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, name, 1))
    with pytest.raises(BrokerBusy):
        await producer.send(Message(TOPIC, b"x"), sharding_key="k")
    assert len(cluster.sent_to) == 3


@pytest.mark.parametrize("retry_times", [0, 1, 4])
async def test_the_number_of_attempts(cluster: FakeCluster, retry_times: int) -> None:
    refuse_at(cluster, ResponseCode.SYSTEM_ERROR)
    async with Producer(
        cluster.namesrv, group="g", retry_times=retry_times, send_timeout_ms=TIMEOUT_MS + 3_000
    ) as producer:
        with pytest.raises(BrokerRefused):
            await producer.send(Message(TOPIC, b"x"))
    assert len(cluster.sent_to) == 1 + retry_times


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_stored_less_safely(
    cluster: FakeCluster, code: ResponseCode, status: SendStatus
) -> None:
    refuse_at(cluster, code)
    async with Producer(cluster.namesrv, group="g") as producer:
        assert (await producer.send(Message(TOPIC, b"x"))).status is status
        assert len(cluster.sent_to) == 1
    async with Producer(cluster.namesrv, group="g", retry_another_broker=True) as producer:
        assert (await producer.send(Message(TOPIC, b"x"))).status is status
        assert len(cluster.sent_to) == 4
        cluster[1].code = ResponseCode.SUCCESS
        assert (await producer.send(Message(TOPIC, b"x"))).status is SendStatus.SEND_OK


async def test_stored_less_safely_is_better_than_refused(cluster: FakeCluster) -> None:
    cluster[0].code = ResponseCode.FLUSH_DISK_TIMEOUT
    cluster[1].code = ResponseCode.MESSAGE_ILLEGAL
    async with Producer(cluster.namesrv, group="g", retry_another_broker=True) as producer:
        statuses: set[SendStatus | int] = set()
        for _ in range(4):
            try:
                statuses.add((await producer.send(Message(TOPIC, b"x"))).status)
            except BrokerRefused as error:
                statuses.add(error.response_code)
    assert SendStatus.FLUSH_DISK_TIMEOUT in statuses


async def test_failed_attempts_do_not_fill_the_log(
    cluster: FakeCluster, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    producer._started.sender._log_limiter = LogLimiter(clock)
    refuse_at(cluster, ResponseCode.SYSTEM_BUSY)
    for _ in range(20):
        with pytest.raises(BrokerBusy):
            await producer.send(Message(TOPIC, b"x"))
    clock.advance(1_000)
    with pytest.raises(BrokerBusy):
        await producer.send(Message(TOPIC, b"x"))
    told = [each.getMessage() for each in caplog.records if each.name == sender.__name__]
    assert len(told) == 2
    assert told[1].endswith(" (59 more like this)")


async def test_a_topic_whose_queues_cannot_be_written(cluster: FakeCluster) -> None:
    cluster.queues = 0
    async with Producer(cluster.namesrv, group="g") as producer:
        for _ in range(2):
            with pytest.raises(NoRoute, match="No queue of Orders can be written"):
                await producer.send(Message(TOPIC, b"x"))


async def test_no_route(cluster: FakeCluster, producer: Producer) -> None:
    with pytest.raises(NoRoute):
        await producer.send(Message("Missing", b"x"))
    assert cluster.asked == ["Missing", "TBW102"]


async def test_a_failure_refreshes_the_route(cluster: FakeCluster, producer: Producer) -> None:
    await producer.send(Message(TOPIC, b"x"))
    assert cluster.asked == [TOPIC]
    refuse_at(cluster, ResponseCode.TOPIC_NOT_EXIST)
    with pytest.raises(BrokerRefused):
        await producer.send(Message(TOPIC, b"x"))
    await until(lambda: cluster.asked.count(TOPIC) > 1)


async def test_sends_wait_for_room(cluster: FakeCluster) -> None:
    go = asyncio.Event()
    most = 0

    async def later(context: RequestContext) -> Response | None:
        del context
        nonlocal most
        most = max(most, running.in_flight)
        await go.wait()
        return None

    cluster[0].script = cluster[1].script = later
    running = Producer(cluster.namesrv, group="g", max_in_flight=3, send_timeout_ms=TIMEOUT_MS)
    async with running:
        sends = [asyncio.ensure_future(running.send(Message(TOPIC, b"x"))) for _ in range(10)]
        await until(lambda: len(cluster.sent_to) == 3)
        with pytest.raises(RequestTimeout, match="other sends"):
            await running.send(Message(TOPIC, b"late"), timeout_ms=20)
        assert len(cluster.sent_to) == 3
        go.set()
        assert len(await asyncio.gather(*sends)) == 10
        assert (most, running.in_flight) == (3, 0)


async def test_bytes_in_flight_are_bounded(cluster: FakeCluster) -> None:
    go = asyncio.Event()

    async def later(context: RequestContext) -> Response | None:
        del context
        await go.wait()
        return None

    cluster[0].script = cluster[1].script = later
    async with Producer(
        cluster.namesrv, group="g", max_in_flight_bytes=250, send_timeout_ms=TIMEOUT_MS
    ) as producer:
        sends = [asyncio.ensure_future(producer.send(Message(TOPIC, b"x" * 100))) for _ in range(5)]
        await until(lambda: len(cluster.sent_to) == 2)
        assert producer.in_flight == 2
        go.set()
        await asyncio.gather(*sends)
        assert (await producer.send(Message(TOPIC, b"x" * 1_000))).status is SendStatus.SEND_OK


async def test_what_is_on_the_wire(cluster: FakeCluster) -> None:
    options = ClientOptions(namesrv=cluster.namesrv, default_topic_queues=6)
    async with Producer(options, group="g") as producer:
        queue = MessageQueue(TOPIC, "broker-a", 1)
        await producer.send(Message(TOPIC, b"x", tags="t", flag=3), queue=queue)
        await producer.send_batch([Message(TOPIC, b"x"), Message(TOPIC, b"y")], queue=queue)
        retry = Message(
            "%RETRY%c",
            b"x",
            system_properties={"RECONSUME_TIME": "4", "MAX_RECONSUME_TIMES": "9"},
        )
        await producer.send(retry, queue=MessageQueue("%RETRY%c", "broker-a", 0))
    (one, request), (many, batch), (again, _) = cluster[0].sends
    assert request.code == RequestCode.SEND_MESSAGE_V2
    assert (one.producer_group, one.topic, one.default_topic) == ("g", TOPIC, "TBW102")
    assert (one.default_topic_queue_nums, one.queue_id, one.flag) == (6, 1, 3)
    assert (one.broker_name, one.batch, one.unit_mode) == ("broker-a", False, False)
    assert decode_properties((one.properties or "").encode()).keys() == {
        "TAGS",
        "WAIT",
        "UNIQ_KEY",
    }
    assert batch.code == RequestCode.SEND_BATCH_MESSAGE
    assert many.batch is True
    assert (again.reconsume_times, again.max_reconsume_times) == (4, 9)
    assert "RECONSUME" not in (again.properties or "")


async def test_brokers_with_faults_are_avoided(cluster: FakeCluster) -> None:
    async with Producer(cluster.namesrv, group="g", send_latency_fault=True) as producer:
        cluster[0].code = ResponseCode.SYSTEM_BUSY
        for _ in range(20):
            await producer.send(Message(TOPIC, b"x"))
    assert len(cluster[0].sends) <= 1
    assert len(cluster[1].sends) == 20


async def test_a_cancelled_send_releases_its_room(cluster: FakeCluster) -> None:
    cluster[0].script = cluster[1].script = never
    async with Producer(
        cluster.namesrv, group="g", max_in_flight=1, send_timeout_ms=TIMEOUT_MS
    ) as producer:
        first = asyncio.ensure_future(producer.send(Message(TOPIC, b"x")))
        second = asyncio.ensure_future(producer.send(Message(TOPIC, b"y")))
        await until(lambda: len(cluster.sent_to) == 1)
        second.cancel()
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert producer.in_flight == 0
        cluster[0].script = cluster[1].script = None
        assert (await producer.send(Message(TOPIC, b"z"))).status is SendStatus.SEND_OK


async def test_a_deadline_counts_down(producer: Producer) -> None:
    clock = ManualClock()
    producer.client.clock = clock
    deadline = Deadline(producer.client, 100)
    assert deadline.left_ms() == 100
    clock.advance(101)
    assert deadline.left_ms() < 0


async def test_a_batch_that_is_partly_stored(cluster: FakeCluster) -> None:
    async with Producer(cluster.namesrv, group="g", max_message_bytes=300) as producer:
        queue = MessageQueue(TOPIC, "broker-a", 0)
        messages = [Message(TOPIC, b"x" * 50) for _ in range(5)]

        async def second_is_bad(context: RequestContext) -> Response | None:
            if len(cluster[0].sends) < 2:
                return None
            return context.response(ResponseCode.MESSAGE_ILLEGAL, remark="no")

        cluster[0].script = second_is_bad
        with pytest.raises(PartlySent) as caught:
            await producer.send_batch(messages, queue=queue)
        assert caught.value.sent == 2
        assert isinstance(caught.value.__cause__, BrokerRefused)
        with pytest.raises(BrokerRefused):
            await producer.send_batch(messages[caught.value.sent :], queue=queue)
