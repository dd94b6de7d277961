"""The broker as a whole, over loopback: what its parts do together."""

from __future__ import annotations

import asyncio
import errno
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from roquet.broker.broker import Broker
from roquet.broker.config import BrokerConfig, replace
from roquet.errors import ConfigError, StoreError, StoreLocked
from roquet.format.commit_log import decode_record
from roquet.model.subscription import SubscriptionData
from roquet.model.topic_config import TopicConfig
from roquet.namesrv.config import NamesrvConfig
from roquet.namesrv.namesrv import Namesrv
from roquet.remoting.bodies.client import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
)
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.namesrv import GetRouteInfoRequestHeader
from roquet.remoting.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from roquet.remoting.processor import PUBLIC, ProcessorRegistry, RequestContext, processor
from roquet.runtime.open_files import open_files_limit
from roquet.store.config import FlushDiskType
from roquet.testing.hooked_files import HookedFiles, QuickFiles
from tests.integration.broker.broker_kit import (
    GROUP,
    TOPIC,
    bodies,
    config,
    pull,
    send,
    store_config,
    until,
)
from tests.patience import PATIENT, TIMEOUT_MS


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(config(tmp_path), store_config(), files=QuickFiles()) as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    async with RemotingClient(config=PATIENT) as made:
        yield made


@asynccontextmanager
async def name_server(folder: Path) -> AsyncIterator[Namesrv]:
    settings = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(folder / "kvConfig.json"),
        config_store_path=str(folder / "namesrv.properties"),
    )
    async with Namesrv(settings) as running:
        yield running


async def test_sent_messages_can_be_pulled(broker: Broker, client: RemotingClient) -> None:
    for number in range(3):
        answer = await send(client, broker, b"%d" % number)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert answer.ext_fields is not None
        assert answer.ext_fields["queueOffset"] == str(number)
    pulled = await pull(client, broker, 0)
    assert pulled.code == ResponseCode.SUCCESS, pulled.remark
    assert list(bodies(pulled)) == [b"0", b"1", b"2"]


async def test_a_held_pull_completes_when_a_message_arrives(
    broker: Broker, client: RemotingClient
) -> None:
    await send(client, broker, b"first")
    async with RemotingClient(config=PATIENT) as consumer:
        waiting = asyncio.create_task(pull(consumer, broker, 1, suspend_ms=TIMEOUT_MS))
        await until(lambda: consumer.statistics.requests_sent > 0)
        # A response to a later request on the same connection shows that the pull was accepted.
        offset = UpdateConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=1
        )
        await consumer.invoke(
            broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, offset, timeout_ms=TIMEOUT_MS
        )
        assert not waiting.done()
        await send(client, broker, b"second")
        assert list(bodies(await waiting)) == [b"second"]


async def test_a_held_pull_completes_when_its_group_is_reset(
    broker: Broker, client: RemotingClient
) -> None:
    """It would time out only after the test does."""
    await send(client, broker, b"first")
    async with RemotingClient(config=PATIENT) as other:
        waiting = asyncio.create_task(pull(other, broker, 1, suspend_ms=60_000))
        await until(lambda: GROUP in broker.groups.table)
        header = ResetOffsetRequestHeader(topic=TOPIC, group=GROUP, queue_id=0, queue_offset=0)
        moved = await client.invoke(
            broker.address,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            header,
            timeout_ms=TIMEOUT_MS,
        )
        assert moved.code == ResponseCode.SUCCESS
        told = await waiting
        assert told.code == ResponseCode.PULL_OFFSET_MOVED
        assert told.ext_fields is not None
        assert told.ext_fields["nextBeginOffset"] == "0"


async def test_a_delayed_message_is_delivered_when_due(
    broker: Broker, client: RemotingClient
) -> None:
    await send(client, broker, b"makes the topic")
    sent = await send(client, broker, b"later", properties="DELAY\x011\x02")
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    pulled = await pull(client, broker, 1, suspend_ms=TIMEOUT_MS)
    assert list(bodies(pulled)) == [b"later"]
    record = decode_record(memoryview(pulled.body), 0, len(pulled.body))
    assert record.store_timestamp_ms - 1_000 >= broker.store.earliest_message_time_ms()
    assert broker.components.delay_offsets.query(1) == 1


async def test_half_messages_are_counted(broker: Broker, client: RemotingClient) -> None:
    await send(client, broker, b"makes the topic")
    half = "TRAN_MSG\x01true\x02PGROUP\x01shop\x02"
    sent = await send(client, broker, b"half", properties=half)
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    assert broker.components.transaction_metrics.add(TOPIC, 0) == 1
    assert broker.store.max_offset_in_queue(TOPIC, 0) == 1


class Told:
    """Receives a consumer's notifications."""

    def __init__(self) -> None:
        self.groups: asyncio.Queue[str] = asyncio.Queue()

    @processor(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, permission=PUBLIC)
    def changed(self, context: RequestContext) -> None:
        fields = context.request.ext_fields or {}
        self.groups.put_nowait(fields["consumerGroup"])


async def join(client: RemotingClient, broker: Broker, client_id: str) -> None:
    data = HeartbeatData(
        client_id=client_id,
        consumer_data_set=[
            ConsumerData(
                group_name=GROUP,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                subscription_data_set=[SubscriptionData(topic=TOPIC, sub_string="*")],
            )
        ],
    )
    answer = await client.invoke(
        broker.address, RequestCode.HEART_BEAT, body=encode_body(data), timeout_ms=TIMEOUT_MS
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_consumers_are_notified_when_others_join_and_leave(broker: Broker) -> None:
    told = Told()
    async with RemotingClient(ProcessorRegistry(told)) as first:
        await join(first, broker, "first")
        assert await told.groups.get() == GROUP
        async with RemotingClient(config=PATIENT) as second:
            await join(second, broker, "second")
            assert await told.groups.get() == GROUP
            group = broker.components.consumers.find(GROUP)
            assert group is not None
            assert sorted(group.client_ids()) == ["first", "second"]
        assert await told.groups.get() == GROUP
        group = broker.components.consumers.find(GROUP)
        assert group is not None
        assert list(group.client_ids()) == ["first"]
    assert broker.topics.select(f"%RETRY%{GROUP}") is not None


async def test_connections_are_limited_by_setting_and_open_files(tmp_path: Path) -> None:
    few = replace(config(tmp_path), connections_max=7)
    async with Broker(few, store_config(), files=QuickFiles()) as broker:
        assert broker.connections_max == 7
    many = replace(config(tmp_path), connections_max=2_000_000_000)
    async with Broker(many, store_config(), files=QuickFiles()) as broker:
        assert broker.connections_max < open_files_limit().soft


async def test_tables_and_messages_survive_a_restart(
    tmp_path: Path, client: RemotingClient
) -> None:
    offset = UpdateConsumerOffsetRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=1
    )
    asked = QueryConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0)
    async with Broker(config(tmp_path), store_config(), files=QuickFiles()) as broker:
        await send(client, broker, b"kept")
        await pull(client, broker, 0)  # makes the group
        committed = await client.invoke(
            broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, offset, timeout_ms=TIMEOUT_MS
        )
        assert committed.code == ResponseCode.SUCCESS, committed.remark
        assert (tmp_path / "store" / "abort").exists()
    assert not (tmp_path / "store" / "abort").exists()
    async with Broker(config(tmp_path), store_config(), files=QuickFiles()) as broker:
        assert broker.topics.select(TOPIC) is not None
        assert list(bodies(await pull(client, broker, 0))) == [b"kept"]
        answer = await client.invoke(
            broker.address, RequestCode.QUERY_CONSUMER_OFFSET, asked, timeout_ms=TIMEOUT_MS
        )
        assert (answer.ext_fields or {})["offset"] == "1"


async def test_a_second_broker_on_the_same_store_is_refused(
    broker: Broker, tmp_path: Path, client: RemotingClient
) -> None:
    with pytest.raises(StoreLocked):
        async with Broker(config(tmp_path), store_config(), files=QuickFiles()):
            pytest.fail("it started")
    assert (await send(client, broker, b"still here")).code == ResponseCode.SUCCESS


async def test_a_broker_that_did_not_start_saves_no_tables(broker: Broker, tmp_path: Path) -> None:
    broker.topics.stage_all([TopicConfig(topic_name="OfTheFirst")])
    await broker.topics.committed()
    files = sorted((tmp_path / "store" / "config").iterdir())
    saved = [path.read_bytes() for path in files]
    second = Broker(config(tmp_path), store_config(), files=QuickFiles())
    with pytest.raises(StoreLocked):
        await second.start()
    second.topics.stage_all([TopicConfig(topic_name="OfTheSecond")])
    await second.stop()
    assert sorted((tmp_path / "store" / "config").iterdir()) == files
    assert [path.read_bytes() for path in files] == saved


async def test_a_port_in_use_leaves_a_clean_store(broker: Broker, tmp_path: Path) -> None:
    other = tmp_path / "other"
    taken = BrokerConfig(listen_port=broker.port, store_root=str(other))
    with pytest.raises(ConfigError):
        async with Broker(taken, store_config(), files=QuickFiles()):
            pytest.fail("it started")
    assert not (other / "abort").exists()


async def test_the_name_server_knows_it_while_it_runs(
    tmp_path: Path, client: RemotingClient
) -> None:
    async with name_server(tmp_path) as namesrv:
        address = f"127.0.0.1:{namesrv.port}"
        async with Broker(
            config(tmp_path, namesrv=address), store_config(), files=QuickFiles()
        ) as broker:
            await broker.wait_registered()
            await send(client, broker, b"makes the topic")
            await broker.wait_registered()
            answer = await client.invoke(
                address,
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                GetRouteInfoRequestHeader(topic=TOPIC),
                timeout_ms=TIMEOUT_MS,
            )
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert broker.address.encode() in answer.body
        answer = await client.invoke(
            address,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            GetRouteInfoRequestHeader(topic=TOPIC),
            timeout_ms=TIMEOUT_MS,
        )
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


class BrokenDisk(HookedFiles):
    """Files whose syncs fail once a test says so."""

    is_broken = False

    def before(self, name: str, path: Path) -> None:
        if self.is_broken and name == "data_sync" and path.parent.name == "commitlog":
            raise OSError(errno.EIO, "input/output error")


async def test_a_disk_that_fails_ends_the_broker(tmp_path: Path, client: RemotingClient) -> None:
    files = BrokenDisk()
    sync = store_config(FlushDiskType.SYNC_FLUSH)
    async with Broker(config(tmp_path), sync, files=files) as broker:
        assert (await send(client, broker, b"good")).code == ResponseCode.SUCCESS
        files.is_broken = True
        answer = await send(client, broker, b"lost")
        assert answer.code != ResponseCode.SUCCESS
        assert (await broker.wait_failed()).errno == errno.EIO
        refused = await send(client, broker, b"refused")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE, refused.remark


class BrokenConfig(HookedFiles):
    """Files whose folder of tables fails once a test says so."""

    is_broken = False

    def before(self, name: str, path: Path) -> None:
        if self.is_broken and path.parent.name == "config" and name == "data_sync":
            raise OSError(errno.EIO, "input/output error")


async def test_a_shutdown_that_cannot_save_its_tables_is_reported(
    tmp_path: Path, client: RemotingClient
) -> None:
    files = BrokenConfig()
    broker = Broker(config(tmp_path), store_config(), files=files)
    await broker.start()
    await send(client, broker, b"kept")
    broker.offsets.commit(GROUP, TOPIC, 0, 1)
    files.is_broken = True
    with pytest.raises(StoreError, match="without saving all of its tables") as caught:
        await broker.stop()
    assert "consumerOffset.json" in (caught.value.detail or "")
    assert caught.value.exit_code != 0
    assert not (tmp_path / "store" / "abort").exists()
    files.is_broken = False
    async with Broker(config(tmp_path), store_config(), files=files) as again:
        assert list(bodies(await pull(client, again, 0))) == [b"kept"]


async def test_files_are_for_their_owner_only(tmp_path: Path, client: RemotingClient) -> None:
    async with Broker(config(tmp_path), store_config(), files=QuickFiles()) as broker:
        await send(client, broker, b"secret")
    made = [*(tmp_path / "store").rglob("*"), tmp_path / "store"]
    assert {path.name for path in made} >= {"commitlog", "checkpoint", "topics.json", "lock"}
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in made}
    assert modes == {0}


async def test_stopping_waits_for_sends_that_wait_for_the_disk(tmp_path: Path) -> None:
    sync = store_config(FlushDiskType.SYNC_FLUSH)
    async with RemotingClient(config=PATIENT) as client:
        async with Broker(config(tmp_path), sync) as broker:
            await send(client, broker, b"makes the topic")
            sends = [asyncio.create_task(send(client, broker, b"x")) for _ in range(50)]
            await until(lambda: broker.statistics.requests > len(sends))
        answers = await asyncio.gather(*sends)
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
