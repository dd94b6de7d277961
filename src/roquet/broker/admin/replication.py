"""What a broker says about replication, which is that it has none.

The part of upstream's AdminBrokerProcessor behind ``mqadmin haStatus``, ``resetMasterFlushOffset``
and ``getBrokerEpoch``, as a master without slaves and without a controller answers.
"""

from __future__ import annotations

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
from roquet.store.message_store import MessageStore

__all__ = ["ReplicationAdmin"]

_LOOK = Permission(Action.GET, Resource.CLUSTER)


class ReplicationAdmin:
    """Answers as a master that nobody follows.

    Args:
        store: The messages.
    """

    def __init__(self, *, store: MessageStore) -> None:
        self._store = store

    @processor(RequestCode.GET_BROKER_HA_STATUS, permission=_LOOK, ports=ALL_PORTS)
    def replication_status(self, context: RequestContext) -> RemotingCommand:
        """Where the log ends; there are no slaves."""
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
        """Nothing: only slaves keep what their master has flushed."""
        return context.response(ResponseCode.SUCCESS)

    @processor(RequestCode.GET_BROKER_EPOCH_CACHE, permission=_LOOK, ports=ALL_PORTS)
    def epochs(self, context: RequestContext) -> RemotingCommand:
        """A refusal: there are epochs only under a controller."""
        remark = "this request only for controllerMode "
        return context.response(ResponseCode.SYSTEM_ERROR, remark=remark)
