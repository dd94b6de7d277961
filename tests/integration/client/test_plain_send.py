"""Plain sends by compiled code: which are taken, and that the result is the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from roquet.client import ClientOptions, Message, Producer, SendHook, SendResult, SendStatus
from roquet.client.plain_send import Outcome, PlainSends, Sending
from roquet.client.producer_options import ProducerSettings
from roquet.errors import BrokerRefused, RequestTimeout
from roquet.model.message_id import UniqueId
from roquet.remoting.codes import ResponseCode
from roquet.remoting.frame import SerializeType
from roquet.remoting.processor import RequestContext, Response
from roquet.runtime import compiled
from roquet.testing.broker import RunningBroker, broker
from tests.patience import TIMEOUT_MS
from tests.unit.client.fake_cluster import fake_cluster

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        not compiled.is_used("roquet.client._send"), reason="compiled code does not run"
    ),
]

TOPIC = "Orders"


@pytest.fixture
async def a_broker() -> AsyncIterator[RunningBroker]:
    async with broker() as running:
        await running.create_topic(TOPIC, queues=2)
        yield running


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """The messages that took the fast path."""
    found: list[Message] = []
    end = PlainSends.end

    def note(self: PlainSends, sending: Sending, outcome: Outcome) -> SendResult | None:
        found.append(sending[1])
        return end(self, sending, outcome)

    monkeypatch.setattr(PlainSends, "end", note)
    return found


def odd_messages() -> list[Message]:
    return [
        Message(TOPIC, b"x", properties={"a": "b"}),
        Message(TOPIC, b"x", tags="grün"),
        Message(TOPIC, b"x", keys=["1", "2"]),
        Message(TOPIC, b"x", delay_level=1),
        Message(TOPIC, b"x", sharding_key="k"),
        Message(TOPIC, b"x", wait_store_ok=False),
        Message(TOPIC, b"x" * 5_000),
    ]


async def test_only_plain_messages_take_the_fast_path(
    a_broker: RunningBroker, taken: list[Message]
) -> None:
    plain = [
        Message(TOPIC, b"x"),
        Message(TOPIC, b"\x00" * 4_095, tags="paid", keys="17 18", flag=-7),
        Message(TOPIC, b"x", tags="", keys=""),
    ]
    async with Producer(a_broker.namesrv, group="shop") as producer:
        await producer.send(Message(TOPIC, b"the first makes the connection"))
        taken.clear()
        for message in (*plain, *odd_messages()):
            await producer.send(message)
        assert [id(each) for each in taken] == [id(each) for each in plain]
        assert producer.in_flight == 0


async def test_both_paths_store_the_same(a_broker: RunningBroker, taken: list[Message]) -> None:
    class Watch(SendHook):
        """Its presence alone makes every send take the general path."""

    message = Message(TOPIC, b"body", tags="paid", keys="17", flag=3)
    async with (
        Producer(a_broker.namesrv, group="shop") as quick,
        Producer(a_broker.namesrv, group="shop2", hooks=[Watch()]) as usual,
    ):
        await quick.send(Message(TOPIC, b"first"))
        results = [await quick.send(message), await usual.send(message)]
    assert len(taken) == 1
    stored = {each.message_id: each for each in a_broker.messages(TOPIC)}
    one, other = (stored[result.message_id] for result in results)
    for each, result in zip((one, other), results, strict=True):
        assert result.queue == each.queue
        assert result.queue_offset == each.queue_offset
        assert result.offset_message_id == each.offset_message_id
        assert each.properties.pop("UNIQ_KEY") == result.message_id == result.transaction_id
    assert one.properties == other.properties
    assert list(one.properties) == list(other.properties)
    assert (one.body, one.flag, one.sys_flag) == (other.body, other.flag, other.sys_flag)
    assert results[0].region_id == results[1].region_id
    assert results[0].trace_on is results[1].trace_on


async def test_unique_ids_continue_across_both_paths(a_broker: RunningBroker) -> None:
    async with Producer(a_broker.namesrv, group="shop") as producer:
        await producer.send(Message(TOPIC, b"first"))
        texts = [
            (await producer.send(message)).message_id
            for message in (Message(TOPIC, b"x"), Message(TOPIC, b"x", properties={"a": "b"})) * 3
        ]
    ids = [UniqueId.parse(text) for text in texts]
    assert [each.counter - ids[0].counter for each in ids] == list(range(6))
    assert len({(each.ip, each.process_id, each.loader_hash) for each in ids}) == 1
    assert [each.millis_of_month for each in ids] == sorted(each.millis_of_month for each in ids)
    assert all(text == text.upper() and len(text) == 32 for text in texts)


@pytest.mark.parametrize("kind", ["lost", "busy", "late"])
async def test_retries_of_a_failed_attempt_keep_the_id(taken: list[Message], kind: str) -> None:
    async with fake_cluster("broker-a", "broker-b") as cluster:
        settings: ProducerSettings = {
            "attempt_timeout_ms": 1_000 if kind == "late" else None,
            "send_timeout_ms": TIMEOUT_MS,
        }
        async with Producer(cluster.namesrv, group="g", **settings) as producer:
            for _ in range(4):
                await producer.send(Message(TOPIC, b"x"))
            taken.clear()

            async def fail(context: RequestContext) -> Response | None:
                cluster[0].script = cluster[1].script = None
                if kind == "busy":
                    return context.response(ResponseCode.SYSTEM_BUSY, remark="busy")
                if kind == "lost":
                    context.connection.abort()
                await asyncio.Event().wait()
                return None

            cluster[0].script = cluster[1].script = fail
            before = [len(each.sends) for each in cluster.brokers]
            result = await producer.send(Message(TOPIC, b"x"))
            headers = [
                header
                for each, count in zip(cluster.brokers, before, strict=True)
                for header, _ in each.sends[count:]
            ]
            assert len(taken) == 1
            assert len({header.broker_name for header in headers}) == 2
            assert len({header.properties for header in headers}) == 1
            assert result.message_id in (headers[0].properties or "")
            assert producer.in_flight == 0


async def test_a_permanent_refusal_is_an_error(taken: list[Message]) -> None:
    async with (
        fake_cluster("broker-a") as cluster,
        Producer(cluster.namesrv, group="g") as producer,
    ):
        await producer.send(Message(TOPIC, b"x"))
        cluster[0].code, cluster[0].remark = ResponseCode.MESSAGE_ILLEGAL, "no"
        with pytest.raises(BrokerRefused, match="no"):
            await producer.send(Message(TOPIC, b"x"))
        cluster[0].code = ResponseCode.FLUSH_DISK_TIMEOUT
        result = await producer.send(Message(TOPIC, b"x"))
        assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
        assert len(taken) == 2
        assert producer.in_flight == 0


async def test_an_abandoned_send_leaves_nothing_behind(a_broker: RunningBroker) -> None:
    async with Producer(a_broker.namesrv, group="shop") as producer:
        await producer.send(Message(TOPIC, b"first"))
        sends = [asyncio.ensure_future(producer.send(Message(TOPIC, b"x"))) for _ in range(5)]
        await asyncio.sleep(0)
        assert producer.in_flight == 5
        for each in sends:
            each.cancel()
        done = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in done)
        assert producer.in_flight == 0
        await producer.send(Message(TOPIC, b"last"))


async def test_without_time_left_nothing_is_sent(
    a_broker: RunningBroker, taken: list[Message]
) -> None:
    async with Producer(a_broker.namesrv, group="shop") as producer:
        await producer.send(Message(TOPIC, b"first"))
        with pytest.raises(RequestTimeout, match="Timed out"):
            await producer.send(Message(TOPIC, b"x"), timeout_ms=0)
    assert taken == []
    assert len(a_broker.messages(TOPIC)) == 1


async def test_binary_headers_and_namespaces_take_the_general_path(
    a_broker: RunningBroker, taken: list[Message]
) -> None:
    for options in (
        ClientOptions(namesrv=a_broker.namesrv, serialize=SerializeType.ROCKETMQ),
        ClientOptions(namesrv=a_broker.namesrv, namespace="shop", instance_name="other"),
    ):
        async with Producer(options, group="g") as producer:
            for _ in range(3):
                await producer.send(Message(TOPIC, b"x"))
    assert taken == []
