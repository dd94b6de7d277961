"""The sends of the golden runs, and a broker of ours to replay them against."""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from roquet.broker.config import BrokerConfig
from roquet.format.commit_log import DispatchRequest, decode_record
from roquet.model.message import StoredMessage
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import Frame, SerializeType, encode_frame
from roquet.store.config import MessageStoreConfig
from tests.golden.records import SEGMENT_BYTES, log_records
from tests.table_changes import drop_topics
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


@dataclass(frozen=True, slots=True)
class Exchange:
    """A send with the response it got; one-way sends have none."""

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
        """Whether it was accepted because the run had its timer on."""
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
            assert encode_command(command) == encode_frame(*frame), "responses are read whole"
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
        drop_topics(self.broker.topics, "AutoCreated")

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


def comparable(message: StoredMessage) -> dict[str, object]:
    """All of a record except times, the port of the recorder, and the body's CRC."""
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
