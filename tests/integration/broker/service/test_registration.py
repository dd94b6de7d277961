"""Registration at name servers: what is sent, and when."""

from __future__ import annotations

import threading
import zlib
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.service import register_body, registration
from roquet.broker.service.advertised_addresses import AdvertisedAddresses
from roquet.broker.service.master_address import MasterAddress
from roquet.broker.service.registration import NamesrvRegistration
from roquet.model.fastjson import dumps
from roquet.model.topic_config import TopicConfig
from roquet.namesrv.kv_config import NAMESPACE_ORDER_TOPIC_CONFIG
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers import namesrv as headers
from roquet.runtime.clock import SystemClock
from roquet.runtime.network import reserve_port
from tests.integration.broker.service.namesrv_kit import (
    BROKER_ADDRESS,
    BROKER_PORT,
    LOOPBACK,
    add_topic,
    address_of,
    knows,
    mapping_manager,
    odd_namesrv,
    real_namesrv,
    register_now,
    registered_at,
    registering,
    topic_manager,
)
from tests.patience import PATIENT, TIMEOUT_MS
from tests.table_changes import drop_topics, put_topics
from tests.unit.remoting.net_kit import until

REGISTER = RequestCode.REGISTER_BROKER
SINGLE = RequestCode.REGISTER_TOPIC_IN_NAMESRV


@pytest.fixture(name="quick", autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed registrations are retried soon."""
    monkeypatch.setattr(registration, "RETRY_MS_MIN", 1)


# -- a name server as it should be --------------------------------------------------------------


async def test_topics_have_a_route_while_the_broker_runs(tmp_path: Path) -> None:
    async with real_namesrv(tmp_path) as namesrv:
        address = address_of(namesrv)
        async with registering(tmp_path, address) as (at, topics):
            await at.wait_registered(timeout_ms=TIMEOUT_MS)
            assert registered_at(at) == at.addresses == [address]
            assert all(knows(namesrv, topic) for topic in topics.table if "SYNC" not in topic)
        assert namesrv.routes.all_topics().topic_list == []
        assert registered_at(at) == []


async def test_a_new_topic_is_registered_at_once(tmp_path: Path) -> None:
    async with (
        real_namesrv(tmp_path) as namesrv,
        registering(tmp_path, address_of(namesrv)) as (at, topics),
    ):
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        for number in range(5):
            add_topic(topics, f"T{number}")
            await at.wait_registered(timeout_ms=TIMEOUT_MS)
            assert knows(namesrv, f"T{number}")


async def test_several_name_servers(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    async with (
        real_namesrv(tmp_path) as one,
        real_namesrv(tmp_path / "b") as other,
        registering(tmp_path, address_of(one), address_of(other)) as (at, topics),
    ):
        add_topic(topics, "T")
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        assert knows(one, "T")
        assert knows(other, "T")


async def test_a_name_server_that_comes_back_gets_another_registration(tmp_path: Path) -> None:
    with reserve_port(LOOPBACK) as held:
        port = held.getsockname()[1]
        async with (
            real_namesrv(tmp_path, port) as namesrv,
            registering(tmp_path, address_of(namesrv)) as (at, topics),
        ):
            await at.wait_registered(timeout_ms=TIMEOUT_MS)
            await namesrv.stop()
            await until(lambda: registered_at(at) == [])
            add_topic(topics, "Meanwhile")
            async with real_namesrv(tmp_path, port) as again:
                await until(lambda: knows(again, "Meanwhile"))


async def test_ordered_topics_come_from_the_name_server(tmp_path: Path) -> None:
    async with (
        real_namesrv(tmp_path) as namesrv,
        registering(tmp_path, address_of(namesrv)) as (at, topics),
    ):
        add_topic(topics, "Ordered")
        add_topic(topics, "Other")
        await namesrv.kv_config.put(NAMESPACE_ORDER_TOPIC_CONFIG, "Ordered", "broker-a:4")
        await register_now(at)
        assert topics.is_order_topic("Ordered")
        assert not topics.is_order_topic("Other")


async def test_a_compressed_body(tmp_path: Path) -> None:
    async with (
        real_namesrv(tmp_path) as namesrv,
        registering(tmp_path, address_of(namesrv), compressed_register=True) as (at, topics),
    ):
        add_topic(topics, "T")
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        assert knows(namesrv, "T")


# -- what is sent -------------------------------------------------------------------------------


async def test_header_and_body(tmp_path: Path) -> None:
    async with odd_namesrv() as namesrv:
        async with registering(tmp_path, namesrv.address, broker_id=3) as (at, topics):
            await at.wait_registered(timeout_ms=TIMEOUT_MS)
            request = namesrv.requests[0]
            assert request.ext_fields == {
                "brokerName": "broker-a",
                "brokerAddr": BROKER_ADDRESS,
                "clusterName": "DefaultCluster",
                "haServerAddr": "10.0.0.1:10912",
                "brokerId": "3",
                "enableActingMaster": "false",
                "compressed": "false",
                "bodyCrc32": str(zlib.crc32(request.body) & 0x7FFFFFFF),
            }
            (body,) = namesrv.registrations()
            wrapper = body.topic_config_serialize_wrapper
            assert wrapper.topic_config_table == topics.table
            assert wrapper.data_version == topics.data_version
        assert [each.code for each in namesrv.requests] == [REGISTER, RequestCode.UNREGISTER_BROKER]
        assert namesrv.requests[1].ext_fields == {
            "brokerName": "broker-a",
            "brokerAddr": BROKER_ADDRESS,
            "clusterName": "DefaultCluster",
            "brokerId": "3",
        }


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_broker_without_write_permission_registers_as_such(
    tmp_path: Path, *, compressed: bool
) -> None:
    async with (
        odd_namesrv() as namesrv,
        registering(
            tmp_path, namesrv.address, broker_permission=4, compressed_register=compressed
        ) as (at, _),
    ):
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        table = namesrv.registrations()[0].topic_config_serialize_wrapper.topic_config_table
        assert table["BenchmarkTest"].perm == 4
        assert table["TBW102"].perm == 4
        assert table["BenchmarkTest"].write_queue_nums == 1024


async def test_a_body_too_long_for_a_frame_is_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_body, "PLAIN_BYTES_MAX", 100)
    async with (
        odd_namesrv() as namesrv,
        registering(tmp_path, namesrv.address) as (at, topics),
    ):
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        fields = namesrv.requests[0].ext_fields or {}
        assert fields["compressed"] == "true"
        assert fields["bodyCrc32"] == str(zlib.crc32(namesrv.requests[0].body) & 0x7FFFFFFF)
        (body,) = namesrv.registrations()
        assert body.topic_config_serialize_wrapper.topic_config_table.keys() == topics.table.keys()


async def test_a_long_table_is_written_in_a_thread_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BrokerConfig()
    topics = topic_manager(tmp_path, config)
    add_topic(topics, "T")
    made = register_body.RegisterBody(config, topics, mapping_manager(tmp_path, config))
    (part,) = made.parts()
    at_once = await made.encode(part)
    threads: list[threading.Thread] = []
    encode = made._encode

    def note(part: register_body.RegistrationBatch) -> tuple[bytes, bool]:
        threads.append(threading.current_thread())
        return encode(part)

    monkeypatch.setattr(made, "_encode", note)
    monkeypatch.setattr(register_body, "TOPICS_AT_ONCE_MAX", 1)
    assert await made.encode(part) == at_once
    assert threads != [threading.current_thread()]
    table = {name: msgspec.to_builtins(topic) for name, topic in topics.table.items()}
    assert dumps({"topicConfigTable": table})[1:-1].encode() in at_once[0]


async def test_topics_are_registered_in_parts(tmp_path: Path) -> None:
    async with (
        odd_namesrv() as namesrv,
        registering(
            tmp_path, namesrv.address, split_registration=True, split_registration_topics=4
        ) as (at, topics),
    ):
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        wrappers = [each.topic_config_serialize_wrapper for each in namesrv.registrations()]
        sizes = [len(each.topic_config_table) for each in wrappers]
        assert sizes == [4] * (len(topics.table) // 4) + [len(topics.table) % 4]
        names = [name for each in wrappers for name in each.topic_config_table]
        assert names == list(topics.table)
        versions = [each.data_version for each in wrappers]
        assert versions[-1] == topics.data_version
        assert all(one != other for one, other in pairwise(versions))


async def test_parts_have_routes_and_are_split_again_when_topics_change(tmp_path: Path) -> None:
    async with (
        real_namesrv(tmp_path) as namesrv,
        registering(
            tmp_path / "broker",
            address_of(namesrv),
            split_registration=True,
            split_registration_topics=1,
        ) as (at, topics),
    ):
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        assert namesrv.routes.all_topics().topic_list == list(topics.table)
        first = next(iter(topics.table))
        put_topics(topics, TopicConfig(topic_name=first, perm=4))
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        route = namesrv.routes.route(first)
        assert route is not None
        assert route.queue_datas[0].perm == 4


async def test_single_topic_registration_may_be_enabled(tmp_path: Path) -> None:
    async with (
        odd_namesrv() as namesrv,
        registering(tmp_path, namesrv.address, single_topic_register=True) as (at, topics),
    ):
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        add_topic(topics, "T")
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        assert (namesrv.count(REGISTER), namesrv.count(SINGLE)) == (1, 1)


async def test_changes_during_a_registration_are_sent_together(tmp_path: Path) -> None:
    async with (
        odd_namesrv() as namesrv,
        registering(tmp_path, namesrv.address) as (at, topics),
    ):
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        namesrv.gate.clear()
        add_topic(topics, "First")
        await until(lambda: namesrv.count(REGISTER) == 2)
        for number in range(10):
            add_topic(topics, f"T{number}")
        namesrv.gate.set()
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        bodies = namesrv.registrations()
        assert len(bodies) == 3
        tables = [each.topic_config_serialize_wrapper.topic_config_table for each in bodies]
        assert "First" in tables[1]
        assert "T0" not in tables[1]
        assert {f"T{number}" for number in range(10)} <= tables[2].keys()


async def test_registration_repeats_every_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "PERIOD_MS_MIN", 1)
    async with (
        odd_namesrv() as namesrv,
        registering(tmp_path, namesrv.address, register_namesrv_period_ms=1),
    ):
        await until(lambda: namesrv.count(REGISTER) >= 4)


@pytest.mark.parametrize(("asked", "kept"), [(1, 10_000), (30_000, 30_000), (99_999, 60_000)])
async def test_the_period_has_limits(tmp_path: Path, asked: int, kept: int) -> None:
    async with registering(tmp_path, register_namesrv_period_ms=asked) as (at, _):
        assert at._period_ms == kept
        assert at.addresses == []
        await register_now(at)


async def test_a_name_server_that_forgot_the_version_gets_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "PERIOD_MS_MIN", 1)
    async with odd_namesrv() as namesrv:
        namesrv.known_version = b'{"counter":77}'
        settings = {"register_namesrv_period_ms": 1, "force_register": False}
        async with registering(tmp_path, namesrv.address, **settings):
            await until(lambda: namesrv.count(REGISTER) >= 2)
            namesrv.known_version = b""
            await until(lambda: namesrv.requests[-1].code == RequestCode.QUERY_DATA_VERSION)
            count = namesrv.count(REGISTER)
            asked = namesrv.count(RequestCode.QUERY_DATA_VERSION)
            await until(lambda: namesrv.count(RequestCode.QUERY_DATA_VERSION) >= asked + 3)
            assert namesrv.count(REGISTER) <= count + 1


async def test_the_version_may_be_queried_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "PERIOD_MS_MIN", 1)
    async with (
        odd_namesrv() as namesrv,
        registering(
            tmp_path, namesrv.address, register_namesrv_period_ms=1, force_register=False
        ) as (at, topics),
    ):
        await until(lambda: namesrv.count(RequestCode.QUERY_DATA_VERSION) >= 3)
        assert namesrv.count(REGISTER) == 1
        query = next(
            each for each in namesrv.requests if each.code == RequestCode.QUERY_DATA_VERSION
        )
        assert query.body == encode_body(topics.data_version)
        namesrv.is_changed = True
        await until(lambda: namesrv.count(REGISTER) >= 3)
        add_topic(topics, "T")
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        table = namesrv.registrations()[-1].topic_config_serialize_wrapper.topic_config_table
        assert "T" in table


async def test_a_name_server_without_versions_gets_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "PERIOD_MS_MIN", 1)
    async with odd_namesrv() as namesrv:
        namesrv.is_old = True
        settings = {"register_namesrv_period_ms": 1, "force_register": False}
        async with registering(tmp_path, namesrv.address, **settings):
            await until(lambda: namesrv.count(REGISTER) >= 3)


# -- very many topics ---------------------------------------------------------------------------


@pytest.fixture(name="many")
def _many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The existing topics count as very many."""
    monkeypatch.setattr(registration, "SINGLE_TOPICS_FROM", 1)


@pytest.mark.usefixtures("many")
async def test_single_topics_have_a_route(tmp_path: Path) -> None:
    async with (
        real_namesrv(tmp_path) as namesrv,
        registering(tmp_path, address_of(namesrv), broker_permission=4) as (at, topics),
    ):
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        add_topic(topics, "T")
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        route = namesrv.routes.route("T")
        assert route is not None
        (queues,) = route.queue_datas
        assert (queues.broker_name, queues.perm, queues.write_queue_nums) == ("broker-a", 4, 4)


@pytest.mark.usefixtures("many")
async def test_only_changed_topics_are_sent(tmp_path: Path) -> None:
    async with (
        odd_namesrv() as namesrv,
        registering(tmp_path, namesrv.address) as (at, topics),
    ):
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        add_topic(topics, "T")
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        drop_topics(topics, "T")
        add_topic(topics, "U")
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        single = [each for each in namesrv.requests if each.code == SINGLE]
        assert [each.ext_fields for each in single] == [{"topic": "T"}, {"topic": "U"}]
        assert single[0].body == (
            b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a",'
            b'"perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
        )
        assert namesrv.count(REGISTER) == 1
        await register_now(at)
        assert namesrv.count(REGISTER) == 2


@pytest.mark.usefixtures("many")
async def test_many_changes_are_sent_as_a_full_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "SINGLE_TOPICS_MAX", 2)
    async with (
        odd_namesrv() as namesrv,
        registering(tmp_path, namesrv.address) as (at, topics),
    ):
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        for number in range(3):
            add_topic(topics, f"T{number}")
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        assert (namesrv.count(REGISTER), namesrv.count(SINGLE)) == (2, 0)


@pytest.mark.usefixtures("many")
async def test_an_old_name_server_gets_everything(tmp_path: Path) -> None:
    async with odd_namesrv() as namesrv:
        namesrv.is_old = True
        async with registering(tmp_path, namesrv.address) as (at, topics):
            await at.wait_registered(timeout_ms=TIMEOUT_MS)
            add_topic(topics, "T")
            await at.wait_registered(timeout_ms=TIMEOUT_MS)
            assert namesrv.count(REGISTER) == 2
            assert registered_at(at) == [namesrv.address]


@pytest.mark.usefixtures("many")
async def test_slaves_register_everything(tmp_path: Path) -> None:
    async with (
        odd_namesrv() as namesrv,
        registering(tmp_path, namesrv.address, broker_id=1) as (at, topics),
    ):
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        add_topic(topics, "T")
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        assert (namesrv.count(REGISTER), namesrv.count(SINGLE)) == (2, 0)


@pytest.mark.usefixtures("many")
async def test_single_topics_do_not_delay_full_registrations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "PERIOD_MS_MIN", 50)
    async with (
        odd_namesrv() as namesrv,
        registering(tmp_path, namesrv.address, register_namesrv_period_ms=50) as (at, topics),
    ):
        number = 0
        while namesrv.count(REGISTER) < 3 or not namesrv.count(SINGLE):
            number += 1
            add_topic(topics, f"T{number}")
            await at.wait_registered(timeout_ms=TIMEOUT_MS)


async def test_heartbeats_where_slaves_act_as_masters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "HEARTBEAT_INTERVAL_MS", 5)
    async with (
        odd_namesrv() as namesrv,
        registering(tmp_path, namesrv.address, slave_acting_master=True),
    ):
        await until(lambda: namesrv.count(RequestCode.BROKER_HEARTBEAT) >= 2)
        fields = namesrv.requests[0].ext_fields or {}
        assert fields["enableActingMaster"] == "true"
        assert fields["heartbeatTimeoutMillis"] == "10000"


async def test_a_slave_learns_of_its_master(tmp_path: Path) -> None:
    master = MasterAddress()
    async with odd_namesrv() as namesrv, RemotingClient(config=PATIENT) as client:
        namesrv.answer = lambda context: context.response(
            ResponseCode.SUCCESS,
            headers.RegisterBrokerResponseHeader(ha_server_address="h:2", master_address="h:1"),
        )
        config = BrokerConfig(namesrv_address=namesrv.address, broker_id=1)
        at = NamesrvRegistration(
            config,
            client=client,
            topics=topic_manager(tmp_path, config),
            mappings=mapping_manager(tmp_path, config),
            advertised=AdvertisedAddresses(config, BROKER_PORT),
            clock=SystemClock(),
            master=master,
        )
        await at.start()
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        assert (master.ha_address, master.address, master.is_listed) == ("h:2", "h:1", True)
        namesrv.answer = lambda context: context.response(
            ResponseCode.SUCCESS, headers.RegisterBrokerResponseHeader()
        )
        await register_now(at)
        await at.stop()
    assert (master.ha_address, master.address, master.is_listed) == ("h:2", "h:1", False)
