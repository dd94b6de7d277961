"""The live broker processes, by cluster and address.

Owns upstream's brokerLiveTable and filterServerTable, indexed by address and by connection, so that
finding the brokers of one connection takes no search.
"""

from __future__ import annotations

from itertools import islice

from msgspec import Struct

from roquet.model.data_version import DataVersion
from roquet.namesrv.registration import BrokerKey

__all__ = ["LiveBroker", "LiveBrokers"]


class LiveBroker(Struct, kw_only=True, eq=False):
    """A broker process.

    Attributes:
        last_update_ms: When it last sent something, on the monotonic clock.
        timeout_ms: How long it may be silent.
        connection: The connection of its last registration.
        is_complete: Whether all topics of its last registration are applied.
    """

    broker_name: str
    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    connection: object
    ha_server_address: str
    is_complete: bool = False


class LiveBrokers:
    """The brokers that are alive.

    Attributes:
        table: By cluster and address; read only.
        filter_servers: By cluster and address; read only.
    """

    def __init__(self) -> None:
        self.table: dict[BrokerKey, LiveBroker] = {}
        self.filter_servers: dict[BrokerKey, list[str]] = {}
        self._keys_at: dict[str, set[BrokerKey]] = {}
        self._keys_of: dict[object, dict[BrokerKey, None]] = {}

    def __len__(self) -> int:
        return len(self.table)

    def get(self, cluster_name: str, address: str) -> LiveBroker | None:
        """A broker."""
        return self.table.get(BrokerKey(cluster_name, address))

    def put(self, key: BrokerKey, live: LiveBroker, filter_servers: list[str] | None) -> None:
        """Add or replace a broker; ``None`` keeps its filter servers."""
        self._take_out(key)
        self.table[key] = live
        self._keys_at.setdefault(key.address, set()).add(key)
        self._keys_of.setdefault(live.connection, {})[key] = None
        if filter_servers:
            self.filter_servers[key] = filter_servers
        elif filter_servers is not None:
            self.filter_servers.pop(key, None)

    def of_connection(self, connection: object, limit: int | None = None) -> list[BrokerKey]:
        """Brokers that last registered on a connection, up to a limit."""
        return list(islice(self._keys_of.get(connection, ()), limit))

    def silent(self, now_ms: int, limit: int | None = None) -> list[tuple[BrokerKey, LiveBroker]]:
        """Brokers that were silent for too long, up to a limit."""
        silent = (
            (key, live)
            for key, live in self.table.items()
            if live.last_update_ms + live.timeout_ms < now_ms
        )
        return list(islice(silent, limit))

    def forget(self, address: str, broker_name: str) -> None:
        """Drop an address of a broker name, in any cluster."""
        for key in list(self._keys_at.get(address, ())):
            if self.table[key].broker_name == broker_name:
                self._take_out(key)
                self.filter_servers.pop(key, None)

    def _take_out(self, key: BrokerKey) -> None:
        live = self.table.pop(key, None)
        if live is None:
            return
        keys = self._keys_at[key.address]
        keys.discard(key)
        if not keys:
            del self._keys_at[key.address]
        of_connection = self._keys_of[live.connection]
        del of_connection[key]
        if not of_connection:
            del self._keys_of[live.connection]
