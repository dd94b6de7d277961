"""The broker for tests: what it offers, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest
import trustme

from roquet.client import Message, Producer
from roquet.errors import ConfigError, ConnectFailed, RequestTimeout, RoquetError, SendFailed
from roquet.model.topic_config import TopicConfig
from roquet.remoting.client import ClientConfig, RemotingClient
from roquet.remoting.codes import ResponseCode
from roquet.remoting.tls import ClientTlsConfig
from roquet.runtime.network import reserve_port
from roquet.testing.broker import RunningBroker, broker
from roquet.testing.hooked_files import QuickFiles
from tests.integration.testing.wire_kit import TOPIC, route, send
from tests.patience import PATIENT
from tests.unit.client.client_kit import until


def stored(b: RunningBroker) -> int:
    return b.store.max_offset_in_queue(TOPIC, 0)


async def test_a_topic_has_a_route_once_it_is_created() -> None:
    async with broker() as b, RemotingClient(config=PATIENT) as client:
        assert await route(client, b.namesrv) is None
        await b.create_topic(TOPIC, queues=3)
        found = await route(client, b.namesrv)
        assert found is not None
        assert [(each.broker_name, each.write_queue_nums) for each in found.queue_datas] == [
            (b.name, 3)
        ]
        assert found.broker_datas[0].broker_addrs == {0: b.address}
        assert found.broker_datas[0].cluster == b.cluster


async def test_it_restarts_at_the_same_address_with_its_messages() -> None:
    async with broker() as b, RemotingClient(config=PATIENT) as client:
        await b.create_topic(TOPIC)
        first, address, ports = b.broker, b.address, (b.broker.port, b.broker.fast_port)
        assert await send(client, b.address, b"one") == ResponseCode.SUCCESS
        await b.restart()
        assert b.broker is not first
        assert (b.address, b.broker.address, (b.broker.port, b.broker.fast_port)) == (
            address,
            address,
            ports,
        )
        assert await send(client, b.address, b"two") == ResponseCode.SUCCESS
        assert stored(b) == 2
        assert await route(client, b.namesrv) is not None


async def test_the_fast_port_is_where_vip_clients_look() -> None:
    async with broker() as b:
        assert b.broker.fast_port == b.broker.port - 2


async def test_a_proxy_exists_only_if_requested() -> None:
    async with broker() as b:
        assert b.address == b.listens_on
        with pytest.raises(RoquetError, match="proxied=True"):
            _ = b.proxy


async def test_while_stopped_it_refuses_clients_and_keeps_its_port() -> None:
    async with broker() as b, RemotingClient(config=PATIENT) as client:
        await b.stop_broker()
        with pytest.raises(ConnectFailed):
            await send(client, b.address, b"one")
        host, _, port = b.address.rpartition(":")
        with pytest.raises(OSError, match="in use"):
            await asyncio.start_server(
                lambda _reader, _writer: None, host, int(port), reuse_address=False
            )
        with pytest.raises(RoquetError, match="stopped"):
            _ = b.broker
        await b.start_broker()
        await b.start_broker()
        assert await send(client, b.address, b"one") == ResponseCode.SUCCESS


async def test_the_name_server_can_be_stopped_and_restarted() -> None:
    async with broker() as b, RemotingClient(config=PATIENT) as client:
        await b.create_topic(TOPIC)
        await b.stop_namesrv()
        with pytest.raises(ConnectFailed):
            await route(client, b.namesrv)
        assert await send(client, b.address, b"one") == ResponseCode.SUCCESS
        await b.start_namesrv()
        await b.restart()  # registers at once
        assert await route(client, b.namesrv) is not None


async def test_several_run_at_once() -> None:
    async with AsyncExitStack() as stack, RemotingClient(config=PATIENT) as client:
        running = [await stack.enter_async_context(broker()) for _ in range(3)]
        assert len({each.address for each in running}) == 3
        assert len({each.folder for each in running}) == 3
        await running[0].create_topic(TOPIC)
        assert await send(client, running[0].address, b"one") == ResponseCode.SUCCESS
        assert [stored(each) for each in running] == [1, 0, 0]
        assert [await route(client, each.namesrv) is None for each in running] == [
            False,
            True,
            True,
        ]


async def test_two_brokers_make_a_cluster() -> None:
    async with (
        broker() as a,
        broker(namesrv=a.namesrv) as b,
        RemotingClient(config=PATIENT) as client,
    ):
        assert b.namesrv == a.namesrv
        await a.create_topic(TOPIC)
        await b.create_topic(TOPIC)
        found = await route(client, a.namesrv)
        assert found is not None
        addresses = {each.broker_name: each.broker_addrs for each in found.broker_datas}
        assert addresses == {a.name: {0: a.address}, b.name: {0: b.address}}
        await b.stop_namesrv()  # is not b's
        assert await route(client, a.namesrv) is not None


async def test_a_broker_may_have_any_name() -> None:
    async with broker() as a, broker({"brokerName": "dev"}, namesrv=a.namesrv) as b:
        assert (a.name, b.name) == ("dev", "dev")


async def test_options_are_upstreams_keys() -> None:
    options = {"autoCreateTopicEnable": False, "brokerName": "b", "defaultTopicQueueNums": 3}
    async with broker(options) as b, RemotingClient(config=PATIENT) as client:
        assert b.name == b.broker.config.broker_name == "b"
        assert b.broker.config.default_topic_queue_nums == 3
        assert await send(client, b.address, b"one") == ResponseCode.TOPIC_NOT_EXIST


async def test_segments_are_short() -> None:
    async with broker() as b, RemotingClient(config=PATIENT) as client:
        await send(client, b.address, b"one")
        segment = b.folder / "store" / "commitlog" / f"{0:020}"
        assert segment.stat().st_size == b.store.config.commit_log_file_bytes < 16 << 20


class SyncedFiles(QuickFiles):
    def __init__(self) -> None:
        self.syncs = 0

    def data_sync(self, fd: int) -> None:
        del fd
        self.syncs += 1


async def test_a_test_may_replace_the_files() -> None:
    files = SyncedFiles()
    options = {"flushDiskType": "SYNC_FLUSH"}
    async with broker(options, files=files) as b, RemotingClient(config=PATIENT) as client:
        await b.create_topic(TOPIC)
        before = files.syncs
        assert await send(client, b.address, b"one") == ResponseCode.SUCCESS
        assert files.syncs > before


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"flushDiskTyp": "SYNC_FLUSH"}, "Did you mean flushDiskType"),
        ({"flushDiskType": "NEVER"}, "the options of the test: 'NEVER'"),
        ({"brokerRole": "SLAVE"}, "brokerId"),
        ({"bindAddress": "192.0.2.1"}, "Cannot listen on 192.0.2.1"),
    ],
)
async def test_an_option_that_cannot_be_used_is_an_error(
    options: dict[str, str], word: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        async with broker(options):
            pass
    assert word in str(raised.value)


@pytest.mark.parametrize(("name", "queues"), [("no good", 4), ("", 4), (TOPIC, 0), (TOPIC, 70_000)])
async def test_an_invalid_topic_is_an_error(name: str, queues: int) -> None:
    async with broker() as b:
        with pytest.raises(ConfigError):
            await b.create_topic(name, queues)


async def test_the_folder_is_removed_even_when_the_test_fails() -> None:
    folders = []

    async def failing_test() -> None:
        async with broker() as b:
            folders.append(b.folder)
            assert (b.folder / "store" / "commitlog").is_dir()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing_test()
    assert not folders[0].exists()


async def test_a_folder_that_was_given_is_kept(tmp_path: Path) -> None:
    async with broker(folder=tmp_path) as b, RemotingClient(config=PATIENT) as client:
        await b.create_topic(TOPIC)
        await send(client, b.address, b"one")
    async with broker(folder=tmp_path) as b:
        assert stored(b) == 1
        assert not b.broker.offsets.groups_of_topic(TOPIC)


async def test_nothing_is_left_running() -> None:
    before = asyncio.all_tasks()
    async with broker():
        pass
    assert asyncio.all_tasks() == before


async def test_clients_reach_a_proxied_broker_through_its_proxy() -> None:
    async with broker(proxied=True) as b, RemotingClient(config=PATIENT) as client:
        await b.create_topic(TOPIC)
        found = await route(client, b.namesrv)
        assert found is not None
        assert found.broker_datas[0].broker_addrs == {0: b.proxy.address}
        assert b.address == b.broker.address == b.proxy.address != b.listens_on
        assert await send(client, b.address, b"one") == ResponseCode.SUCCESS
        assert b.proxy.to_server.passed_bytes > 0

        b.proxy.to_client.reset_after(3)
        with pytest.raises(SendFailed):
            await send(client, b.address, b"stored, the answer is lost")
        assert stored(b) == 2

        await client.connect(b.address)
        b.proxy.to_client.hold()
        with pytest.raises(RequestTimeout):
            await send(client, b.address, b"stored, the answer is late", timeout_ms=50)
        await until(lambda: stored(b) == 3)
        b.proxy.to_client.release()

        await b.restart()
        assert await send(client, b.address, b"four") == ResponseCode.SUCCESS


async def test_a_port_that_the_proxy_cannot_have_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, int]] = []
    with ExitStack() as taken:

        def reserve(host: str, port: int = 0) -> socket.socket:
            asked.append((host, port))
            if host == "127.0.0.2" and [each for each, _ in asked].count(host) == 1:
                taken.enter_context(reserve_port(host, port))
            return reserve_port(host, port)

        monkeypatch.setattr(sys.modules[RunningBroker.__module__], "reserve_port", reserve)
        async with broker(proxied=True) as b:
            assert b.proxy.address == b.address
    assert len([host for host, _ in asked if host == "127.0.0.2"]) == 2


async def test_several_proxied_brokers_run_at_once() -> None:
    async with broker(proxied=True) as a, broker(proxied=True, namesrv=a.namesrv) as b:
        assert a.proxy.address != b.proxy.address
        async with RemotingClient(config=PATIENT) as client:
            for each in (a, b):
                assert await send(client, each.address, b"one") == ResponseCode.SUCCESS


async def test_what_is_stored_of_a_topic() -> None:
    async with broker() as b, RemotingClient(config=PATIENT) as client:
        await b.create_topic(TOPIC, queues=3)
        for number, queue_id in enumerate((2, 0, 1, 0)):
            await send(client, b.address, b"%d" % number, queue_id=queue_id, tags="eu")
        found = b.messages(TOPIC)
        assert [(each.body, each.queue_id, each.queue_offset) for each in found] == [
            (b"0", 2, 0),
            (b"1", 0, 0),
            (b"2", 1, 0),
            (b"3", 0, 1),
        ]
        assert {(each.topic, each.tags, each.broker_name) for each in found} == {
            (TOPIC, "eu", b.name)
        }
        assert b.messages("Other") == []


async def test_messages_of_an_inner_batch_are_listed_one_by_one() -> None:
    batched = TopicConfig(
        topic_name=TOPIC,
        read_queue_nums=1,
        write_queue_nums=1,
        attributes={"+queue.type": "BatchCQ"},
    )
    async with broker() as b:
        b.broker.topics.stage_all([batched])
        await b.broker.topics.committed()
        await b.broker.wait_registered()
        async with Producer(b.namesrv, group="P") as producer:
            for start in (0, 3):
                batch = [Message(TOPIC, b"%d" % number) for number in range(start, start + 3)]
                results = await producer.send_batch(batch)
                assert {result.queue_offset for result in results} == {start}
            single = await producer.send(Message(TOPIC, b"6"))
        assert single.queue_offset == 6
        found = b.messages(TOPIC)
        assert [(each.queue_offset, each.body) for each in found] == [
            (number, b"%d" % number) for number in range(7)
        ]


async def test_a_port_that_is_taken_is_an_error() -> None:
    async with broker() as a:
        with pytest.raises(ConfigError) as raised:
            async with broker({"listenPort": a.broker.port}):
                pass
        assert raised.value.code == "listen"


async def test_a_broker_that_enforces_tls_finds_its_name_server(tmp_path: Path) -> None:
    authority = trustme.CA()
    key_file = tmp_path / "key.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(key_file)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    options = {"tls.server.mode": "enforcing", "tls.server.certPath": key_file}
    speaks_tls = ClientConfig(tls=ClientTlsConfig(ca_file=tmp_path / "ca.pem"))
    async with broker({**options, "tls.server.keyPath": key_file}) as b:
        await b.create_topic(TOPIC)
        async with RemotingClient(config=speaks_tls) as client:
            assert await route(client, b.namesrv) is not None
            assert await send(client, b.address, b"one") == ResponseCode.SUCCESS
        async with RemotingClient(config=PATIENT) as client:
            assert await route(client, b.namesrv) is not None
            with pytest.raises(SendFailed):
                await send(client, b.address, b"in plain text")
        assert stored(b) == 1
