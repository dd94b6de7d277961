"""The master's side on sockets: the HA port and the connections of slaves.

Owns the listening socket and how connections share the event loop: each writes at most
:data:`TURN_BYTES` in a turn, straight from the mapped log, and nothing while its peer is slow to
read. Pages that are not in memory are fetched by a thread before they are touched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from roquet.errors import RoquetError
from roquet.ha.master_side import MasterSide
from roquet.remoting.listener import bind
from roquet.runtime.clock import Clock
from roquet.runtime.network import joined
from roquet.store.commit_log import CommitLog
from roquet.store.config import MessageStoreConfig

__all__ = ["CONNECTIONS_MAX", "Sender", "SlaveConnection"]

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
TURN_BYTES = 256 << 10
_FETCH_BYTES = 8 << 20
_WRITE_HIGH_BYTES = 1 << 20
_BACKLOG = 16


class SlaveConnection(asyncio.Protocol):
    """The connection of one slave.

    Attributes:
        side: What was sent and acknowledged.
        address: The slave's address.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._is_fetching = False
        self._is_due = False
        self.side = MasterSide(sender.log, sender.config, sender.clock.monotonic_ns())
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        host, port = transport.get_extra_info("peername")[:2]
        self.address = joined(host, port)
        if len(self._sender.connections) >= CONNECTIONS_MAX:
            log.warning("slave %s is refused: there are %d", self.address, CONNECTIONS_MAX)
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(_WRITE_HIGH_BYTES)
        self._sender.connections.append(self)
        log.info("slave %s is connected", self.address)
        self._sender.on_change()

    def data_received(self, data: bytes) -> None:
        """Take reports, and send what is next."""
        is_first = self.side.next_offset < 0
        try:
            self.side.received(data, self._sender.clock.monotonic_ns())
        except RoquetError as error:
            self.fail(error)
            return
        if is_first and self.side.next_offset >= 0:
            log.info(
                "slave %s reports %d and gets the log from %d",
                self.address,
                self.side.ack_offset,
                self.side.next_offset,
            )
        self._sender.on_change()
        self.send_soon()

    def pause_writing(self) -> None:
        """The slave is slow to read."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """It has caught up with what was written."""
        self._is_paused = False
        self.send_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the slave."""
        self._transport = None
        if self in self._sender.connections:
            log.info("slave %s has left%s", self.address, f": {exc}" if exc else "")
            self._sender.connections.remove(self)
            self._sender.on_change()

    def send_soon(self) -> None:
        """Send what is next in the loop's next pass."""
        if not self._is_due and not self._is_paused and not self._is_fetching:
            self._is_due = True
            self._loop.call_soon(self._send)

    def tick(self, now_ns: int) -> None:
        """Send a heartbeat if it is time, or give up."""
        if self._transport is None:
            return
        try:
            heartbeat = self.side.tick(now_ns)
        except TimeoutError as error:
            self.fail(error)
            return
        if heartbeat and not self._is_paused:
            self._transport.write(heartbeat)
        self.send_soon()

    def fail(self, error: Exception) -> None:
        """Give the connection up."""
        if self._transport is None:
            return
        if isinstance(error, RoquetError):
            log.error("slave %s is refused: %s", self.address, error)
        else:
            log.warning("slave %s is given up: %s", self.address, error)
        self._transport.abort()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _send(self) -> None:
        self._is_due = False
        if not self._is_paused and self.side.has_more and self._is_in_memory():
            self._send_turn()

    def _send_turn(self) -> None:
        if self._transport is None:
            return
        try:
            buffers = self.side.frames(self._sender.clock.monotonic_ns(), TURN_BYTES)
        except RoquetError as error:
            self.fail(error)
            return
        for buffer in buffers:
            self._transport.write(buffer)
        if buffers and self.side.has_more:
            self.send_soon()

    def _is_in_memory(self) -> bool:
        """Whether the next turn's bytes are in memory; if not, a thread fetches them."""
        offset = self.side.next_offset
        segment = self._sender.log.queue.find(offset)
        if segment is None:
            return True
        position = offset - segment.start_offset
        readable_bytes = segment.read_limit - position
        if readable_bytes <= 0 or segment.is_resident(position, min(TURN_BYTES, readable_bytes)):
            return True
        self._is_fetching = True
        fetching = self._loop.run_in_executor(
            None, segment.make_resident, position, min(_FETCH_BYTES, readable_bytes)
        )
        fetching.add_done_callback(self._fetched)
        return False

    def _fetched(self, fetching: asyncio.Future[None]) -> None:
        self._is_fetching = False
        error = fetching.exception()
        if isinstance(error, Exception):
            self.fail(error)
        else:
            # Even if some pages have left memory again: fetching might never end otherwise.
            self._send_turn()


class Sender:
    """The HA port of one broker.

    Args:
        commit_log: The log to send.
        config: The settings.
        clock: The time.
        on_change: Called when a slave comes, reports or leaves.

    Attributes:
        log: As above.
        connections: The connected slaves.
        port: The listening port; 0 until it listens.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        config: MessageStoreConfig,
        clock: Clock,
        *,
        on_change: Callable[[], None],
    ) -> None:
        self.log = commit_log
        self.config = config
        self.clock = clock
        self.on_change = on_change
        self.connections: list[SlaveConnection] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self, bind_address: str, port: int) -> None:
        """Listen.

        Raises:
            ConfigError: The address cannot be used.
        """
        listening = await bind(bind_address, port)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: SlaveConnection(self), sock=listening, backlog=_BACKLOG
        )
        self.port = listening.getsockname()[1]

    def send_soon(self) -> None:
        """Send what is new to every slave."""
        for connection in self.connections:
            connection.send_soon()

    def tick(self, now_ns: int) -> None:
        """Let every connection do what is due."""
        for connection in list(self.connections):
            connection.tick(now_ns)

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.connections):
            connection.close()
        await self._server.wait_closed()
        self._server = None
