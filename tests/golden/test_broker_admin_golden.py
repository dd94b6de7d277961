"""The golden runs' clients and administrators, played against our desk.

Every request of these codes goes in, in the order of the run; every answer must be the one that
Apache RocketMQ gave, but for the differences named here. The messages of the run's store are
stored again, each when its time has come, so that offsets and times are those of that moment.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.format.commit_log import DispatchRequest
from roquet.model.fastjson import JsonValue, loads
from roquet.model.properties_text import parse_properties
from roquet.model.topic import WHEEL_TIMER_TOPIC, is_dlq_topic, is_retry_topic
from roquet.model.topic_config import TopicConfig
from roquet.remoting.bodies.broker import KVTable
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import RequestCode as Code
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import Frame, SerializeType
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.pull import PullMessageRequestHeader
from roquet.runtime.clock import ManualClock
from tests.golden.records import log_records
from tests.unit.broker.admin.kit import Desk, FakeConnection
from tests.unit.broker.service.namesrv_kit import odd_namesrv, registering
from tests.unit.store.kit import config as store_config
from tests.unit.store.kit import message, opened, put

DATA = Path(__file__).parent / "data"
RUNS = ("json", "binary", "ext", "ha")
STORES = {"json": "json-clean", "binary": "binary-clean", "ext": "ext-clean", "ha": "ha-master"}
COMMIT_OFFSET_FLAG = 1

CLIENTS = {Code.HEART_BEAT, Code.UNREGISTER_CLIENT, Code.CHECK_CLIENT_CONFIG}
CONSUMERS = {
    Code.GET_CONSUMER_LIST_BY_GROUP,
    Code.QUERY_CONSUMER_OFFSET,
    Code.UPDATE_CONSUMER_OFFSET,
}
OFFSETS = {
    Code.SEARCH_OFFSET_BY_TIMESTAMP,
    Code.GET_MAX_OFFSET,
    Code.GET_MIN_OFFSET,
    Code.GET_EARLIEST_MSG_STORETIME,
}
LOCKS = {Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ}
TOPICS = {
    Code.UPDATE_AND_CREATE_TOPIC,
    Code.DELETE_TOPIC_IN_BROKER,
    Code.GET_ALL_TOPIC_CONFIG,
    Code.GET_TOPIC_CONFIG,
    Code.GET_TOPIC_STATS_INFO,
}
GROUPS = {
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    Code.DELETE_SUBSCRIPTIONGROUP,
}
OTHERS = {
    Code.GET_CONSUMER_CONNECTION_LIST,
    Code.GET_PRODUCER_CONNECTION_LIST,
    Code.GET_BROKER_RUNTIME_INFO,
    Code.GET_BROKER_CONFIG,
}
PLAYED = CLIENTS | CONSUMERS | OFFSETS | LOCKS | TOPICS | GROUPS | OTHERS

NO_TIMER = "TimerMessageStore.getTimerMetrics()"
"""Upstream fails when a topic is dropped while its timer is off; ours does not."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and the answer that it got; one-way requests got none."""

    place: str
    ms: float
    connection: int
    request: RemotingCommand
    answer: RemotingCommand | None


@cache
def rows(run: str) -> tuple[dict[str, object], ...]:
    text = (DATA / "wire" / f"{run}.jsonl").read_text("utf-8")
    return tuple(
        json.loads(line) | {"place": f"{run}.jsonl:{number}"}
        for number, line in enumerate(text.splitlines(), 1)
    )


@cache
def exchanges(run: str, server: str) -> tuple[Exchange, ...]:
    asked: list[tuple[dict[str, object], RemotingCommand]] = []
    answers: dict[tuple[object, int], RemotingCommand] = {}
    for row in rows(run):
        if row["server"] != server:
            continue
        head, body = (base64.b64decode(str(row.get(name, ""))) for name in ("head", "body"))
        read = decode_command(Frame(SerializeType[str(row["codec"])], head, body))
        from_client = row["dir"] == "request-side"
        if from_client and not read.is_response:
            asked.append((row, read))
        elif read.is_response and not from_client:
            answers[row["conn"], read.opaque] = read
    return tuple(
        Exchange(
            str(row["place"]),
            float(str(row["ms"])),
            int(str(row["conn"])),
            request,
            answers.get((row["conn"], request.opaque)),
        )
        for row, request in asked
    )


@cache
def started_ms(run: str) -> float:
    """When the run began: a message is born just before its request is seen."""
    return max(
        int(each.request.ext_fields["g"]) - each.ms
        for each in exchanges(run, "broker")
        if each.request.code == Code.SEND_MESSAGE_V2 and each.request.ext_fields is not None
    )


class Play:
    """A run, played up to some moment."""

    def __init__(self, run: str, at: Desk) -> None:
        self.at = at
        self.started_ms = started_ms(run)
        self.records: Iterator[DispatchRequest] = log_records(DATA / f"store-{STORES[run]}")
        self.next = next(self.records, None)
        self.connections: dict[int, FakeConnection] = {}

    def advance(self, ms: float) -> None:
        """Store the messages up to a moment, at the times at which they were stored."""
        while self.next is not None and self.next.store_timestamp_ms <= self.started_ms + ms:
            self.make_topic(self.next.topic)
            self.at.clock.set(self.next.store_timestamp_ms)
            put(self.at.store, message(topic=self.next.topic, queue_id=self.next.queue_id))
            self.next = next(self.records, None)
        self.at.clock.set(int(self.started_ms + ms))

    def make_topic(self, topic: str) -> None:
        """Make the topic of a message as the broker's other processors do."""
        topics = self.at.topics
        if topic == WHEEL_TIMER_TOPIC:
            timer = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
            topics.table.setdefault(topic, timer)
        elif is_dlq_topic(topic):
            topics.create_in_send_back(topic, queue_nums=1, perm=6, sys_flag=0)
        elif not is_retry_topic(topic):
            topics.create_in_send(topic, default_topic="TBW102", default_queue_nums=4, sys_flag=0)

    async def exchange(self, each: Exchange) -> RemotingCommand | None:
        self.advance(each.ms)
        request = each.request
        if request.code in {Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE}:
            self.commit_of_pull(decode_header(PullMessageRequestHeader, request.ext_fields))
        if request.code not in PLAYED:
            return None
        connection = self.connections.setdefault(
            each.connection, FakeConnection(f"127.0.0.1:{each.connection}")
        )
        return await self.at.handle(request, connection)

    def commit_of_pull(self, header: PullMessageRequestHeader) -> None:
        self.at.groups.find(header.consumer_group)
        if header.sys_flag & COMMIT_OFFSET_FLAG and header.commit_offset is not None:
            self.at.offsets.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )


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
async def test_answers_are_those_of_the_run(run: str, tmp_path: Path) -> None:
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


@contextmanager
def desk_of(run: str, root: Path) -> Iterator[Desk]:
    """The desk of a broker that is set as in the runs."""
    clock = ManualClock(int(started_ms(run)))
    config = BrokerConfig(
        broker_name="broker-a",
        broker_ip1="127.0.0.1",
        broker_ip2="127.0.0.1",
        store_root=str(root),
        property_filter=True,
    )
    one_segment = store_config(commit_log_file_bytes=1 << 20)
    with opened(root, clock=clock, config=one_segment) as store:
        yield Desk(config, store, clock, compile_expression=lambda *_: None)


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
    own = {"sendMessageHooks", "consumeMessageHooks", "rpcHooks"}
    elsewhere = {"rmqAddressServerDomain", "rmqAddressServerSubGroup"}
    assert ours.keys() - golden.keys() == own | elsewhere
    different = {key for key in ours.keys() & golden.keys() if ours[key] != golden[key]}
    assert different == SET_OTHERWISE


async def test_registration_is_that_of_the_run(tmp_path: Path) -> None:
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


def test_the_runs_ask_what_we_think_they_ask() -> None:
    played = Counter(
        each.request.code
        for run in RUNS
        for each in exchanges(run, "broker")
        if each.request.code in PLAYED
    )
    assert played.keys() == PLAYED
    assert sum(played.values()) == PLAYED_COUNT
