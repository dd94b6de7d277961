"""The core of the Python client against servers of Roquet and of Apache RocketMQ.

Routes, heartbeats, what brokers ask of clients, and signed requests; each scenario is the same on
both sides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from roquet.client import ClientInstance
from roquet.client.route import PublishRoute
from roquet.errors import BrokerRefused, NoRoute
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.client import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerListByGroupResponseBody,
)
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.offset import GetConsumerStatusBody
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.frame import SerializeType
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from roquet.remoting.headers.offset import (
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from roquet.remoting.headers.send import SendMessageResponseHeader
from tests.interop.cluster import APACHE, Cluster
from tests.interop.python_client import (
    PATTERN_TOPIC,
    QUEUES,
    create_topic,
    eventually,
    opened,
    routed,
)
from tests.request_kit import send_header
from tests.unit.client.client_kit import Consumer, Producer, until

pytestmark = pytest.mark.interop

_numbers = count(1)


async def send(
    client: ClientInstance, publish: PublishRoute, body: bytes
) -> SendMessageResponseHeader:
    """Store one message by hand, as a producer does."""
    queue = publish.queues[0]
    address = client.routes.broker_address(queue.broker_name, master_only=True)
    assert address is not None
    header = send_header(
        queue.topic,
        producer_group="sales",
        queue_id=queue.queue_id,
        born_timestamp_ms=client.clock.now_ms(),
        properties=f"UNIQ_KEY\x01{client.unique_ids.make()}\x02",
    )
    answer = await client.ask(address, RequestCode.SEND_MESSAGE_V2, header, body=body)
    return decode_header(SendMessageResponseHeader, answer.ext_fields)


async def members(client: ClientInstance, address: str, group: str) -> list[str]:
    answer = await client.ask(
        address,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        GetConsumerListByGroupRequestHeader(consumer_group=group),
        accept={ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR},
    )
    if answer.code != ResponseCode.SUCCESS:
        return []
    return decode_body(GetConsumerListByGroupResponseBody, answer.body).consumer_id_list or []


async def consuming(client: ClientInstance, topic: str) -> Consumer:
    consumer = Consumer(f"group_{next(_numbers)}", topic)
    client.register_consumer(consumer.group, consumer)
    await client.heartbeat()
    return consumer


# ------------------------------------------------------------------------------------ routes


@pytest.mark.parametrize("serialize", [SerializeType.JSON, SerializeType.ROCKETMQ])
async def test_a_route(servers: Cluster, serialize: SerializeType) -> None:
    async with opened(servers, serialize=serialize) as client:
        topic = await create_topic(client, servers.broker.address)
        expected = [MessageQueue(topic, servers.broker_name, each) for each in range(QUEUES)]
        assert await client.routes.subscribe_queues(topic) == expected
        assert list((await client.routes.publish(topic)).queues) == expected
        assert client.routes.broker_address(servers.broker_name) == servers.broker.address


async def test_the_first_message_creates_a_topic(servers: Cluster) -> None:
    async with opened(servers) as client:
        await eventually(lambda: routed(client, PATTERN_TOPIC))
        topic = f"PythonNew_{next(_numbers)}"
        with pytest.raises(NoRoute):
            await client.routes.route(topic)
        publish = await client.routes.publish(topic)
        assert publish.is_default
        assert (await send(client, publish, b"first")).queue_offset == 0
        await eventually(lambda: routed(client, topic))
        publish = await client.routes.publish(topic)
        assert (publish.is_default, len(publish.queues)) == (False, 4)


# -------------------------------------------------------------------------------- heartbeats


async def test_a_group_sees_members_join_and_leave(servers: Cluster) -> None:
    address = servers.broker.address
    async with opened(servers) as one, opened(servers) as other:
        topic = await create_topic(one, address)
        first = await consuming(one, topic)
        await other.routes.route(topic)
        second = Consumer(first.group, topic)
        other.register_consumer(first.group, second)
        await other.heartbeat()
        both = sorted([one.client_id, other.client_id])
        assert sorted(await members(one, address, first.group)) == both
        await until(lambda: first.rebalances > 0)
        seen = first.rebalances
        await other.unregister_consumer(first.group)
        assert await members(one, address, first.group) == [one.client_id]
        await until(lambda: first.rebalances > seen)


async def test_a_lost_connection_is_restored(servers: Cluster) -> None:
    address = servers.broker.address
    async with opened(servers) as client:
        topic = await create_topic(client, address)
        consumer = await consuming(client, topic)
        for connection in client.remoting.connections:
            connection.abort()
        await until(lambda: not client.remoting.connections)

        async def is_known() -> bool:
            return await members(client, address, consumer.group) == [client.client_id]

        await eventually(is_known)


# ------------------------------------------------------------------- requests from brokers


async def test_a_broker_requests_a_consumers_running_info(servers: Cluster) -> None:
    address = servers.broker.address
    async with opened(servers) as client:
        topic = await create_topic(client, address)
        consumer = await consuming(client, topic)
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=consumer.group, client_id=client.client_id, jstack_enable=True
        )
        answer = await client.ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        info = decode_body(ConsumerRunningInfo, answer.body)
        assert info.properties == {"PROP_CONSUMER_START_TIMESTAMP": "17"}
        assert "ClientInstance" in (info.jstack or "")


async def test_a_broker_has_a_message_consumed_directly(servers: Cluster) -> None:
    address = servers.broker.address
    async with opened(servers) as client:
        topic = await create_topic(client, address)
        consumer = await consuming(client, topic)
        sent = await send(client, await client.routes.publish(topic), b"look at me")
        header = ConsumeMessageDirectlyRequestHeader(
            consumer_group=consumer.group,
            client_id=client.client_id,
            msg_id=sent.msg_id,
            stored_broker_name=servers.broker_name,
        )
        answer = await client.ask(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        result = decode_body(ConsumeMessageDirectlyResult, answer.body)
        assert result.consume_result is CMResult.CR_SUCCESS
        ((message, broker_name),) = consumer.consumed
        assert (message.topic, message.body) == (topic, b"look at me")
        assert message.offset_message_id == sent.msg_id
        assert broker_name == servers.broker_name


async def test_a_broker_resets_and_queries_offsets(servers: Cluster) -> None:
    address = servers.broker.address
    async with opened(servers) as client:
        topic = await create_topic(client, address)
        consumer = await consuming(client, topic)
        for queue_id in range(QUEUES):
            commit = UpdateConsumerOffsetRequestHeader(
                consumer_group=consumer.group, topic=topic, queue_id=queue_id, commit_offset=0
            )
            await client.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        reset = ResetOffsetRequestHeader(
            topic=topic, group=consumer.group, timestamp_ms=0, force=True
        )
        await client.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        await until(lambda: bool(consumer.resets))
        ((reset_topic, offsets),) = consumer.resets
        assert reset_topic == topic
        assert offsets == {
            MessageQueue(topic, servers.broker_name, each): 0 for each in range(QUEUES)
        }
        consumer.offsets = {MessageQueue(topic, servers.broker_name, 1): 17}
        status = GetConsumerStatusRequestHeader(topic=topic, group=consumer.group)
        answer = await client.ask(address, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status)
        table = decode_body(GetConsumerStatusBody, answer.body).consumer_table
        assert table == {client.client_id: consumer.offsets}


async def test_a_broker_checks_a_transaction(servers: Cluster) -> None:
    address = servers.broker.address
    async with opened(servers) as client:
        topic = await create_topic(client, address)
        producer = Producer(topic)
        client.register_producer("sales", producer)
        await client.heartbeat()
        unique_id = client.unique_ids.make()
        header = send_header(
            topic,
            producer_group="sales",
            queue_id=1,
            sys_flag=4,
            born_timestamp_ms=client.clock.now_ms(),
            properties=f"UNIQ_KEY\x01{unique_id}\x02TRAN_MSG\x01true\x02PGROUP\x01sales\x02",
        )
        await client.ask(address, RequestCode.SEND_MESSAGE_V2, header, body=b"half")
        await until(lambda: bool(producer.checks))
        message, check, broker_address = producer.checks[0]
        assert (message.topic, message.body) == (topic, b"half")
        assert (message.transaction_id, check.transaction_id) == (unique_id, unique_id)
        assert broker_address == address


# --------------------------------------------------------------------------- signed requests


@pytest.fixture(scope="module")
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A broker of Apache RocketMQ that knows one user, and refuses all others."""
    request.getfixturevalue("java_toolkit")
    folder: Path = tmp_path_factory.mktemp("guarded")
    package = "org.apache.rocketmq.auth.authentication.provider"
    settings = {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{package}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{package}.LocalAuthenticationMetadataProvider",
        "authConfigPath": str(folder / "auth"),
        "initAuthenticationUser": json.dumps({"username": "shop", "password": "12345678"}),
        "innerClientAuthenticationCredentials": json.dumps(
            {"accessKey": "shop", "secretKey": "12345678"}
        ),
    }
    with Cluster(APACHE, APACHE, folder, broker_settings=settings) as started:
        yield started


@pytest.mark.parametrize("serialize", [SerializeType.JSON, SerializeType.ROCKETMQ])
async def test_a_signed_request_is_accepted(guarded: Cluster, serialize: SerializeType) -> None:
    keys = {"access_key": "shop", "secret_key": "12345678", "security_token": "any"}
    async with opened(guarded, serialize=serialize, **keys) as client:
        topic = await create_topic(client, guarded.broker.address)
        sent = await send(client, await client.routes.publish(topic), "über".encode() * 400)
        assert sent.queue_offset == 0


@pytest.mark.parametrize("keys", [{}, {"access_key": "shop", "secret_key": "87654321"}])
async def test_a_request_signed_badly_or_not_at_all_is_refused(
    guarded: Cluster, keys: dict[str, str]
) -> None:
    async with opened(guarded, **keys) as client:
        with pytest.raises(BrokerRefused) as caught:
            await create_topic(client, guarded.broker.address)
        assert caught.value.response_code in {ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR}
