"""Where a run is replayed: a fresh name server and broker, and connections to them.

Owns the sockets of a replay. The broker speaks to its name server through a tap, as it did when
the run was recorded, so that what it registers can be compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from roquet.broker.broker import Broker
from roquet.broker.settings import load_broker_settings
from roquet.model.properties_text import parse_properties
from roquet.namesrv.config import NamesrvConfig
from roquet.namesrv.namesrv import Namesrv
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import FrameDecoder
from roquet.runtime.clock import Clock
from tests.golden.replay_steps import recorded_settings

LOOPBACK = "127.0.0.1"

EXT_SETTINGS = {
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "mappedFileSizeConsumeQueueExt": "4096",
}
"""What the run ``ext`` had besides the settings of ``json``; nobody asked its broker for them."""


class RecordedChance:
    """The random choice of the recorded runs: the second queue of several."""

    def randrange(self, start: int, /) -> int:
        return min(1, start - 1)

    def getrandbits(self, k: int, /) -> int:
        return min(1, k)


class Line(asyncio.Protocol):
    """One connection of a client.

    Attributes:
        inbox: What the server sent and was not taken yet.
        port: Ours.
    """

    def __init__(self) -> None:
        self.inbox: list[RemotingCommand] = []
        self.port = 0
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.port = transport.get_extra_info("sockname")[1]

    def data_received(self, data: bytes) -> None:
        self._decoder.feed(data)
        self.inbox += map(decode_command, self._decoder)

    def send(self, command: RemotingCommand) -> None:
        assert self._transport is not None
        self._transport.write(encode_command(command))

    def take(self, wanted: Callable[[RemotingCommand], bool]) -> RemotingCommand | None:
        """The first frame of a kind, if one has arrived."""
        for at, command in enumerate(self.inbox):
            if wanted(command):
                return self.inbox.pop(at)
        return None

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


@dataclass(slots=True)
class Exchange:
    """A request that passed a tap, and its response once that passed too."""

    request: RemotingCommand
    answer: RemotingCommand | None = None


class Tap:
    """Relays and keeps the traffic between broker and name server."""

    def __init__(self, target_port: int) -> None:
        self.exchanges: list[Exchange] = []
        self.port = 0
        self._target_port = target_port
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        above, below = await asyncio.open_connection(LOOPBACK, self._target_port)
        asked: dict[int, Exchange] = {}

        def request(command: RemotingCommand) -> None:
            asked[command.opaque] = Exchange(command)
            self.exchanges.append(asked[command.opaque])

        def answer(command: RemotingCommand) -> None:
            if command.is_response:
                asked[command.opaque].answer = command

        await asyncio.gather(_hand_on(reader, below, request), _hand_on(above, writer, answer))


async def _hand_on(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    seen: Callable[[RemotingCommand], None],
) -> None:
    decoder = FrameDecoder()
    while data := await reader.read(1 << 16):
        decoder.feed(data)
        for frame in decoder:
            seen(decode_command(frame))
        writer.write(data)
    writer.close()


@dataclass
class Stage:
    """A name server, a broker, and the connections to them by their names in the recording.

    Attributes:
        ports: Our ports, and the corresponding ones in the recording.
    """

    run: str
    root: Path
    clock: Clock
    lines: dict[tuple[str, int], Line] = field(default_factory=dict)
    ports: dict[int, int] = field(default_factory=dict)

    async def start(self) -> None:
        config = NamesrvConfig(
            listen_port=0,
            kv_config_path=str(self.root / "kvConfig.json"),
            config_store_path=str(self.root / "namesrv.properties"),
        )
        self.namesrv = Namesrv(config, clock=self.clock)
        assert await self.namesrv.start() == []
        self.tap = Tap(self.namesrv.port)
        await self.tap.start()
        self.broker: Broker | None = None
        self._is_broker_started = False

    def make_broker(self) -> None:
        """Make the broker, which begins its tables; it takes part once it is started."""
        settings = load_broker_settings(self._settings_file(), {})
        # All settings of the recorded broker, so also those of features that are missing here.
        assert {each.code for each in settings.warnings} <= {"config_missing_feature"}
        self.broker = Broker(
            settings.config, settings.store, clock=self.clock, random=RecordedChance()
        )

    async def start_broker(self) -> None:
        """Start the broker that was made, or stop it and start another one on its store."""
        if self._is_broker_started:
            await self.stop_broker()
            self.make_broker()
        assert self.broker is not None
        assert await self.broker.start() == []
        self._is_broker_started = True
        ha_port = self.broker.components.ha.listen_port
        self.ports |= {self.broker.port: 10911, ha_port: 10912}

    def _settings_file(self) -> Path:
        """The file of the recorded broker, except its paths and what would be refused."""
        settings = parse_properties(recorded_settings("json" if self.run == "ext" else self.run))
        if self.run == "ext":
            settings |= EXT_SETTINGS
        del settings["storePathCommitLog"]
        settings |= {
            "timerWheelEnable": "false",
            "bindAddress": LOOPBACK,
            "listenPort": "0",
            "haListenPort": "0",
            "namesrvAddr": f"{LOOPBACK}:{self.tap.port}",
            "storePathRootDir": str(self.root / "store"),
        }
        path = self.root / "broker.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    async def stop_broker(self) -> None:
        if self.broker is not None:
            await self.broker.stop()
            self.broker = None

    async def stop(self) -> None:
        for line in self.lines.values():
            line.close()
        await self.stop_broker()
        await self.tap.stop()
        await self.namesrv.stop()

    async def line(self, connection: tuple[str, int]) -> Line:
        """The connection of that name, opened on first use."""
        line = self.lines.get(connection)
        if line is None:
            line = await self._connect(self._port_of(connection[0]))
            self.lines[connection] = line
            self.ports[line.port] = connection[1]
        return line

    async def _connect(self, port: int) -> Line:
        """A connection from a port of its own: messages identify their sender by it."""
        while True:
            _, line = await asyncio.get_running_loop().create_connection(Line, LOOPBACK, port)
            if line.port not in self.ports:
                return line
            line.close()

    def _port_of(self, server: str) -> int:
        if server == "namesrv":
            return self.namesrv.port
        assert self.broker is not None
        return self.broker.port
