"""The producers that are connected, by group.

Owns the table of producer groups and their channels, which is asked when the outcome of a
transaction must be found out, and by client id when a client gets the reply to its request.

Invariants:

* A group that has no channel is not in the table.
* A client can be found as long as one of its groups has a channel of it.
* A channel is gone when its connection is, or when no heartbeat came for two minutes; the
  connection is closed then.
* One connection is in at most :data:`GROUPS_PER_CONNECTION_MAX` groups, whose names are no longer
  than a group's name may be.
"""

from __future__ import annotations

import logging

import msgspec

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.client_channel import ClientChannel
from roquet.model.topic import GROUP_LENGTH_MAX
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import LogLimiter
from roquet.runtime.clock import Clock

__all__ = ["CHANNEL_EXPIRED_MS", "GROUPS_PER_CONNECTION_MAX", "ProducerManager"]

log = logging.getLogger(__name__)

CHANNEL_EXPIRED_MS = 120_000
"""Upstream's, and not the setting ``channelExpiredTimeout``, which is for consumers."""

GROUPS_PER_CONNECTION_MAX = 4_096


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
        self._groups_of: dict[Connection, set[str]] = {}
        self._channels_of: dict[str, dict[tuple[str, Connection], ClientChannel]] = {}
        self._turn = 0
        self._log_limiter = LogLimiter(clock)

    def register(self, group: str, channel: ClientChannel) -> None:
        """Take a heartbeat."""
        connection = channel.connection
        channels = self.groups.get(group)
        known = None if channels is None else channels.get(connection)
        if known is not None:
            known.last_update_ns = self._clock.monotonic_ns()
            return
        if not self._may_register(group, connection):
            return
        # The caller's channel may be that of several groups, which expire one by one.
        own = msgspec.structs.replace(channel, last_update_ns=self._clock.monotonic_ns())
        self.groups.setdefault(group, {})[connection] = own
        self._groups_of.setdefault(connection, set()).add(group)
        self._channels_of.setdefault(own.client_id, {})[group, connection] = own
        log.info("Producer %s of group %s is here", channel.client_id, group)

    def unregister(self, group: str, channel: ClientChannel) -> None:
        """Take a good-bye."""
        self._remove(group, channel.connection)

    def connection_closed(self, connection: Connection) -> None:
        """Drop the channels of a connection."""
        for group in list(self._groups_of.get(connection, ())):
            self._remove(group, connection)

    def scan_not_active(self) -> None:
        """Drop and close the channels of which nothing was heard for too long."""
        deadline_ns = self._clock.monotonic_ns() - CHANNEL_EXPIRED_MS * 1_000_000
        expired = [
            (group, connection)
            for group, channels in self.groups.items()
            for connection, channel in channels.items()
            if channel.last_update_ns < deadline_ns
        ]
        for group, connection in expired:
            log.warning("A producer of group %s is silent: %r", group, connection)
            self._remove(group, connection)
            connection.close()

    def available_channel(self, group: str) -> ClientChannel | None:
        """A channel of a group that is open, each in its turn; None when there is none."""
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
        """The channel of a client that is open; the youngest, if it has several."""
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
        if fault is not None and (more := self._log_limiter.allow("refused")) is not None:
            log.warning("Producer group %.300r was not taken: %s%s", group, fault, more)
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
        if not channels:
            del self.groups[group]
        groups = self._groups_of[connection]
        groups.discard(group)
        if not groups:
            del self._groups_of[connection]
