"""Filters by SQL92 through the whole broker, over loopback."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from roquet.broker.broker import Broker
from roquet.broker.config import BrokerConfig, replace
from roquet.model.subscription import SubscriptionData
from roquet.remoting.bodies.client import (
    CheckClientRequestBody,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
)
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.client import UnregisterClientRequestHeader
from roquet.remoting.headers.pull import PullMessageRequestHeader
from roquet.store.config import MessageStoreConfig
from roquet.testing.hooked_files import QuickFiles
from tests.integration.broker.broker_kit import GROUP, TOPIC, bodies, config, send, store_config
from tests.patience import NEVER_MS, PATIENT, TIMEOUT_MS

STORE = MessageStoreConfig(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_bytes=20_000,
    index_slots=1000,
    index_entries=4000,
    consume_queue_ext=True,
    os_page_cache_busy_timeout_ms=NEVER_MS,
)


def with_filters(root: Path) -> BrokerConfig:
    return replace(config(root), property_filter=True, calculate_filter_bitmap=True)


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    async with RemotingClient(config=PATIENT) as made:
        yield made


def subscription(expression: str, version: int) -> SubscriptionData:
    return SubscriptionData(
        topic=TOPIC, sub_string=expression, expression_type="SQL92", sub_version=version
    )


async def ask(client: RemotingClient, broker: Broker, code: int, body: bytes) -> RemotingCommand:
    return await client.invoke(broker.address, code, body=body, timeout_ms=TIMEOUT_MS)


async def check(client: RemotingClient, broker: Broker, expression: str) -> RemotingCommand:
    body = CheckClientRequestBody(
        client_id="c", group=GROUP, subscription_data=subscription(expression, 1)
    )
    return await ask(client, broker, RequestCode.CHECK_CLIENT_CONFIG, encode_body(body))


async def beat(
    client: RemotingClient, broker: Broker, expression: str, version: int = 1
) -> RemotingCommand:
    consumer = ConsumerData(
        group_name=GROUP,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        subscription_data_set=[subscription(expression, version)],
    )
    body = HeartbeatData(client_id="c", consumer_data_set=[consumer])
    return await ask(client, broker, RequestCode.HEART_BEAT, encode_body(body))


async def pull(client: RemotingClient, broker: Broker, version: int = 1) -> RemotingCommand:
    header = PullMessageRequestHeader(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_ms=0,
        sub_version=version,
        expression_type="SQL92",
    )
    return await client.invoke(
        broker.address, RequestCode.PULL_MESSAGE, header, timeout_ms=TIMEOUT_MS
    )


def kept(root: Path) -> dict[str, object]:
    text = (root / "store/config/consumerFilter.json").read_text()
    (found,) = json.loads(text)["filterDataByTopic"][TOPIC]["groupFilterData"].values()
    return dict(found)


async def test_a_filter_from_the_check_to_the_next_start(
    tmp_path: Path, client: RemotingClient
) -> None:
    settings = with_filters(tmp_path)
    async with Broker(settings, STORE, files=QuickFiles()) as broker:
        assert (await check(client, broker, "a > 5")).code == ResponseCode.SUCCESS
        await send(client, broker, b"1", properties="a\x011\x02")
        await beat(client, broker, "a > 5")
        for value in (6, 2, 7):
            properties = f"a\x01{value}\x02"
            await send(client, broker, b"%d" % value, properties=properties)
        assert list(bodies(await pull(client, broker))) == [b"6", b"7"]
        late = await pull(client, broker, version=2)
        assert late.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert kept(tmp_path)["expression"] == "a > 5"
    async with Broker(settings, STORE, files=QuickFiles()) as broker:
        found = broker.components.filters.find(TOPIC, GROUP)
        assert found is not None
        assert found.data.is_dead
        await send(client, broker, b"3", properties="a\x013\x02")
        await send(client, broker, b"8", properties="a\x018\x02")
        await beat(client, broker, "a > 5", version=2)
        assert list(bodies(await pull(client, broker, version=2))) == [b"6", b"7", b"8"]
        assert not broker.components.filters.table[TOPIC][GROUP].data.is_dead
        header = UnregisterClientRequestHeader(client_id="c", consumer_group=GROUP)
        await client.invoke(
            broker.address, RequestCode.UNREGISTER_CLIENT, header, timeout_ms=TIMEOUT_MS
        )
        assert broker.components.filters.table[TOPIC][GROUP].data.is_dead


async def test_bad_expressions(tmp_path: Path, client: RemotingClient) -> None:
    async with Broker(with_filters(tmp_path), STORE, files=QuickFiles()) as broker:
        refused = await check(client, broker, "a > 'x'")
        remark = "java.lang.RuntimeException: Value ''x'' cannot be compared."
        assert (refused.code, refused.remark) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
        await send(client, broker, b"1", properties="a\x011\x02")
        assert (await beat(client, broker, "a > 'x'")).code == ResponseCode.SUCCESS
        assert (await pull(client, broker)).code == ResponseCode.FILTER_DATA_NOT_EXIST
        assert broker.components.filters.table == {}


async def test_the_switch_is_off_by_default(tmp_path: Path, client: RemotingClient) -> None:
    remark = "The broker does not support consumer to filter message by SQL92"
    async with Broker(config(tmp_path), store_config(), files=QuickFiles()) as broker:
        await send(client, broker, b"6", properties="a\x016\x02")
        await beat(client, broker, "a > 5")
        for answer in (await check(client, broker, "a > 5"), await pull(client, broker)):
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert broker.store.config.consume_queue_ext is False
        await broker.components.settings.update({"enablePropertyFilter": "true"})
        assert (await check(client, broker, "a > 5")).code == ResponseCode.SUCCESS
        assert list(bodies(await pull(client, broker))) == [b"6"]
