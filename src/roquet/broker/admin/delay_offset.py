"""The offsets of the delay levels, for a slave that keeps a copy.

The part of upstream's AdminBrokerProcessor that returns the delay offset table.
"""

from __future__ import annotations

from roquet.broker.components import BrokerComponents
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.offset import DelayOffsetSerializeWrapper
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)

__all__ = ["DelayOffsetAdmin"]


class DelayOffsetAdmin:
    """Returns the table.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._delay_offsets = components.delay_offsets

    @processor(
        RequestCode.GET_ALL_DELAY_OFFSET,
        permission=Permission(Action.LIST, Resource.CLUSTER),
        ports=ALL_PORTS,
    )
    def all_delay_offsets(self, context: RequestContext) -> RemotingCommand:
        """Return the offset of each delay level."""
        body = DelayOffsetSerializeWrapper(
            data_version=self._delay_offsets.data_version,
            offset_table=dict(sorted(self._delay_offsets.table.items())),
        )
        return context.response(ResponseCode.SUCCESS, body=encode_body(body))
