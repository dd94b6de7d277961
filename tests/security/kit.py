"""A victim in its own process, hostile peers, and a witness who must not notice anything."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Self

import pytest

from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import FrameDecoder, SerializeType
from tests.unit.remoting.net_kit import ECHO

LOOPBACK = "127.0.0.1"
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
ONEWAY = 2

MEMORY_GROWTH_MAX_BYTES = 160 << 20
"""What an attack may cost at its height; the attacks below would cost far more if nothing held."""

TRACES = ("Traceback", 'File "', "\n  at ", ".py", "roquet.", "/store", "site-packages")
"""What no peer may read about our inside."""

at_broker = pytest.mark.parametrize("scene", ["broker"], indirect=True)

_LIMITED = 'ulimit -n "$1" && shift && exec "$@"'


class Victim:
    """A process that is attacked.

    Attributes:
        kind: What runs in it.
        port: Where it listens.
        folder: Its files.
    """

    def __init__(
        self, kind: str, folder: Path, process: asyncio.subprocess.Process, port: int
    ) -> None:
        self.kind = kind
        self.folder = folder
        self.port = port
        self._process = process

    @classmethod
    async def start(cls, kind: str, folder: Path, *, open_files: int | None = None) -> Self:
        """Start a process, optionally with a limit of open files that it cannot raise."""
        limited = () if open_files is None else ("sh", "-c", _LIMITED, "sh", str(open_files))
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(*limited, sys.executable, "-m", "tests.security.victim", kind, str(folder)),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        victim = cls(kind, folder, process, 0)
        victim.port = (await victim._line())["port"]
        return victim

    async def _line(self) -> dict[str, int]:
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = await self._process.stdout.readline()
        assert line, f"the victim died:\n{self.log()}"
        facts: dict[str, int] = json.loads(line)
        return facts

    async def facts(self) -> dict[str, int]:
        """Its own facts: tasks, connections, counters."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        return await self._line()

    def sockets(self) -> int:
        """Descriptors that are sockets; files come and go with topics."""
        count = 0
        for path in Path(f"/proc/{self._process.pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                count += str(path.readlink()).startswith("socket:")
        return count

    def descriptors(self) -> int:
        """Descriptors of all kinds."""
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    def anonymous_bytes(self) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("RssAnon")]
        return int(line.split()[1]) << 10

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(PATIENCE_S):
            code = await self._process.wait()
        assert code == 0, self.log()

    async def kill(self) -> None:
        """End it at once; fine when it has ended already."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


def request(
    code: int,
    fields: Mapping[str, str] | None = None,
    *,
    body: bytes = b"",
    opaque: int = 1,
    oneway: bool = False,
    serialize_type: SerializeType = SerializeType.JSON,
) -> bytes:
    """The frame of a request with any ext fields."""
    return encode_command(
        RemotingCommand(
            code=code,
            version=493,
            opaque=opaque,
            flag=ONEWAY if oneway else 0,
            ext_fields=None if fields is None else dict(fields),
            body=body,
            serialize_type=serialize_type,
        )
    )


def raw_frame(header: bytes, body: bytes = b"", *, mark: int = 0) -> bytes:
    """A frame with any bytes for a header."""
    length = 4 + len(header) + len(body)
    return length.to_bytes(4, "big") + (mark << 24 | len(header)).to_bytes(4, "big") + header + body


def send_fields(topic: str = "Orders", queue_id: str = "0", **changes: str) -> dict[str, str]:
    """The ext fields of SEND_MESSAGE_V2."""
    properties = "UNIQ_KEY\x017F0000010B9F18B4AAC2000000000001\x02WAIT\x01true\x02"
    fields = {"a": "group", "b": topic, "c": "TBW102", "d": "4", "e": queue_id, "f": "0"}
    fields |= {"g": "1700000000000", "h": "0", "i": properties, "j": "0", "k": "false"}
    return {**fields, "m": "false", **changes}


def pull_fields(
    topic: str = "Orders", queue_id: str = "0", offset: str = "0", **changes: str
) -> dict[str, str]:
    """The ext fields of PULL_MESSAGE."""
    fields = {"consumerGroup": "group", "topic": topic, "queueId": queue_id, "queueOffset": offset}
    fields |= {"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "subscription": "*"}
    return {**fields, "suspendTimeoutMillis": "0", "subVersion": "0", **changes}


class Peer:
    """A connection that sends whatever bytes it wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()

    @classmethod
    async def connect(cls, victim: Victim, *, limit: int = 1 << 16) -> Self:
        return cls(*await asyncio.open_connection(LOOPBACK, victim.port, limit=limit))

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def push(self, data: bytes) -> bool:
        """Write as far as the victim reads; whether it took all within a moment."""
        self.writer.write(data)
        try:
            async with asyncio.timeout(0.5):
                await self.writer.drain()
        except (TimeoutError, OSError):
            return False
        return True

    def stop_reading(self) -> None:
        """Leave everything that comes in the kernel's buffers."""
        transport = self.writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()

    async def answer(self) -> RemotingCommand:
        async with asyncio.timeout(PATIENCE_S):
            while (frame := self._decoder.next_frame()) is None:
                data = await self.reader.read(1 << 16)
                if not data:
                    raise EOFError
                self._decoder.feed(data)
        return decode_command(frame)

    async def ask(self, data: bytes) -> RemotingCommand:
        self.write(data)
        return await self.answer()

    async def wait_closed_by_victim(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            with suppress(OSError):
                while await self.reader.read(1 << 16):
                    pass

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    def abort(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def peer_of(victim: Victim) -> AsyncIterator[Peer]:
    peer = await Peer.connect(victim)
    try:
        yield peer
    finally:
        peer.abort()


def good_request(victim: Victim) -> bytes:
    """The witness's request."""
    match victim.kind:
        case "server":
            return request(ECHO, body=b"hello")
        case "namesrv":
            return request(RequestCode.GET_BROKER_CLUSTER_INFO)
    return request(RequestCode.SEND_MESSAGE_V2, send_fields("Witness"), body=b"hello")


class Witness:
    """Sends requests all the time, and must always get responses."""

    def __init__(self, victim: Victim, peer: Peer) -> None:
        self.answered = 0
        self._question = good_request(victim)
        self._peer = peer
        self._task = asyncio.create_task(self._ask_on())

    async def _ask_on(self) -> None:
        while True:
            answer = await self._peer.ask(self._question)
            assert answer.code == 0, f"the witness got {answer.code} {answer.remark}"
            self.answered += 1
            await asyncio.sleep(0.002)

    async def hears_more(self, count: int = 3) -> None:
        """Wait until some more requests got responses."""
        wanted = self.answered + count
        async with asyncio.timeout(PATIENCE_S):
            while self.answered < wanted:
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.002)

    async def leave(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError, OSError, EOFError):
            await self._task
        await self._peer.close()


class Scene:
    """A victim with its witness, and what the victim was like before the attack."""

    def __init__(self, victim: Victim, witness: Witness) -> None:
        self.victim = victim
        self.witness = witness
        self.memory_max_bytes = MEMORY_GROWTH_MAX_BYTES
        self._before: dict[str, int] = {}
        self._sockets = 0
        self._memory = 0

    async def look(self) -> None:
        """Record the normal state."""
        await self.witness.hears_more()
        self._before = await self.victim.facts()
        self._sockets = self.victim.sockets()
        self._memory = self.victim.anonymous_bytes()

    async def hold(self) -> dict[str, int]:
        """During the attack: the witness gets responses, and memory is bounded."""
        await self.witness.hears_more()
        grown = self.victim.anonymous_bytes() - self._memory
        assert grown < self.memory_max_bytes, f"{grown >> 20} MiB more memory than before"
        facts = await self.victim.facts()
        unexpected = facts["processor_errors"] - self._before["processor_errors"]
        assert unexpected == 0, self.victim.log()[-4000:]
        return facts

    async def all_gone(self) -> None:
        """After the attack: nothing of it is left."""
        before = {**self._before, "in_flight": 0, "sockets": self._sockets}

        async def left() -> dict[str, int]:
            now = {**await self.victim.facts(), "sockets": self.victim.sockets()}
            names = ("connections", "tasks", "in_flight", "sockets")
            return {name: now[name] for name in names if now[name] > before[name]}

        deadline = time.monotonic() + PATIENCE_S
        while remains := await left():
            assert time.monotonic() < deadline, f"left: {remains}"
            await asyncio.sleep(0.02)
        await self.hold()


def assert_tells_nothing(answer: RemotingCommand) -> None:
    """A response must not reveal internals."""
    remark = answer.remark or ""
    assert [trace for trace in TRACES if trace in remark] == [], remark
    assert b"Traceback" not in answer.body


async def refused_or_answered(victim: Victim, frames: Sequence[bytes]) -> list[RemotingCommand]:
    """Send frames, each on a connection of its own; return the responses."""
    answers: list[RemotingCommand] = []
    for frame in frames:
        async with peer_of(victim) as peer:
            peer.write(frame)
            with suppress(EOFError, OSError):
                answer = await peer.answer()
                assert_tells_nothing(answer)
                answers.append(answer)
    return answers


def allow_descriptors(count: int) -> None:
    """Let this process have many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


@contextmanager
def silent_connections(victim: Victim, count: int, *starts: bytes) -> Iterator[None]:
    """Connections that send a little, one start or another, and then say nothing."""
    with ExitStack() as stack:
        for number in range(count):
            each = stack.enter_context(socket.create_connection((LOOPBACK, victim.port)))
            each.sendall(starts[number % len(starts)])
        yield
