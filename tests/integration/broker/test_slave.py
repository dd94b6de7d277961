"""A master and its slave with a name server: what clients get from each, before and after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from roquet.admin import Admin
from roquet.broker.broker import Broker
from roquet.cli.broker_state import broker_states, print_states
from roquet.client import ClientOptions, ConsumeFromWhere, Message, Producer, PushConsumer
from roquet.model.topic_config import TopicConfig
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from roquet.remoting.headers.pull import PullMessageResponseHeader
from roquet.store.config import BrokerRole
from tests.integration.broker.broker_kit import GROUP, TOPIC, bodies, pull, send
from tests.integration.broker.pair_kit import Pair, pair
from tests.patience import PATIENT, TIMEOUT_MS
from tests.table_changes import put_topics
from tests.unit.client.client_kit import until
from tests.unit.client.handler_kit import Seen

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(name="at")
async def _at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    async with pair(tmp_path, monkeypatch) as made:
        await until(lambda: made.ids() == [0, 1] and made.is_in_sync())
        yield made


def committed(broker: Broker, queue_id: int) -> int:
    return max(broker.offsets.query(GROUP, TOPIC, queue_id), 0)


async def test_a_slave_has_the_master_s_messages_topics_and_offsets(at: Pair) -> None:
    put_topics(at.master.topics, TopicConfig(topic_name="Ordered", order=True))
    async with RemotingClient(config=PATIENT) as client:
        for number in range(20):
            answer = await send(client, at.master, b"%d" % number)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=12
        )
        at.master.groups.find(GROUP)
        await client.invoke(at.master.address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        await until(lambda: at.slave.offsets.query(GROUP, TOPIC, 0) == 12)
        await until(lambda: {"Ordered", TOPIC} <= set(at.slave.topics.table))
        await until(at.is_caught_up)
        found = await pull(client, at.slave, 12)
        assert found.code == ResponseCode.SUCCESS, found.remark
        assert list(bodies(found)) == [b"%d" % number for number in range(12, 20)]
        said = decode_header(PullMessageResponseHeader, found.ext_fields)
        assert said.suggest_which_broker_id == 0


async def test_a_slave_refuses_sends_and_delivers_nothing(at: Pair) -> None:
    async with RemotingClient(config=PATIENT) as client:
        await send(client, at.master, b"late", properties="DELAY\x012\x02")
        answer = await send(client, at.slave, b"no")
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "system busy" in (answer.remark or "")
    await until(at.is_caught_up)
    assert at.slave.store.max_offset_in_queue(TOPIC, 0) == 0


async def test_the_end_of_a_slave_s_queue_sends_consumers_to_the_master(at: Pair) -> None:
    async with RemotingClient(config=PATIENT) as client:
        await send(client, at.master, b"1")
        await until(lambda: at.slave.store.max_offset_in_queue(TOPIC, 0) == 1)
        await until(lambda: TOPIC in at.slave.topics.table)
        assert (await pull(client, at.slave, 1)).code == ResponseCode.PULL_RETRY_IMMEDIATELY
        await at.master.stop()
        await until(lambda: not at.slave.components.master.is_listed)
        task = asyncio.ensure_future(pull(client, at.slave, 1, suspend_ms=TIMEOUT_MS))
        await until(lambda: len(at.slave.components.hold) == 1)
        await at.start_master()
        answer = await task
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    said = decode_header(PullMessageResponseHeader, answer.ext_fields)
    assert said.suggest_which_broker_id == 0


async def test_consumers_go_to_the_slave_and_come_back(at: Pair) -> None:
    async with Producer(at.namesrv_address, group="shop", send_timeout_ms=TIMEOUT_MS) as producer:
        for number in range(10):
            await producer.send(Message(TOPIC, b"%d" % number))
    await until(at.is_caught_up)
    await until(lambda: TOPIC in at.slave.topics.table)
    await at.master.stop()
    await until(lambda: at.ids() == [1])
    seen = Seen()
    consumer = PushConsumer(
        ClientOptions(
            namesrv=at.namesrv_address,
            poll_namesrv_ms=50,
            heartbeat_ms=50,
            persist_offsets_ms=50,
        ),
        group=GROUP,
        handler=seen,
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await seen.wait(10)
        await at.start_master()
        await until(lambda: at.ids() == [0, 1] and at.is_in_sync())
        async with Producer(
            at.namesrv_address, group="shop", send_timeout_ms=TIMEOUT_MS
        ) as producer:
            await producer.send(Message(TOPIC, b"new"))
        await seen.wait(11)
        queues = at.master.topics.table[TOPIC].read_queue_nums
        await until(lambda: sum(committed(at.master, each) for each in range(queues)) == 11)
    assert set(seen.bodies) == {b"new", *(b"%d" % number for number in range(10))}


async def test_a_slave_that_is_made_the_master_goes_on(at: Pair) -> None:
    async with RemotingClient(config=PATIENT) as client:
        for number in range(5):
            await send(client, at.master, b"%d" % number)
        await send(client, at.master, b"late", properties="DELAY\x011\x02")
        await until(at.is_caught_up)
        await until(lambda: TOPIC in at.slave.topics.table)
        await at.master.stop()
        await at.slave.stop()
        promoted = await at.start(0, BrokerRole.ASYNC_MASTER, store="1")
        await until(lambda: at.ids() == [0])
        await until(lambda: promoted.store.max_offset_in_queue(TOPIC, 0) >= 6)
        assert (await send(client, promoted, b"new")).code == ResponseCode.SUCCESS
        found = await pull(client, promoted, 0)
        stored = list(bodies(found))
        # The master may have delivered it too, just before it stopped.
        assert [each for each in stored if each != b"late"] == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
            b"new",
        ]
        assert b"late" in stored


async def test_administrators_see_how_far_a_slave_is(
    at: Pair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RemotingClient(config=PATIENT) as client:
        await send(client, at.master, b"1")
    await until(at.is_caught_up)
    async with Admin(at.namesrv_address) as admin:
        lag = (await admin.clusters.replica_lag()).answers[at.slave.address]
        assert (lag.behind_bytes, lag.behind_ms, lag.broker.broker_id) == (0, 0, 1)
        status = (await admin.clusters.replication()).answers["broker-a"]
        assert (status.master, status.in_sync_slave_nums) == (True, 1)
        at.slave.components.ha.update_ha_master_address("")
        await until(lambda: not at.master.components.ha.status().slaves)
        end = at.slave.store.max_physical_offset
        async with RemotingClient(config=PATIENT) as client:
            answer = await send(client, at.master, b"2")
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        lag = (await admin.clusters.replica_lag()).answers[at.slave.address]
        assert lag.behind_bytes == at.master.store.max_physical_offset - end
        assert lag.behind_ms is not None
        states = await broker_states(admin, await admin.clusters.brokers())
    assert [each.behind_bytes for each in states] == [None, lag.behind_bytes]
    assert states[1].behind_seconds is not None
    monkeypatch.setenv("COLUMNS", "250")
    print_states("2 brokers", states)
    said = " ".join(capsys.readouterr().out.split())
    assert " behind " in said
    assert f" {lag.behind_bytes} B, " in said
