"""One client of a cluster: its connections, routes and heartbeats.

Owns :class:`ClientInstance`, which the producers, consumers and admins of one process share when
they have the same client id. It keeps brokers informed of who is here (a heartbeat at once on a
new connection, and every 30 seconds), keeps routes fresh, has consumers store their progress, and
hands requests of brokers to whom they concern.

Groups and topics are those of the wire, with the namespace; :meth:`ClientInstance.wrap` makes
them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container
from types import TracebackType
from typing import Self, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from roquet.client import names
from roquet.client.acl import AclHook
from roquet.client.answer_lane import make_answer_lanes
from roquet.client.answers import SUCCESS_ONLY, refused
from roquet.client.faces import ConsumerFace, ProducerFace
from roquet.client.ids import UniqueIds, client_id_of
from roquet.client.lifetime import end_tasks, finish
from roquet.client.name_servers import NameServers
from roquet.client.options import ClientOptions
from roquet.client.requests import BrokerRequests
from roquet.client.route import RouteCache
from roquet.errors import ClientClosed, ConfigError, RoquetError
from roquet.remoting.bodies.client import HeartbeatData, ProducerData
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.route import MASTER_ID
from roquet.remoting.client import ClientConfig, RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.client import (
    HeartbeatRequestHeader,
    UnregisterClientRequestHeader,
)
from roquet.remoting.processor import ProcessorRegistry
from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.randomness import Randomness, seeded

__all__ = ["ClientInstance"]

log = logging.getLogger(__name__)

FIRST_HEARTBEAT_MS = 1_000
FIRST_PERSIST_MS = 10_000

_Face = TypeVar("_Face")

_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, ClientInstance]] = (
    WeakKeyDictionary()
)


class ClientInstance:
    """One client of a cluster.

    Use :meth:`open` rather than the constructor, and :meth:`close` once for each of them.

    Args:
        options: The settings.
        clock: The time.
        randomness: Chance.

    Attributes:
        options: The settings.
        clock: The time.
        randomness: Chance.
        client_id: What brokers call this client.
        remoting: The connections.
        name_servers: The name servers.
        routes: The routes.
        unique_ids: Makes the ids of messages.

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
        self._producers: dict[str, ProducerFace] = {}
        self._consumers: dict[str, ConsumerFace] = {}
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
            lane=make_answer_lanes(),
        )
        self.name_servers = NameServers(
            options.namesrv_addresses,
            self.remoting,
            randomness=self.randomness,
            timeout_ms=options.request_timeout_ms,
        )
        self.routes = RouteCache(
            self.name_servers, default_topic_queues=options.default_topic_queues
        )
        self._users = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._broker_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._closed = False
        self._gone = asyncio.Event()

    # ----------------------------------------------------------------------- life and death

    @classmethod
    async def open(
        cls,
        options: ClientOptions,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> ClientInstance:
        """The instance of these options: the running one with that client id, or a new one.

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
                hint="Give each of them an instance_name of its own, or the same settings.",
            )
        if found is None:
            found = cls(options, clock=clock, randomness=randomness)
            running[found.client_id] = found
            found.start()
        found._users += 1
        return found

    def start(self) -> None:
        """Begin to keep brokers, routes and progress up to date.

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
        """Leave; the last one who leaves closes the connections.

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
        """Wait until everybody left and the connections are closed.

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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def is_closed(self) -> bool:
        """Whether everybody left.

        Example:
            assert not client.is_closed
        """
        return self._closed

    @property
    def client_ip(self) -> str:
        """The address that the client says it has.

        Example:
            assert client.client_id.startswith(client.client_ip)
        """
        return self.client_id.partition("@")[0]

    def wrap(self, name: str) -> str:
        """A topic or group as it is on the wire.

        Example:
            assert client.wrap("Orders") == "Orders"  # no namespace
        """
        return names.wrap(self.options.namespace, name)

    def unwrap(self, name: str) -> str:
        """A topic or group as users see it.

        Example:
            assert client.unwrap(client.wrap("Orders")) == "Orders"
        """
        return names.unwrap(self.options.namespace, name)

    # ------------------------------------------------------------------------------- asking

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
        """Ask a broker; an answer with a code that is not accepted is an error.

        Raises:
            ClientClosed: The instance is closed.
            ConnectFailed: There is no connection to be had; nothing was sent.
            SendFailed: The connection broke before the answer came.
            RequestTimeout: No answer came in time.
            BrokerRefused: The answer has another code.

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

    def register_producer(self, group: str, face: ProducerFace) -> None:
        """Take a producer in; brokers hear of it with the next heartbeat.

        Raises:
            ConfigError: The instance has a producer of this group.
            ClientClosed: The instance is closed.

        Example:
            client.register_producer("billing", producer_face)
            await client.heartbeat()
        """
        self._register(self._producers, group, face, "producer")

    def register_consumer(self, group: str, face: ConsumerFace) -> None:
        """Take a consumer in; brokers hear of it with the next heartbeat.

        Raises:
            ConfigError: The instance has a consumer of this group.
            ClientClosed: The instance is closed.

        Example:
            client.register_consumer("billing", consumer_face)
            await client.heartbeat()
        """
        self._register(self._consumers, group, face, "consumer")

    async def unregister_producer(self, group: str) -> None:
        """Let a producer go, and tell the brokers.

        Example:
            client.register_producer("billing", producer_face)
            await client.unregister_producer("billing")
        """
        if self._producers.pop(group, None) is not None:
            await self._unregister(producer_group=group)

    async def unregister_consumer(self, group: str) -> None:
        """Let a consumer go, and tell the brokers.

        Example:
            client.register_consumer("billing", consumer_face)
            await client.unregister_consumer("billing")
        """
        if self._consumers.pop(group, None) is not None:
            await self._unregister(consumer_group=group)

    def _register(self, table: dict[str, _Face], group: str, face: _Face, kind: str) -> None:
        if self._closed:
            raise ClientClosed(f"The client {self.client_id} is closed")
        if table.setdefault(group, face) is not face:
            raise ConfigError(
                f"The client {self.client_id} has a {kind} of the group {group} already",
                hint="Give one of them another instance_name.",
            )

    async def _unregister(
        self, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        header = UnregisterClientRequestHeader(
            client_id=self.client_id,
            producer_group=producer_group,
            consumer_group=consumer_group,
        )
        addresses = self._broker_addresses(masters_only=False)
        await asyncio.gather(*(self._leave(address, header) for address in addresses))

    async def _leave(self, address: str, header: UnregisterClientRequestHeader) -> None:
        # A heartbeat that is under way still names the group; it must arrive first.
        async with self._lock_of(address):
            await self._tell(address, RequestCode.UNREGISTER_CLIENT, header)

    # -------------------------------------------------------------------------- what recurs

    async def heartbeat(self) -> None:
        """Tell all known brokers who is here; one that does not answer is logged.

        Example:
            await client.heartbeat()
        """
        if self._producers or self._consumers:
            addresses = self._broker_addresses(masters_only=not self._consumers)
            await asyncio.gather(*(self._send_heartbeat(address) for address in addresses))

    async def refresh_routes(self) -> None:
        """Ask for the routes of all topics that producers and consumers use.

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
        """Have all consumers store their progress.

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

    def _broker_addresses(self, *, masters_only: bool) -> list[str]:
        return [
            address
            for addresses in self.routes.brokers.values()
            for broker_id, address in addresses.items()
            if not masters_only or broker_id == MASTER_ID
        ]

    def _lock_of(self, address: str) -> asyncio.Lock:
        lock = self._broker_locks.get(address)
        if lock is None:
            lock = self._broker_locks[address] = asyncio.Lock()
        return lock

    def _connected(self, address: str) -> None:
        """Tell a broker at once who is here, because it forgot us with the old connection."""
        if self._closed or not (self._producers or self._consumers):
            return
        is_told_anyway = self._lock_of(address).locked()
        if not is_told_anyway and address in self._broker_addresses(masters_only=False):
            self._spawn(self._introduce(address))

    async def _introduce(self, address: str) -> None:
        if await self._send_heartbeat(address):
            for consumer in list(self._consumers.values()):
                consumer.rebalance_now()

    async def _send_heartbeat(self, address: str) -> bool:
        async with self._lock_of(address):
            data = HeartbeatData(
                client_id=self.client_id,
                consumer_data_set=[each.heartbeat_data() for each in self._consumers.values()],
                producer_data_set=[ProducerData(group_name=group) for group in self._producers],
            )
            if not (data.consumer_data_set or data.producer_data_set):
                return False
            return await self._tell(
                address, RequestCode.HEART_BEAT, HeartbeatRequestHeader(), encode_body(data)
            )

    async def _tell(self, address: str, code: int, header: Header, body: bytes = b"") -> bool:
        """Ask, and only log what goes wrong; whether nothing did."""
        try:
            answer = await self.remoting.invoke(address, code, header, body=body)
        except RoquetError as error:
            log.warning("%s (%s)", error.message, error.detail)
            return False
        if answer.code != ResponseCode.SUCCESS:
            refusal = refused(answer, code, address)
            log.warning("%s (%s)", refusal.message, refusal.detail)
            return False
        return True

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
