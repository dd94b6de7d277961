"""The replication status of a broker without replicas.

The part of upstream's AdminBrokerProcessor behind ``mqadmin haStatus``, ``resetMasterFlushOffset``
and ``getBrokerEpoch``, with the responses of a master without slaves and without a controller.
"""

from __future__ import annotations

from roquet.broker.components import BrokerComponents
from roquet.remoting.bodies.broker import HARuntimeInfo
from roquet.remoting.bodies.codec import encode_body
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

__all__ = ["ReplicationAdmin"]

_LOOK = Permission(Action.GET, Resource.CLUSTER)


class ReplicationAdmin:
    """Responds like a master without slaves.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._store = components.store

    @processor(RequestCode.GET_BROKER_HA_STATUS, permission=_LOOK, ports=ALL_PORTS)
    def replication_status(self, context: RequestContext) -> RemotingCommand:
        """Return the end of the log; there are no slaves."""
        status = HARuntimeInfo(
            master=True, master_commit_log_max_offset=self._store.max_physical_offset
        )
        return context.response(ResponseCode.SUCCESS, body=encode_body(status))

    @processor(
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        permission=Permission(Action.UPDATE, Resource.CLUSTER),
        ports=ALL_PORTS,
    )
    def reset_master_flush_offset(self, context: RequestContext) -> RemotingCommand:
        """Do nothing: only slaves keep their master's flush offset."""
        return context.response(ResponseCode.SUCCESS)

    @processor(RequestCode.GET_BROKER_EPOCH_CACHE, permission=_LOOK, ports=ALL_PORTS)
    def epochs(self, context: RequestContext) -> RemotingCommand:
        """Refuse: epochs exist only with a controller."""
        remark = "this request only for controllerMode "
        return context.response(ResponseCode.SYSTEM_ERROR, remark=remark)
