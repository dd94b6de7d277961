"""Static topics on brokers: querying their mappings, and carrying out a plan.

Upstream's MQAdminUtils. Owns the order of a remapping, which ensures that a logical queue never has
two brokers that accept its messages at known offsets:

.. code-block:: text

    1  the new leaders get the mapping, their logical offsets open: they take messages
    2  the old leaders get it: they refuse messages, producers turn to the new leaders
    3  where the old leaders end decides where the new ones start
    4  the new leaders get their logical offsets: consumers proceed to their messages
    5  everybody else gets the mapping
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Protocol

from msgspec.structs import replace

from roquet.admin.static_plan import add_bystanders, decide_offsets
from roquet.admin.topics import creation_header
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.route import MASTER_ID, ClusterInfo
from roquet.remoting.bodies.static_topic import TopicRemappingDetailWrapper
from roquet.remoting.bodies.topic import TopicConfigAndQueueMapping, TopicStatsTable
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import admin as headers
from roquet.remoting.headers.base import Header

__all__ = ["RequestClient", "StaticTopics"]

_THERE_OR_NOT = frozenset({ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST})


class RequestClient(Protocol):
    """Sends requests to servers, such as :class:`roquet.admin.calls.Calls`."""

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes = b"",
        accept: Container[int] = ...,
    ) -> RemotingCommand:
        """Send a request to one server; response codes other than ``accept`` are failures."""
        ...

    async def cluster_info(self) -> ClusterInfo:
        """Return the clusters and their brokers."""
        ...


class StaticTopics:
    """Queries and changes static topics.

    Args:
        asker: Sends the requests.
        info: The clusters and their brokers.
    """

    def __init__(self, asker: RequestClient, info: ClusterInfo) -> None:
        self._asker = asker
        self._clusters = info.cluster_addr_table or {}
        self._masters = {
            name: data.broker_addrs[MASTER_ID]
            for name, data in (info.broker_addr_table or {}).items()
            if MASTER_ID in data.broker_addrs
        }

    def brokers_of(self, clusters: Iterable[str]) -> list[str]:
        """Return the names of the brokers of some clusters."""
        return [name for cluster in clusters for name in self._clusters.get(cluster, ())]

    def check_alive(self, brokers: Iterable[str]) -> None:
        """Check that all brokers have an address.

        Raises:
            ValueError: One has no master.
        """
        for broker in brokers:
            if broker not in self._masters:
                raise ValueError(f"Can't find addr for broker {broker}")

    async def known(self, topic: str) -> dict[str, TopicConfigAndQueueMapping]:
        """Return each broker's mapping of a topic, by broker name; omits those without it."""
        found: dict[str, TopicConfigAndQueueMapping] = {}
        header = headers.TopicRequestHeader(topic=topic, logical=True)
        for broker, address in self._masters.items():
            code = RequestCode.GET_TOPIC_CONFIG
            answer = await self._asker.ask(address, code, header, accept=_THERE_OR_NOT)
            if answer.code == ResponseCode.SUCCESS:
                found[broker] = decode_body(TopicConfigAndQueueMapping, answer.body)
        return found

    async def create(self, plan: TopicRemappingDetailWrapper, *, force: bool = False) -> None:
        """Create a static topic, or add queues to it.

        Raises:
            ValueError: A broker has no address; nothing was changed.
        """
        add_bystanders(plan, self._clusters.values())
        self.check_alive(plan.configs)
        for broker in plan.configs:
            await self._put(plan, broker, force=force)

    async def remap(self, plan: TopicRemappingDetailWrapper, *, force: bool = False) -> None:
        """Move the queues of a static topic.

        Raises:
            ValueError: A broker has no address, or its queues are not as planned.
        """
        add_bystanders(plan, self._clusters.values())
        self.check_alive(plan.configs)
        for broker in (*plan.map_in, *plan.map_out):
            await self._put(plan, broker, force=force)
        for broker in plan.map_out:
            decide_offsets(plan, broker, await self._stats(plan.topic, broker))
        for broker in plan.map_in:
            await self._put(plan, broker, force=force)
        for broker in plan.configs.keys() - {*plan.map_in, *plan.map_out}:
            await self._put(plan, broker, force=force)

    async def _stats(self, topic: str, broker: str) -> TopicStatsTable:
        header = headers.TopicRequestHeader(topic=topic)
        code = RequestCode.GET_TOPIC_STATS_INFO
        answer = await self._asker.ask(self._masters[broker], code, header)
        return decode_body(TopicStatsTable, answer.body)

    async def _put(self, plan: TopicRemappingDetailWrapper, broker: str, *, force: bool) -> None:
        config = plan.configs[broker]
        header = creation_header(replace(config, topic_name=plan.topic), force=force)
        assert config.mapping_detail is not None, "a plan has mappings"
        body = encode_body(config.mapping_detail)
        code = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC
        await self._asker.ask(self._masters[broker], code, header, body=body)
