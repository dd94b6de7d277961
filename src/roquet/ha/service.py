"""Replication as the broker sees it: one service for every role.

Upstream's HAService. Owns the HA port, the connections of slaves and, on a slave, the one to the
master. The package's docstring lists what other parts of the broker may use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from roquet.ha.follower import Follower
from roquet.ha.in_sync import count_replicas, is_in_sync
from roquet.ha.sender import Sender, SlaveConnection
from roquet.runtime.clock import Clock
from roquet.store.config import BrokerRole
from roquet.store.default_message_store import DefaultMessageStore

__all__ = ["HaService", "HaStatus", "SlaveStatus"]

log = logging.getLogger(__name__)

DRAIN_S = 3.0
"""How long a master that stops lets its slaves take the rest of the log."""
_TICK_MAX_S = 0.5
_TICKS_PER_INTERVAL = 5


class SlaveStatus(Struct, frozen=True, kw_only=True):
    """One connected slave, as its master sees it.

    Attributes:
        address: Its address.
        ack_offset: The end of the log it last reported; -1 before its first report.
        behind_bytes: How much of the log it has not reported.
        bytes_per_second: What was sent in the last second.
        transfer_from_offset: What is sent next; -1 before its first report.
        is_in_sync: Whether it is less than ``haMaxGapNotInSync`` behind.
    """

    address: str
    ack_offset: int
    behind_bytes: int
    bytes_per_second: int
    transfer_from_offset: int
    is_in_sync: bool


class HaStatus(Struct, frozen=True, kw_only=True):
    """How far replication is, with the numbers of upstream's ``HARuntimeInfo``.

    Attributes:
        is_master: Whether the broker is a master; otherwise ``slaves`` is empty.
        max_offset: The end of the broker's own log.
        in_sync_slaves: How many slaves are in sync.
        slaves: The connected slaves.
        master_address: The followed master's HA address, empty if there is none.
        is_connected: Whether a slave is connected to its master.
        last_read_ms: When a slave last got something from its master; 0 if never.
        last_write_ms: When a slave last reported; 0 if never.
        bytes_per_second: What a slave received in the last second.
        master_flush_offset: A slave's note of its master.
        fault: Why a slave cannot follow its master, empty if nothing is wrong.
    """

    is_master: bool
    max_offset: int
    in_sync_slaves: int = 0
    slaves: Sequence[SlaveStatus] = ()
    master_address: str = ""
    is_connected: bool = False
    last_read_ms: int = 0
    last_write_ms: int = 0
    bytes_per_second: int = 0
    master_flush_offset: int = 0
    fault: str = ""


class HaService:
    """Replication of one broker.

    Args:
        store: The store whose log is replicated.
        clock: The time.

    Attributes:
        is_slave: Whether the broker is a slave.
        listen_port: The HA port; 0 until it listens.
    """

    def __init__(self, store: DefaultMessageStore, clock: Clock) -> None:
        self._store = store
        self._config = store.config
        self._clock = clock
        self._sender = Sender(store.commit_log, store.config, clock, on_change=self._changed)
        self._follower: Follower | None = None
        self._master_address = store.config.ha_master_address
        self._ticking: asyncio.Task[None] | None = None
        self._progress = asyncio.Event()
        self.is_slave = store.config.broker_role is BrokerRole.SLAVE
        self.listen_port = 0

    async def start(self, bind_address: str = "127.0.0.1", port: int | None = 0) -> None:
        """Listen for slaves unless there is no port; on a slave, also follow the master.

        Raises:
            ConfigError: The HA port cannot be used.
        """
        if port is not None:
            await self._sender.start(bind_address, port)
            self.listen_port = self._sender.port
        if self.is_slave:
            self._follower = Follower(self._store, self._clock)
            self._follower.follow(self._master_address)
            self._follower.start()
        self._changed()
        self._ticking = asyncio.get_running_loop().create_task(self._tick(), name="ha-tick")

    async def stop(self) -> None:
        """Let slaves take the rest of the log, then close the port and all connections."""
        if self._ticking is None:
            return
        await self._drain()
        self._ticking.cancel()
        with suppress(asyncio.CancelledError):
            await self._ticking
        self._ticking = None
        if self._follower is not None:
            await self._follower.stop()
        await self._sender.stop()
        self._store.components.grown = None

    @property
    def ha_master_address(self) -> str:
        """The HA address of the followed master, empty if there is none."""
        return self._master_address

    def update_ha_master_address(self, address: str) -> None:
        """Follow the master with this HA address, ``host:port``; empty to follow none."""
        self._master_address = address
        self._store.update_ha_master_address(address)
        if self._follower is not None:
            self._follower.follow(address)

    @property
    def master_flush_offset(self) -> int:
        """A slave's note of how far its master had flushed when it started."""
        return self._store.checkpoint.marks.master_flushed_offset

    def reset_master_flush_offset(self, physical_offset: int) -> None:
        """Change that note."""
        self._store.checkpoint.note_master_flushed(physical_offset)

    def status(self) -> HaStatus:
        """How far replication is."""
        max_offset = self._store.max_physical_offset
        slaves = [self._slave(each, max_offset) for each in self._sender.connections]
        follower = self._follower
        return HaStatus(
            is_master=not self.is_slave,
            max_offset=max_offset,
            in_sync_slaves=sum(each.is_in_sync for each in slaves),
            slaves=slaves,
            master_address=self.ha_master_address,
            is_connected=follower is not None and follower.is_connected,
            last_read_ms=0 if follower is None else follower.last_read_ms,
            last_write_ms=0 if follower is None else follower.last_write_ms,
            bytes_per_second=0 if follower is None else follower.bytes_per_second,
            master_flush_offset=self.master_flush_offset,
            fault="" if follower is None else follower.fault,
        )

    def _slave(self, connection: SlaveConnection, max_offset: int) -> SlaveStatus:
        side = connection.side
        return SlaveStatus(
            address=connection.address,
            ack_offset=side.ack_offset,
            behind_bytes=max_offset - side.ack_offset,
            bytes_per_second=side.flow.bytes_per_second(self._clock.monotonic_ns()),
            transfer_from_offset=side.next_offset,
            is_in_sync=is_in_sync(self._config, max_offset, side.ack_offset),
        )

    def _changed(self) -> None:
        """A slave has come, reported or left: release what enough replicas have."""
        components, connections = self._store.components, self._sender.connections
        ack_offsets = [each.side.ack_offset for each in connections]
        with components.lock:
            acks = components.acks
            oldest_end = acks.oldest_end_offset
            confirmed = [each.side.confirmed_offset(oldest_end) for each in connections]
            max_offset = components.commit_log.max_offset
            replicas = count_replicas(self._config, max_offset, ack_offsets, confirmed)
            acks.replicated_offset = replicas.replicated_offset
            acks.slave_offset = max(acks.slave_offset, *ack_offsets, 0)
            acks.has_slaves = replicas.is_enough
            acks.accepts_puts = self._accepts_puts(is_enough=replicas.is_accepting)
            components.grown = self._grown if connections or self.is_slave else None
            acks.release()
        self._progress.set()

    def _accepts_puts(self, *, is_enough: bool) -> bool:
        return is_enough or self._config.broker_role is not BrokerRole.SYNC_MASTER

    def _grown(self) -> None:
        self._sender.send_soon()
        if self._follower is not None and self._config.is_sync_flush:
            self._follower.report()

    async def _tick(self) -> None:
        config = self._config
        interval_ms = min(config.ha_heartbeat_interval_ms, config.ha_housekeeping_interval_ms)
        pause_s = min(interval_ms / 1000 / _TICKS_PER_INTERVAL, _TICK_MAX_S)
        while True:
            await asyncio.sleep(pause_s)
            try:
                self._tick_once()
            except Exception:
                # Without further ticks no connection would get heartbeats or be given up.
                log.exception("a tick of replication failed")

    def _tick_once(self) -> None:
        now_ns = self._clock.monotonic_ns()
        self._sender.tick(now_ns)
        if self._follower is not None:
            self._follower.tick(now_ns)
        self._changed()

    async def _drain(self) -> None:
        """Wait until the slaves that are in sync have the whole log, but not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while any(each.is_in_sync and each.behind_bytes for each in self.status().slaves):
                    self._progress.clear()
                    await self._progress.wait()
