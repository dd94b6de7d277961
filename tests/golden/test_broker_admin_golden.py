"""The golden runs' clients and administrators, played against our desk.

Every request of these codes goes in, in the order of the run; every response must be that of Apache
RocketMQ, except for the differences named here. The messages of the run's store are stored again,
each when its time has come, so that offsets and times are those of that moment.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from roquet.model.fastjson import JsonValue, loads
from roquet.model.properties_text import parse_properties
from roquet.remoting.bodies.broker import KVTable
from roquet.remoting.codec import encode_command
from roquet.remoting.codes import RequestCode as Code
from roquet.remoting.command import RemotingCommand
from tests.golden.admin_kit import PLAYED, Exchange, Play, desk_of, exchanges
from tests.integration.broker.service.namesrv_kit import odd_namesrv, registering

RUNS = ("json", "binary", "ext", "ha")


NO_TIMER = "TimerMessageStore.getTimerMetrics()"
"""Upstream fails when a topic is dropped while its timer is off; ours does not."""


DIFFERENT_TEXTS = {
    Code.GET_ALL_TOPIC_CONFIG: "times, and topics in another order",
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "times, and groups in another order",
    Code.GET_TOPIC_STATS_INFO: "a rate that nobody counts, and queues in another order",
    Code.GET_BROKER_RUNTIME_INFO: "counters; the names are compared below",
    Code.GET_BROKER_CONFIG: "settings; those of both are compared below",
}
"""Answers that are not the same byte for byte, and why."""

RUNTIME_INFO_LEFT_OUT = {
    "scheduleMessageOffset_1",
    "scheduleMessageOffset_2",
    "scheduleMessageOffset_3",
}
"""Delay levels that nothing was sent to."""

SET_OTHERWISE = {
    "bindAddress",
    "deleteCommitLogFilesInterval",
    "haListenPort",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mappedFileSizeConsumeQueueExt",
    "maxHashSlotNum",
    "maxIndexNum",
    "maxMessageSize",
    "namesrvAddr",
    "storePathRootDir",
    "transactionCheckInterval",
}
"""Settings that the test has other than the run: sizes and places. All others are the same."""

PLAYED_COUNT = 400


def comparable(code: int, body: bytes) -> object:
    """What must be equal in two bodies: everything but times, rates and orders of maps."""
    if not body or code in {Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO}:
        return None
    value: JsonValue = loads(body)
    assert isinstance(value, dict)
    value.pop("topicPutTps", None)
    for name in ("dataVersion", "mappingDataVersion"):
        version = value.get(name)
        if isinstance(version, dict):
            del version["timestamp"]
    return value


def compare(each: Exchange, ours: RemotingCommand, golden: RemotingCommand) -> None:
    code = each.request.code
    ext_fields = dict(golden.ext_fields or {})
    if code == Code.GET_BROKER_CONFIG:
        ext_fields["version"] = (ours.ext_fields or {})["version"]
    assert (each.place, ours.code, ours.remark, ours.ext_fields or {}) == (
        each.place,
        golden.code,
        golden.remark,
        ext_fields,
    )
    assert (each.place, comparable(code, ours.body)) == (
        each.place,
        comparable(code, golden.body),
    )
    if code not in DIFFERENT_TEXTS:
        ours.opaque = golden.opaque
        ours.serialize_type = golden.serialize_type
        assert (each.place, encode_command(ours)) == (each.place, encode_command(golden))


@pytest.mark.parametrize("run", RUNS)
async def test_responses_match_the_run(run: str, tmp_path: Path) -> None:
    with desk_of(run, tmp_path) as at:
        play = Play(run, at)
        for each in exchanges(run, "broker"):
            ours = await play.exchange(each)
            if ours is None or each.answer is None:
                continue
            if NO_TIMER in (each.answer.remark or ""):
                assert (ours.code, ours.remark) == (0, None)
            else:
                compare(each, ours, each.answer)


def golden_answer(code: int) -> RemotingCommand:
    (answer,) = [each.answer for each in exchanges("json", "broker") if each.request.code == code]
    assert answer is not None
    return answer


async def test_runtime_info_has_the_names_of_the_run(tmp_path: Path) -> None:
    golden = loads(golden_answer(Code.GET_BROKER_RUNTIME_INFO).body)
    assert isinstance(golden, dict)
    assert isinstance(golden["table"], dict)
    names = {str(name).partition("_/")[0] for name in golden["table"]}
    with desk_of("json", tmp_path) as at:
        table = (await at.body_of(Code.GET_BROKER_RUNTIME_INFO, None, KVTable)).table
    assert names - {name.partition("_/")[0] for name in table} == RUNTIME_INFO_LEFT_OUT
    assert {name.partition("_/")[0] for name in table} <= names


async def test_settings_have_the_names_of_the_run(tmp_path: Path) -> None:
    golden = parse_properties(golden_answer(Code.GET_BROKER_CONFIG).body.decode())
    with desk_of("json", tmp_path) as at:
        answer = await at.ask_ok(Code.GET_BROKER_CONFIG)
    ours = parse_properties(answer.body.decode())
    ours = {key: value for key, value in ours.items() if not key.startswith("tls.")}
    hooks = {"sendMessageHooks", "consumeMessageHooks", "rpcHooks"}
    bounds = {"maxConnections", "maxHeldBytes", "maxOpenConsumeQueueFiles"}
    bounds |= {"slowReaderTimeoutMillis"}
    of_store = {"archivedFileReservedTime", "messageInDiskByDistance", "storeMustExist"}
    elsewhere = {"rmqAddressServerDomain", "rmqAddressServerSubGroup"}
    null = {"haMasterAddress"}
    assert ours.keys() - golden.keys() == hooks | bounds | elsewhere | of_store | null
    different = {key for key in ours.keys() & golden.keys() if ours[key] != golden[key]}
    assert different == SET_OTHERWISE


async def test_registration_matches_the_run(tmp_path: Path) -> None:
    golden = next(
        each.request
        for each in exchanges("json", "namesrv")
        if each.request.code == Code.REGISTER_BROKER
    )
    async with odd_namesrv() as namesrv:
        async with registering(tmp_path, namesrv.address) as (at, _):
            await at.wait_registered()
        ours = namesrv.requests[0]
    assert (ours.ext_fields or {}).keys() == (golden.ext_fields or {}).keys()
    assert registered(ours) == registered(golden)


def registered(request: RemotingCommand) -> JsonValue:
    """The body of a registration without times."""
    body = loads(request.body)
    assert isinstance(body, dict)
    wrapper = body["topicConfigSerializeWrapper"]
    assert isinstance(wrapper, dict)
    for name in ("dataVersion", "mappingDataVersion"):
        version = wrapper[name]
        assert isinstance(version, dict)
        del version["timestamp"]
    return body


def test_the_runs_contain_the_expected_requests() -> None:
    played = Counter(
        each.request.code
        for run in RUNS
        for each in exchanges(run, "broker")
        if each.request.code in PLAYED
    )
    assert played.keys() == PLAYED
    assert sum(played.values()) == PLAYED_COUNT
