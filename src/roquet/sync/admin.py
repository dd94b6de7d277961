"""The admin API without asyncio.

Owns the blocking :class:`Admin`. Its areas are in ``admin_areas.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from roquet import admin as aio
from roquet.client.options import ClientOptions
from roquet.runtime.clock import Clock
from roquet.sync.admin_areas import (
    Clients,
    Clusters,
    DeadLetters,
    Groups,
    KvValues,
    Messages,
    Offsets,
    Settings,
    Stats,
    Topics,
)
from roquet.sync.blocking_proxy import LifetimeProxy

__all__ = ["Admin"]


class Admin(LifetimeProxy[aio.Admin]):
    """Administers a cluster.

    A call to several servers asks all of them at once. A query returns the results and the
    failures; a change that fails somewhere raises :class:`~roquet.errors.BrokersFailed`, which says
    which servers succeeded and which failed.

    Topics and groups go by their names on the brokers, including the namespace.

    Args:
        client: The name servers (``host:port``, separated by semicolons, or a sequence), or all
            settings of the client, such as keys, TLS and timeouts.
        clock: The clock.

    Attributes:
        clusters: Clusters and brokers.
        topics: Topics.
        groups: Consumer groups.
        offsets: The progress of groups, and resetting it.
        clients: Connected producers and consumers.
        messages: Messages by id, key, time and offset.
        dead_letters: Messages that groups could not consume.
        stats: Counters of brokers.
        settings: Settings of brokers and name servers.
        kv: The key-value config of name servers.

    Raises:
        ConfigError: A setting cannot be used.

    Example:
        with Admin(namesrv) as admin:
            admin.topics.create("Parcels", queues=4)
            print(admin.topics.names())
    """

    def __init__(
        self,
        client: str | Sequence[str] | ClientOptions,
        *,
        clock: Clock | None = None,
    ) -> None:
        inner = aio.Admin(client, clock=clock)
        super().__init__(inner)
        runner = self._runner
        self.clusters = Clusters(inner.clusters, runner)
        self.topics = Topics(inner.topics, runner)
        self.groups = Groups(inner.groups, runner)
        self.offsets = Offsets(inner.offsets, runner)
        self.clients = Clients(inner.clients, runner)
        self.messages = Messages(inner.messages, runner)
        self.dead_letters = DeadLetters(inner.dead_letters, runner)
        self.stats = Stats(inner.stats, runner)
        self.settings = Settings(inner.settings, runner)
        self.kv = KvValues(inner.kv, runner)
