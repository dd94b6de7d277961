"""One connection through the fault proxy, and what happens to its bytes.

Owns the faults of a :class:`Direction`, and how bytes get from one end to the other:

.. code-block:: text

    source ──► read, stamped with the time ──► at most 16 chunks ──► due, not held ──► destination
                                                                     pieces, traps

Invariants:

* A fault applies from the moment a client has connected, even before the proxy has connected to the
  server: it is applied to the missing end once that exists.
* A pump that discards bytes keeps reading, so that closes are orderly and nobody gets stuck.
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
"""The limit on bytes held back per connection and direction, besides the socket buffers.

Example:
    assert HELD_BYTES_MAX >= 1 << 20
"""


class Direction:
    """The faults of one direction.

    Attributes:
        passed_bytes: How many bytes went through so far.

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
        """Delay every byte by this time; the rate stays the same.

        Example:
            proxy.to_server.delay(20)
        """
        self._delay_ms = delay_ms
        self._changed.tell()

    def dribble(self, size_bytes: int = 1, *, every_ms: float = 1.0) -> None:
        """Let through a few bytes at a time, with a pause after each.

        Raises:
            ConfigError: The number of bytes is less than 1.

        Example:
            proxy.to_client.dribble(3, every_ms=0.5)
        """
        if size_bytes < 1:
            raise ConfigError(f"size_bytes is {size_bytes}, but must be 1 or more.")
        self._dribble = _Dribble(size_bytes, every_ms)
        self._changed.tell()

    def hold(self) -> None:
        """Let nothing through until :meth:`release`; the connections stay open.

        Example:
            proxy.to_client.hold()  # responses are late from now on
            proxy.to_client.release()
        """
        self._is_held = True
        self._changed.tell()

    def release(self) -> None:
        """Let through what :meth:`hold` held back, and everything after it.

        Example:
            proxy.to_client.hold()
            proxy.to_client.release()
        """
        self._is_held = False
        self._changed.tell()

    def cut(self) -> None:
        """Close the connections towards the receivers; the senders do not notice.

        Example:
            proxy.to_client.cut()
        """
        for pump in self.pumps:
            pump.cut()

    def reset(self) -> None:
        """Reset the connections of the receivers; the senders do not notice.

        For the senders the connections stay open, and swallow what they send.

        Example:
            proxy.to_server.reset()
        """
        for pump in self.pumps:
            pump.reset()

    def cut_after(self, size_bytes: int) -> None:
        """Let through this many more bytes, then close the connection that carried the last.

        With 0, closes the connection that sends next. Happens once.

        Example:
            proxy.to_client.cut_after(4)  # in the middle of a frame
        """
        self._trap = _Trap(size_bytes, Link.cut)

    def reset_after(self, size_bytes: int) -> None:
        """As :meth:`cut_after`, but reset both ends.

        Example:
            proxy.to_server.reset_after(0)  # with the next bytes
        """
        self._trap = _Trap(size_bytes, Link.reset)

    def heal(self) -> None:
        """End all faults of this direction, and release what was held back.

        Example:
            proxy.to_server.heal()
        """
        self._delay_ms = 0.0
        self._dribble = None
        self._trap = None
        self.release()

    # The rest is for the pumps.

    def wake(self) -> None:
        """Have the pumps check again what they wait for.

        Example:
            proxy.to_client.wake()
        """
        self._changed.tell()

    def take(self, data: memoryview) -> tuple[memoryview, Callable[[Link], None] | None]:
        """Return the part of the data to pass on next, and what to do to the connection after it.

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
        """Wait until bytes that arrived at this time are due, or nobody is left to get them.

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
        """Wait between two pieces, if bytes dribble.

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
    """A piece of data that was read.

    Attributes:
        arrived_s: When, by the loop's clock.
        data: The bytes; empty at the end of the stream; ``None`` for a reset.
    """

    arrived_s: float
    data: bytes | None


class Signal:
    """Wakes all waiters."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Wake all waiters."""
        told, self._event = self._event, asyncio.Event()
        told.set()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the next call of :meth:`tell`, or for the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()


class _End:
    """One end of a connection, which may not be connected yet.

    Whatever is done to it before that is applied once it is connected.
    """

    def __init__(self) -> None:
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._fate: Callable[[], None] | None = None

    def attach(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Set the streams of the connection, once it is open."""
        # Then draining waits until the kernel has everything.
        writer.transport.set_write_buffer_limits(high=0)
        self._streams = reader, writer
        if self._fate is not None:
            self._fate()

    async def read(self) -> bytes:
        """Read some bytes; empty at the end of the stream."""
        reader, _ = self._opened()
        return await reader.read(_CHUNK_BYTES)

    async def write(self, data: memoryview) -> None:
        """Send bytes."""
        _, writer = self._opened()
        writer.write(data)
        await writer.drain()

    def finish(self) -> None:
        """Send the end of the stream."""
        if self._streams is None:
            self._fate = self._fate or self.finish
        elif not self._streams[1].is_closing():
            with suppress(OSError):
                self._streams[1].write_eof()

    def reset(self) -> None:
        """Reset the connection."""
        if self._streams is None:
            self._fate = self.reset
        elif not self._streams[1].is_closing():
            reset_on_close(self._streams[1].get_extra_info("socket"))
            self._streams[1].transport.abort()

    async def close(self) -> None:
        """Close once all written bytes are sent."""
        _, writer = self._opened()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    def drop(self) -> None:
        """Close at once."""
        if self._streams is not None:
            self._streams[1].transport.abort()

    def _opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert self._streams is not None, "bytes are carried once both ends are connected"
        return self._streams


class Link:
    """A client's connection, and the matching connection to the server.

    Args:
        to_server: The faults of the client's bytes.
        to_client: The faults of the server's bytes.

    Attributes:
        client: The client's end.
    """

    def __init__(self, to_server: Direction, to_client: Direction) -> None:
        self.client = _End()
        self._server = _End()
        there = _Pump(self, to_server, self.client, self._server)
        back = _Pump(self, to_client, self._server, self.client)
        there.opposite, back.opposite = back, there
        self._pumps = (there, back)

    async def run(self, host: str, port: int) -> None:
        """Connect to the server, and pass bytes on until both ends are done."""
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
        """Close both ends in an orderly way."""
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
        is_cut: Whether further bytes are discarded.
        is_silent: Whether the end of the source is hidden from the destination.
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
        """Carry bytes until the source ends."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._write())

    def forget(self) -> None:
        """Exclude this pump from further faults."""
        self._direction.pumps.discard(self)

    def cut(self) -> None:
        """Close towards the destination, and discard what follows."""
        if not self.is_cut:
            self.is_cut = True
            self._destination.finish()
            self._direction.wake()

    def reset(self) -> None:
        """Reset the destination, and hide that from the source."""
        self.is_cut = True
        self.opposite.mute()
        self._destination.reset()
        self._direction.wake()

    def mute(self) -> None:
        """Discard what follows, and the end of the stream too."""
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
                # How the connection ended shows at its own end, in the other direction.
                self.is_cut = True
                return
            if action is not None:
                action(self._link)
                return
            await direction.pause()
