"""Who is connected."""

from __future__ import annotations

from typing import cast

from roquet.broker.manager.client_channel import ClientChannel
from roquet.model.subscription import SubscriptionData
from roquet.remoting.bodies.client import (
    Connection,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumeType,
    MessageModel,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from roquet.remoting.codes import LanguageCode, RequestCode, ResponseCode
from roquet.remoting.connection import Connection as Peer
from roquet.remoting.headers import client as headers
from tests.unit.broker.admin.kit import Desk, FakeConnection
from tests.unit.store.kit import NOW_MS


def channel(client_id: str, port: int) -> ClientChannel:
    return ClientChannel(
        connection=cast("Peer", FakeConnection(f"10.0.0.1:{port}")),
        client_id=client_id,
        language=LanguageCode.GO,
        version=317,
        last_update_ns=0,
    )


def shown(client_id: str, port: int) -> Connection:
    return Connection(
        client_address=f"10.0.0.1:{port}", client_id=client_id, language="GO", version=317
    )


async def test_consumers(at: Desk) -> None:
    subscription = SubscriptionData(topic="T", sub_string="*", sub_version=1)
    for client_id, port in (("c1", 1), ("c2", 2)):
        at.consumers.register(
            "G",
            channel(client_id, port),
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscriptions=[subscription],
            notify_enabled=True,
        )
    found = await at.body_of(
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        headers.GetConsumerConnectionListRequestHeader(consumer_group="G"),
        ConsumerConnection,
    )
    assert found == ConsumerConnection(
        connection_set=[shown("c1", 1), shown("c2", 2)],
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        subscription_table={"T": subscription},
    )


async def test_producers(at: Desk) -> None:
    at.producers.register("P", channel("p1", 1))
    found = await at.body_of(
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        headers.GetProducerConnectionListRequestHeader(producer_group="P"),
        ProducerConnection,
    )
    assert found.connection_set == [shown("p1", 1)]


async def test_all_producers(at: Desk) -> None:
    at.clock.advance(1_000)
    at.producers.register("P", channel("p1", 1))
    at.clock.advance(250)
    found = await at.body_of(
        RequestCode.GET_ALL_PRODUCER_INFO,
        headers.GetAllProducerInfoRequestHeader(),
        ProducerTableInfo,
    )
    assert found.data == {
        "P": [
            ProducerInfo(
                client_id="p1",
                language="GO",
                last_update_timestamp_ms=NOW_MS + 1_000,
                remote_ip="/10.0.0.1:1",
                version=317,
            )
        ]
    }


async def test_no_clients(at: Desk) -> None:
    answer = await at.ask(
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        headers.GetConsumerConnectionListRequestHeader(consumer_group="G"),
    )
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert answer.remark == "the consumer group[G] not online"
    answer = await at.ask(
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        headers.GetProducerConnectionListRequestHeader(producer_group="P"),
    )
    assert (answer.code, answer.remark) == (1, "the producer group[P] not exist")
    answer = await at.ask_ok(
        RequestCode.GET_ALL_PRODUCER_INFO, headers.GetAllProducerInfoRequestHeader()
    )
    assert answer.body == b'{"data":{}}'
