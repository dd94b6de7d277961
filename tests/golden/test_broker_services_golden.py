"""Deliveries, returns and transactions of the golden runs, done again by our services.

The log of each run is written again, record for record. What producers sent is copied; every record
that a service of Apache RocketMQ wrote is written by ours, from the same requests: delayed messages
that were due, messages that consumers sent back, committed messages, op messages, half messages
that were stored again. Each must have the same fields at the same offset.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from roquet.broker.manager.delay_offset import DelayOffsetManager
from roquet.broker.processor.send_back import SendBackProcessor
from roquet.broker.service.schedule_message import ScheduleMessageService
from roquet.format.commit_log import decode_record
from roquet.model import sys_flag as flags
from roquet.model.message import StoredMessage
from roquet.model.message_id import OffsetMessageId
from roquet.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import encode_header
from roquet.runtime.files import Files
from tests.golden.send_kit import DATA, Exchange, Replay, comparable, read_frame
from tests.table_changes import text_of
from tests.unit.broker.service.transaction_kit import ProducerConnection, Transactions

NO_OP_PAUSE_MS = 1_000
CODES = {RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION}

EXPECTED = {
    "json": {"delivered": 8, "back": 5, "committed": 6, "op": 2, "anew": 3},
    "binary": {"delivered": 8, "back": 5, "committed": 6, "op": 2, "anew": 3},
    "ext": {"delivered": 3},
    "ha": {"delivered": 3},
}
"""How many records of which kind are made again.

A delivery that upstream repeated because its broker was killed in the run is copied.
"""


def requests(run: str) -> tuple[list[Exchange], list[tuple[dict[str, str], StoredMessage]]]:
    """The send-backs and ends of a run in their order, and its broker's checks of producers."""
    asked: list[tuple[int, dict[str, str], RemotingCommand]] = []
    answers: dict[tuple[str, str, int], RemotingCommand] = {}
    checks: list[tuple[dict[str, str], StoredMessage]] = []
    lines = (DATA / "wire" / f"{run}.jsonl").read_text("utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        row = json.loads(line)
        if row["server"] not in {"broker", "broker-fast"}:
            continue
        command = decode_command(read_frame(row))
        key = (row["server"], row["conn"], command.opaque)
        if command.is_response:
            answers[key] = command
        elif command.code == RequestCode.CHECK_TRANSACTION_STATE:
            body = command.body
            checks.append((command.ext_fields or {}, decode_record(body, 0, len(body))))
        elif command.code in CODES:
            asked.append((number, row, command))
    exchanges = [
        Exchange(
            f"{run}.jsonl:{number}",
            int(row["conn"]),
            read_frame(row),
            None if command.is_oneway else answers[row["server"], row["conn"], command.opaque],
        )
        for number, row, command in asked
    ]
    return exchanges, checks


class Services:
    """Our services on the store of a replay."""

    def __init__(self, run: str, root: Path) -> None:
        self.replay = Replay(run, root)
        made = self.replay.broker
        self.transactions = Transactions(made)
        self.transactions.service.stop()
        self.clock = made.clock
        self.timers = self.transactions.timers
        parts = msgspec.structs.replace(made.parts, timers=self.timers)
        self.producer: ProducerConnection = self.transactions.producer("golden_tx")
        self.schedule = ScheduleMessageService(parts)
        made.store.add_arriving_listener(self.schedule.notify_arriving)
        self.schedule.start()
        made.registry.add(SendBackProcessor(parts))
        exchanges, self.checks = requests(run)
        self.returns = {
            int((each.request.ext_fields or {})["offset"]): each
            for each in exchanges
            if each.request.code == RequestCode.CONSUMER_SEND_MSG_BACK
        }
        self.delivered: set[tuple[str | None, int]] = set()
        self.ends = [each for each in exchanges if each.request.code == RequestCode.END_TRANSACTION]

    def ask(self, exchange: Exchange) -> None:
        answer = self.replay.send(exchange)
        golden = exchange.answer
        if exchange.request.is_oneway:
            return
        assert (answer is None) == (golden is None), exchange.place
        if answer is not None and golden is not None:
            assert (exchange.place, encode_command(answer)) == (
                exchange.place,
                encode_command(golden),
            )

    def make(self, record: StoredMessage) -> bool:
        """Have a record written; return whether a service writes such records."""
        self.clock.set(max(record.store_timestamp_ms, self.clock.now_ms()))
        properties = record.properties
        if record.topic == SCHEDULE_TOPIC and "ORIGIN_MESSAGE_ID" in properties:
            origin = OffsetMessageId.parse(properties["ORIGIN_MESSAGE_ID"])
            self.ask(self.returns.pop(origin.physical_offset))
            return True
        if record.topic == properties.get("REAL_TOPIC") and "DELAY" in properties:
            if (record.unique_key, record.reconsume_times) in self.delivered:
                return False
            self.timers.run()
            return True
        if flags.transaction_type(record.sys_flag) == flags.TRANSACTION_COMMIT:
            self.end("commitLogOffset", record.prepared_transaction_offset)
            return True
        if record.topic == TRANS_OP_HALF_TOPIC:
            named = [int(word) for word in record.body.decode().split(",") if word]
            for offset in named:
                if offset not in self.transactions.ops.pending:
                    self.end("tranStateTableOffset", offset)
            assert self.transactions.ops.flush()
            return True
        if record.topic == TRANS_HALF_TOPIC and "TRANSACTION_CHECK_TIMES" in properties:
            self.check(record)
            return True
        return False

    def end(self, field: str, value: int) -> None:
        """End the transaction at an offset; upstream's threads ended them in any order."""
        at, exchange = next(
            (at, each)
            for at, each in enumerate(self.ends)
            if (each.request.ext_fields or {})[field] == str(value)
            and (each.request.ext_fields or {})["commitOrRollback"] != "0"
        )
        del self.ends[at]
        self.ask(exchange)

    def check(self, record: StoredMessage) -> None:
        """A round that began a second before: it waits so long for more op messages."""
        service = self.transactions.service
        self.clock.set(record.store_timestamp_ms - NO_OP_PAUSE_MS - 30_000)
        service.start()
        self.clock.set(record.store_timestamp_ms - NO_OP_PAUSE_MS)
        self.timers.run()
        self.timers.advance(NO_OP_PAUSE_MS)
        service.stop()


@pytest.mark.parametrize("run", EXPECTED)
def test_services_store_what_upstream_stored(run: str, tmp_path: Path) -> None:
    services = Services(run, tmp_path / "store")
    replay = services.replay
    store = replay.broker.store
    made: Counter[str] = Counter()
    try:
        for entry in replay.records:
            offset = entry.physical_offset
            golden = replay.golden_record(offset)
            if offset >= store.max_physical_offset and not services.make(golden):
                replay.copy(entry)
                continue
            ours, wanted = comparable(replay.our_record(offset)), comparable(golden)
            if golden.topic == TRANS_OP_HALF_TOPIC:
                for fields, message in ((ours, replay.our_record(offset)), (wanted, golden)):
                    del fields["born_timestamp_ms"]
                    fields["body"] = sorted(message.body.split(b","))
            assert ours == wanted
            kind = _kind(golden)
            made[kind] += 1
            if kind == "delivered":
                services.delivered.add((golden.unique_key, golden.reconsume_times))
        for exchange in services.ends:
            assert (exchange.request.ext_fields or {})["commitOrRollback"] == "0"
            assert services.replay.send(exchange) is None
    finally:
        store.shutdown()
    assert made == EXPECTED[run]
    assert not services.returns
    asked = [
        (encode_header(header), comparable(message)) for header, message in services.producer.asked
    ]
    assert asked == [(fields, comparable(message)) for fields, message in services.checks]


def _kind(record: StoredMessage) -> str:
    if record.topic == TRANS_OP_HALF_TOPIC:
        return "op"
    if record.topic == TRANS_HALF_TOPIC:
        return "anew"
    if record.topic == SCHEDULE_TOPIC:
        return "back"
    is_commit = flags.transaction_type(record.sys_flag) == flags.TRANSACTION_COMMIT
    return "committed" if is_commit else "delivered"


@pytest.mark.parametrize("run", ["json", "binary"])
def test_the_delay_offsets_of_a_run_round_trip(run: str, tmp_path: Path) -> None:
    golden = (DATA / f"store-{run}-clean" / "config" / "delayOffset.json").read_text()
    services = Services(run, tmp_path)
    store = services.replay.broker.store
    try:
        (tmp_path / "config" / "delayOffset.json").write_text(golden)
        config = services.replay.broker.config
        manager = DelayOffsetManager.at(config, Files(), services.clock, flush=store.flush)
        assert manager.load() is None
        assert text_of(manager) == golden
        assert manager.query(1) == 6
    finally:
        store.shutdown()


@pytest.mark.parametrize("run", ["json", "binary"])
def test_the_metrics_of_a_run_round_trip(run: str, tmp_path: Path) -> None:
    golden = (DATA / f"store-{run}-clean" / "config" / "transactionMetrics").read_text()
    services = Services(run, tmp_path)
    try:
        (tmp_path / "config" / "transactionMetrics").write_text(golden)
        metrics = services.transactions.metrics
        assert metrics.load() is None
        assert text_of(metrics) == golden
    finally:
        services.replay.broker.store.shutdown()
