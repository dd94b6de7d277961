"""The golden runs' clients and administrators, played against our desk."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from roquet.broker.config import BrokerConfig
from roquet.format.commit_log import DispatchRequest
from roquet.model.topic import WHEEL_TIMER_TOPIC, is_dlq_topic, is_retry_topic
from roquet.model.topic_config import TopicConfig
from roquet.remoting.codec import decode_command
from roquet.remoting.codes import RequestCode as Code
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import Frame, SerializeType
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.pull import PullMessageRequestHeader
from roquet.runtime.clock import ManualClock
from tests.golden.records import log_records
from tests.table_changes import commit
from tests.unit.broker.admin.kit import Desk, FakeConnection
from tests.unit.store.kit import config as store_config
from tests.unit.store.kit import message, opened, put

DATA = Path(__file__).parent / "data"
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


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and the response that it got; one-way requests got none."""

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
            commit(topics)

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
        yield Desk(config, store, clock)
