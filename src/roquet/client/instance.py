"""One client of a cluster: its connections, routes and heartbeats.

Owns :class:`ClientInstance`, which the producers, consumers and admins of one process share when
they have the same client id. It sends heartbeats to brokers (at once on a new connection, and every
30 seconds; :mod:`roquet.client.heartbeats`), refreshes routes, has consumers store their offsets,
and passes requests from brokers to the right producer or consumer.

Groups and topics have their names on the wire, with the namespace, from
:meth:`ClientInstance.wrap`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container
from typing import Self, TypeVar
from weakref import WeakKeyDictionary

from roquet.client import names
from roquet.client.acl import AclHook
from roquet.client.broker_requests import BrokerRequests
from roquet.client.callbacks import ConsumerCallbacks, ProducerCallbacks
from roquet.client.heartbeats import Heartbeats
from roquet.client.ids import UniqueIds, client_id_of
from roquet.client.lifetime import end_tasks, finish
from roquet.client.name_servers import NameServers
from roquet.client.options import ClientOptions
from roquet.client.plain_channel import make_plain_channels
from roquet.client.response_errors import SUCCESS_ONLY, refused
from roquet.client.route import RouteCache
from roquet.errors import ClientClosed, ConfigError, RoquetError
from roquet.remoting.client import ClientConfig, RemotingClient
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import Header
from roquet.remoting.processor import ProcessorRegistry
from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.randomness import Randomness, seeded

__all__ = ["ClientInstance"]

log = logging.getLogger(__name__)

FIRST_HEARTBEAT_MS = 1_000
FIRST_PERSIST_MS = 10_000

_Client = TypeVar("_Client")

_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, ClientInstance]] = (
    WeakKeyDictionary()
)


class ClientInstance:
    """One client of a cluster.

    Use :meth:`open` rather than the constructor, and :meth:`close` once for each :meth:`open`.

    Args:
        options: The settings.
        clock: The clock.
        randomness: The source of randomness.

    Attributes:
        options: The settings.
        clock: The clock.
        randomness: The source of randomness.
        client_id: The id by which brokers know this client.
        remoting: The connections.
        name_servers: The name servers.
        routes: The routes.
        unique_ids: Generates the ids of messages.

    Raises:
        ConfigError: A setting cannot be used.

    Example:
        >>> async def main() -> str:
        ...     options = ClientOptions(namesrv="127.0.0.1:9876", namespace="shop")
        ...     async with await ClientInstance.open(options) as client:
        ...         return client.wrap("Orders")
        >>> asyncio.run(main())
        'shop%Orders'
    """

    def __init__(
        self,
        options: ClientOptions,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        options.check()
        self.options = options
        self.clock = clock or SystemClock()
        self.randomness = randomness or seeded()
        self.client_id = client_id_of(options, self.clock)
        self.unique_ids = UniqueIds(self.client_ip, self.clock, self.randomness)
        self._producers: dict[str, ProducerCallbacks] = {}
        self._consumers: dict[str, ConsumerCallbacks] = {}
        requests = BrokerRequests(self._producers, self._consumers, options.namespace, self.clock)
        hooks = []
        if options.access_key:
            hooks.append(AclHook(options.access_key, options.secret_key, options.security_token))
        self.remoting = RemotingClient(
            ProcessorRegistry(requests),
            ClientConfig(
                tls=options.tls,
                request_timeout_ms=options.request_timeout_ms,
                serialize_type=options.serialize,
            ),
            hooks=hooks,
            clock=self.clock,
            on_connect=self._connected,
            hot_path=make_plain_channels(),
        )
        self.name_servers = NameServers(
            options.namesrv_addresses,
            self.remoting,
            randomness=self.randomness,
            timeout_ms=options.request_timeout_ms,
        )
        self.routes = RouteCache(
            self.name_servers,
            default_topic_queues=options.default_topic_queues,
            clock=self.clock,
        )
        self._heartbeats = Heartbeats(
            self.client_id, self.remoting, self.routes, self._producers, self._consumers
        )
        self._users = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._gone = asyncio.Event()

    # ---------------------------------------------------------------------- start and close

    @classmethod
    async def open(
        cls,
        options: ClientOptions,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> ClientInstance:
        """Return the running instance with the client id of these options, or a new one.

        Raises:
            ConfigError: A setting cannot be used, or the running one has other settings.

        Example:
            >>> import asyncio
            >>> async def main() -> str:
            ...     options = ClientOptions(namesrv="127.0.0.1:9876", client_ip="10.0.0.7",
            ...                             instance_name="blue")
            ...     client = await ClientInstance.open(options)
            ...     await client.close()
            ...     return client.client_id
            >>> asyncio.run(main())
            '10.0.0.7@blue'
        """
        running = _shared.setdefault(asyncio.get_running_loop(), {})
        client_id = client_id_of(options, clock or SystemClock())
        while (found := running.get(client_id)) is not None and found.is_closed:
            await found.wait_closed()
        if found is not None and found.options.normalized() != options.normalized():
            raise ConfigError(
                f"The client {found.client_id} runs with other settings",
                detail=f"{found.options!r}, not {options!r}",
                hint="Give each of them its own instance_name, or the same settings.",
            )
        if found is None:
            found = cls(options, clock=clock, randomness=randomness)
            running[found.client_id] = found
            found.start()
        found._users += 1
        return found

    def start(self) -> None:
        """Start the periodic heartbeats, route refreshes and offset commits.

        Example:
            client = ClientInstance(ClientOptions(namesrv=namesrv, instance_name="alone"))
            client.start()
            await client.close()
        """
        options = self.options
        self._every(options.poll_namesrv_ms, options.poll_namesrv_ms, self.refresh_routes)
        self._every(
            min(FIRST_HEARTBEAT_MS, options.heartbeat_ms), options.heartbeat_ms, self.heartbeat
        )
        self._every(
            min(FIRST_PERSIST_MS, options.persist_offsets_ms),
            options.persist_offsets_ms,
            self.persist_offsets,
        )

    async def close(self) -> None:
        """Release the instance; the last user to do so closes the connections.

        Example:
            await client.close()
            assert client.is_closed
        """
        self._users -= 1
        if self._users > 0 or self._closed:
            return
        self._closed = True
        try:
            await self._close()
        finally:
            running = _shared.get(asyncio.get_running_loop(), {})
            if running.get(self.client_id) is self:
                del running[self.client_id]
            self._gone.set()

    async def wait_closed(self) -> None:
        """Wait until all users have left and the connections are closed.

        Example:
            await client.close()
            await client.wait_closed()
        """
        await self._gone.wait()

    async def _close(self) -> None:
        await finish(
            lambda: end_tasks(self._tasks),
            self._leave_all,
            self.routes.close,
            self.remoting.close,
        )

    async def _leave_all(self) -> None:
        await asyncio.gather(
            *(self.unregister_consumer(group) for group in list(self._consumers)),
            *(self.unregister_producer(group) for group in list(self._producers)),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def is_closed(self) -> bool:
        """Whether all users have left.

        Example:
            assert not client.is_closed
        """
        return self._closed

    @property
    def client_ip(self) -> str:
        """The address in the client id.

        Example:
            assert client.client_id.startswith(client.client_ip)
        """
        return self.client_id.partition("@")[0]

    def wrap(self, name: str) -> str:
        """Return the name of a topic or group on the wire.

        Example:
            assert client.wrap("Orders") == "Orders"  # no namespace
        """
        return names.wrap(self.options.namespace, name)

    def unwrap(self, name: str) -> str:
        """Return the name of a topic or group as users see it.

        Example:
            assert client.unwrap(client.wrap("Orders")) == "Orders"
        """
        return names.unwrap(self.options.namespace, name)

    # ----------------------------------------------------------------------------- requests

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        timeout_ms: int | None = None,
        accept: Container[int] = SUCCESS_ONLY,
    ) -> RemotingCommand:
        """Send a request to a broker; a response code that is not accepted is an error.

        Raises:
            ClientClosed: The instance is closed.
            ConnectFailed: The connection could not be opened; nothing was sent.
            SendFailed: The connection broke before the response came.
            RequestTimeout: No response came in time.
            BrokerRefused: The response has another code.

        Example:
            from roquet.remoting.codes import RequestCode

            answer = await client.ask(broker_address, RequestCode.GET_BROKER_RUNTIME_INFO)
        """
        if self._closed:
            raise ClientClosed(f"The client {self.client_id} is closed")
        answer = await self.remoting.invoke(address, code, header, body=body, timeout_ms=timeout_ms)
        if answer.code not in accept:
            raise refused(answer, code, address)
        return answer

    # ------------------------------------------------------------------ producers, consumers

    def register_producer(self, group: str, callbacks: ProducerCallbacks) -> None:
        """Add a producer; brokers learn about it with the next heartbeat.

        Raises:
            ConfigError: The instance already has a producer of this group.
            ClientClosed: The instance is closed.

        Example:
            client.register_producer("billing", producer_callbacks)
            await client.heartbeat()
        """
        self._register(self._producers, group, callbacks, "producer")

    def register_consumer(self, group: str, callbacks: ConsumerCallbacks) -> None:
        """Add a consumer; brokers learn about it with the next heartbeat.

        Raises:
            ConfigError: The instance already has a consumer of this group.
            ClientClosed: The instance is closed.

        Example:
            client.register_consumer("billing", consumer_callbacks)
            await client.heartbeat()
        """
        self._register(self._consumers, group, callbacks, "consumer")

    async def unregister_producer(self, group: str) -> None:
        """Remove a producer, and notify the brokers.

        Example:
            client.register_producer("billing", producer_callbacks)
            await client.unregister_producer("billing")
        """
        if self._producers.pop(group, None) is not None:
            await self._heartbeats.sign_off(producer_group=group)

    async def unregister_consumer(self, group: str) -> None:
        """Remove a consumer, and notify the brokers.

        Example:
            client.register_consumer("billing", consumer_callbacks)
            await client.unregister_consumer("billing")
        """
        if self._consumers.pop(group, None) is not None:
            await self._heartbeats.sign_off(consumer_group=group)

    def _register(
        self, table: dict[str, _Client], group: str, callbacks: _Client, kind: str
    ) -> None:
        if self._closed:
            raise ClientClosed(f"The client {self.client_id} is closed")
        if table.setdefault(group, callbacks) is not callbacks:
            raise ConfigError(
                f"The client {self.client_id} already has a {kind} of the group {group}",
                hint="Give one of them another instance_name.",
            )

    # ----------------------------------------------------------------------- periodic tasks

    async def heartbeat(self) -> None:
        """Send heartbeats to all known brokers; failures are logged.

        Example:
            await client.heartbeat()
        """
        await self._heartbeats.send_all()

    async def refresh_routes(self) -> None:
        """Refresh the routes of all topics that producers and consumers use.

        Example:
            await client.refresh_routes()
        """
        topics: set[str] = set()
        for producer in list(self._producers.values()):
            topics.update(producer.publish_topics())
        for consumer in list(self._consumers.values()):
            subscriptions = consumer.heartbeat_data().subscription_data_set
            topics.update(each.topic for each in subscriptions if each.topic)
        await self.routes.refresh(sorted(topics))

    async def persist_offsets(self) -> None:
        """Have all consumers store their offsets.

        Example:
            await client.persist_offsets()
        """
        for group, consumer in list(self._consumers.items()):
            try:
                await consumer.persist_offsets()
            except RoquetError as error:
                log.warning("The progress of %s was not stored: %s", group, error.message)
            except Exception:
                log.exception("The progress of %s was not stored", group)

    def _connected(self, address: str) -> None:
        """Send a heartbeat at once, because the broker forgot us with the old connection."""
        if not self._closed and self._heartbeats.is_due_at(address):
            self._spawn(self._introduce(address))

    async def _introduce(self, address: str) -> None:
        if await self._heartbeats.send(address):
            for consumer in list(self._consumers.values()):
                consumer.rebalance_now()

    def _every(self, first_ms: int, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        self._spawn(self._repeat(first_ms, interval_ms, work))

    async def _repeat(
        self, first_ms: int, interval_ms: int, work: Callable[[], Awaitable[None]]
    ) -> None:
        await asyncio.sleep(first_ms / 1000)
        while True:
            try:
                await work()
            except Exception:
                log.exception("%s: a round failed", self.client_id)
            await asyncio.sleep(interval_ms / 1000)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
