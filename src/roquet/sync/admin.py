"""The administration without asyncio.

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
from roquet.sync.face import LifetimeFace

__all__ = ["Admin"]


class Admin(LifetimeFace[aio.Admin]):
    """Administers a cluster.

    A call that goes to several servers asks all of them at once. One that looks gives what was
    found beside who failed; one that changes something raises
    :class:`~roquet.errors.BrokersFailed`, which says who did it and who did not.

    Topics and groups have the names that they have on the brokers, with their namespace.

    Args:
        client: The name servers (``host:port``, several with semicolons, or a sequence), or all
            settings of the client, such as keys, TLS and how long a server may take.
        clock: The time.

    Attributes:
        clusters: Clusters and brokers.
        topics: Topics.
        groups: Consumer groups.
        offsets: How far groups are, and moving them.
        clients: Connected producers and consumers.
        messages: Messages by id, key, time and place.
        dead_letters: Messages that groups could not consume.
        stats: Counters of brokers.
        settings: Settings of brokers and name servers.
        kv: Values that name servers keep.

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
