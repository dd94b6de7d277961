"""Pulls and searches of the golden runs, played against ours.

The log of a run grows here record by record, as far as each golden response shows that it had grown
there; then the request goes in. Every response must be that of Apache RocketMQ: code, remark, ext
fields, and the body byte for byte.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections import Counter
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.client_channel import ClientChannel
from roquet.format.commit_log import DispatchRequest
from roquet.remoting.bodies.client import HeartbeatData
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.codec import decode_command
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import Frame, SerializeType
from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from tests.golden.records import SEGMENT_BYTES, log_records
from tests.unit.broker.processor.pull_kit import FakeConnection, PullBroker, whole

DATA = Path(__file__).parent / "data"
_PULLED = {(11, 0), (11, 17), (11, 20), (11, 21), (11, 29), (361, 0), (12, 0), (33, 0), (33, 1)}
PULLED = {"json": _PULLED, "binary": _PULLED, "ext": {(11, 0)}}
"""What each run holds: codes of requests, and of their answers. The last was made with ext files,
bit maps and one group, which filters by SQL92; the others have such groups too."""

START_MS = 1_794_728_000_000
"""Before all runs, so that what is stored in them is stored after their groups came."""

PULLS = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
ASKED = PULLS | {RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID}


@dataclass(frozen=True, slots=True)
class Step:
    """A request, at the time of its response; heartbeats have none."""

    place: str
    connection: int
    request: RemotingCommand
    answer: RemotingCommand | None


def _command(row: dict[str, str]) -> RemotingCommand:
    head, body = base64.b64decode(row["head"]), base64.b64decode(row.get("body", ""))
    return decode_command(Frame(SerializeType[row["codec"]], head, body))


@cache
def steps(run: str) -> tuple[Step, ...]:
    asked: dict[tuple[int, int], RemotingCommand] = {}
    found: list[Step] = []
    for number, line in enumerate((DATA / "wire" / f"{run}.jsonl").read_text().splitlines(), 1):
        row = json.loads(line)
        if row["server"] not in {"broker", "broker-fast"}:
            continue
        command = _command(row)
        place, connection = f"{run}.jsonl:{number}", row["conn"]
        key = (connection, command.opaque)
        if row["dir"] == "request-side" and not command.is_response:
            if command.code == RequestCode.HEART_BEAT:
                found.append(Step(place, connection, command, None))
            elif command.code in ASKED:
                asked[key] = command
        elif row["dir"] == "server-side" and command.is_response and key in asked:
            found.append(Step(place, connection, asked.pop(key), command))
    return tuple(found)


class Replay:
    """A broker whose log grows as that of a run did."""

    def __init__(self, run: str, root: Path) -> None:
        golden = DATA / f"store-{run}-clean"
        shutil.copytree(golden / "config", root / "managers" / "config")
        clock = ManualClock(START_MS)
        self.store = DefaultMessageStore(
            root / "store",
            MessageStoreConfig(
                commit_log_file_bytes=SEGMENT_BYTES,
                consume_queue_file_bytes=600,
                index_slots=100,
                index_entries=200,
                max_message_bytes=SEGMENT_BYTES,
                consume_queue_ext=run == "ext",
                consume_queue_ext_file_bytes=4096,
            ),
            clock=clock,
        )
        self.store.load()
        self.store.start(threads=False)
        config = BrokerConfig(property_filter=True, calculate_filter_bitmap=run == "ext")
        self.broker = PullBroker(root, config, self.store, clock)
        self._log = (golden / "commitlog" / f"{0:020d}").read_bytes()
        self._records: Iterator[DispatchRequest] = log_records(golden)
        self._connections: dict[int, FakeConnection] = {}

    def connection(self, number: int) -> FakeConnection:
        address = f"127.0.0.1:{number}"
        return self._connections.setdefault(number, FakeConnection(address))

    def heartbeat(self, step: Step) -> None:
        data = decode_body(HeartbeatData, step.request.body)
        if data.without_sub:
            return
        for consumer in data.consumer_data_set:
            self.broker.consumers.register(
                str(consumer.group_name),
                ClientChannel(
                    connection=self.connection(step.connection),  # type: ignore[arg-type]
                    client_id=str(data.client_id),
                    language=step.request.language,
                    version=step.request.version,
                    last_update_ns=0,
                ),
                consume_type=consumer.consume_type,
                message_model=consumer.message_model,
                consume_from_where=consumer.consume_from_where,
                subscriptions=consumer.subscription_data_set,
                notify_enabled=False,
            )

    def grow_to(self, step: Step) -> None:
        """Append what the log had according to the response."""
        asked = step.request.ext_fields or {}
        shown = (step.answer.ext_fields if step.answer is not None else None) or {}
        if step.request.code in PULLS and "maxOffset" in shown:
            topic, queue_id = asked["topic"], int(asked["queueId"])
            end = int(shown["maxOffset"])
            while self.store.max_offset_in_queue(topic, queue_id) < end:
                self._append_next()
            assert self.store.max_offset_in_queue(topic, queue_id) == end
        elif step.request.code == RequestCode.QUERY_MESSAGE:
            self._append_until(int(shown["indexLastUpdatePhyoffset"]))
        elif step.request.code == RequestCode.VIEW_MESSAGE_BY_ID and int(asked["offset"]) < len(
            self._log
        ):
            self._append_until(int(asked["offset"]))

    def _append_until(self, physical_offset: int) -> None:
        while self.store.max_physical_offset <= physical_offset:
            self._append_next()

    def _append_next(self) -> None:
        record = next(self._records)
        data = self._log[record.physical_offset : record.end_offset]
        assert self.store.append_to_commit_log(record.physical_offset, data)

    async def ask(self, step: Step) -> RemotingCommand:
        result = self.broker.handle(step.request, self.connection(step.connection))
        if isinstance(result, Awaitable):
            result = await result
        assert result is not None, f"{step.place} waits"
        return whole(result)


@pytest.mark.parametrize("run", PULLED)
async def test_responses_match_the_run(run: str, tmp_path: Path) -> None:
    replay = Replay(run, tmp_path)
    compared: Counter[tuple[int, int]] = Counter()
    try:
        for step in steps(run):
            if step.answer is None:
                replay.heartbeat(step)
                continue
            replay.grow_to(step)
            ours = await replay.ask(step)
            golden = step.answer
            assert (step.place, ours.code, ours.remark, ours.ext_fields or {}) == (
                step.place,
                golden.code,
                golden.remark,
                golden.ext_fields or {},
            )
            assert ours.opaque == golden.opaque
            assert ours.body == golden.body, step.place
            compared[step.request.code, golden.code] += 1
    finally:
        replay.store.shutdown()
    assert compared.keys() == PULLED[run]
    assert compared[11, 0] >= 20
    assert compared[361, 0] == (0 if run == "ext" else 9)
