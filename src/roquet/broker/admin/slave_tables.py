"""Tables that slaves copy and nobody else requests.

The part of upstream's AdminBrokerProcessor that returns the offsets of the delay levels, the
request modes of groups, and the state of the timer. Slaves request topics, groups and consumer
offsets too, which are in the modules of these nouns.
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

__all__ = ["SlaveTablesAdmin"]

_LIST = Permission(Action.LIST, Resource.CLUSTER)


class SlaveTablesAdmin:
    """Returns the tables.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._delay_offsets = components.delay_offsets
        self._request_modes = components.request_modes

    @processor(RequestCode.GET_ALL_DELAY_OFFSET, permission=_LIST, ports=ALL_PORTS)
    def all_delay_offsets(self, context: RequestContext) -> RemotingCommand:
        """Return the offset of each delay level."""
        body = DelayOffsetSerializeWrapper(
            data_version=self._delay_offsets.data_version,
            offset_table=dict(sorted(self._delay_offsets.table.items())),
        )
        return context.response(ResponseCode.SUCCESS, body=encode_body(body))

    @processor(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, permission=_LIST, ports=ALL_PORTS)
    def all_request_modes(self, context: RequestContext) -> RemotingCommand:
        """Return the request modes by topic and group."""
        body = encode_body(self._request_modes.to_body())
        return context.response(ResponseCode.SUCCESS, body=body)

    @processor(RequestCode.GET_TIMER_CHECK_POINT, permission=_LIST, ports=ALL_PORTS)
    def timer_check_point(self, context: RequestContext) -> RemotingCommand:
        """Refuse like a broker with ``timerWheelEnable=false``."""
        remark = "The checkpoint is null"
        return context.response(ResponseCode.SYSTEM_ERROR, remark=remark)

    @processor(RequestCode.GET_TIMER_METRICS, permission=_LIST, ports=ALL_PORTS)
    def timer_metrics(self, context: RequestContext) -> RemotingCommand:
        """Refuse like a broker with ``timerWheelEnable=false``."""
        remark = "The timer message store is null"
        return context.response(ResponseCode.SYSTEM_ERROR, remark=remark)
