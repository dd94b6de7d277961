"""Registration at name servers, real ones and such as are down, hang or talk nonsense."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.service import register_body, registration
from roquet.broker.service.registration import NamesrvRegistration
from roquet.errors import ConfigError
from roquet.namesrv.kv_config import NAMESPACE_ORDER_TOPIC_CONFIG
from roquet.namesrv.namesrv import Namesrv
from roquet.remoting.bodies.broker import KVTable
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers import namesrv as headers
from roquet.runtime.clock import SystemClock
from tests.unit.broker.service.namesrv_kit import (
    BROKER_ADDRESS,
    LOOPBACK,
    PATIENCE_S,
    OddNamesrv,
    add_topic,
    odd_namesrv,
    real_namesrv,
    registering,
    topic_manager,
    unused_address,
)
from tests.unit.remoting.net_kit import until

REGISTER = RequestCode.REGISTER_BROKER


@pytest.fixture(name="quick", autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed registrations are tried again soon."""
    monkeypatch.setattr(registration, "RETRY_MS_MIN", 1)


def knows(namesrv: Namesrv, topic: str) -> bool:
    route = namesrv.routes.route(topic)
    return route is not None and route.broker_datas[0].broker_addrs == {0: BROKER_ADDRESS}


def address_of(namesrv: Namesrv) -> str:
    return f"{LOOPBACK}:{namesrv.port}"


# -- a name server as it should be --------------------------------------------------------------


async def test_topics_have_a_route_while_the_broker_runs(tmp_path: Path) -> None:
    async with real_namesrv(tmp_path) as namesrv:
        address = address_of(namesrv)
        async with registering(tmp_path, address) as (at, topics):
            await at.wait_registered()
            assert at.registered_at == at.addresses == [address]
            assert all(knows(namesrv, topic) for topic in topics.table if "SYNC" not in topic)
        assert namesrv.routes.all_topics().topic_list == []
        assert at.registered_at == []


async def test_a_new_topic_is_told_at_once(tmp_path: Path) -> None:
    async with (
        real_namesrv(tmp_path) as namesrv,
        registering(tmp_path, address_of(namesrv)) as (at, topics),
    ):
        await at.wait_registered()
        for number in range(5):
            add_topic(topics, f"T{number}")
            await at.wait_registered()
            assert knows(namesrv, f"T{number}")


async def test_several_name_servers(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    async with (
        real_namesrv(tmp_path) as one,
        real_namesrv(tmp_path / "b") as other,
        registering(tmp_path, address_of(one), address_of(other)) as (at, topics),
    ):
        add_topic(topics, "T")
        await at.wait_registered()
        assert knows(one, "T")
        assert knows(other, "T")


async def test_a_name_server_that_comes_back_is_told_again(tmp_path: Path) -> None:
    async with real_namesrv(tmp_path) as namesrv:
        port = namesrv.port
        async with registering(tmp_path, address_of(namesrv)) as (at, topics):
            await at.wait_registered()
            await namesrv.stop()
            await until(lambda: at.registered_at == [])
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
        namesrv.kv_config.put(NAMESPACE_ORDER_TOPIC_CONFIG, "Ordered", "broker-a:4")
        await at.register_now()
        assert topics.is_order_topic("Ordered")
        assert not topics.is_order_topic("Other")


async def test_a_compressed_body(tmp_path: Path) -> None:
    async with (
        real_namesrv(tmp_path) as namesrv,
        registering(tmp_path, address_of(namesrv), compressed_register=True) as (at, topics),
    ):
        add_topic(topics, "T")
        await at.wait_registered()
        assert knows(namesrv, "T")


# -- what is sent -------------------------------------------------------------------------------


async def test_header_and_body(tmp_path: Path) -> None:
    async with odd_namesrv() as namesrv:
        async with registering(tmp_path, namesrv.address, broker_id=3) as (at, topics):
            await at.wait_registered()
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
async def test_a_broker_that_takes_no_writes_says_so(tmp_path: Path, *, compressed: bool) -> None:
    async with (
        odd_namesrv() as namesrv,
        registering(
            tmp_path, namesrv.address, broker_permission=4, compressed_register=compressed
        ) as (at, _),
    ):
        await at.wait_registered()
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
        await at.wait_registered()
        fields = namesrv.requests[0].ext_fields or {}
        assert fields["compressed"] == "true"
        assert fields["bodyCrc32"] == str(zlib.crc32(namesrv.requests[0].body) & 0x7FFFFFFF)
        (body,) = namesrv.registrations()
        assert body.topic_config_serialize_wrapper.topic_config_table.keys() == topics.table.keys()


async def test_texts_of_topics_are_made_once(tmp_path: Path) -> None:
    config = BrokerConfig()
    topics = topic_manager(tmp_path, config)
    made = register_body.RegisterBody(config, topics, SystemClock())
    first, _ = await made.encode()
    add_topic(topics, "T")
    topics.delete("BenchmarkTest")
    second, _ = await made.encode()
    assert b'"T":{' not in first
    assert b'"T":{' in second
    assert b"BenchmarkTest" not in second
    fresh, _ = await register_body.RegisterBody(config, topics, SystemClock()).encode()
    assert _without_times(fresh) == _without_times(second)


def _without_times(body: bytes) -> bytes:
    return body.partition(b"topicConfigTable")[2]


async def test_changes_during_a_registration_are_told_together(tmp_path: Path) -> None:
    async with (
        odd_namesrv() as namesrv,
        registering(tmp_path, namesrv.address) as (at, topics),
    ):
        await at.wait_registered()
        namesrv.gate.clear()
        add_topic(topics, "First")
        await until(lambda: namesrv.count(REGISTER) == 2)
        for number in range(10):
            add_topic(topics, f"T{number}")
        namesrv.gate.set()
        await at.wait_registered()
        bodies = namesrv.registrations()
        assert len(bodies) == 3
        tables = [each.topic_config_serialize_wrapper.topic_config_table for each in bodies]
        assert "First" in tables[1]
        assert "T0" not in tables[1]
        assert {f"T{number}" for number in range(10)} <= tables[2].keys()


async def test_every_period_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        await at.register_now()


async def test_a_version_may_be_asked_for_first(
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
        await at.wait_registered()
        table = namesrv.registrations()[-1].topic_config_serialize_wrapper.topic_config_table
        assert "T" in table


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
    found: list[tuple[str, str]] = []
    async with odd_namesrv() as namesrv, RemotingClient() as client:
        namesrv.answer = lambda context: context.response(
            ResponseCode.SUCCESS,
            headers.RegisterBrokerResponseHeader(ha_server_address="h:2", master_address="h:1"),
        )
        config = BrokerConfig(namesrv_address=namesrv.address, broker_id=1)
        at = NamesrvRegistration(
            config,
            client=client,
            topics=topic_manager(tmp_path, config),
            address=lambda: BROKER_ADDRESS,
            ha_address=lambda: "",
            clock=SystemClock(),
            master_found=lambda *addresses: found.append(addresses),
        )
        await at.start()
        await at.wait_registered()
        await at.stop()
    assert found == [("h:2", "h:1")]


# -- name servers that are down, hang or talk nonsense ------------------------------------------


async def test_one_that_is_down_keeps_nobody_waiting(tmp_path: Path) -> None:
    down = await unused_address()
    async with real_namesrv(tmp_path) as namesrv:
        async with registering(tmp_path, down, address_of(namesrv)) as (at, topics):
            await at.wait_registered()
            assert at.registered_at == [address_of(namesrv)]
            assert at.addresses == [down, address_of(namesrv)]
            add_topic(topics, "T")
            await at.wait_registered()
            assert knows(namesrv, "T")
        assert namesrv.routes.all_topics().topic_list == []


async def test_one_that_hangs_keeps_nobody_waiting_twice(tmp_path: Path) -> None:
    async with odd_namesrv() as hung, real_namesrv(tmp_path) as namesrv:
        hung.gate.clear()
        async with registering(tmp_path, hung.address, address_of(namesrv)) as (at, topics):
            await until(lambda: hung.count(REGISTER) == 1)
            add_topic(topics, "T")
            await at.wait_registered(timeout_ms=50)
            await until(lambda: knows(namesrv, "T"))
            add_topic(topics, "U")
            async with asyncio.timeout(PATIENCE_S):
                await at.wait_registered(timeout_ms=1_000 * PATIENCE_S * 2)
            assert knows(namesrv, "U")
            assert at.registered_at == [address_of(namesrv)]
            async with asyncio.timeout(PATIENCE_S):
                await at.stop(timeout_ms=50)
        assert namesrv.routes.all_topics().topic_list == []


async def test_one_that_answered_again_is_waited_for_again(tmp_path: Path) -> None:
    async with (
        odd_namesrv() as namesrv,
        registering(tmp_path, namesrv.address) as (at, topics),
    ):
        await at.wait_registered()
        namesrv.gate.clear()
        add_topic(topics, "T")
        await at.wait_registered(timeout_ms=20)
        namesrv.gate.set()
        await until(lambda: at._namesrvs[namesrv.address].is_waited_for)
        before = namesrv.count(REGISTER)
        add_topic(topics, "U")
        await at.wait_registered()
        assert namesrv.count(REGISTER) == before + 1


def refused(namesrv: OddNamesrv) -> None:
    namesrv.answer = lambda context: context.response(
        ResponseCode.SYSTEM_ERROR, remark="crc32 not match"
    )


def nonsense(namesrv: OddNamesrv) -> None:
    namesrv.answer = lambda context: context.response(ResponseCode.SUCCESS, body=b"{[")


def too_much(namesrv: OddNamesrv) -> None:
    namesrv.answer = lambda context: context.response(
        ResponseCode.SUCCESS, body=b" " * ((1 << 20) + 1)
    )


@pytest.mark.parametrize(
    ("misbehave", "words"),
    [
        (refused, "the name server refused the broker; DETAIL: code 1: crc32 not match"),
        (nonsense, "Body that is no KVTable"),
        (too_much, "the name server answered too much"),
    ],
)
async def test_wrong_answers_are_logged_now_and_then(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    misbehave: Callable[[OddNamesrv], None],
    words: str,
) -> None:
    async with odd_namesrv() as namesrv:
        misbehave(namesrv)
        async with registering(tmp_path, namesrv.address) as (at, topics):
            await at.wait_registered()
            assert at.registered_at == []
            await until(lambda: namesrv.count(REGISTER) >= 4)
            warned = [
                each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING
            ]
            assert len(warned) == 1
            assert words in warned[0]
            assert namesrv.address in warned[0]
            add_topic(topics, "T")
            await at.wait_registered()


async def test_a_failed_registration_is_tried_again(tmp_path: Path) -> None:
    async with odd_namesrv() as namesrv:
        good = namesrv.answer
        refused(namesrv)
        async with registering(tmp_path, namesrv.address) as (at, _):
            await until(lambda: namesrv.count(REGISTER) >= 2)
            namesrv.answer = good
            await until(lambda: at.registered_at == [namesrv.address])


async def test_retries_come_later_and_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "RETRY_MS_MIN", 1_000)
    async with registering(tmp_path) as (at, _):
        namesrv = registration._Namesrv(LOOPBACK)
        delays_ms = [at._delay_ms(namesrv, is_registered=False) for _ in range(8)]
        assert delays_ms == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
        assert at._delay_ms(namesrv, is_registered=True) == 30_000
        assert at._delay_ms(namesrv, is_registered=False) == 1_000


async def test_an_order_list_that_cannot_be_kept_does_not_undo_a_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(ordered: object) -> None:
        raise ConfigError(f"no space for {ordered}")

    async with odd_namesrv() as namesrv:
        body = encode_body(KVTable(table={"T": "broker-a:4"}))
        namesrv.answer = lambda context: context.response(ResponseCode.SUCCESS, body=body)
        async with registering(tmp_path, namesrv.address) as (at, topics):
            monkeypatch.setattr(topics, "update_order_config", full)
            await at.wait_registered()
            assert at.registered_at == [namesrv.address]
            assert "no space for {'T': 'broker-a:4'}" in caplog.text


async def test_an_unexpected_error_does_not_end_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        odd_namesrv() as namesrv,
        registering(tmp_path, namesrv.address) as (at, _),
    ):
        await at.wait_registered()
        encode = at._body.encode

        async def broken() -> tuple[bytes, bool]:
            raise KeyError("bug")

        monkeypatch.setattr(at._body, "encode", broken)
        await at.register_now()
        assert at.registered_at == []
        assert "KeyError" in caplog.text
        monkeypatch.setattr(at._body, "encode", encode)
        await until(lambda: at.registered_at == [namesrv.address])


async def test_stop_ends_whoever_waits(tmp_path: Path) -> None:
    async with odd_namesrv() as namesrv:
        namesrv.gate.clear()
        async with registering(tmp_path, namesrv.address) as (at, topics):
            waiting = asyncio.ensure_future(at.wait_registered(timeout_ms=1_000 * PATIENCE_S))
            await until(lambda: namesrv.count(REGISTER) == 1)
            await at.stop(timeout_ms=20)
            await waiting
            add_topic(topics, "T")
            await at.stop()
        assert namesrv.count(REGISTER) == 1


async def test_bad_addresses_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'nowhere' is no address"):
        async with registering(tmp_path, "127.0.0.1:9876", "nowhere"):
            pass
