"""A run, replayed frame by frame.

Every frame of the recording has its turn, in the order and at the moment in which the recorder saw
it. A client's frame is sent; a server's frame must have arrived by then, or arrive after a little
more time, and is compared.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from roquet.model.fastjson import JsonKey, JsonValue, dumps, loads
from roquet.model.properties import decode_properties, encode_properties
from roquet.remoting.codes import RequestCode as Code
from roquet.remoting.command import RemotingCommand
from tests.golden.conftest import GOLDEN_DATA
from tests.golden.replay_compare import Difference, Names, differences, unlike
from tests.golden.replay_stage import Line, Stage
from tests.golden.replay_steps import Step, booted_ms, started_ms, steps
from tests.golden.replay_stored import stored_values
from tests.golden.replay_time import ReplayClock, ReplayLoop

PATIENCE_S = 1.0
"""How much later than in the recording something may come that waits for a timer."""

PLACE_FIELDS: dict[int, str] = {
    Code.CONSUMER_SEND_MSG_BACK: "offset",
    Code.END_TRANSACTION: "commitLogOffset",
    Code.VIEW_MESSAGE_BY_ID: "offset",
}
"""Requests that name a place in the log."""

KEYS: dict[int, str] = {
    Code.CHECK_TRANSACTION_STATE: "msgId",
    Code.NOTIFY_CONSUMER_IDS_CHANGED: "consumerGroup",
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT: "producerGroup",
}
"""Which field tells requests of a server with the same code apart."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """A message in place of one whose kind is refused, so that its queue grows all the same.

    Attributes:
        place: Where the recording has it.
        stored_ms: When the recorded broker stored it in its queue.
        dropped: The property that makes it of that kind.
    """

    place: str
    stored_ms: int
    dropped: str


# The other runs' brokers refused the message too.
STAND_INS = {"binary": StandIn("binary.jsonl:174", 1_794_728_156_104, "TIMER_DELAY_MS")}


@dataclass
class Replay:
    """A replay under way.

    Attributes:
        in_bursts: Whether frames that clients sent one after the other are handled together.
            Otherwise each is handled before the next is sent.
        found: All differences so far.
        compared: How many frames of the servers were compared.
    """

    run: str
    root: Path
    in_bursts: bool
    found: list[Difference] = field(default_factory=list)
    compared: int = 0

    async def play(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ReplayLoop)
        self.loop = loop
        self.opaques: dict[tuple[tuple[str, int], int], int] = {}
        self.stage = Stage(self.run, self.root, ReplayClock(loop, booted_ms(self.run)))
        self.names = Names(ports=self.stage.ports)
        await self.stage.start()
        self.stage.make_broker()
        try:
            stand_in = STAND_INS.get(self.run)
            for step in steps(self.run):
                if stand_in and stand_in.stored_ms <= started_ms(self.run) + step.ms:
                    await self._send(stand_in)
                    stand_in = None
                await self._turn(step)
        finally:
            await self.stage.stop()
        recorded = stored_values(GOLDEN_DATA / f"store-{self.run}-clean")
        self.found += unlike("store", 0, recorded, stored_values(self.root / "store"), self.names)

    async def _wait_until(self, date_ms: float) -> None:
        await self.loop.advance((date_ms - booted_ms(self.run)) / 1000)

    async def _turn(self, step: Step) -> None:
        await self._wait_until(started_ms(self.run) + step.ms)
        if step.is_of_the_broker:
            await self._broker_turn(step)
        elif step.from_client:
            line = await self.stage.line(step.connection)
            ours = self._ours(step)
            if ours is not None:
                line.send(ours)
            if not self.in_bursts:
                await self.loop.settle()
        else:
            await self._expect(step, self.stage.lines[step.connection])
        if step.is_last and step.connection in self.stage.lines:
            await self._hang_up(step)

    async def _hang_up(self, step: Step) -> None:
        await self.loop.settle()
        line = self.stage.lines[step.connection]
        for command in line.inbox:
            self.found.append(Difference(step.place, command.code, "unasked", None, command))
        line.close()
        await self.loop.settle()

    # ------------------------------------------------------------------------- what clients send

    def _ours(self, step: Step) -> RemotingCommand | None:
        """A client's frame, with our offsets and ids instead of the recorded ones."""
        command = step.command
        if command.is_response:
            opaque = self.opaques.get((step.connection, command.opaque))
            # A request that was never sent has no response.
            return None if opaque is None else replace(command, opaque=opaque)
        fields = dict(command.ext_fields or {})
        name = PLACE_FIELDS.get(command.code)
        if name is not None:
            place = int(fields[name])
            fields[name] = str(self.names.places.get(place, place))
        return replace(command, ext_fields=fields)

    async def _send(self, stand_in: StandIn) -> None:
        await self._wait_until(stand_in.stored_ms)
        (command,) = (step.command for step in steps(self.run) if step.place == stand_in.place)
        fields = dict(command.ext_fields or {})
        properties = decode_properties(fields["i"].encode())
        del properties[stand_in.dropped]
        fields["i"] = encode_properties(properties).decode()
        line = await self.stage.line(("broker", 0))
        line.send(replace(command, ext_fields=fields))
        await self.loop.settle()
        answer = line.take(lambda _: True)
        assert answer is not None
        assert answer.code == 0, answer.remark

    # ------------------------------------------------------------------------ what servers send

    async def _expect(self, step: Step, line: Line) -> None:
        await self.loop.settle()
        ours = await self._arrival(step, line)
        if ours is None:
            self.compared += 1
            difference = Difference(step.place, step.request.code, "missing", step.command, None)
            self.found.append(difference)
            return
        if not step.command.is_response:
            self.opaques[step.connection, step.command.opaque] = ours.opaque
        self._compare(step, ours)

    async def _arrival(self, step: Step, line: Line) -> RemotingCommand | None:
        """The frame that corresponds to a recorded one, once it has arrived."""
        limit_s = self.loop.time() + PATIENCE_S
        while True:
            ours = line.take(lambda command: _stands_for(command, step.command))
            due_s = self.loop.next_due_s()
            if ours is not None or due_s is None or due_s > limit_s:
                return ours
            await self.loop.advance(due_s)

    def _compare(self, step: Step, ours: RemotingCommand) -> None:
        self.compared += 1
        self.found += differences(step.place, step.request.code, step.command, ours, self.names)

    # ------------------------------------------------------------------- requests of the broker

    async def _broker_turn(self, step: Step) -> None:
        """Ours registers and unregisters by itself; its requests must match the recorded ones."""
        if not step.command.is_response and step.command.code == Code.UNREGISTER_BROKER:
            await self.stage.stop_broker()
        elif not step.command.is_response and step.command.opaque == 0:
            await self.stage.start_broker()
        await self.loop.settle()
        exchange = next(
            exchange
            for exchange in reversed(self.stage.tap.exchanges)
            if exchange.request.code == step.request.code
        )
        if step.command.is_response:
            assert exchange.answer is not None, step.place
            self._compare(step, exchange.answer)
        else:
            self._compare(step, _like(step.command, exchange.request))


def _like(recorded: RemotingCommand, ours: RemotingCommand) -> RemotingCommand:
    """Our registration with the recorded one's topics: after the first it names changed ones."""
    if not recorded.body:
        return ours
    body, topics = _topics(ours)
    _, named = _topics(recorded)
    if len(named) == 1:
        for topic in topics.keys() - named.keys():
            del topics[topic]
    return replace(ours, body=dumps(body).encode())


def _topics(registration: RemotingCommand) -> tuple[JsonValue, dict[JsonKey, JsonValue]]:
    body = loads(registration.body)
    assert isinstance(body, dict)
    wrapper = body["topicConfigSerializeWrapper"]
    assert isinstance(wrapper, dict)
    table = wrapper["topicConfigTable"]
    assert isinstance(table, dict)
    return body, table


def _stands_for(ours: RemotingCommand, recorded: RemotingCommand) -> bool:
    if recorded.is_response:
        return ours.is_response and ours.opaque == recorded.opaque
    if ours.is_response or ours.code != recorded.code:
        return False
    key = KEYS[recorded.code]
    return (ours.ext_fields or {})[key] == (recorded.ext_fields or {})[key]


def replay(run: str, root: Path, *, in_bursts: bool) -> Replay:
    """Replay a run from its first frame to its last."""
    played = Replay(run, root, in_bursts)
    with asyncio.Runner(loop_factory=ReplayLoop) as runner:
        runner.run(played.play())
    return played
