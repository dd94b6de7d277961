"""The slave's side on a socket: follows one master, and comes back to it after every failure.

Owns the connection to the master, and the reasons why there is none. After a failure it waits
:data:`RECONNECT_PAUSE_S`, upstream's pause, or until there is another master.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import cast

from roquet.errors import RoquetError, StoreError
from roquet.ha.slave_side import SlaveSide, overlap_start
from roquet.remoting.client import split_address
from roquet.runtime.clock import Clock
from roquet.store.default_message_store import DefaultMessageStore

__all__ = ["Follower"]

log = logging.getLogger(__name__)

RECONNECT_PAUSE_S = 5.0
_CONNECT_TIMEOUT_S = 3.0


class StoreReplica:
    """The log of a slave's store, for :class:`~roquet.ha.slave_side.SlaveSide`.

    Args:
        store: The store.
    """

    def __init__(self, store: DefaultMessageStore) -> None:
        self._store = store
        self._log = store.commit_log
        self._dispatcher = store.components.dispatcher
        self._is_sync_flush = store.config.is_sync_flush

    @property
    def safe_offset(self) -> int:
        """What may be reported: flushed with SYNC_FLUSH, appended otherwise.

        Records are verified when they are dispatched, which with SYNC_FLUSH follows the sync.
        """
        if self._is_sync_flush:
            return min(self._log.flushed_offset, self._dispatcher.dispatched_offset)
        return self._log.wrote_offset

    def append(self, physical_offset: int, data: memoryview) -> None:
        """Append bytes at the end."""
        if not self._store.append_to_commit_log(physical_offset, data):
            raise StoreError(
                "the master's log cannot be continued here",
                detail=f"it sends offset {physical_offset}, the log ends at "
                f"{self._log.wrote_offset}, segments have {self._log.queue.size_bytes} bytes",
                hint="mappedFileSizeCommitLog must be the same on both",
            )

    def tail(self) -> tuple[int, bytes]:
        """The end of the log, and the bytes before it that are compared; waits for the disk.

        With SYNC_FLUSH they are on disk, since the first report covers what comes before them.
        """
        end = self._log.wrote_offset
        if self._is_sync_flush and self._log.flushed_offset < end and self._store.flush() < end:
            raise StoreError("this slave's log cannot be put on disk")
        start = overlap_start(self._log.min_offset, end)
        parts: list[memoryview] = []
        while start < end:
            segment = self._log.queue.find(start)
            assert segment is not None, "the log has no gap"
            position = start - segment.start_offset
            size_bytes = min(end, segment.end_offset) - start
            segment.make_resident(position, size_bytes)
            parts.append(segment.view[position : position + size_bytes])
            start += size_bytes
        return end, b"".join(parts)


class _Link(asyncio.Protocol):
    """One connection to the master."""

    def __init__(self, follower: Follower, side: SlaveSide) -> None:
        self._follower = follower
        self._transport: asyncio.Transport | None = None
        self.side = side
        self.error: Exception | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the log."""
        self._transport = cast("asyncio.Transport", transport)
        self._write(self.side.begin(self._follower.clock.monotonic_ns()))

    def data_received(self, data: bytes) -> None:
        """Compare or append, and report."""
        if self.error is not None:
            return
        follower = self._follower
        follower.last_read_ms = follower.clock.now_ms()
        was_compared = self.side.is_compared
        try:
            self._write(self.side.received(data, follower.clock.monotonic_ns()))
        except (RoquetError, OSError) as error:
            self.fail(error)
            return
        if self.side.is_compared and not was_compared:
            follower.now_compared()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._transport = None
        if self.error is None:
            self.error = exc or ConnectionError("the master has closed the connection")
        if not self.closed.done():
            self.closed.set_result(None)

    def report(self) -> None:
        """Report what has become safe."""
        if self.error is None:
            self._write(self.side.reported(self._follower.clock.monotonic_ns()))

    def tick(self, now_ns: int) -> None:
        """Report if it is time, or give up."""
        if self.error is not None:
            return
        try:
            self._write(self.side.tick(now_ns))
        except TimeoutError as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Give the connection up."""
        self.error = error
        if self._transport is not None:
            self._transport.abort()

    def _write(self, report: bytes) -> None:
        if report and self._transport is not None:
            self._follower.last_write_ms = self._follower.clock.now_ms()
            self._transport.write(report)


class Follower:
    """Follows a master.

    Args:
        store: The slave's store.
        clock: The time.

    Attributes:
        address: The master's HA address, empty if there is none.
        fault: Why the master cannot be followed, empty if nothing is wrong.
        last_read_ms: When something came from the master; 0 if never.
        last_write_ms: When the slave last reported; 0 if never.
    """

    def __init__(self, store: DefaultMessageStore, clock: Clock) -> None:
        self._replica = StoreReplica(store)
        self._config = store.config
        self.clock = clock
        self.address = ""
        self.fault = ""
        self.last_read_ms = 0
        self.last_write_ms = 0
        self._link: _Link | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the master is followed."""
        return self._link is not None and self._link.side.is_compared

    @property
    def bytes_per_second(self) -> int:
        """What came in the last second."""
        link = self._link
        return 0 if link is None else link.side.flow.bytes_per_second(self.clock.monotonic_ns())

    def start(self) -> None:
        """Start following."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="ha-follower")

    async def stop(self) -> None:
        """Stop following."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def follow(self, address: str) -> None:
        """Follow another master, or none if the address is empty."""
        if address != self.address:
            log.info("the master is %s, it was %s", address or "unknown", self.address or "unknown")
            self.address = address
            self._changed.set()

    def report(self) -> None:
        """Report what has become safe."""
        if self._link is not None:
            self._link.report()

    def tick(self, now_ns: int) -> None:
        """Do what is due."""
        if self._link is not None:
            self._link.tick(now_ns)

    def now_compared(self) -> None:
        """The logs agree: nothing is wrong any more."""
        log.info("following the master %s", self.address)
        self.fault = ""

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            if self.address:
                address = self.address
                try:
                    await self._follow(address)
                except Exception as error:
                    # Whatever it is, such as a host name that cannot be encoded, the next attempt
                    # must follow.
                    text = str(error) or type(error).__name__
                    if text != self.fault:
                        log.exception("the master %s cannot be followed", address)
                    self.fault = text
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), RECONNECT_PAUSE_S)
            else:
                await self._changed.wait()

    async def _follow(self, address: str) -> None:
        """Follow a master until the connection ends or there is another one."""
        try:
            link = await self._connect(address)
        except (RoquetError, OSError) as error:
            self._note(address, error)
            return
        self._link = link
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((link.closed, changed), return_when=asyncio.FIRST_COMPLETED)
            if not link.closed.done():
                link.fail(ConnectionError("another master is followed"))
                await link.closed
        finally:
            changed.cancel()
            link.fail(link.error or ConnectionError("the slave stops"))
            self._link = None
        self._note(address, link.error)

    async def _connect(self, address: str) -> _Link:
        loop = asyncio.get_running_loop()
        host, port = split_address(address)
        end, overlap = await loop.run_in_executor(None, self._replica.tail)

        def make() -> _Link:
            now_ns = self.clock.monotonic_ns()
            return _Link(self, SlaveSide(self._replica, end, overlap, self._config, now_ns))

        connecting = loop.create_connection(make, host, port)
        _, link = await asyncio.wait_for(connecting, _CONNECT_TIMEOUT_S)
        if link.side.is_compared:
            self.now_compared()
        return link

    def _note(self, address: str, error: Exception | None) -> None:
        text = str(error) or type(error).__name__
        is_new, self.fault = text != self.fault, text
        if is_new and isinstance(error, RoquetError):
            log.error("the master %s cannot be followed: %s", address, text)
        elif is_new:
            log.warning("the master %s is not followed: %s", address, text)
