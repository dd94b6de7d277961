"""Signatures, against those of the Java client."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from roquet.client import ClientInstance, ClientOptions
from roquet.client.acl import signature
from tests.unit.client.client_kit import fake_server, route_of


class Vector(NamedTuple):
    """What was signed, and the signature."""

    access_key: str
    secret_key: str
    token: str
    body: str
    fields: dict[str, str]
    expected: str


# Made with AclClientRPCHook of rocketmq-client 5.4.0, on JDK 17.
VECTORS = [
    ("shop", "12345678", "", "", {}, "099ldpcQ/ETG9HFNsfN+OjuArg0="),
    ("shop", "12345678", "", "hi", {"topic": "T"}, "G6aNP9JR2auTidVFIy+g3n7WBno="),
    (
        "RocketMQ",
        "12345678",
        "token-1",
        "body",
        {"a": "group", "b": "Orders", "Z": "last?", "i": "TAGS\x01eu\x02"},
        "EAO7ULGepNLzNQoj3apyzRAEYXA=",
    ),
    (
        "k\u00e9y",
        "g\u00e9h\u4e2d",
        "",
        "\u00fcber",
        {"topic": "Ord\u00e9rs", "\u00e4": "umlaut", "z": "zed"},
        "Y89ovCSKpJKUzs96YGUlr/+PjUI=",
    ),
    (
        "k",
        "s",
        "",
        "",
        {"\uff5e": "bmp high", "\U0001f600": "astral", "A": "1", "a": "2"},
        "EjWazinmWo9CY7F3rh5VxNAJDWY=",
    ),
    (
        "k",
        "s",
        "",
        "x",
        {"AccessKey": "spoofed", "Signature": "old", "topic": "T"},
        "7gYEey7nGkrjDrbhoy42zwNkzmc=",
    ),
]


@pytest.mark.parametrize("vector", [Vector(*each) for each in VECTORS])
def test_signatures_equal_javas(vector: Vector) -> None:
    signed = vector.fields | {"AccessKey": vector.access_key}
    if vector.token:
        signed["SecurityToken"] = vector.token
    assert signature(signed, vector.body.encode(), vector.secret_key) == vector.expected


async def test_a_client_with_keys_signs_what_it_sends() -> None:
    async with fake_server() as server:
        server.routes["Orders"] = route_of(("a", {0: server.address}))
        options = ClientOptions(
            namesrv=server.address, access_key="shop", secret_key="12345678", security_token="t"
        )
        async with await ClientInstance.open(options) as client:
            await client.routes.route("Orders")
        (fields,) = server.fields
    assert (fields["AccessKey"], fields["SecurityToken"]) == ("shop", "t")
    assert fields["Signature"] == signature(fields, b"", "12345678")


async def test_a_client_without_keys_does_not() -> None:
    async with fake_server() as server:
        server.routes["Orders"] = route_of(("a", {0: server.address}))
        async with await ClientInstance.open(ClientOptions(namesrv=server.address)) as client:
            await client.routes.route("Orders")
        (fields,) = server.fields
    assert set(fields) == {"topic", "acceptStandardJsonOnly"}
