"""Requests that are relayed to clients."""

from __future__ import annotations

import asyncio

import pytest

from roquet.broker.admin.client_relay import RELAYS_MAX, ClientRelayAdmin
from roquet.errors import RequestTimeout, SendFailed
from roquet.model.host import Host
from roquet.model.message_id import offset_message_id
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.offset import GetConsumerStatusBody
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from roquet.remoting.headers.offset import GetConsumerStatusRequestHeader
from tests.unit.broker.admin.clients_kit import FakeClient, answering, subscribe
from tests.unit.broker.admin.kit import Desk

RUNNING = GetConsumerRunningInfoRequestHeader(
    consumer_group="G", client_id="c1", jstack_enable=True
)
STATUS = GetConsumerStatusRequestHeader(topic="T", group="G")
HOST = Host.parse("127.0.0.1:10911")


@pytest.fixture(name="relay")
def _relay(at: Desk) -> ClientRelayAdmin:
    return at.processor(ClientRelayAdmin)


async def test_running_info_is_passed_on(at: Desk, relay: ClientRelayAdmin) -> None:
    client = subscribe(
        at, "G", "T", client=FakeClient(answering(77, remark="so so", body=b'{"odd":{1:2}}'))
    )
    answer = await at.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING)
    assert (answer.code, answer.remark, answer.body) == (77, "so so", b'{"odd":{1:2}}')
    (asked,) = client.asked
    assert asked.code == RequestCode.GET_CONSUMER_RUNNING_INFO
    assert asked.ext_fields == {"consumerGroup": "G", "clientId": "c1", "jstackEnable": "true"}
    assert relay.waiting == 0


@pytest.mark.usefixtures("relay")
async def test_an_unknown_client(at: Desk) -> None:
    answer = await at.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "The Consumer <G> <c1> not online",
    )


@pytest.mark.usefixtures("relay")
async def test_a_client_that_is_too_old(at: Desk) -> None:
    client = subscribe(at, "G", "T", version="V3_0_8")
    answer = await at.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING)
    assert answer.remark == (
        "The Consumer <c1> Version <V3_0_8> too low to finish, please upgrade it to V3_1_8_SNAPSHOT"
    )
    assert not client.asked


@pytest.mark.usefixtures("relay")
@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (
            RequestTimeout("no answer"),
            ResponseCode.CONSUME_MSG_TIMEOUT,
            "consumer <G> <c1> Timeout: no answer",
        ),
        (
            SendFailed("gone"),
            ResponseCode.SYSTEM_ERROR,
            "invoke consumer <G> <c1> Exception: gone",
        ),
    ],
)
async def test_a_client_that_does_not_respond(
    at: Desk, error: Exception, code: int, remark: str
) -> None:
    client = subscribe(at, "G", "T")
    client.error = error
    answer = await at.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING)
    assert (answer.code, answer.remark) == (code, remark)


async def test_pending_requests_are_bounded(at: Desk, relay: ClientRelayAdmin) -> None:
    class Slow(FakeClient):
        async def send_request(
            self, code: int, header: Header | None = None, *, body: bytes = b"", timeout_ms: int
        ) -> RemotingCommand:
            await answers.wait()
            return await super().send_request(code, header, body=body, timeout_ms=timeout_ms)

    answers = asyncio.Event()
    subscribe(at, "G", "T", client=Slow(answering(0)))
    asking = [
        asyncio.ensure_future(at.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING))
        for _ in range(RELAYS_MAX)
    ]
    await asyncio.sleep(0)
    assert relay.waiting == RELAYS_MAX
    refused = await at.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING)
    assert refused.code == ResponseCode.SYSTEM_BUSY
    answers.set()
    assert {each.code for each in await asyncio.gather(*asking)} == {0}
    assert relay.waiting == 0


@pytest.mark.usefixtures("relay")
async def test_a_message_is_consumed_directly(at: Desk) -> None:
    at.add_topic("T", 1)
    at.put("T", 0, 2)
    client = subscribe(at, "G", "T", client=FakeClient(answering(0, body=b"{}")))
    offset = at.store.physical_offset_in_queue("T", 0, 1)
    header = ConsumeMessageDirectlyRequestHeader(
        consumer_group="G", client_id="c1", msg_id=offset_message_id(HOST, offset), topic="T"
    )
    answer = await at.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    assert (answer.code, answer.body) == (0, b"{}")
    (asked,) = client.asked
    record = at.store.select_one(offset)
    assert record is not None
    assert asked.body == bytes(record)
    assert asked.ext_fields == {
        "brokerName": "broker-a",
        "clientId": "c1",
        "consumerGroup": "G",
        "groupSysFlag": "0",
        "msgId": header.msg_id,
        "topic": "T",
        "topicSysFlag": "0",
    }


@pytest.mark.usefixtures("relay")
@pytest.mark.parametrize("message_id", [None, "", "xyz", offset_message_id(HOST, 999)])
async def test_no_message_to_consume(at: Desk, message_id: str | None) -> None:
    client = subscribe(at, "G", "T")
    header = ConsumeMessageDirectlyRequestHeader(
        consumer_group="G", client_id="c1", msg_id=message_id
    )
    answer = await at.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert not client.asked


def status_body(offset: int) -> bytes:
    table = {MessageQueue("T", "b", 0): offset}
    return encode_body(GetConsumerStatusBody(message_queue_table=table))


@pytest.mark.usefixtures("relay")
async def test_offsets_of_clients(at: Desk) -> None:
    for client_id, offset in (("c1", 3), ("c2", 4)):
        client = FakeClient(answering(0, body=status_body(offset)))
        subscribe(at, "G", "T", client=client, client_id=client_id)
    silent = FakeClient()
    silent.error = RequestTimeout("no answer")
    for number, other in enumerate(
        (
            silent,
            FakeClient(answering(1, remark="no such group")),
            FakeClient(answering(0)),
            FakeClient(answering(0, body=b"{")),
            FakeClient(answering(0, body=b" " * (1 << 20) + status_body(1))),
        )
    ):
        subscribe(at, "G", "T", client=other, client_id=f"odd-{number}")
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    found = await at.body_of(code, STATUS, GetConsumerStatusBody)
    queue = MessageQueue("T", "b", 0)
    assert found.consumer_table == {"c1": {queue: 3}, "c2": {queue: 4}}


@pytest.mark.usefixtures("relay")
async def test_offsets_of_one_client(at: Desk) -> None:
    clients = [FakeClient(answering(0, body=status_body(offset))) for offset in (3, 4)]
    for client_id, client in zip(("c1", "c2"), clients, strict=True):
        subscribe(at, "G", "T", client=client, client_id=client_id)
    header = GetConsumerStatusRequestHeader(topic="T", group="G", client_address="c2")
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    found = await at.body_of(code, header, GetConsumerStatusBody)
    assert list(found.consumer_table) == ["c2"]
    assert not clients[0].asked
    assert clients[1].asked[0].code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    assert clients[1].asked[0].ext_fields == {"topic": "T", "group": "G"}


@pytest.mark.usefixtures("relay")
async def test_offsets_without_clients(at: Desk) -> None:
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    answer = await at.ask(code, STATUS)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "No Any Consumer online in the consumer group: [G]",
    )
    subscribe(at, "G", "T", version="V3_0_6")
    answer = await at.ask(code, STATUS)
    assert answer.remark == "the client does not support this feature. version=V3_0_6"
