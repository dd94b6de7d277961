"""The name server's side of the golden runs, played against ours.

Every request to the name server goes in, in the order and at the times of the run; every response
must be that of Apache RocketMQ, except for the differences named here.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from roquet.model.properties_text import parse_properties
from roquet.namesrv.config import KEYS_WITHOUT_EFFECT, NamesrvConfig
from roquet.namesrv.kv_config import KVConfigManager
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.topic import TopicList
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import Frame, SerializeType, encode_frame
from roquet.runtime.files import Files
from tests.unit.namesrv.kit import FakeConnection, Server

WIRE = Path(__file__).parent / "data" / "wire"
RUNS = ("json", "binary", "ext", "ha")

GOLDEN_CONFIG = NamesrvConfig(
    rocketmq_home="/opt/rocketmq",
    kv_config_path="/opt/rocketmq/namesrv/kvConfig.json",
    config_store_path="/opt/rocketmq/namesrv/namesrv.properties",
    bind_address="0.0.0.0",  # noqa: S104 - what the recorded one listened on
)

DIFFERENCES = {
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: (
        "the same names in another order: ours is that of registration, upstream's that of hashes"
    ),
    RequestCode.GET_NAMESRV_CONFIG: (
        "settings of thread pools and of Netty, which change nothing here, are not listed"
    ),
}
"""Where a body may differ byte for byte, and why; the values are compared all the same."""

OUR_KEYS = frozenset({"maxBrokers", "maxConnections", "maxTopicRoutes"})
"""Settings that upstream does not have."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and the response that it got."""

    place: str
    ms: float
    connection: int
    request: RemotingCommand
    answer: RemotingCommand
    answer_frame: bytes


def frame(row: dict[str, str]) -> Frame:
    head = base64.b64decode(row["head"])
    body = base64.b64decode(row.get("body", ""))
    return Frame(SerializeType[row["codec"]], head, body)


@cache
def exchanges(run: str) -> tuple[Exchange, ...]:
    lines = (WIRE / f"{run}.jsonl").read_text("utf-8").splitlines()
    rows = [(number, json.loads(line)) for number, line in enumerate(lines, 1)]
    asked = []
    answers = {}
    for number, row in rows:
        if row["server"] != "namesrv":
            continue
        parts = frame(row)
        read = decode_command(parts)
        if read.is_response:
            answers[row["conn"], read.opaque] = (read, encode_frame(*parts))
        else:
            asked.append((number, row, read))
    return tuple(
        Exchange(
            f"{run}.jsonl:{number}",
            row["ms"],
            row["conn"],
            request,
            *answers.pop((row["conn"], request.opaque)),
        )
        for number, row, request in asked
    )


def value_of(code: int, body: bytes) -> object:
    """A comparable form of a body: its bytes, unless a difference is named above."""
    if code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
        return Counter(decode_body(TopicList, body).topic_list)
    if code == RequestCode.GET_NAMESRV_CONFIG:
        settings = parse_properties(body.decode())
        return {key: settings[key] for key in settings if key not in KEYS_WITHOUT_EFFECT | OUR_KEYS}
    return body


@pytest.mark.parametrize("run", RUNS)
def test_responses_match_the_run(run: str, tmp_path: Path) -> None:
    server = Server(GOLDEN_CONFIG, kv_config=KVConfigManager.at(tmp_path / "kv.json", Files()))
    connections: dict[int, FakeConnection] = {}
    now_ms = 0
    for each in exchanges(run):
        server.clock.advance(int(each.ms) - now_ms)
        now_ms = int(each.ms)
        connection = connections.setdefault(each.connection, FakeConnection())
        ours = server.handle(each.request, connection)
        code = each.request.code
        assert (each.place, ours.code, ours.remark, ours.ext_fields or {}) == (
            each.place,
            each.answer.code,
            each.answer.remark,
            each.answer.ext_fields or {},
        )
        assert (each.place, value_of(code, ours.body)) == (
            each.place,
            value_of(code, each.answer.body),
        )
        if code not in DIFFERENCES:
            assert (each.place, encode_command(ours)) == (each.place, each.answer_frame)


def test_the_runs_contain_the_expected_requests() -> None:
    codes = {each.request.code for run in RUNS for each in exchanges(run)}
    assert {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 319, 327, 9999} == codes
    assert DIFFERENCES.keys() <= codes
