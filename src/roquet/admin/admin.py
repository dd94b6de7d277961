"""Administration of a cluster, Roquet's or Apache RocketMQ's.

Owns :class:`Admin`, the one admin API that the command line, the dashboard and tests share.
Each of its areas is a module beside this one.
"""

from __future__ import annotations

from collections.abc import Sequence

from roquet.admin.calls import Calls
from roquet.admin.clients import Clients
from roquet.admin.clusters import Clusters
from roquet.admin.dead_letters import DeadLetters
from roquet.admin.groups import Groups
from roquet.admin.kv import KvValues
from roquet.admin.messages import Messages
from roquet.admin.offsets import Offsets
from roquet.admin.settings import Settings
from roquet.admin.stats import Stats
from roquet.admin.topics import Topics
from roquet.admin.tracks import MessageTracker
from roquet.client import ClientInstance, ClientOptions
from roquet.client.lifetime import Lifetime
from roquet.runtime.clock import Clock

__all__ = ["Admin"]

DEFAULT_TIMEOUT_MS = 5_000


class Admin(Lifetime):
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
        async with Admin(namesrv) as admin:
            await admin.topics.create("Parcels", queues=4)
            print(await admin.topics.names())
    """

    def __init__(
        self,
        client: str | Sequence[str] | ClientOptions,
        *,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(client, ClientOptions):
            client = ClientOptions(namesrv=client, request_timeout_ms=DEFAULT_TIMEOUT_MS)
        client.check()
        self._options = client
        self._clock = clock
        self._calls = Calls(client.request_timeout_ms)
        self.clusters = Clusters(self._calls)
        self.kv = KvValues(self._calls)
        self.topics = Topics(self._calls, self.kv)
        self.groups = Groups(self._calls, self.topics)
        self.offsets = Offsets(self._calls)
        self.clients = Clients(self._calls)
        self.messages = Messages(
            self._calls, MessageTracker(self.topics, self.clients, self.offsets)
        )
        self.dead_letters = DeadLetters(self.topics, self.messages, self.clients)
        self.stats = Stats(self._calls)
        self.settings = Settings(self._calls)

    @property
    def calls(self) -> Calls:
        """Requests to single servers, for tools that need the raw responses.

        Example:
            info = await admin.calls.cluster_info()
        """
        return self._calls

    async def start(self) -> None:
        """Start; ``async with`` does it. No request is sent yet.

        Example:
            other = Admin(namesrv)
            await other.start()
            await other.close()
        """
        if not self._calls.is_attached:
            self._calls.attach(await ClientInstance.open(self._options, clock=self._clock))

    async def close(self) -> None:
        """Close the connections; ``async with`` does it.

        Example:
            await admin.close()
        """
        if self._calls.is_attached:
            running = self._calls.client
            self._calls.attach(None)
            await running.close()
