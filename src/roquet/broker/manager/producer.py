"""The connected producers, by group.

Owns the table of producer groups and their channels, used to check the state of transactions, and
by client id to push the reply to a client's request.

Invariants:

* A group without a channel is not in the table.
* A client can be found while one of its groups has a channel of it.
* A channel is removed when its connection closes, or after two minutes without a heartbeat; the
  connection is then closed.
* One connection is in at most :data:`GROUPS_PER_CONNECTION_MAX` groups, whose names are no longer
  than a group's name may be; there are at most :data:`CHANNELS_MAX` channels in all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice

import msgspec

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.client_channel import ClientChannel
from roquet.model.topic import GROUP_LENGTH_MAX
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import LogLimiter
from roquet.runtime.clock import Clock
from roquet.runtime.log_budget import LogBudget

__all__ = ["CHANNEL_EXPIRED_MS", "GROUPS_PER_CONNECTION_MAX", "ProducerManager"]

log = logging.getLogger(__name__)

CHANNEL_EXPIRED_MS = 120_000
"""Upstream's constant, not the setting ``channelExpiredTimeout``, which is for consumers."""

GROUPS_PER_CONNECTION_MAX = 4_096
CHANNELS_MAX = 200_000
"""Pairs of groups and connections."""

CHANNELS_A_TURN = 2_000
"""Channels that a scan checks before other work may run."""


class ProducerManager:
    """The producers.

    Args:
        config: The broker's settings.
        clock: The time.

    Attributes:
        groups: Channels by group and connection; read only.
    """

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.groups: dict[str, dict[Connection, ClientChannel]] = {}
        self._groups_of: dict[Connection, dict[str, None]] = {}
        self._channels_of: dict[str, dict[tuple[str, Connection], ClientChannel]] = {}
        self._turn = 0
        self._channels = 0
        self._lines = LogBudget(log, clock)
        self._log_limiter = LogLimiter(clock)

    def register(self, group: str, channel: ClientChannel) -> None:
        """Register the producer of a heartbeat."""
        connection = channel.connection
        channels = self.groups.get(group)
        known = None if channels is None else channels.get(connection)
        if known is not None:
            known.last_update_ns = self._clock.monotonic_ns()
            return
        if not self._may_register(group, connection):
            return
        # The caller may use its channel for several groups, which expire one by one.
        own = msgspec.structs.replace(channel, last_update_ns=self._clock.monotonic_ns())
        self.groups.setdefault(group, {})[connection] = own
        self._groups_of.setdefault(connection, {})[group] = None
        self._channels += 1
        self._channels_of.setdefault(own.client_id, {})[group, connection] = own
        self._lines.info("Producer %s joined group %s", channel.client_id, group)

    def unregister(self, group: str, channel: ClientChannel) -> None:
        """Remove a client that unregisters."""
        self._remove(group, channel.connection)

    def connection_closed(self, connection: Connection, limit: int | None = None) -> int:
        """Remove a connection's channels from at most ``limit`` groups; return from how many."""
        groups = list(islice(self._groups_of.get(connection, ()), limit))
        for group in groups:
            self._remove(group, connection)
        return len(groups)

    def scan(self) -> Iterator[None]:
        """Remove and close channels that were silent for too long.

        Runs in steps, with other work in between.
        """
        deadline_ns = self._clock.monotonic_ns() - CHANNEL_EXPIRED_MS * 1_000_000
        looked_at = 0
        for group, channels in list(self.groups.items()):
            expired = [
                connection
                for connection, channel in channels.items()
                if channel.last_update_ns < deadline_ns
            ]
            looked_at += len(channels) + 1
            for connection in expired:
                self._lines.warning("A producer of group %s is silent: %r", group, connection)
                self._remove(group, connection)
                connection.close()
            if looked_at >= CHANNELS_A_TURN:
                looked_at = 0
                yield

    def available_channel(self, group: str) -> ClientChannel | None:
        """Return an open channel of a group, in rotation; None if there is none."""
        channels = [
            channel
            for channel in self.groups.get(group, {}).values()
            if not channel.connection.is_closed
        ]
        if not channels:
            return None
        self._turn += 1
        return channels[self._turn % len(channels)]

    def find_channel(self, client_id: str) -> ClientChannel | None:
        """Return the open channel of a client; the newest, if it has several."""
        for channel in reversed(self._channels_of.get(client_id, {}).values()):
            if not channel.connection.is_closed:
                return channel
        return None

    def _may_register(self, group: str, connection: Connection) -> bool:
        config = self._config
        if not config.register_producer and config.reject_transaction_message:
            return False
        fault = None
        if not 0 < len(group) <= GROUP_LENGTH_MAX:
            fault = "the name is empty or too long"
        elif len(self._groups_of.get(connection, ())) >= GROUPS_PER_CONNECTION_MAX:
            fault = "the connection has too many groups"
        elif self._channels >= CHANNELS_MAX:
            fault = "there are too many producers"
        if fault is not None and (more := self._log_limiter.allow("refused")) is not None:
            log.warning("Producer group %.300r was refused: %s%s", group, fault, more)
        return fault is None

    def _remove(self, group: str, connection: Connection) -> None:
        channels = self.groups.get(group)
        gone = None if channels is None else channels.pop(connection, None)
        if channels is None or gone is None:
            return
        of_client = self._channels_of[gone.client_id]
        del of_client[group, connection]
        if not of_client:
            del self._channels_of[gone.client_id]
        self._channels -= 1
        if not channels:
            del self.groups[group]
        groups = self._groups_of[connection]
        del groups[group]
        if not groups:
            del self._groups_of[connection]
