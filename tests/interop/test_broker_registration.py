"""A Roquet broker's registration at Apache RocketMQ's name server, in all its forms."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from roquet.broker.service import registration
from roquet.model.topic_config import TopicConfig
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.route import QueueData, TopicRouteData
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.namesrv import GetRouteInfoRequestHeader
from tests.integration.broker.service.namesrv_kit import (
    BROKER_ADDRESS,
    registered_at,
    registering,
)
from tests.interop.javabroker import JavaNamesrv
from tests.patience import PATIENT
from tests.table_changes import put_topics

pytestmark = pytest.mark.interop

FORGOTTEN_TIMEOUT_S = 60


async def route_of(client: RemotingClient, namesrv: str, topic: str) -> TopicRouteData | None:
    header = GetRouteInfoRequestHeader(topic=topic)
    answer = await client.invoke(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_body(TopicRouteData, answer.body)


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("singly", [False, True], ids=["whole", "singly"])
async def test_topics_have_a_route_while_the_broker_runs(
    java_namesrv: JavaNamesrv,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    compressed: bool,
    singly: bool,
) -> None:
    if singly:
        monkeypatch.setattr(registration, "SINGLE_TOPICS_FROM", 1)
    namesrv = java_namesrv.address
    broker = registering(tmp_path, namesrv, compressed_register=compressed)
    async with RemotingClient(config=PATIENT) as client:
        async with broker as (at, topics):
            await at.wait_registered(timeout_ms=60_000)
            assert registered_at(at) == [namesrv]
            for queues, perm in ((4, 6), (7, 4)):
                put_topics(
                    topics,
                    TopicConfig(
                        topic_name="T", read_queue_nums=queues, write_queue_nums=queues, perm=perm
                    ),
                )
                await at.wait_registered(timeout_ms=60_000)
                route = await route_of(client, namesrv, "T")
                assert route is not None
                assert [each.broker_addrs for each in route.broker_datas] == [{0: BROKER_ADDRESS}]
                assert route.queue_datas == [
                    QueueData(
                        broker_name="broker-a",
                        perm=perm,
                        read_queue_nums=queues,
                        write_queue_nums=queues,
                    )
                ]
            assert await route_of(client, namesrv, "BenchmarkTest") is not None
        # Apache's name server responds at once and forgets the broker a little later.
        async with asyncio.timeout(FORGOTTEN_TIMEOUT_S):
            while await route_of(client, namesrv, "T") is not None:  # noqa: ASYNC110  no event
                await asyncio.sleep(0.02)
