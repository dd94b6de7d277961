"""Replies over loopback: requester and replier are clients of a whole broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from roquet.broker.broker import Broker
from roquet.broker.config import replace
from roquet.errors import SendFailed
from roquet.remoting.bodies.client import HeartbeatData, ProducerData
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.client import ClientConfig, RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import SerializeType
from roquet.remoting.headers.send import ReplyMessageRequestHeader
from roquet.remoting.processor import PUBLIC, ProcessorRegistry, RequestContext, processor
from roquet.store.config import FlushDiskType
from roquet.testing.hooked_files import QuickFiles
from tests.integration.broker.broker_kit import config, store_config, until
from tests.patience import PATIENT, TIMEOUT_MS
from tests.unit.broker.processor.reply_kit import REPLY, REPLY_TOPIC
from tests.unit.broker.processor.send_kit import send_header

ASKER = "10.9.8.7@1#2"


class Asker:
    """A requesting client; a closed gate holds its responses back."""

    def __init__(self) -> None:
        self.got: list[tuple[ReplyMessageRequestHeader, bytes]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    @processor(
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        header=ReplyMessageRequestHeader,
        permission=PUBLIC,
    )
    async def take(
        self, context: RequestContext, header: ReplyMessageRequestHeader
    ) -> RemotingCommand:
        self.got.append((header, context.request.body))
        await self.gate.wait()
        return context.response(ResponseCode.SUCCESS)


@pytest.fixture(name="broker", params=FlushDiskType)
async def _broker(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    settings = store_config(request.param)
    async with Broker(config(tmp_path), settings, files=QuickFiles()) as running:
        yield running


async def greet(client: RemotingClient, broker: Broker) -> None:
    data = HeartbeatData(client_id=ASKER, producer_data_set=[ProducerData(group_name="asking")])
    body = encode_body(data)
    answer = await client.invoke(
        broker.address, RequestCode.HEART_BEAT, body=body, timeout_ms=TIMEOUT_MS
    )
    assert answer.code == ResponseCode.SUCCESS


async def reply(
    client: RemotingClient, address: str, body: bytes = b"pong", **fields: object
) -> RemotingCommand:
    header = send_header(REPLY, topic=REPLY_TOPIC, **fields)
    code = RequestCode.SEND_REPLY_MESSAGE_V2
    return await client.invoke(address, code, header, body=body, timeout_ms=TIMEOUT_MS)


@pytest.mark.parametrize("codec", SerializeType)
@pytest.mark.parametrize("port", ["port", "fast_port"])
async def test_a_reply_goes_from_one_client_to_the_other(
    broker: Broker, codec: SerializeType, port: str
) -> None:
    spoken = ClientConfig(serialize_type=codec)
    asker = Asker()
    async with (
        RemotingClient(ProcessorRegistry(asker), spoken) as asking,
        RemotingClient(config=spoken) as replying,
    ):
        await greet(asking, broker)
        answer = await reply(replying, f"127.0.0.1:{getattr(broker, port)}")
        assert (answer.code, answer.remark, answer.serialize_type) == (0, None, codec)
    ((header, body),) = asker.got
    assert (body, header.topic, header.store_host) == (b"pong", REPLY_TOPIC, broker.address)
    assert "PUSH_REPLY_TIME" in (header.properties or "")
    assert broker.store.max_offset_in_queue(REPLY_TOPIC, 0) == 1


async def test_one_connection_sends_requests_and_replies(broker: Broker) -> None:
    asker = Asker()
    async with RemotingClient(ProcessorRegistry(asker)) as client:
        await greet(client, broker)
        answers = await asyncio.gather(
            *(reply(client, broker.address, b"%d" % i) for i in range(200))
        )
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert len(broker.connections) == 1
    assert sorted(int(body) for _, body in asker.got) == list(range(200))
    assert broker.store.max_offset_in_queue(REPLY_TOPIC, 0) == 200


async def test_the_requester_disconnects_while_it_gets_the_reply(broker: Broker) -> None:
    asker = Asker()
    asker.gate.clear()
    asking = RemotingClient(ProcessorRegistry(asker))
    async with RemotingClient(config=PATIENT) as replying:
        await greet(asking, broker)
        answer = asyncio.ensure_future(reply(replying, broker.address))
        await until(lambda: bool(asker.got))
        for connection in asking.connections:
            connection.abort()
        answered = await answer
        assert (answered.code, answered.remark) == (1, f"push reply message to {ASKER}fail.")
        await asking.close()
        gone = await reply(replying, broker.address)
        assert gone.remark == f"push reply message fail, channel of <{ASKER}> not found."
    assert broker.store.max_offset_in_queue(REPLY_TOPIC, 0) == 2, "both are stored"


async def test_the_replier_disconnects_before_its_response(broker: Broker) -> None:
    asker = Asker()
    asker.gate.clear()
    async with RemotingClient(ProcessorRegistry(asker)) as asking:
        await greet(asking, broker)
        async with RemotingClient(config=PATIENT) as replying:
            answer = asyncio.ensure_future(reply(replying, broker.address))
            await until(lambda: bool(asker.got))
        with pytest.raises(SendFailed):
            await answer
        asker.gate.set()
        await until(lambda: broker.store.max_offset_in_queue(REPLY_TOPIC, 0) == 1)


async def test_region_and_trace_switch_are_those_of_the_settings(tmp_path: Path) -> None:
    settings = replace(config(tmp_path), region_id="North", trace_on=False)
    asker = Asker()
    async with (
        Broker(settings, store_config(), files=QuickFiles()) as broker,
        RemotingClient(ProcessorRegistry(asker)) as client,
    ):
        await greet(client, broker)
        answer = await reply(client, broker.address)
    fields = answer.ext_fields or {}
    assert (fields["MSG_REGION"], fields["TRACE_ON"]) == ("North", "false")
    ((header, _),) = asker.got
    assert "MSG_REGION\x01North\x02TRACE_ON\x01false\x02" in (header.properties or "")


async def test_an_administrator_may_turn_off_storing_replies(tmp_path: Path) -> None:
    asker = Asker()
    async with (
        Broker(config(tmp_path), store_config(), files=QuickFiles()) as broker,
        RemotingClient(ProcessorRegistry(asker)) as client,
    ):
        await greet(client, broker)
        await broker.components.settings.update({"storeReplyMessageEnable": "false"})
        answer = await reply(client, broker.address)
        assert (answer.code, (answer.ext_fields or {})["msgId"]) == (0, "0")
        assert broker.store.max_offset_in_queue(REPLY_TOPIC, 0) == 0
    assert len(asker.got) == 1
