"""Where the name servers are: as configured, by DNS, or from an address server."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig, replace
from roquet.broker.service import namesrv_address
from roquet.broker.service.namesrv_address import (
    NamesrvAddresses,
    address_server_url,
    fetch_text,
    parse_addresses,
)
from roquet.errors import ClientError, ConfigError
from roquet.runtime.clock import ManualClock
from tests.integration.broker.service.namesrv_kit import (
    http,
    odd_namesrv,
    register_now,
    registered_at,
    registering,
    unused_address,
    web_server,
)
from tests.unit.remoting.net_kit import until

ASKS_ADDRESS_SERVER: dict[str, object] = {"fetch_namesrv_address_by_address_server": True}


def addresses(**settings: object) -> NamesrvAddresses:
    return NamesrvAddresses(replace(BrokerConfig(), **settings), clock=ManualClock())


# -- lists --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ; ", []),
        ("a:1", ["a:1"]),
        ("a:1;b:2", ["a:1", "b:2"]),
        (" a:1 ; b:2 ;a:1;", ["a:1", "b:2"]),
        ("[::1]:9876", ["[::1]:9876"]),
    ],
)
def test_lists(text: str, expected: list[str]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize("text", ["a", "a:1;b", "a:0", "a:99999", ":9876", "a:1,b:2", "a:x"])
def test_bad_lists(text: str) -> None:
    with pytest.raises(ConfigError, match="is no address"):
        parse_addresses(text)


def test_a_list_that_is_too_long() -> None:
    with pytest.raises(ConfigError, match="too long"):
        parse_addresses(";".join(f"h:{port}" for port in range(1, 70)))


@pytest.mark.parametrize(
    ("domain", "subgroup", "url"),
    [
        ("", "nsaddr", None),
        ("localhost", "nsaddr", "http://localhost:8080/rocketmq/nsaddr"),
        ("localhost:81", "east", "http://localhost:81/rocketmq/east"),
    ],
)
def test_url_of_the_address_server(domain: str, subgroup: str, url: str | None) -> None:
    config = BrokerConfig(address_server_domain=domain, address_server_subgroup=subgroup)
    assert address_server_url(config) == url


async def test_configured_addresses_stay() -> None:
    found = addresses(namesrv_address="a:1;b:2", **ASKS_ADDRESS_SERVER)
    await found.refresh()
    assert found.current == ["a:1", "b:2"]
    assert found.refresh_interval_ms is None


def test_an_address_server_must_be_named() -> None:
    with pytest.raises(ConfigError) as caught:
        addresses(**ASKS_ADDRESS_SERVER)
    assert caught.value.hint == "Set rmqAddressServerDomain."


async def test_without_any_setting_there_is_no_name_server() -> None:
    found = addresses()
    await found.refresh()
    assert (found.current, found.refresh_interval_ms) == ([], None)


# -- DNS ----------------------------------------------------------------------------------------


async def test_names_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"localhost": ["10.0.0.1", "10.0.0.2", "10.0.0.1", "fd00::1"]}

    async def getaddrinfo(host: str, port: int) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (ip, port)) for ip in known[host]]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
    found = addresses(namesrv_address="localhost:9876", fetch_namesrv_address_by_dns_lookup=True)
    assert found.current == []
    assert found.refresh_interval_ms == 120_000
    await found.refresh()
    assert found.current == ["10.0.0.1:9876", "10.0.0.2:9876", "[fd00::1]:9876"]
    known["localhost"] = ["10.0.0.9"]
    await found.refresh()
    assert found.current == ["10.0.0.9:9876"]
    known["localhost"] = []
    await found.refresh()
    assert found.current == ["10.0.0.9:9876"]


async def test_a_name_that_does_not_resolve_keeps_the_list(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def getaddrinfo(host: str, port: int) -> list[object]:
        raise OSError(f"no {host} {port}")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
    clock = ManualClock()
    config = BrokerConfig(namesrv_address="x:1", fetch_namesrv_address_by_dns_lookup=True)
    found = NamesrvAddresses(config, clock=clock)
    for _ in range(5):
        await found.refresh()
        clock.advance(1_000)
    assert found.current == []
    warned = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.getMessage() for each in warned] == [
        "name servers not found, keeping none: no x 1"
    ]


# -- an address server --------------------------------------------------------------------------


async def found_at(server: str, before: str = "") -> list[str]:
    found = addresses(address_server_domain=server, **ASKS_ADDRESS_SERVER)
    found._current = parse_addresses(before)
    await found.refresh()
    return found.current


@pytest.mark.parametrize(
    "text",
    ["a:1;b:2", "a:1;b:2\n", " a:1;b:2\r\nmore lines\n", "a:1; b:2;\nx"],
)
async def test_only_the_first_line_is_read(text: str) -> None:
    asked: list[str] = []

    def answer(request: str) -> bytes:
        asked.append(request)
        return http(text)

    async with web_server(answer) as server:
        assert await found_at(server) == ["a:1", "b:2"]
        assert asked == [
            f"GET /rocketmq/nsaddr HTTP/1.0\r\nHost: {server}\r\nConnection: close\r\n\r\n"
        ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.0\r\n\r\na:1",
        http("a:1", status="404 Not Found"),
        http("a:1", status="302 Found", head="Location: /x\r\n"),
        http("a:1", head="Content-Length: 4\r\n"),
        http("3\r\na:1\r\n0\r\n\r\n", head="Transfer-Encoding: chunked\r\n"),
        http(""),
        http("\n\na b"),
        http(b"\xff\xfe"),
        http("<html>"),
        http("a:1" * 30_000),
    ],
)
async def test_bad_responses_leave_the_list_unchanged(data: bytes) -> None:
    async with web_server(lambda _: data) as server:
        assert await found_at(server, "old:1") == ["old:1"]


async def test_an_address_server_that_is_down() -> None:
    with unused_address() as address:
        assert await found_at(address, "old:1") == ["old:1"]


async def test_an_address_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with web_server(lambda _: None) as server:
        with pytest.raises(TimeoutError):
            await fetch_text(f"http://{server}/", timeout_ms=30)
        hurried = partial(fetch_text, timeout_ms=30)
        monkeypatch.setattr(namesrv_address, "fetch_text", hurried)
        assert await found_at(server, "old:1") == ["old:1"]


@pytest.mark.parametrize("url", ["https://localhost/", "ftp://h/", "h:80", "http:///x", ""])
async def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ClientError, match="is no address of a web server"):
        await fetch_text(url)


async def test_the_broker_follows_the_address_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namesrv_address, "FETCH_INTERVAL_MS", 1)
    listed = ""

    def answer(_: str) -> bytes:
        return http(listed)

    async with odd_namesrv() as one, odd_namesrv() as other, web_server(answer) as server:
        settings: dict[str, object] = {"address_server_domain": server, **ASKS_ADDRESS_SERVER}
        async with registering(tmp_path, **settings) as (at, _):
            assert at.addresses == []
            listed = one.address
            await until(lambda: registered_at(at) == [one.address])
            listed = f"{one.address};{other.address}"
            await until(lambda: registered_at(at) == [one.address, other.address])
            listed = other.address
            await until(lambda: at.addresses == [other.address])
            count = len(one.requests)
            await register_now(at)
            assert len(one.requests) == count
