"""The state of replication, and what brokers of one name tell each other about it.

The part of upstream's AdminBrokerProcessor behind ``mqadmin haStatus``, ``resetMasterFlushOffset``
and ``getBrokerEpoch``, and the requests with which a slave learns where its master is. There is no
controller, so there are no epochs.
"""

from __future__ import annotations

from roquet.broker.components import BrokerComponents
from roquet.ha.service import HaStatus
from roquet.remoting.bodies.broker import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import ha as headers
from roquet.remoting.headers.base import decode_header
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)

__all__ = ["ReplicationAdmin", "runtime_info"]

_LOOK = Permission(Action.GET, Resource.CLUSTER)
_UPDATE = Permission(Action.UPDATE, Resource.CLUSTER)


class ReplicationAdmin:
    """Reports replication.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._broker = components
        self._ha = components.ha
        self._start_offset = components.log_store.max_physical_offset

    @processor(RequestCode.GET_BROKER_HA_STATUS, permission=_LOOK, ports=ALL_PORTS)
    def replication_status(self, context: RequestContext) -> RemotingCommand:
        """Return how far the slaves are, or on a slave, how far it is."""
        body = encode_body(runtime_info(self._ha.status()))
        return context.response(ResponseCode.SUCCESS, body=body)

    @processor(RequestCode.RESET_MASTER_FLUSH_OFFSET, permission=_UPDATE, ports=ALL_PORTS)
    def reset_master_flush_offset(self, context: RequestContext) -> RemotingCommand:
        """Change a slave's note of its master's flush offset; a master ignores this."""
        if not self._broker.config.is_master:
            header = decode_header(
                headers.ResetMasterFlushOffsetRequestHeader, context.request.ext_fields
            )
            self._ha.reset_master_flush_offset(header.master_flush_offset)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        header=headers.ExchangeHAInfoHeader,
        permission=_UPDATE,
        ports=ALL_PORTS,
    )
    def exchange_info(
        self, context: RequestContext, header: headers.ExchangeHAInfoHeader
    ) -> RemotingCommand:
        """Return a master's addresses; on a slave, look for the master.

        Upstream lets any peer tell a slave whom to follow. Here a slave believes only its settings
        and its name servers, and asks the latter at once.
        """
        if header.master_ha_address is not None or not self._broker.config.is_master:
            self._broker.master.look()
            return context.response(ResponseCode.SUCCESS, headers.ExchangeHAInfoHeader())
        answer = headers.ExchangeHAInfoHeader(
            master_ha_address=self._broker.advertised.ha_address,
            master_flush_offset=self._start_offset,
            master_address=self._broker.advertised.address,
        )
        return context.response(ResponseCode.SUCCESS, answer)

    @processor(
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        header=headers.NotifyMinBrokerIdChangeRequestHeader,
        permission=_UPDATE,
        ports=ALL_PORTS,
    )
    def min_broker_id_changed(
        self, context: RequestContext, header: headers.NotifyMinBrokerIdChangeRequestHeader
    ) -> RemotingCommand:
        """Look for the master, as a name server has news of this broker's name."""
        del header
        self._broker.master.look()
        return context.response(ResponseCode.SUCCESS)

    @processor(RequestCode.GET_BROKER_EPOCH_CACHE, permission=_LOOK, ports=ALL_PORTS)
    def epochs(self, context: RequestContext) -> RemotingCommand:
        """Refuse: epochs exist only with a controller."""
        remark = "this request only for controllerMode "
        return context.response(ResponseCode.SYSTEM_ERROR, remark=remark)


def runtime_info(status: HaStatus) -> HARuntimeInfo:
    """Return the state of replication as upstream writes it."""
    if status.is_master:
        return HARuntimeInfo(
            ha_connection_info=[
                HAConnectionRuntimeInfo(
                    address=slave.address,
                    diff_bytes=slave.behind_bytes,
                    in_sync=slave.is_in_sync,
                    slave_ack_offset=slave.ack_offset,
                    transfer_from_where=slave.transfer_from_offset,
                    transferred_bytes_per_second=slave.bytes_per_second,
                )
                for slave in status.slaves
            ],
            in_sync_slave_nums=status.in_sync_slaves,
            master=True,
            master_commit_log_max_offset=status.max_offset,
        )
    return HARuntimeInfo(
        ha_client_runtime_info=HAClientRuntimeInfo(
            last_read_timestamp_ms=status.last_read_ms,
            last_write_timestamp_ms=status.last_write_ms,
            master_address=status.master_address or None,
            master_flush_offset=status.master_flush_offset,
            max_physical_offset=status.max_offset,
            transferred_bytes_per_second=status.bytes_per_second,
        )
    )
