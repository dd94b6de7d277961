"""Requests to other brokers of the cluster, by their names.

Upstream's RpcClient, as far as brokers use it among themselves: the leader of a logical queue sends
requests to the brokers that hold its older ranges. Owns the addresses of other masters, which come
from a name server when a broker name is first used, and again after a broker was unreachable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from roquet.errors import NoRoute, ProtocolError, RoquetError
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.route import MASTER_ID, ClusterInfo, TopicRouteData
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.namesrv import GetRouteInfoRequestHeader

__all__ = ["BrokerRpc"]


class BrokerRpc:
    """Sends requests to other brokers.

    Args:
        client: Sends the requests.
        namesrvs: The addresses of the name servers.
        timeout_ms: How long a request may take.
    """

    def __init__(
        self, client: RemotingClient, namesrvs: Callable[[], Sequence[str]], *, timeout_ms: int
    ) -> None:
        self._client = client
        self._namesrvs = namesrvs
        self._timeout_ms = timeout_ms
        self._addresses: dict[str, str] = {}

    async def invoke(
        self,
        broker_name: str,
        code: RequestCode,
        header: Header,
        *,
        accepts: frozenset[int] = frozenset({ResponseCode.SUCCESS}),
    ) -> RemotingCommand:
        """Send a request to the master of a broker name.

        Args:
            broker_name: The broker's name.
            code: The request.
            header: Its header.
            accepts: Response codes that are not a failure.

        Raises:
            RoquetError: It cannot be found or reached, or responds with another code.
        """
        address = await self._address_of(broker_name)
        try:
            answer = await self._client.invoke(address, code, header, timeout_ms=self._timeout_ms)
        except RoquetError:
            # Its address may have changed.
            self._addresses.pop(broker_name, None)
            raise
        if answer.code not in accepts:
            raise ProtocolError(
                f"broker {broker_name} responded to {code.name} with code {answer.code}: "
                f"{(answer.remark or '')[:200]}"
            )
        return answer

    async def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic from a name server.

        Raises:
            RoquetError: No name server is reachable, or none knows the topic.
        """
        header = GetRouteInfoRequestHeader(topic=topic)
        answer = await self._ask_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return decode_body(TopicRouteData, answer.body)

    async def _address_of(self, broker_name: str) -> str:
        if broker_name not in self._addresses:
            answer = await self._ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO, None)
            table = decode_body(ClusterInfo, answer.body).broker_addr_table or {}
            self._addresses = {
                name: data.broker_addrs[MASTER_ID]
                for name, data in table.items()
                if MASTER_ID in data.broker_addrs
            }
        if broker_name not in self._addresses:
            raise NoRoute(f"cannot find addr for broker {broker_name}")
        return self._addresses[broker_name]

    async def _ask_namesrv(self, code: RequestCode, header: Header | None) -> RemotingCommand:
        failure: RoquetError = NoRoute("there is no name server to find other brokers with")
        for address in self._namesrvs():
            try:
                answer = await self._client.invoke(
                    address, code, header, timeout_ms=self._timeout_ms
                )
            except RoquetError as error:
                failure = error
                continue
            if answer.code == ResponseCode.SUCCESS:
                return answer
            failure = ProtocolError(f"name server {address}: {answer.remark or answer.code}")
        raise failure
