"""A TCP proxy that makes a network bad while a test runs.

Owns :class:`FaultProxy` and the faults of its two :class:`Direction`. Bytes are passed on as they
are, so it serves any protocol, with TLS or without.

.. code-block:: text

                 to_server ──►
    client ◄────► proxy ◄────► server          delay   bytes come later, in order, none is lost
                 ◄── to_client                 dribble a few bytes at a time
                                               hold    nothing comes until it is released
    cut           an orderly end (FIN)         refuse  no new connection is taken
    reset         a sudden one (RST)

Invariants:

* A fault that lasts holds for open connections and for new ones, until it is healed.
* Without a fault nothing is changed, also not the way in which a connection ends: an end of one
  direction is passed on as that, a reset as a reset.
* The proxy holds back at most :data:`HELD_BYTES_MAX` bytes of a direction of a connection; then it
  reads no more, as a slow network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import NamedTuple, Self

from roquet.errors import ConfigError
from roquet.remoting.client import split_address
from roquet.runtime.network import joined, reserve_port, reset_on_close

__all__ = ["Direction", "FaultProxy"]

_CHUNK_BYTES = 64 << 10
_CHUNKS_MAX = 16
HELD_BYTES_MAX = _CHUNK_BYTES * _CHUNKS_MAX
"""Besides what the sockets themselves hold."""


class FaultProxy:
    """Stands between clients and a server, and does to their connections what a test asks.

    Args:
        target: The server's address, ``host:port``.
        host: The address that clients connect to.
        port: The port; 0 for any free one.

    Attributes:
        to_server: What happens to the bytes of clients.
        to_client: What happens to the bytes of the server.

    Example:
        >>> async def example() -> bytes:
        ...     async def hello(reader, writer):
        ...         writer.write(b"hello")
        ...         writer.close()
        ...     server = await asyncio.start_server(hello, "127.0.0.1", 0)
        ...     port = server.sockets[0].getsockname()[1]
        ...     async with server, FaultProxy(f"127.0.0.1:{port}") as proxy:
        ...         proxy.to_client.cut_after(4)
        ...         reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        ...         received = await reader.read()
        ...         writer.close()
        ...         return received
        >>> asyncio.run(example())
        b'hell'
    """

    def __init__(self, target: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.host = host
        self.port = port
        self._target = split_address(target)
        self.to_server = Direction()
        self.to_client = Direction()
        self._links: dict[asyncio.Task[None], _Link] = {}
        self._changed = _Signal()
        self._server: asyncio.Server | None = None
        self._held = ExitStack()

    @property
    def address(self) -> str:
        """The address to give to clients."""
        return joined(self.host, self.port)

    @property
    def connection_count(self) -> int:
        """How many connections of clients there are."""
        return len(self._links)

    async def wait_connections(self, count: int) -> None:
        """Wait until there are so many connections."""
        while len(self._links) != count:
            await self._changed.wait()

    # ---------------------------------------------------------------------- start and stop

    async def start(self) -> None:
        """Begin to take connections.

        Raises:
            ConfigError: The address cannot be had.
        """
        try:
            held = self._held.enter_context(reserve_port(self.host, self.port))
            self.port = held.getsockname()[1]
            await self.accept()
        except OSError as error:
            self._held.close()
            raise ConfigError(
                f"Cannot listen on {self.address}", code="listen", detail=str(error)
            ) from None

    async def stop(self) -> None:
        """Take no more connections, and drop those that there are."""
        await self.refuse()
        links = list(self._links)
        for task in links:
            task.cancel()
        await asyncio.gather(*links, return_exceptions=True)
        self._held.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    # ------------------------------------------------------------------------------ faults

    def cut(self) -> None:
        """End all connections in good order; what is held back is lost."""
        for link in self._links.values():
            link.cut()

    def reset(self) -> None:
        """End all connections by a reset of both ends."""
        for link in self._links.values():
            link.reset()

    async def refuse(self) -> None:
        """Have new connections refused, as if no program listened; open ones go on."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    async def accept(self) -> None:
        """Take new connections again."""
        if self._server is None:
            self._server = await asyncio.start_server(
                self._connected, self.host, self.port, reuse_address=True
            )

    async def heal(self) -> None:
        """End all faults; what was held back comes now."""
        self.to_server.heal()
        self.to_client.heal()
        await self.accept()

    # -------------------------------------------------------------------------- connections

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self.to_server, self.to_client)
        link.client.attach(reader, writer)
        task = asyncio.get_running_loop().create_task(link.run(*self._target))
        self._links[task] = link
        self._changed.tell()
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._links.pop(task).drop()
        self._changed.tell()


class Direction:
    """What happens to the bytes that go one way.

    Attributes:
        passed_bytes: How many went through so far.
    """

    def __init__(self) -> None:
        self.passed_bytes = 0
        self._delay_ms = 0.0
        self._dribble: _Dribble | None = None
        self._is_held = False
        self._trap: _Trap | None = None
        self.pumps: set[_Pump] = set()
        self._changed = _Signal()

    def delay(self, delay_ms: float) -> None:
        """Have every byte arrive so much later; the rate stays."""
        self._delay_ms = delay_ms
        self._changed.tell()

    def dribble(self, size_bytes: int = 1, *, every_ms: float = 1.0) -> None:
        """Let through a few bytes at a time, with a pause after each.

        Raises:
            ConfigError: That is no number of bytes.
        """
        if size_bytes < 1:
            raise ConfigError(f"{size_bytes} bytes at a time are none.")
        self._dribble = _Dribble(size_bytes, every_ms)
        self._changed.tell()

    def hold(self) -> None:
        """Let nothing through until :meth:`release`; the connections stay open."""
        self._is_held = True
        self._changed.tell()

    def release(self) -> None:
        """Let through what :meth:`hold` held back, and all that follows."""
        self._is_held = False
        self._changed.tell()

    def cut(self) -> None:
        """Tell the receivers that nothing follows; the senders hear nothing of it."""
        for pump in self.pumps:
            pump.cut()

    def reset(self) -> None:
        """Reset the connections of the receivers; the senders hear nothing of it.

        To them the connections are open, and swallow what they send.
        """
        for pump in self.pumps:
            pump.reset()

    def cut_after(self, size_bytes: int) -> None:
        """Let through so many bytes more, then end the connection that carried the last.

        With 0 the connection ends whose bytes are next. Once only.
        """
        self._trap = _Trap(size_bytes, _Link.cut)

    def reset_after(self, size_bytes: int) -> None:
        """As :meth:`cut_after`, by a reset of both ends."""
        self._trap = _Trap(size_bytes, _Link.reset)

    def heal(self) -> None:
        """End all faults of this direction; what was held back comes now."""
        self._delay_ms = 0.0
        self._dribble = None
        self._trap = None
        self.release()

    # What follows is for the pumps.

    def wake(self) -> None:
        """Have the pumps look again at what they wait for."""
        self._changed.tell()

    def take(self, data: memoryview) -> tuple[memoryview, Callable[[_Link], None] | None]:
        """What of some bytes goes through next, and what then happens to the connection."""
        if self._dribble is not None:
            data = data[: self._dribble.size_bytes]
        trap = self._trap
        if trap is None:
            return data, None
        data = data[: trap.left_bytes]
        left_bytes = trap.left_bytes - len(data)
        self._trap = _Trap(left_bytes, trap.action) if left_bytes else None
        return data, None if left_bytes else trap.action

    async def wait_due(self, pump: _Pump, arrived_s: float) -> None:
        """Wait until bytes that came at a time may go on, or there is nobody to get them."""
        loop = asyncio.get_running_loop()
        while not pump.is_cut:
            if self._is_held:
                await self._changed.wait()
                continue
            left_s = arrived_s + self._delay_ms / 1000 - loop.time()
            if left_s <= 0:
                return
            await self._changed.wait(left_s)

    async def pause(self) -> None:
        """Wait between two pieces, if bytes are to dribble."""
        if self._dribble is not None:
            await self._changed.wait(self._dribble.every_ms / 1000)


class _Dribble(NamedTuple):
    size_bytes: int
    every_ms: float


class _Trap(NamedTuple):
    left_bytes: int
    action: Callable[[_Link], None]


class _Chunk(NamedTuple):
    """What was read.

    Attributes:
        arrived_s: When, by the loop's clock.
        data: The bytes; none at the end; ``None`` for a reset.
    """

    arrived_s: float
    data: bytes | None


class _Signal:
    """Wakes all who wait."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        told, self._event = self._event, asyncio.Event()
        told.set()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the next call of :meth:`tell`, or for a time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()


class _End:
    """One end of a connection, which may still have to be made.

    What is done to it before is made up for when it is there.
    """

    def __init__(self) -> None:
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._fate: Callable[[], None] | None = None

    def attach(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take the streams of the connection, which is there now."""
        # To drain is then to wait until all is in the hands of the kernel.
        writer.transport.set_write_buffer_limits(high=0)
        self._streams = reader, writer
        if self._fate is not None:
            self._fate()

    async def read(self) -> bytes:
        """Some bytes; none at the end."""
        reader, _ = self._opened()
        return await reader.read(_CHUNK_BYTES)

    async def write(self, data: memoryview) -> None:
        """Send bytes."""
        _, writer = self._opened()
        writer.write(data)
        await writer.drain()

    def finish(self) -> None:
        """Say that nothing follows."""
        if self._streams is None:
            self._fate = self._fate or self.finish
        elif not self._streams[1].is_closing():
            with suppress(OSError):
                self._streams[1].write_eof()

    def reset(self) -> None:
        """End the connection by a reset."""
        if self._streams is None:
            self._fate = self.reset
        elif not self._streams[1].is_closing():
            reset_on_close(self._streams[1].get_extra_info("socket"))
            self._streams[1].transport.abort()

    async def close(self) -> None:
        """Close once what was written is sent."""
        _, writer = self._opened()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    def drop(self) -> None:
        """Close now."""
        if self._streams is not None:
            self._streams[1].transport.abort()

    def _opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert self._streams is not None, "bytes are carried once both ends are there"
        return self._streams


class _Link:
    """A connection of a client, and the one to the server that stands for it.

    Args:
        to_server: What happens to the bytes of the client.
        to_client: What happens to those of the server.

    Attributes:
        client: The end of the client.
    """

    def __init__(self, to_server: Direction, to_client: Direction) -> None:
        self.client = _End()
        self._server = _End()
        there = _Pump(self, to_server, self.client, self._server)
        back = _Pump(self, to_client, self._server, self.client)
        there.opposite, back.opposite = back, there
        self._pumps = (there, back)

    async def run(self, host: str, port: int) -> None:
        """Connect to the server, and pass on until both ends are done."""
        try:
            self._server.attach(*await asyncio.open_connection(host, port))
        except OSError:
            self.client.reset()
            return
        async with asyncio.TaskGroup() as tasks:
            for pump in self._pumps:
                tasks.create_task(pump.run())
        await self.client.close()
        await self._server.close()

    def cut(self) -> None:
        """End it in good order."""
        for pump in self._pumps:
            pump.cut()

    def reset(self) -> None:
        """Reset both ends."""
        for pump in self._pumps:
            pump.reset()

    def drop(self) -> None:
        """Close what is still open."""
        for pump in self._pumps:
            pump.forget()
        self.client.drop()
        self._server.drop()


class _Pump:
    """Carries bytes from one end to the other.

    Attributes:
        opposite: The pump of the other direction.
        is_cut: Whether what comes is thrown away.
        is_silent: Whether the end of the source is kept from the destination.
    """

    def __init__(self, link: _Link, direction: Direction, source: _End, destination: _End) -> None:
        self.opposite = self
        self.is_cut = False
        self.is_silent = False
        self._link = link
        self._direction = direction
        self._source = source
        self._destination = destination
        self._chunks: asyncio.Queue[_Chunk] = asyncio.Queue(_CHUNKS_MAX)
        direction.pumps.add(self)

    async def run(self) -> None:
        """Carry until the source ends."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._write())

    def forget(self) -> None:
        """Be out of the reach of faults."""
        self._direction.pumps.discard(self)

    def cut(self) -> None:
        """Let the destination know of an end, and throw away what follows."""
        if not self.is_cut:
            self.is_cut = True
            self._destination.finish()
            self._direction.wake()

    def reset(self) -> None:
        """Reset the destination, and keep that from the source."""
        self.is_cut = True
        self.opposite.mute()
        self._destination.reset()
        self._direction.wake()

    def mute(self) -> None:
        """Throw away what follows, and the news of the end too."""
        self.is_cut = self.is_silent = True
        self._direction.wake()

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        data: bytes | None = None
        while data != b"":
            try:
                data = await self._source.read()
            except OSError:
                await self._chunks.put(_Chunk(loop.time(), None))
                return
            await self._chunks.put(_Chunk(loop.time(), data))

    async def _write(self) -> None:
        while True:
            arrived_s, data = await self._chunks.get()
            if data:
                await self._pass_on(arrived_s, memoryview(data))
                continue
            await self._direction.wait_due(self, arrived_s)
            if not self.is_silent:
                self._end(is_reset=data is None)
            return

    def _end(self, *, is_reset: bool) -> None:
        if is_reset:
            self._link.reset()
        elif not self.is_cut:
            self._destination.finish()

    async def _pass_on(self, arrived_s: float, data: memoryview) -> None:
        direction = self._direction
        while data:
            await direction.wait_due(self, arrived_s)
            if self.is_cut:
                return
            piece, action = direction.take(data)
            data = data[len(piece) :]
            direction.passed_bytes += len(piece)
            try:
                await self._destination.write(piece)
            except OSError:
                # Its own end says how the connection ended, in the other direction.
                self.is_cut = True
                return
            if action is not None:
                action(self._link)
                return
            await direction.pause()
