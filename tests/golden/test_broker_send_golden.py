"""The sends of the golden runs, played against our processor and a store of its own.

The log of each run is written again, record for record: where a record came from a send, the
request goes to our processor, which must give the answer of Apache RocketMQ and write a record with
the same fields at the same place; where it came from elsewhere (a delivery, the end of a
transaction), its bytes are copied. A wrong length or a missing property shows at once, because the
next message id is then another.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.format.commit_log import DispatchRequest, decode_record
from roquet.model.message import StoredMessage
from roquet.model.properties import decode_properties
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import Frame, SerializeType, encode_frame
from roquet.store.config import MessageStoreConfig
from tests.golden.records import SEGMENT_BYTES, log_records
from tests.unit.broker.processor.send_kit import FakeConnection, SendBroker

DATA = Path(__file__).parent / "data"
STORES = {
    "json": "store-json-clean",
    "binary": "store-binary-clean",
    "ext": "store-ext-clean",
    "ha": "store-ha-master",
}
SENDS = {
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
}
TIMER_OFF = "accurate timer message is not enabled, timerWheelEnable is false"

JAVA_EXCEPTIONS = {
    "java.lang.NumberFormatException": (
        'the custom field <e> is no number. For input string: "zero"'
    ),
    'java.lang.NullPointerException: Cannot invoke "Object.hashCode()"': (
        "the custom field <b> is null"
    ),
    "java.lang.NullPointerException: Cannot read the array length": "the message body is null",
}
"""Where upstream answers with a stack trace, and what we say."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A send with the answer it got; one-way sends have none."""

    place: str
    connection: int
    frame: Frame
    answer: RemotingCommand | None

    @property
    def request(self) -> RemotingCommand:
        """A command of its own, because handling one uses its body up."""
        return decode_command(self.frame)

    @property
    def answer_fields(self) -> dict[str, str]:
        return (self.answer.ext_fields if self.answer else None) or {}

    @property
    def physical_offset(self) -> int | None:
        msg_id = self.answer_fields.get("msgId")
        return None if msg_id is None else int(msg_id[16:32], 16)

    @property
    def is_timed(self) -> bool:
        """Whether it was taken because the run had its timer on."""
        return "recallHandle" in self.answer_fields


def read_frame(row: dict[str, str]) -> Frame:
    """A frame; a body that was too long to be recorded is made up."""
    body = bytes(int(row.get("body_length", 0))) or base64.b64decode(row.get("body", ""))
    return Frame(SerializeType[row["codec"]], base64.b64decode(row["head"]), body)


@cache
def exchanges(run: str) -> tuple[Exchange, ...]:
    lines = (DATA / "wire" / f"{run}.jsonl").read_text("utf-8").splitlines()
    asked: list[tuple[int, dict[str, str], RemotingCommand]] = []
    answers: dict[tuple[str, str, int], RemotingCommand] = {}
    for number, line in enumerate(lines, 1):
        row = json.loads(line)
        if row["server"] not in {"broker", "broker-fast"}:
            continue
        frame = read_frame(row)
        command = decode_command(frame)
        if row["dir"] == "request-side" and not command.is_response and command.code in SENDS:
            asked.append((number, row, command))
        elif row["dir"] == "server-side" and command.is_response:
            assert encode_command(command) == encode_frame(*frame), "answers are read whole"
            answers[row["server"], row["conn"], command.opaque] = command
    return tuple(
        Exchange(
            f"{run}.jsonl:{number}",
            int(row["conn"]),
            read_frame(row),
            answers.get((row["server"], row["conn"], command.opaque)),
        )
        for number, row, command in asked
    )


class Replay:
    """Our broker, with the topics of a run but for the one that a send makes."""

    def __init__(self, run: str, root: Path) -> None:
        (root / "config").mkdir(parents=True)
        golden = DATA / STORES[run]
        shutil.copyfile(golden / "config" / "topics.json", root / "config" / "topics.json")
        log = sorted((golden / "commitlog").iterdir())
        self.golden_log = b"".join(segment.read_bytes() for segment in log)
        self.records = list(log_records(golden))
        self.broker = SendBroker(
            root,
            BrokerConfig(broker_name="broker-a"),
            MessageStoreConfig(commit_log_file_bytes=SEGMENT_BYTES),
        )
        self.broker.topics.load()
        self.made_by_send = self.broker.topics.select("AutoCreated")
        self.broker.topics.delete("AutoCreated")

    def copy(self, record: DispatchRequest) -> None:
        start, end = record.physical_offset, record.physical_offset + record.size_bytes
        assert self.broker.store.append_to_commit_log(start, self.golden_log[start:end])

    def golden_record(self, physical_offset: int) -> StoredMessage:
        return decode_record(self.golden_log, physical_offset, len(self.golden_log))

    def our_record(self, physical_offset: int) -> StoredMessage:
        found = self.broker.store.look_message(physical_offset)
        assert found is not None
        return found

    def send(self, exchange: Exchange) -> RemotingCommand | None:
        connection = FakeConnection(f"127.0.0.1:{exchange.connection}")
        answer = self.broker.handle(exchange.request, connection)
        if answer is not None:
            answer.opaque = exchange.request.opaque
        return answer


@pytest.fixture(params=STORES)
def run(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def replay(run: str, tmp_path: Path) -> Iterator[Replay]:
    made = Replay(run, tmp_path / "store")
    try:
        yield made
    finally:
        made.broker.store.shutdown()


def sends_by_offset(run: str, records: list[DispatchRequest]) -> dict[int, Exchange]:
    """Which send wrote which record; the message ids of answers say so, or the unique keys."""
    first_with_key: dict[str, int] = {}
    for record in records:
        if record.unique_key:
            first_with_key.setdefault(record.unique_key, record.physical_offset)
    found: dict[int, Exchange] = {}
    for each in exchanges(run):
        offset = each.physical_offset
        if each.answer is None:
            text = (each.request.ext_fields or {})["i"]
            offset = first_with_key[decode_properties(text.encode())["UNIQ_KEY"]]
        if offset is not None:
            found[offset] = each
    return found


def comparable(message: StoredMessage) -> dict[str, object]:
    """All of a record but times, the port that the recorder stood behind, and the body's CRC."""
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "store_size": message.store_size,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "body": message.body,
        "born_timestamp_ms": message.born_timestamp_ms,
        "born_ip": message.born_host.ip,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "properties": message.properties,
    }


def send_again(replay: Replay, exchange: Exchange, physical_offset: int) -> None:
    """Send what was sent; answer and record must be those of the run."""
    fields = exchange.request.ext_fields or {}
    answer = replay.send(exchange)
    ours = replay.our_record(physical_offset)
    golden = replay.golden_record(physical_offset)
    if exchange.request.code != RequestCode.SEND_BATCH_MESSAGE and "UNIQ_KEY" not in fields["i"]:
        made_key = ours.properties["UNIQ_KEY"]
        assert len(made_key) == len(golden.properties["UNIQ_KEY"])
        golden.properties["UNIQ_KEY"] = made_key
        assert exchange.answer is not None
        assert exchange.answer.ext_fields is not None
        exchange.answer.ext_fields["transactionId"] = made_key
    assert (exchange.place, comparable(ours)) == (exchange.place, comparable(golden))
    if exchange.answer is None:
        assert answer is None
    else:
        assert answer is not None
        assert (exchange.place, encode_command(answer)) == (
            exchange.place,
            encode_command(exchange.answer),
        )


def test_answers_and_records_are_those_of_the_run(run: str, replay: Replay) -> None:
    sends = sends_by_offset(run, replay.records)
    sent = 0
    for record in replay.records:
        offset = record.physical_offset
        if offset < replay.broker.store.max_physical_offset:
            continue  # a later message of a batch
        exchange = sends.get(offset)
        if exchange is None or exchange.is_timed:
            replay.copy(record)
        else:
            send_again(replay, exchange, offset)
            sent += 1
    assert sent > 90
    assert replay.broker.topics.select("AutoCreated") == replay.made_by_send


def test_refusals_are_those_of_the_run(run: str, replay: Replay) -> None:
    refused = 0
    for each in exchanges(run):
        golden = each.answer
        if golden is None or (golden.code == ResponseCode.SUCCESS and not each.is_timed):
            continue
        answer = replay.send(each)
        assert answer is not None
        refused += 1
        if each.is_timed:
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, TIMER_OFF)
            continue
        assert (each.place, answer.code, answer.remark, answer.ext_fields or {}) == (
            each.place,
            golden.code,
            our_remark(golden.remark, each.connection),
            golden.ext_fields or {},
        )
    assert refused >= 3
    assert replay.broker.store.max_physical_offset == 0


def our_remark(remark: str | None, connection: int) -> str | None:
    """What we say where upstream says this."""
    for java, ours in JAVA_EXCEPTIONS.items():
        if (remark or "").startswith(java):
            return ours
    if remark is not None and " Producer: " in remark:
        return f"{remark.rpartition(':')[0]}:{connection}"
    return remark


def test_the_client_was_told_the_same() -> None:
    """The refusals are those that the Java client printed in the JSON run."""
    codes = [
        each.answer.code
        for each in exchanges("json")
        if each.answer is not None and (each.request.ext_fields or {}).get("a") == "golden_bad"
    ]
    assert codes == [29, 0, 29, 0, 0, 29, 17, 16, 1, 13, 13, 1, 1]
