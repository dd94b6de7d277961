"""Connected clients of consumer groups and producer groups.

The connection part of upstream's AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Iterable

from roquet.broker.components import BrokerComponents
from roquet.broker.manager.client_channel import ClientChannel
from roquet.remoting.bodies.client import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import client as headers
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)

__all__ = ["ConnectionAdmin"]

_CLUSTER = Permission(Action.GET, Resource.CLUSTER)


class ConnectionAdmin:
    """Lists connected clients.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._producers = components.producers
        self._consumers = components.consumers
        self._clock = components.clock

    @processor(
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        header=headers.GetConsumerConnectionListRequestHeader,
        permission=Permission(Action.GET, Resource.GROUP),
        ports=ALL_PORTS,
    )
    def consumer_connections(
        self, context: RequestContext, header: headers.GetConsumerConnectionListRequestHeader
    ) -> RemotingCommand:
        """Return the clients and subscriptions of a consumer group."""
        group = self._consumers.find(header.consumer_group)
        if group is None:
            remark = f"the consumer group[{header.consumer_group}] not online"
            return context.response(ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)
        body = ConsumerConnection(
            connection_set=_connections(group.channels.values()),
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table=dict(group.subscriptions),
        )
        return context.response(ResponseCode.SUCCESS, body=encode_body(body))

    @processor(
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        header=headers.GetProducerConnectionListRequestHeader,
        permission=_CLUSTER,
        ports=ALL_PORTS,
    )
    def producer_connections(
        self, context: RequestContext, header: headers.GetProducerConnectionListRequestHeader
    ) -> RemotingCommand:
        """Return the clients of a producer group."""
        group = self._producers.groups.get(header.producer_group)
        if group is None:
            remark = f"the producer group[{header.producer_group}] not exist"
            return context.response(ResponseCode.SYSTEM_ERROR, remark=remark)
        body = ProducerConnection(connection_set=_connections(group.values()))
        return context.response(ResponseCode.SUCCESS, body=encode_body(body))

    @processor(
        RequestCode.GET_ALL_PRODUCER_INFO,
        header=headers.GetAllProducerInfoRequestHeader,
        permission=_CLUSTER,
        ports=ALL_PORTS,
    )
    def all_producers(
        self, context: RequestContext, header: headers.GetAllProducerInfoRequestHeader
    ) -> RemotingCommand:
        """Return the clients of all producer groups."""
        del header
        table = {
            group: [self._producer_info(channel) for channel in channels.values()]
            for group, channels in self._producers.groups.items()
            if channels
        }
        return context.response(
            ResponseCode.SUCCESS, body=encode_body(ProducerTableInfo(data=table))
        )

    def _producer_info(self, channel: ClientChannel) -> ProducerInfo:
        silent_ms = (self._clock.monotonic_ns() - channel.last_update_ns) // 1_000_000
        return ProducerInfo(
            client_id=channel.client_id,
            language=channel.language.name,
            last_update_timestamp_ms=self._clock.now_ms() - silent_ms,
            remote_ip=f"/{channel.connection.remote_address}",
            version=channel.version,
        )


def _connections(channels: Iterable[ClientChannel]) -> list[Connection]:
    return [
        Connection(
            client_address=channel.connection.remote_address,
            client_id=channel.client_id,
            language=channel.language.name,
            version=channel.version,
        )
        for channel in channels
    ]
