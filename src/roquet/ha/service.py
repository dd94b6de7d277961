"""Replication as the broker sees it: one service for every role.

Upstream's HAService. Owns the HA port, the connections of slaves and, on a slave, the one to the
master. The package's docstring lists what other parts of the broker may use.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from roquet.runtime.clock import Clock
from roquet.store.config import BrokerRole
from roquet.store.default_message_store import DefaultMessageStore

__all__ = ["HaService", "HaStatus", "SlaveStatus"]


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
    """

    def __init__(self, store: DefaultMessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._master_address = ""
        self.is_slave = store.config.broker_role is BrokerRole.SLAVE
        self.listen_port = 0

    async def start(self, bind_address: str = "127.0.0.1", port: int = 0) -> None:
        """Listen for slaves; on a slave, also follow the master."""

    async def stop(self) -> None:
        """Close the port and all connections."""

    @property
    def ha_master_address(self) -> str:
        """The HA address of the followed master, empty if there is none."""
        return self._master_address

    def update_ha_master_address(self, address: str) -> None:
        """Follow the master with this HA address, ``host:port``; empty to follow none."""
        self._master_address = address

    @property
    def master_flush_offset(self) -> int:
        """A slave's note of how far its master had flushed when it started."""
        return self._store.checkpoint.marks.master_flushed_offset

    def reset_master_flush_offset(self, physical_offset: int) -> None:
        """Change that note."""
        marks = self._store.checkpoint.marks
        self._store.checkpoint.reset(marks._replace(master_flushed_offset=physical_offset))

    def status(self) -> HaStatus:
        """How far replication is."""
        return HaStatus(
            is_master=not self.is_slave,
            max_offset=self._store.max_physical_offset,
            master_address=self.ha_master_address,
            master_flush_offset=self.master_flush_offset,
        )
