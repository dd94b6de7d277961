"""One connection through the proxy for faults, and what happens to its bytes.

Owns the faults of a :class:`Direction`, and the way of bytes from one end to the other:

.. code-block:: text

    source ──► read, stamped with the time ──► at most 16 chunks ──► due, not held ──► destination
                                                                     pieces, traps

Invariants:

* A fault reaches a connection from the moment a client has made it, also before the server is
  connected: what was done to an end that is not there is made up for.
* Who throws bytes away keeps reading, so that an end is orderly and nobody is stuck.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from roquet.errors import ConfigError
from roquet.runtime.network import reset_on_close

__all__ = ["HELD_BYTES_MAX", "Direction", "Link", "Signal"]

_CHUNK_BYTES = 64 << 10
_CHUNKS_MAX = 16
HELD_BYTES_MAX = _CHUNK_BYTES * _CHUNKS_MAX
"""What is held back of a direction of a connection, besides what the sockets themselves hold.

Example:
    assert HELD_BYTES_MAX >= 1 << 20
"""


class Direction:
    """What happens to the bytes that go one way.

    Attributes:
        passed_bytes: How many went through so far.

    Example:
        proxy.to_server.delay(20)
        proxy.to_client.cut_after(100)
        print(proxy.to_server.passed_bytes)
    """

    def __init__(self) -> None:
        self.passed_bytes = 0
        self._delay_ms = 0.0
        self._dribble: _Dribble | None = None
        self._is_held = False
        self._trap: _Trap | None = None
        self.pumps: set[_Pump] = set()
        self._changed = Signal()

    def delay(self, delay_ms: float) -> None:
        """Have every byte arrive so much later; the rate stays.

        Example:
            proxy.to_server.delay(20)
        """
        self._delay_ms = delay_ms
        self._changed.tell()

    def dribble(self, size_bytes: int = 1, *, every_ms: float = 1.0) -> None:
        """Let through a few bytes at a time, with a pause after each.

        Raises:
            ConfigError: That is no number of bytes.

        Example:
            proxy.to_client.dribble(3, every_ms=0.5)
        """
        if size_bytes < 1:
            raise ConfigError(f"{size_bytes} bytes at a time are none.")
        self._dribble = _Dribble(size_bytes, every_ms)
        self._changed.tell()

    def hold(self) -> None:
        """Let nothing through until :meth:`release`; the connections stay open.

        Example:
            proxy.to_client.hold()  # answers are late from now on
            proxy.to_client.release()
        """
        self._is_held = True
        self._changed.tell()

    def release(self) -> None:
        """Let through what :meth:`hold` held back, and all that follows.

        Example:
            proxy.to_client.hold()
            proxy.to_client.release()
        """
        self._is_held = False
        self._changed.tell()

    def cut(self) -> None:
        """Tell the receivers that nothing follows; the senders hear nothing of it.

        Example:
            proxy.to_client.cut()
        """
        for pump in self.pumps:
            pump.cut()

    def reset(self) -> None:
        """Reset the connections of the receivers; the senders hear nothing of it.

        To them the connections are open, and swallow what they send.

        Example:
            proxy.to_server.reset()
        """
        for pump in self.pumps:
            pump.reset()

    def cut_after(self, size_bytes: int) -> None:
        """Let through so many bytes more, then end the connection that carried the last.

        With 0 the connection ends whose bytes are next. Once only.

        Example:
            proxy.to_client.cut_after(4)  # in the middle of a frame
        """
        self._trap = _Trap(size_bytes, Link.cut)

    def reset_after(self, size_bytes: int) -> None:
        """As :meth:`cut_after`, by a reset of both ends.

        Example:
            proxy.to_server.reset_after(0)  # with the next bytes
        """
        self._trap = _Trap(size_bytes, Link.reset)

    def heal(self) -> None:
        """End all faults of this direction; what was held back comes now.

        Example:
            proxy.to_server.heal()
        """
        self._delay_ms = 0.0
        self._dribble = None
        self._trap = None
        self.release()

    # What follows is for the pumps.

    def wake(self) -> None:
        """Have the pumps look again at what they wait for.

        Example:
            proxy.to_client.wake()
        """
        self._changed.tell()

    def take(self, data: memoryview) -> tuple[memoryview, Callable[[Link], None] | None]:
        """What of some bytes goes through next, and what then happens to the connection.

        Example:
            data, then = proxy.to_server.take(memoryview(b"hello"))
            assert (bytes(data), then) == (b"hello", None)
        """
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
        """Wait until bytes that came at a time may go on, or there is nobody to get them.

        Example:
            for pump in proxy.to_client.pumps:
                await proxy.to_client.wait_due(pump, 0.0)
        """
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
        """Wait between two pieces, if bytes are to dribble.

        Example:
            await proxy.to_client.pause()
        """
        if self._dribble is not None:
            await self._changed.wait(self._dribble.every_ms / 1000)


class _Dribble(NamedTuple):
    size_bytes: int
    every_ms: float


class _Trap(NamedTuple):
    left_bytes: int
    action: Callable[[Link], None]


class _Chunk(NamedTuple):
    """What was read.

    Attributes:
        arrived_s: When, by the loop's clock.
        data: The bytes; none at the end; ``None`` for a reset.
    """

    arrived_s: float
    data: bytes | None


class Signal:
    """Wakes all who wait."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Wake them."""
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


class Link:
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

    def __init__(self, link: Link, direction: Direction, source: _End, destination: _End) -> None:
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
