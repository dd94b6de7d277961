"""The replies of the golden runs, sent again to our processor.

The log before the reply is copied. Our processor must push what Apache RocketMQ pushed to the
requesting client, give the same response, and write a record with the same fields at the same
offset.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roquet.model.properties import decode_properties
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from tests.golden.send_kit import DATA, Replay, comparable, read_frame
from tests.unit.broker.processor.reply_kit import Replies
from tests.unit.broker.processor.send_kit import FakeConnection


def exchange(run: str) -> tuple[RemotingCommand, str, RemotingCommand, RemotingCommand]:
    """The one reply of a run with its connection, its response, and what the client was pushed."""
    found: dict[str, tuple[dict[str, str], RemotingCommand]] = {}
    answers: dict[tuple[str, int], RemotingCommand] = {}
    for line in (DATA / "wire" / f"{run}.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["server"] not in {"broker", "broker-fast"}:
            continue
        command = decode_command(read_frame(row))
        if command.is_response:
            answers[row["conn"], command.opaque] = command
        elif command.code == RequestCode.SEND_REPLY_MESSAGE_V2:
            found["reply"] = row, command
        elif command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            found["push"] = row, command
    row, reply = found["reply"]
    return reply, row["conn"], answers[row["conn"], reply.opaque], found["push"][1]


def pushed_fields(command: RemotingCommand) -> dict[str, object]:
    """What a client was pushed, without the times."""
    fields: dict[str, object] = dict(command.ext_fields or {})
    properties = decode_properties(str(fields["properties"]).encode())
    for stamp in (properties.pop("PUSH_REPLY_TIME"), fields.pop("storeTimestamp")):
        assert len(str(int(str(stamp)))) == 13
    fields["properties"] = properties
    return fields


@pytest.mark.parametrize("run", ["json", "binary"])
async def test_a_reply_is_pushed_stored_and_acknowledged_as_upstream_does(
    run: str, tmp_path: Path
) -> None:
    reply, connection, golden_answer, golden_push = exchange(run)
    offset = int((golden_answer.ext_fields or {})["msgId"][16:], 16)
    replay = Replay(run, tmp_path / "store")
    try:
        for record in replay.records:
            if record.physical_offset < offset:
                replay.copy(record)
        at = Replies(replay.broker)
        asked = decode_properties((reply.ext_fields or {})["i"].encode())["REPLY_TO_CLIENT"]
        requester = at.requester(asked)
        answer = await at.ask(reply, FakeConnection(f"127.0.0.1:{connection}"))
        assert encode_command(answer) == encode_command(golden_answer)
        (pushed,) = requester.got
        assert (pushed.code, pushed.body) == (golden_push.code, golden_push.body)
        assert pushed_fields(pushed) == pushed_fields(golden_push)
        ours, golden = replay.our_record(offset), replay.golden_record(offset)
        assert comparable(ours) == comparable(golden)
    finally:
        replay.broker.store.shutdown()
