"""What a whole broker reports about itself after messages were sent and consumed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from roquet.broker.broker import Broker
from roquet.broker.stats.broker_stats import SAMPLE_INTERVAL_MS
from roquet.broker.stats.commercial import CommercialConsumeHook, CommercialSendHook
from roquet.remoting.bodies.broker import BrokerStatsData, KVTable
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.offset import DelayOffsetSerializeWrapper
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.admin import (
    DeleteTopicRequestHeader,
    GetConsumeStatsInBrokerRequestHeader,
    GetConsumeStatsRequestHeader,
    TopicRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from roquet.remoting.headers.base import Header
from roquet.runtime.clock import ManualClock
from roquet.testing.hooked_files import QuickFiles
from tests.integration.broker.broker_kit import GROUP, TOPIC, config, pull, send, store_config
from tests.patience import PATIENT, TIMEOUT_MS

SENT = 30
HALF = "TRAN_MSG\x01true\x02PGROUP\x01shop\x02UNIQ_KEY\x01u\x02"
PLAIN = "TAGS\x01paid\x02UNIQ_KEY\x01u\x02"


class Desk:
    """A broker, and a client that queries it."""

    def __init__(self, broker: Broker, client: RemotingClient, clock: ManualClock) -> None:
        self.broker = broker
        self.client = client
        self.clock = clock

    async def ask(self, code: RequestCode, header: Header | None = None) -> bytes:
        answer = await self.client.invoke(self.broker.address, code, header, timeout_ms=TIMEOUT_MS)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer.body

    async def tps(self, name: str, key: str) -> float:
        """Over the last minute, as ``mqadmin statsAll`` queries it."""
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        body = await self.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
        minute = decode_body(BrokerStatsData, body).stats_minute
        assert minute is not None
        return minute.tps

    def pass_time(self) -> None:
        self.clock.advance(SAMPLE_INTERVAL_MS)
        list(self.broker.stats.sampling())


@pytest.fixture(params=["lane", "no lane"])
async def desk(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Desk]:
    monkeypatch.setenv("ROQUET_PURE", "0" if request.param == "lane" else "1")
    clock = ManualClock()
    broker = Broker(config(tmp_path), store_config(), files=QuickFiles(), clock=clock)
    async with broker, RemotingClient(config=PATIENT) as client:
        made = Desk(broker, client, clock)
        for _ in range(SENT):
            await send(client, broker, b"body", properties=PLAIN)
        for offset in (0, 10):
            answer = await pull(client, broker, offset)
            assert answer.code == ResponseCode.SUCCESS
        made.pass_time()
        yield made


async def test_topics_and_groups_have_rates(desk: Desk) -> None:
    assert await desk.tps("TOPIC_PUT_NUMS", TOPIC) == SENT / 10
    assert await desk.tps("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}") == (SENT + SENT - 10) / 10
    size = desk.broker.store.max_physical_offset
    assert await desk.tps("TOPIC_PUT_SIZE", TOPIC) == size / 10
    assert await desk.tps("BROKER_PUT_NUMS", desk.broker.config.cluster_name) == SENT / 10
    assert await desk.tps("CHANNEL_ACTIVITY", "CONNECT") == 0.1
    body = await desk.ask(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic=TOPIC))
    assert b'"topicPutTps":3.0' in body.replace(b" ", b"")


async def test_progress_has_rates(desk: Desk) -> None:
    desk.broker.offsets.commit(GROUP, TOPIC, 0, 10)
    header = GetConsumeStatsRequestHeader(consumer_group=GROUP, topic="")
    body = await desk.ask(RequestCode.GET_CONSUME_STATS, header)
    assert b'"consumeTps":5.0' in body
    in_all = await desk.ask(
        RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerRequestHeader(is_order=False)
    )
    assert b'"consumeTps":5.0' in in_all


async def test_runtime_info_has_totals(desk: Desk) -> None:
    body = await desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = decode_body(KVTable, body).table
    assert table["msgPutTotalTodayNow"] == table["putMessageTimesTotal"] == str(SENT)
    assert table["msgGetTotalTodayNow"] == str(SENT + SENT - 10)
    assert table["msgPutTotalTodayMorning"] == table["msgGetTotalYesterdayMorning"] == "0"
    assert json.loads(body)["table"].keys() >= {"putTps", "getTransferredTps", "putLatency99"}


async def test_delay_levels_and_system_topics(desk: Desk) -> None:
    desk.broker.components.delay_offsets.update(3, 17, messages=17)
    body = await desk.ask(RequestCode.GET_ALL_DELAY_OFFSET)
    assert decode_body(DelayOffsetSerializeWrapper, body).offset_table == {3: 17}
    body = await desk.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    topics = set(json.loads(body)["topicList"])
    assert {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102"} <= topics
    assert TOPIC not in topics


async def test_accounts_are_counted_by_hooks(desk: Desk) -> None:
    stats = desk.broker.stats
    desk.broker.hooks.send.append(CommercialSendHook(stats))
    desk.broker.hooks.consume.append(CommercialConsumeHook(stats))
    before = desk.broker.store.max_physical_offset
    await send(desk.client, desk.broker, b"body", properties=PLAIN)
    size = desk.broker.store.max_physical_offset - before
    await pull(desk.client, desk.broker, SENT)
    await pull(desk.client, desk.broker, SENT + 1)
    sent, got = f"null@{TOPIC}@shop@SEND_SUCCESS", f"null@{TOPIC}@{GROUP}@RCV_SUCCESS"
    assert stats.total("COMMERCIAL_SEND_TIMES", sent) == 1
    assert stats.total("COMMERCIAL_SEND_SIZE", sent) == size
    assert stats.total("COMMERCIAL_RCV_SIZE", got) == size
    assert stats.total("TOPIC_PUT_NUMS", TOPIC) == SENT + 1


async def test_deleted_topics_are_no_longer_counted(desk: Desk) -> None:
    broker = desk.broker
    await send(desk.client, broker, b"half", properties=HALF)
    assert broker.components.transaction_metrics.count(TOPIC) == 1
    await desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=TOPIC))
    assert broker.components.transaction_metrics.table == {}
    assert broker.stats.view("TOPIC_PUT_NUMS", TOPIC) is None
    assert broker.stats.view("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}") is None
    await send(desk.client, broker, b"again", properties=PLAIN)
    desk.pass_time()
    assert await desk.tps("TOPIC_PUT_NUMS", TOPIC) == 0.1
