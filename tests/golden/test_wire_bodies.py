"""Typed bodies: the texts that the classes of 5.4.0 print, and those of the golden runs."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from typing import cast

import msgspec
import pytest
from msgspec import Struct

from roquet.model.data_version import DataVersion
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.remoting.bodies import broker, client, group, offset, register, route, topic
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.table import REQUEST_BODIES, RESPONSE_BODIES
from tests.golden.wire_frames import GoldenFrame, golden_frames, protocol

MODULES = (broker, client, group, offset, register, route, topic)
TYPES: dict[str, type[Struct]] = {
    name: value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, Struct)
}
TYPES |= {each.__name__: each for each in (DataVersion, SubscriptionGroupConfig)}


def java_bodies() -> list[tuple[str, str]]:
    texts = cast("dict[str, list[str]]", protocol()["bodies"])
    return [(name, text) for name in sorted(texts) for text in texts[name]]


@pytest.mark.parametrize(("name", "text"), java_bodies())
def test_texts_of_javas_classes_round_trip(name: str, text: str) -> None:
    body = decode_body(TYPES[name], text.encode())
    assert encode_body(body).decode() == text


@pytest.mark.parametrize("name", sorted({name for name, _ in java_bodies()}))
def test_no_member_is_unknown_to_java(name: str) -> None:
    texts = cast("dict[str, list[str]]", protocol()["bodies"])[name]
    full = decode_body(TYPES[name], texts[-1].encode())
    unknown_to_java = [
        field.encode_name
        for field in msgspec.structs.fields(TYPES[name])
        if f'"{field.encode_name}":' not in texts[-1]
    ]
    assert unknown_to_java == []
    assert None not in msgspec.structs.astuple(full)


def test_both_dialects_of_a_route() -> None:
    texts = protocol()["route"]
    data = decode_body(route.TopicRouteData, str(texts["dialect"]).encode())
    assert route.encode_route(data, client_version=399).decode() == texts["dialect"]
    assert route.encode_route(data, client_version=401).decode() == texts["standard"]
    standard = route.encode_route(data, client_version=317, standard_json_only=True)
    assert standard.decode() == texts["standard"]
    assert decode_body(route.TopicRouteData, standard) == data


def test_compressed_register_body_of_java() -> None:
    texts = cast("dict[str, str]", protocol()["register_body"])
    compressed = base64.b64decode(texts["compressed"])
    body = register.decode_register_body(compressed, compressed=True, broker_version=493)
    plain = decode_body(register.RegisterBrokerBody, texts["plain"].encode())
    # The compressed form carries neither the version of mappings nor flags of topics.
    wrapper = plain.topic_config_serialize_wrapper
    assert body.topic_config_serialize_wrapper.topic_config_table == wrapper.topic_config_table
    assert body == plain
    again = register.encode_register_body(body, compressed=True)
    assert register.decode_register_body(again, compressed=True, broker_version=493) == body
    assert register._decompressed(again) == register._decompressed(compressed)


def json_bodies() -> Iterator[tuple[GoldenFrame, type[Struct] | None]]:
    for golden in golden_frames():
        code = golden.known_code
        if golden.frame.body[:1] == b"{" and code is not None:
            table = RESPONSE_BODIES if golden.is_response else REQUEST_BODIES
            yield golden, table.get(code)


def test_every_json_body_of_the_runs_has_a_type() -> None:
    assert [golden.place for golden, body_type in json_bodies() if body_type is None] == []


def test_every_json_body_of_the_runs_is_written_back_byte_for_byte() -> None:
    kinds = Counter[str]()
    for golden, body_type in json_bodies():
        assert body_type is not None
        data = golden.frame.body
        body = decode_body(body_type, data)
        standard = body_type is route.TopicRouteData and golden.client_version >= 401
        assert encode_body(body, standard=standard) == data, golden.place
        kinds[body_type.__name__] += 1
    assert len(kinds) == 24
    assert sum(kinds.values()) == 398
