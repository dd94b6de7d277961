from __future__ import annotations

import ipaddress
import socket

import pytest

from roquet.runtime.network import advertised_ip, host_name, is_loopback, joined, reserve_port


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.9", "::1"])
def test_an_address_is_unchanged(address: str) -> None:
    assert advertised_ip(address) == address


def test_a_bracketed_address_loses_its_brackets() -> None:
    assert advertised_ip("[::1]") == "::1"


def test_a_wildcard_becomes_an_address_of_this_machine() -> None:
    assert not ipaddress.ip_address(advertised_ip("0.0.0.0")).is_unspecified  # noqa: S104


def test_a_name_becomes_its_address() -> None:
    assert ipaddress.ip_address(advertised_ip("localhost")).is_loopback


def test_an_unknown_name_becomes_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise OSError("unknown")

    monkeypatch.setattr("roquet.runtime.network.socket.getaddrinfo", unknown)
    assert advertised_ip("no-such-host.invalid") == "127.0.0.1"


def test_the_machine_has_a_name() -> None:
    assert host_name()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104
        ("::", False),
        ("192.0.2.1", False),
        ("mq.example", False),
        ("", False),
    ],
)
def test_addresses_that_only_this_machine_reaches(host: str, *, expected: bool) -> None:
    assert is_loopback(host) == expected


def test_host_and_port_make_an_address() -> None:
    assert [joined("127.0.0.1", 1), joined("::1", 1), joined("[::1]", 1)] == [
        "127.0.0.1:1",
        "[::1]:1",
        "[::1]:1",
    ]


def test_a_reserved_port_is_for_servers_of_this_program_only() -> None:
    with reserve_port("127.0.0.1") as held:
        address = held.getsockname()
        with pytest.raises(OSError, match="in use"):
            reserve_port(*address)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        for _ in range(2):
            with socket.create_server(address), socket.create_connection(address):
                pass
