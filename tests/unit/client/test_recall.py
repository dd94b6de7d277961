"""Recalling delayed messages."""

from __future__ import annotations

import base64

import pytest

from roquet.client import ClientOptions, Producer
from roquet.client.recall import RecallHandle
from roquet.errors import BadMessage, BadName, ClientClosed, NoRoute
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from roquet.remoting.processor import PUBLIC, RequestContext, Response, processor
from tests.unit.client.fake_cluster import FakeBroker, fake_cluster

TOPIC = "Orders"
JAVA_HANDLE = "djEgVG9waWMgYnJva2VyLTAgMTcwMDAwMDAwMDAwMCBBQzExMDAwMQ=="
"""Of RecallMessageHandle.HandleV1.buildHandle("Topic", "broker-0", "1700000000000", "AC110001")."""


def test_a_handle_equals_javas() -> None:
    handle = RecallHandle("Topic", "broker-0", "1700000000000", "AC110001")
    assert handle.text() == JAVA_HANDLE
    assert RecallHandle.parse(JAVA_HANDLE) == handle
    assert RecallHandle.parse(JAVA_HANDLE.rstrip("=")) == handle


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no handle",
        "djEg",
        "ä",
        "Zm9v!",
        base64.urlsafe_b64encode(b"v2 T b 1 A").decode(),
        base64.urlsafe_b64encode(b"v1 T b 1").decode(),
        base64.urlsafe_b64encode(b"v1 T b 1 \xff").decode(),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadMessage) as caught:
        RecallHandle.parse(text)
    assert caught.value.code == "bad_recall_handle"
    assert caught.value.hint


class Recalling(FakeBroker):
    """A broker that accepts every recall."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.recalls: list[RecallMessageRequestHeader] = []

    @processor(RequestCode.RECALL_MESSAGE, header=RecallMessageRequestHeader, permission=PUBLIC)
    def recall(self, context: RequestContext, header: RecallMessageRequestHeader) -> Response:
        self.recalls.append(header)
        found = RecallMessageResponseHeader(msg_id="AC11")
        return context.response(ResponseCode.SUCCESS, found)


async def test_the_broker_that_has_the_message_gets_the_request() -> None:
    first, second = Recalling("a"), Recalling("b")
    async with fake_cluster(first, second) as cluster:
        options = ClientOptions(namesrv=cluster.namesrv, namespace="shop")
        async with Producer(options, group="billing") as producer:
            text = RecallHandle(f"shop%{TOPIC}", "b", "1700000000000", "AC11").text()
            assert await producer.recall_message(TOPIC, text) == "AC11"
    assert not first.recalls
    (asked,) = second.recalls
    assert (asked.topic, asked.producer_group) == (f"shop%{TOPIC}", "shop%billing")
    assert (asked.recall_handle, asked.broker_name) == (text, "b")


async def test_messages_that_cannot_be_recalled() -> None:
    async with fake_cluster("a") as cluster:
        producer = Producer(cluster.namesrv, group="billing")
        text = RecallHandle(TOPIC, "gone", "1700000000000", "AC11").text()
        with pytest.raises(ClientClosed):
            await producer.recall_message(TOPIC, text)
        async with producer:
            for topic in ("%RETRY%billing", "%DLQ%billing", "no topic!"):
                with pytest.raises(BadName):
                    await producer.recall_message(topic, text)
            with pytest.raises(BadMessage):
                await producer.recall_message(TOPIC, "no handle")
            with pytest.raises(NoRoute, match="gone") as caught:
                await producer.recall_message(TOPIC, text)
            assert caught.value.hint
            with pytest.raises(NoRoute, match="Missing"):
                await producer.recall_message("Missing", text)
