"""The broker's counters, for ``mqadmin statsAll`` and the dashboard's charts.

The stats part of upstream's AdminBrokerProcessor.
"""

from __future__ import annotations

from roquet.broker.components import BrokerComponents
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.admin import ViewBrokerStatsDataRequestHeader
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)

__all__ = ["StatsAdmin"]


class StatsAdmin:
    """Returns counters.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._stats = components.stats

    @processor(
        RequestCode.VIEW_BROKER_STATS_DATA,
        header=ViewBrokerStatsDataRequestHeader,
        permission=Permission(Action.GET, Resource.CLUSTER),
        ports=ALL_PORTS,
    )
    def view_stats(
        self, context: RequestContext, header: ViewBrokerStatsDataRequestHeader
    ) -> RemotingCommand:
        """Return a counter's values for the last minute, hour and day."""
        found = self._stats.view(header.stats_name, header.stats_key)
        if found is None:
            raise RequestRefused(f"The stats <{header.stats_name}> <{header.stats_key}> not exist")
        return context.response(ResponseCode.SUCCESS, body=encode_body(found))
