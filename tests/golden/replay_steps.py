"""The frames of a run as steps of a replay, in the order in which the recorder saw them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cache

from roquet.remoting.codec import decode_command
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import Frame, SerializeType
from tests.golden.wire_frames import WIRE

OF_THE_BROKER = frozenset({RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER})
"""What a broker asks a name server for itself; ours does so by itself."""


@dataclass(frozen=True, slots=True)
class Step:
    """One frame.

    Attributes:
        place: File and line, for messages.
        ms: When it was seen.
        connection: Server and the client's port.
        from_client: Whether the client sent it.
        command: Its contents.
        request: The request of a response; the command itself otherwise.
        is_last: Whether no other frame followed on its connection.
    """

    place: str
    ms: float
    connection: tuple[str, int]
    from_client: bool
    command: RemotingCommand
    request: RemotingCommand
    is_last: bool

    @property
    def is_compared(self) -> bool:
        """Whether it was sent by the tested side."""
        return not self.from_client or self.is_of_the_broker

    @property
    def is_of_the_broker(self) -> bool:
        return self.connection[0] == "namesrv" and self.request.code in OF_THE_BROKER


@cache
def steps(run: str) -> tuple[Step, ...]:
    rows = [json.loads(line) for line in (WIRE / f"{run}.jsonl").read_text("utf-8").splitlines()]
    last = {(row["server"], row["conn"]): number for number, row in enumerate(rows)}
    asked: dict[tuple[str, int, bool, int], RemotingCommand] = {}
    found: list[Step] = []
    for number, row in enumerate(rows):
        # A body that was too long to be recorded is known by its length alone.
        body = base64.b64decode(row.get("body", "")) or bytes(row.get("body_length", 0))
        frame = Frame(SerializeType[row["codec"]], base64.b64decode(row["head"]), body)
        command = decode_command(frame)
        connection = (row["server"], row["conn"])
        from_client = row["dir"] == "request-side"
        key = (*connection, from_client != command.is_response, command.opaque)
        if not command.is_response:
            asked[key] = command
        found.append(
            Step(
                place=f"{run}.jsonl:{number + 1}",
                ms=row["ms"],
                connection=connection,
                from_client=from_client,
                command=command,
                request=asked[key],
                is_last=last[connection] == number,
            )
        )
    return tuple(found)


@cache
def started_ms(run: str) -> float:
    """The date of a run's first moment: a message is born just before its request is seen."""
    return max(
        int((step.command.ext_fields or {})["g"]) - step.ms
        for step in steps(run)
        if step.command.code == RequestCode.SEND_MESSAGE_V2 and step.from_client
    )


@cache
def booted_ms(run: str) -> int:
    """The date at which a run's broker began to start: when it made its table of topics."""
    body = json.loads(steps(run)[0].command.body)
    booted: int = body["topicConfigSerializeWrapper"]["dataVersion"]["timestamp"]
    return booted


@cache
def recorded_settings(run: str) -> str:
    """The settings of a run's broker, as it printed them itself."""
    for step in steps(run):
        if step.request.code == RequestCode.GET_BROKER_CONFIG and step.command.is_response:
            return step.command.body.decode()
    raise LookupError(f"the broker of {run} was not asked for its settings")
