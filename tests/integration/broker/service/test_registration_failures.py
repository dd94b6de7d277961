"""Registration at name servers that are down, hang or send nonsense."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.broker.service import registration
from roquet.errors import ConfigError
from roquet.remoting.bodies.broker import KVTable
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from tests.integration.broker.service.namesrv_kit import (
    LOOPBACK,
    OddNamesrv,
    add_topic,
    address_of,
    knows,
    odd_namesrv,
    real_namesrv,
    register_now,
    registered_at,
    registering,
    unused_address,
)
from tests.patience import PATIENCE_S, TIMEOUT_MS
from tests.unit.remoting.net_kit import until

REGISTER = RequestCode.REGISTER_BROKER


@pytest.fixture(name="quick", autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed registrations are retried soon."""
    monkeypatch.setattr(registration, "RETRY_MS_MIN", 1)


async def test_a_name_server_that_is_down_delays_no_other(tmp_path: Path) -> None:
    with unused_address() as down:
        async with real_namesrv(tmp_path) as namesrv:
            async with registering(tmp_path, down, address_of(namesrv)) as (at, topics):
                await at.wait_registered(timeout_ms=TIMEOUT_MS)
                assert registered_at(at) == [address_of(namesrv)]
                assert at.addresses == [down, address_of(namesrv)]
                add_topic(topics, "T")
                await at.wait_registered(timeout_ms=TIMEOUT_MS)
                assert knows(namesrv, "T")
            assert namesrv.routes.all_topics().topic_list == []


async def test_a_name_server_that_hangs_delays_others_only_once(tmp_path: Path) -> None:
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
            assert registered_at(at) == [address_of(namesrv)]
            async with asyncio.timeout(PATIENCE_S):
                await at.stop(timeout_ms=50)
        assert namesrv.routes.all_topics().topic_list == []


async def test_a_name_server_that_responds_again_is_waited_for_again(tmp_path: Path) -> None:
    async with (
        odd_namesrv() as namesrv,
        registering(tmp_path, namesrv.address) as (at, topics),
    ):
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        namesrv.gate.clear()
        add_topic(topics, "T")
        await at.wait_registered(timeout_ms=20)
        namesrv.gate.set()
        await until(lambda: at._namesrvs[namesrv.address].is_waited_for)
        before = namesrv.count(REGISTER)
        add_topic(topics, "U")
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
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
        (refused, "the name server refused REGISTER_BROKER; DETAIL: code 1: crc32 not match"),
        (nonsense, "Body that is no KVTable"),
        (too_much, "the name server's response is too long"),
    ],
)
async def test_wrong_responses_are_logged_at_a_limited_rate(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    misbehave: Callable[[OddNamesrv], None],
    words: str,
) -> None:
    async with odd_namesrv() as namesrv:
        misbehave(namesrv)
        async with registering(tmp_path, namesrv.address) as (at, topics):
            await at.wait_registered(timeout_ms=TIMEOUT_MS)
            assert registered_at(at) == []
            await until(lambda: namesrv.count(REGISTER) >= 4)
            warned = [
                each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING
            ]
            assert len(warned) == 1
            assert words in warned[0]
            assert namesrv.address in warned[0]
            add_topic(topics, "T")
            await at.wait_registered(timeout_ms=TIMEOUT_MS)


async def test_a_failed_registration_is_retried(tmp_path: Path) -> None:
    async with odd_namesrv() as namesrv:
        good = namesrv.answer
        refused(namesrv)
        async with registering(tmp_path, namesrv.address) as (at, _):
            await until(lambda: namesrv.count(REGISTER) >= 2)
            namesrv.answer = good
            await until(lambda: registered_at(at) == [namesrv.address])


async def test_retries_back_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "RETRY_MS_MIN", 1_000)
    async with registering(tmp_path) as (at, _):
        namesrv = registration._Namesrv(LOOPBACK)
        with monkeypatch.context() as still:
            still.setattr(asyncio.get_running_loop(), "time", lambda: 1_000.0)
            delays_s = [at._retry_at(namesrv) - 1_000 for _ in range(8)]
        assert delays_s == [1, 2, 4, 8, 16, 30, 30, 30]
        namesrv.is_registered = True
        namesrv.register_at = 7.0
        assert at._retry_at(namesrv) == 7.0
        assert namesrv.failures == 0


async def test_an_order_list_that_cannot_be_kept_does_not_undo_a_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(ordered: object) -> None:
        raise ConfigError(f"no space for {ordered}")

    async with odd_namesrv() as namesrv:
        body = encode_body(KVTable(table={"T": "broker-a:4"}))
        namesrv.answer = lambda context: context.response(ResponseCode.SUCCESS, body=body)
        async with registering(tmp_path, namesrv.address) as (at, topics):
            monkeypatch.setattr(topics, "stage_order_config", full)
            await at.wait_registered(timeout_ms=TIMEOUT_MS)
            assert registered_at(at) == [namesrv.address]
            assert "no space for {'T': 'broker-a:4'}" in caplog.text


async def test_an_unexpected_error_does_not_end_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        odd_namesrv() as namesrv,
        registering(tmp_path, namesrv.address) as (at, _),
    ):
        await at.wait_registered(timeout_ms=TIMEOUT_MS)
        encode = at._api._body.encode

        async def broken(_part: object) -> tuple[bytes, bool]:
            raise KeyError("bug")

        monkeypatch.setattr(at._api._body, "encode", broken)
        await register_now(at)
        assert registered_at(at) == []
        assert "KeyError" in caplog.text
        monkeypatch.setattr(at._api._body, "encode", encode)
        await until(lambda: registered_at(at) == [namesrv.address])


async def test_stop_releases_waiters(tmp_path: Path) -> None:
    async with odd_namesrv() as namesrv:
        namesrv.gate.clear()
        async with registering(tmp_path, namesrv.address) as (at, topics):
            waiting = asyncio.ensure_future(at.wait_registered(timeout_ms=1_000_000))
            await until(lambda: namesrv.count(REGISTER) == 1)
            await at.stop(timeout_ms=20)
            async with asyncio.timeout(PATIENCE_S):
                await waiting
            add_topic(topics, "T")
            await at.stop()
        assert namesrv.count(REGISTER) == 1


async def test_bad_addresses_are_refused_before_any_request(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'nowhere' is no address"):
        async with registering(tmp_path, "127.0.0.1:9876", "nowhere"):
            pass
