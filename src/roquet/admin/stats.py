"""Counters of brokers over the last minute, hour and day.

Owns :class:`Stats`.
"""

from __future__ import annotations

from enum import Enum

from roquet.admin.calls import Calls
from roquet.admin.results import ServerResults
from roquet.errors import BrokerRefused
from roquet.remoting.bodies.broker import BrokerStatsData
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.admin import ViewBrokerStatsDataRequestHeader

__all__ = ["Stats", "StatsName"]


class StatsName(Enum):
    """The counters of brokers; the value is the name on the wire.

    The key of a topic counter is the topic, of a group counter ``topic@group``, of a broker counter
    the name of the cluster.

    Example:
        found = await admin.stats.view(StatsName.TOPIC_PUT_SIZE, "Orders")
    """

    TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
    TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
    GROUP_GET_NUMS = "GROUP_GET_NUMS"
    GROUP_GET_SIZE = "GROUP_GET_SIZE"
    GROUP_GET_LATENCY = "GROUP_GET_LATENCY"
    SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
    BROKER_PUT_NUMS = "BROKER_PUT_NUMS"
    BROKER_GET_NUMS = "BROKER_GET_NUMS"


class Stats:
    """Counters of brokers; ``admin.stats``.

    A broker that has not counted anything under a name yet returns no values.

    Example:
        found = await admin.stats.topic_puts("Orders")
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def view(
        self,
        name: StatsName | str,
        key: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> ServerResults[BrokerStatsData]:
        """Return one counter, on each broker.

        Example:
            found = await admin.stats.view("BROKER_PUT_NUMS", "DefaultCluster")
        """
        header = ViewBrokerStatsDataRequestHeader(
            stats_name=name.value if isinstance(name, StatsName) else name, stats_key=key
        )

        async def ask(address: str) -> BrokerStatsData:
            code = RequestCode.VIEW_BROKER_STATS_DATA
            try:
                return await self._calls.ask_body(BrokerStatsData, address, code, header)
            except BrokerRefused as error:
                # There is no response code of its own for an unknown counter.
                if "not exist" in error.remark:
                    return BrokerStatsData()
                raise

        targets = await self._calls.masters(cluster=cluster, broker=broker)
        return await self._calls.gather(targets, ask)

    async def topic_puts(self, topic: str) -> ServerResults[BrokerStatsData]:
        """Return the counter of stored messages, on each broker.

        Example:
            found = await admin.stats.topic_puts("Orders")
            minutes = [each.stats_minute for each in found.answers.values()]
        """
        return await self.view(StatsName.TOPIC_PUT_NUMS, topic)

    async def group_gets(self, group: str, topic: str) -> ServerResults[BrokerStatsData]:
        """Return the counter of messages of a topic that a group got, on each broker.

        Example:
            found = await admin.stats.group_gets("billing", "Orders")
        """
        return await self.view(StatsName.GROUP_GET_NUMS, f"{topic}@{group}")
