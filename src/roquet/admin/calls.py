"""Requests to brokers and name servers, shared by all areas of the admin API.

Chooses the brokers and gathers their responses. Each call asks a name server for the members of the
cluster, so that brokers that just joined or left are taken into account.

Topics and groups go by their names on the brokers, including the namespace: an administrator sees
all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable
from typing import NamedTuple, TypeVar

from roquet.admin.results import BrokerInfo, ServerResults
from roquet.client import ClientInstance, PullApi
from roquet.client.names import TOOLS_GROUP
from roquet.client.response_errors import SUCCESS_ONLY, refused
from roquet.errors import ClientClosed, NoRoute, NotFound, RoquetError
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.route import MASTER_ID, BrokerData, ClusterInfo, TopicRouteData
from roquet.remoting.client import split_address
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import Header

__all__ = ["TOOLS_GROUP", "Calls", "Target", "check_known", "queues_by_address", "targets_of"]

_T = TypeVar("_T")


class Target(NamedTuple):
    """A broker to send requests to; without an address it is unreachable."""

    name: str
    address: str | None


class Calls:
    """Sends requests to name servers and brokers.

    Args:
        timeout_ms: The timeout of each request.
    """

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._client: ClientInstance | None = None

    @property
    def client(self) -> ClientInstance:
        """The client.

        Raises:
            ClientClosed: It is not started, or is closed.
        """
        if self._client is None:
            raise ClientClosed(
                "The admin is not started, or is closed", hint="Use it with: async with Admin(…)"
            )
        return self._client

    @property
    def is_attached(self) -> bool:
        """Whether a client is attached."""
        return self._client is not None

    def attach(self, client: ClientInstance | None) -> None:
        """Set or remove the client."""
        self._client = client

    # ------------------------------------------------------------------------- name servers

    async def name_server(
        self, code: RequestCode, header: Header | None = None, *, body: bytes = b""
    ) -> RemotingCommand:
        """Send a request to the first name server that responds."""
        return await self.client.name_servers.ask(code, header, body=body)

    async def name_server_if_found(
        self, code: RequestCode, header: Header | None = None
    ) -> RemotingCommand | None:
        """As :meth:`name_server`; ``None`` if the name server has no such entry."""
        answer = await self.client.name_servers.invoke(code, header)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer, code, "A name server")
        return answer

    async def name_servers(
        self, code: RequestCode, header: Header | None = None, *, body: bytes = b""
    ) -> ServerResults[RemotingCommand]:
        """Send a request to every name server: they do not share their state."""
        targets = [Target(address, address) for address in self.client.name_servers.addresses]
        return await self.gather(
            targets, lambda address: self.ask(address, code, header, body=body)
        )

    async def cluster_info(self) -> ClusterInfo:
        """Return the clusters and their brokers."""
        answer = await self.name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return decode_body(ClusterInfo, answer.body)

    async def route(self, topic: str) -> TopicRouteData:
        """Return the current route of a topic."""
        return await self.client.routes.ask(topic)

    # ------------------------------------------------------------------------------ brokers

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes = b"",
        accept: Container[int] = SUCCESS_ONLY,
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        """Send a request to one server."""
        return await self.client.ask(
            address,
            code,
            header,
            body=body,
            timeout_ms=timeout_ms or self.timeout_ms,
            accept=accept,
        )

    async def ask_body(
        self,
        kind: type[_T],
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> _T:
        """Send a request to one server, and return the body of the response."""
        answer = await self.ask(address, code, header, timeout_ms=timeout_ms)
        return decode_body(kind, answer.body)

    async def gather(
        self, targets: Iterable[Target], call: Callable[[str], Awaitable[_T]]
    ) -> ServerResults[_T]:
        """Send requests to several servers at once; failures are collected, not raised."""
        answers: dict[str, _T] = {}
        failures: dict[str, RoquetError] = {}

        async def one(target: Target) -> None:
            if target.address is None:
                failures[target.name] = NoRoute(
                    f"{target.name} has no master", hint="Start it, or query its slaves."
                )
                return
            try:
                answers[target.name] = await call(target.address)
            except RoquetError as error:
                failures[target.name] = error

        await asyncio.gather(*(one(target) for target in targets))
        return ServerResults(
            answers=dict(sorted(answers.items())), failures=dict(sorted(failures.items()))
        )

    async def brokers(self) -> list[BrokerInfo]:
        """Return every broker process, sorted."""
        info = await self.cluster_info()
        clusters = {
            name: cluster
            for cluster, names in (info.cluster_addr_table or {}).items()
            for name in names
        }
        return sorted(
            (
                BrokerInfo(
                    cluster=clusters.get(name, data.cluster or ""),
                    name=name,
                    broker_id=broker_id,
                    address=address,
                )
                for name, data in (info.broker_addr_table or {}).items()
                for broker_id, address in data.broker_addrs.items()
            ),
            key=lambda each: (each.cluster, each.name, each.broker_id),
        )

    async def masters(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> list[Target]:
        """Return the masters of all clusters or of one, or one broker by its name or address.

        Raises:
            NotFound: There is no such cluster or broker, or no broker at all.
            ConfigError: The address is invalid.
        """
        if broker is not None and ":" in broker:
            split_address(broker)
            return [Target(broker, broker)]
        found = await self.brokers()
        if cluster is not None:
            check_known("cluster", cluster, [each.cluster for each in found])
            found = [each for each in found if each.cluster == cluster]
        if broker is not None:
            check_known("broker", broker, [each.name for each in found])
            found = [each for each in found if each.name == broker]
        if not found:
            raise NotFound(
                "No broker is registered",
                detail=f"name servers: {', '.join(self.client.name_servers.addresses)}",
                hint="Start a broker with these name servers.",
            )
        masters: dict[str, str | None] = dict.fromkeys(each.name for each in found)
        masters |= {each.name: each.address for each in found if each.is_master}
        return [Target(name, address) for name, address in masters.items()]

    async def brokers_of_topic(self, topic: str) -> list[Target]:
        """Return the brokers of a topic: for each name the master, or a slave if there is none.

        Raises:
            NoRoute: No broker has the topic.
        """
        return targets_of(await self.route(topic))

    async def broker_of(self, topic: str, broker_name: str) -> str:
        """Return the address of one of the brokers of a topic.

        Raises:
            NoRoute: No broker has the topic.
            NotFound: That broker does not have the topic.
        """
        targets = await self.brokers_of_topic(topic)
        check_known("broker", broker_name, [each.name for each in targets])
        address = next(each.address for each in targets if each.name == broker_name)
        if address is None:
            raise NoRoute(f"{broker_name} has no address")
        return address

    async def topic_api(self, topic: str) -> PullApi:
        """Return the API for single queues of a topic, after fetching its route.

        Raises:
            NoRoute: No broker has the topic.
        """
        await self.client.routes.route(topic, refresh=True)
        return PullApi(self.client, TOOLS_GROUP)

    async def queue_api(self, queue: MessageQueue) -> PullApi:
        """Return the API for one queue.

        Raises:
            NoRoute: No broker has the topic.
            NotFound: That broker does not have the topic.
        """
        await self.broker_of(queue.topic, queue.broker_name)
        return await self.topic_api(queue.topic)


def targets_of(route: TopicRouteData) -> list[Target]:
    """Return the brokers of a route: for each name the master, or a slave if there is none."""
    return [Target(each.broker_name or "", _readable(each)) for each in route.broker_datas]


def queues_by_address(topic: str, route: TopicRouteData) -> dict[str, list[MessageQueue]]:
    """Return the readable queues, by the address of :func:`targets_of`."""
    counts = {each.broker_name: each.read_queue_nums for each in route.queue_datas}
    return {
        target.address: [
            MessageQueue(topic, target.name, queue_id)
            for queue_id in range(counts.get(target.name, 0))
        ]
        for target in targets_of(route)
        if target.address is not None
    }


def _readable(data: BrokerData) -> str | None:
    addresses = data.broker_addrs
    if not addresses:
        return None
    return addresses.get(MASTER_ID, addresses[min(addresses)])


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Check that a name is among the known ones.

    Raises:
        NotFound: It is not; the error lists the known names.
    """
    names = sorted(set(known))
    if name not in names:
        raise NotFound(
            f"There is no {kind} {name}",
            detail=f"known: {', '.join(names) or 'none'}",
            hint="Check the name, and that its brokers are registered.",
        )
