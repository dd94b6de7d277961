"""Routes: which brokers have which queues of a topic.

Owns the cache of routes and the addresses of brokers. Topics have their names on the wire, with the
namespace.

Invariants:

* A known route stays in use until a name server returns another one: while the name servers are
  down, or have lost the topic because its broker restarts, work continues.
* There is at most one route request per topic at a time, however many callers wait for it.
* The objects of an unchanged route stay the same, so that callers may attach state to them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial

from msgspec import Struct, structs

from roquet.client.lifetime import end_tasks
from roquet.client.name_servers import NameServers
from roquet.client.response_errors import refused
from roquet.client.route_queues import (
    check_route,
    endpoints_of_static_topic,
    publish_queues,
    subscribe_queues,
)
from roquet.errors import ConnectFailed, NoRoute, RoquetError
from roquet.model.message_queue import MessageQueue
from roquet.model.topic import AUTO_CREATE_TOPIC_KEY_TOPIC
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.route import MASTER_ID, TopicRouteData
from roquet.remoting.client import split_address
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.endpoint import LogLimiter
from roquet.remoting.headers.namesrv import GetRouteInfoRequestHeader
from roquet.runtime.clock import Clock, SystemClock

__all__ = ["PublishRoute", "RouteCache", "TopicRoute", "vip_address"]

log = logging.getLogger(__name__)


class TopicRoute(Struct, frozen=True, kw_only=True, eq=False):
    """The route of a topic.

    Attributes:
        topic: The topic.
        data: The route from the name server.
        subscribe_queues: The readable queues, sorted.
        endpoints: For a static topic, the current broker name by queue.

    Example:
        >>> from roquet.remoting.bodies.route import BrokerData
        >>> data = TopicRouteData(broker_datas=[BrokerData(broker_name="a",
        ...                                                broker_addrs={0: "10.0.0.1:10911"})])
        >>> TopicRoute(topic="Orders", data=data, subscribe_queues=(), endpoints={}).brokers
        {'a': {0: '10.0.0.1:10911'}}
    """

    topic: str
    data: TopicRouteData
    subscribe_queues: tuple[MessageQueue, ...]
    endpoints: Mapping[MessageQueue, str]

    @property
    def brokers(self) -> dict[str, dict[int, str]]:
        """The addresses by broker name and id; id 0 is the master.

        Example:
            route = await client.routes.route("Orders")
            assert route.brokers == {"dev": {0: broker_address}}
        """
        return {
            each.broker_name: dict(each.broker_addrs)
            for each in self.data.broker_datas
            if each.broker_name is not None
        }


class PublishRoute(Struct, frozen=True, kw_only=True, eq=False):
    """The queues of a topic for sends.

    Attributes:
        topic: The topic.
        queues: The writable queues on masters, in the order of Java's client.
        is_ordered: Whether the name server fixes the queues of an ordered topic.
        is_default: Whether the topic does not exist yet, and these are the queues it will get.

    Example:
        >>> PublishRoute(topic="Orders", queues=(MessageQueue("Orders", "a", 0),)).is_default
        False
    """

    topic: str
    queues: tuple[MessageQueue, ...]
    is_ordered: bool = False
    is_default: bool = False


def vip_address(address: str) -> str:
    """Return the address of a broker's second port, where no pulls hold up sends.

    Example:
        >>> vip_address("10.0.0.1:10911")
        '10.0.0.1:10909'
    """
    split_address(address)
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


class RouteCache:
    """The known routes of a client.

    Args:
        name_servers: The name servers.
        default_topic_queues: How many queues a new topic gets at most.
        clock: The clock; by default the machine's.

    Attributes:
        published: The result of :meth:`known_publish` by topic.
        changes: Counts the changes of known brokers and existing topics.

    Example:
        A :class:`~roquet.client.instance.ClientInstance` has one as ``routes``:

        >>> import asyncio
        >>> from roquet.client.instance import ClientInstance
        >>> from roquet.client.options import ClientOptions
        >>> async def main() -> None:
        ...     options = ClientOptions(namesrv="127.0.0.1:1")
        ...     async with await ClientInstance.open(options) as client:
        ...         try:
        ...             await client.routes.route("Orders")
        ...         except RoquetError as error:
        ...             print(error.message)
        >>> asyncio.run(main())
        No name server responds
    """

    def __init__(
        self,
        name_servers: NameServers,
        *,
        default_topic_queues: int = 4,
        clock: Clock | None = None,
    ) -> None:
        self._name_servers = name_servers
        self._default_topic_queues = default_topic_queues
        self._log_limiter = LogLimiter(clock or SystemClock())
        self._routes: dict[str, TopicRoute] = {}
        self.published: dict[str, PublishRoute] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self.changes = 0
        self._fetching: dict[str, asyncio.Task[TopicRoute]] = {}

    # ------------------------------------------------------------------------------- topics

    async def route(self, topic: str, *, refresh: bool = False) -> TopicRoute:
        """Return the route of a topic.

        Args:
            topic: The topic.
            refresh: Ask a name server even if the route is known; if none responds, or the one that
                does has no route, the known route is returned.

        Raises:
            NoRoute: No broker has the topic.
            ConnectFailed: No name server responds, and nothing was known before.

        Example:
            route = await client.routes.route("Orders", refresh=True)
            print(route.subscribe_queues)
        """
        known = self._routes.get(topic)
        if known is not None and not refresh:
            return known
        try:
            return await self._fetch(topic)
        except RoquetError as error:
            if known is None:
                raise
            more = self._log_limiter.allow("old")
            if more is not None:
                log.warning("The old route of %s stays in use: %s%s", topic, error.message, more)
            return known

    async def publish(
        self, topic: str, *, refresh: bool = False, create: bool = True
    ) -> PublishRoute:
        """Return the queues of a topic for sends.

        Args:
            topic: The topic.
            refresh: Ask a name server even if the route is known.
            create: For a topic that does not exist, return the brokers that would create it.

        Raises:
            NoRoute: No broker has the topic, or none of its queues is writable.
            ConnectFailed: No name server responds, and nothing was known before.

        Example:
            route = await client.routes.publish("Orders")
            print(len(route.queues))
        """
        known = self.published.get(topic)
        if known is not None and not refresh:
            return known
        try:
            await self.route(topic, refresh=refresh or known is not None)
        except NoRoute as error:
            if known is None:
                if not create:
                    raise
                self.published[topic] = await self._default_route(topic, error)
        except RoquetError:
            if known is None:
                raise
        found = self.published[topic]
        if not found.queues:
            raise NoRoute(
                f"No queue of {topic} can be written",
                hint="Its masters may be down, or the topic or broker may forbid writes.",
            )
        return found

    def known_publish(self, topic: str) -> PublishRoute | None:
        """Return what :meth:`publish` would return without any request.

        Example:
            assert client.routes.known_publish("Unheard-of") is None
        """
        return self.published.get(topic)

    async def subscribe_queues(self, topic: str, *, refresh: bool = False) -> list[MessageQueue]:
        """Return the readable queues of a topic, sorted by broker and queue id.

        Raises:
            NoRoute: No broker has the topic.
            ConnectFailed: No name server responds, and nothing was known before.

        Example:
            assert queue in await client.routes.subscribe_queues("Orders")
        """
        route = await self.route(topic, refresh=refresh)
        return list(route.subscribe_queues)

    async def refresh(self, topics: Iterable[str]) -> None:
        """Refresh the routes of these topics; failures are logged.

        Example:
            await client.routes.refresh(["Orders"])
        """
        for topic in topics:
            try:
                await self._fetch(topic)
            except NoRoute as error:
                log.debug("%s", error.message)
            except ConnectFailed as error:
                more = self._log_limiter.allow("none")
                if more is not None:
                    log.warning(
                        "No route was refreshed: %s (%s)%s", error.message, error.detail, more
                    )
                return
            except RoquetError as error:
                more = self._log_limiter.allow("refresh")
                if more is not None:
                    log.warning(
                        "The route of %s was not refreshed: %s%s", topic, error.message, more
                    )

    @property
    def topics(self) -> list[str]:
        """The topics whose routes are known.

        Example:
            await client.routes.route("Orders")
            assert "Orders" in client.routes.topics
        """
        return sorted(self._routes)

    # ------------------------------------------------------------------------------ brokers

    @property
    def brokers(self) -> dict[str, dict[int, str]]:
        """The addresses of all brokers in known routes, by name and id.

        Example:
            await client.routes.route("Orders")
            assert client.routes.brokers["dev"] == {0: broker_address}
        """
        return {name: dict(addresses) for name, addresses in self._brokers.items()}

    def broker_address(
        self, broker_name: str, *, master_only: bool = False, broker_id: int = MASTER_ID
    ) -> str | None:
        """Return the address of a broker; ``None`` if it is unknown.

        Args:
            broker_name: Its name.
            master_only: Return only the master, whatever the id.
            broker_id: Which of the brokers with that name; if it is missing, any other one.

        Example:
            await client.routes.route("Orders")
            assert client.routes.broker_address("dev", master_only=True) == broker_address
        """
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        if master_only:
            return addresses.get(MASTER_ID)
        found = addresses.get(broker_id)
        if found is None and broker_id != MASTER_ID:
            found = addresses.get(broker_id + 1)
        if found is None:
            found = addresses[min(addresses)]
        return found

    def broker_name_of(self, queue: MessageQueue) -> str:
        """Return the broker of a queue; for a static topic, the current one.

        Example:
            assert client.routes.broker_name_of(queue) == "dev"
        """
        route = self._routes.get(queue.topic)
        if route is None or not route.endpoints:
            return queue.broker_name
        return route.endpoints.get(queue, queue.broker_name)

    # ------------------------------------------------------------------------------ fetching

    async def _fetch(self, topic: str) -> TopicRoute:
        task = self._fetching.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._fetch_now(topic))
            self._fetching[topic] = task
            task.add_done_callback(partial(self._fetched, topic))
        # Other callers may wait for the same route: one that gives up must not cancel it.
        return await asyncio.shield(task)

    def _fetched(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        self._fetching.pop(topic, None)
        if not task.cancelled():
            task.exception()  # the caller may have given up

    async def close(self) -> None:
        """Stop refreshing.

        Example:
            await client.routes.close()
        """
        await end_tasks(list(self._fetching.values()))

    async def _fetch_now(self, topic: str) -> TopicRoute:
        return self._keep(topic, await self.ask(topic))

    async def ask(self, topic: str) -> TopicRouteData:
        """Return the current route from a name server, without caching it.

        Raises:
            NoRoute: No broker has the topic.
            ConnectFailed: No name server responds.
            BrokerRefused: The one that responded refused.

        Example:
            data = await client.routes.ask("Orders")
            print([each.broker_name for each in data.broker_datas])
        """
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        answer = await self._name_servers.invoke(code, header)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRoute(
                f"There is no route for the topic {topic}",
                detail=answer.remark,
                hint="Create the topic, or check that its brokers are registered. A broker creates "
                "topics itself only with autoCreateTopicEnable.",
            )
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer, code, self._name_servers.current)
        data = decode_body(TopicRouteData, answer.body)
        check_route(topic, data)
        return data

    async def _default_route(self, topic: str, missing: NoRoute) -> PublishRoute:
        limit = self._default_topic_queues
        try:
            route = await self._fetch(AUTO_CREATE_TOPIC_KEY_TOPIC)
        except NoRoute:
            raise missing from None
        limited = [
            structs.replace(each, write_queue_nums=min(limit, each.read_queue_nums))
            for each in route.data.queue_datas
        ]
        queues, is_ordered = publish_queues(topic, structs.replace(route.data, queue_datas=limited))
        return PublishRoute(
            topic=topic, queues=tuple(queues), is_ordered=is_ordered, is_default=True
        )

    def _keep(self, topic: str, data: TopicRouteData) -> TopicRoute:
        data.queue_datas.sort(key=lambda each: each.broker_name or "")
        data.broker_datas.sort(key=lambda each: each.broker_name or "")
        known = self._routes.get(topic)
        if known is not None and known.data == data:
            return known
        endpoints = endpoints_of_static_topic(topic, data)
        route = TopicRoute(
            topic=topic,
            data=data,
            subscribe_queues=tuple(sorted(subscribe_queues(topic, data))),
            endpoints=endpoints,
        )
        queues, is_ordered = publish_queues(topic, data)
        self.changes += 1
        self._routes[topic] = route
        self.published[topic] = PublishRoute(
            topic=topic, queues=tuple(queues), is_ordered=is_ordered
        )
        self._brokers |= route.brokers
        self._forget_brokers_without_route()
        return route

    def _forget_brokers_without_route(self) -> None:
        alive = {
            address
            for route in self._routes.values()
            for addresses in route.brokers.values()
            for address in addresses.values()
        }
        self.changes += 1
        self._brokers = {
            name: left
            for name, addresses in self._brokers.items()
            if (left := {key: each for key, each in addresses.items() if each in alive})
        }
