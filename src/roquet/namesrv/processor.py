"""The requests about routes that a name server handles, one method per code.

Owns the responses: codes, ext fields, bodies and remarks like those of upstream's
``DefaultRequestProcessor`` and ``ClientRequestProcessor``. It has no sockets: notifications to
brokers go to a function that is passed in. Values and settings are handled by
:mod:`roquet.namesrv.config_processor`.

Routes, heartbeats and other short requests are handled at once. Registrations wait for a worker,
and unregistrations after them, so that none overtakes a registration of its broker.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from functools import partial

from roquet.errors import ProtocolError
from roquet.model.data_version import DataVersion
from roquet.namesrv.broker_request_order import BrokerAddress, BrokerRequestOrder
from roquet.namesrv.config import Configuration
from roquet.namesrv.kv_config import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfigManager
from roquet.namesrv.registration import (
    BrokerRegistration,
    MinBrokerIdChange,
    RegisterBrokerResult,
)
from roquet.namesrv.route_info import RouteInfoManager
from roquet.namesrv.route_query import in_zone
from roquet.remoting.bodies.codec import SERVED_DIALECT_BYTES_MAX, decode_body, encode_body
from roquet.remoting.bodies.register import RegisterBrokerBody, decode_register_body
from roquet.remoting.bodies.route import (
    GetBrokerMemberGroupResponseBody,
    TopicRouteData,
    encode_route,
)
from roquet.remoting.bodies.topic import TopicConfigAndMappingSerializeWrapper, TopicList
from roquet.remoting.codes import RequestCode, ResponseCode, version_ordinal
from roquet.remoting.command import UNSET_REMARK, RemotingCommand
from roquet.remoting.headers import namesrv as headers
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    Action,
    Permission,
    Port,
    RequestContext,
    Resource,
    processor,
)
from roquet.remoting.turn_scheduler import RequestClass
from roquet.runtime.clock import Clock

__all__ = ["NamesrvProcessor"]

ZONE_NAME = "__ZONE_NAME"
ZONE_MODE = "__ZONE_MODE"

NO_ROUTE = (
    "No topic route info in name server for the topic: {topic}"
    "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)

REGISTER_BODY_VERSION = version_ordinal("V3_0_11")
"""Brokers before this version register with topics only."""

READ_AT_ONCE_BYTES_MAX = 64 << 10
"""Longer registrations are decoded in a thread and applied step by step."""

_CRC_MASK = 0x7FFFFFFF
_PORTS = frozenset({Port.MAIN})
_LOOK = Permission(Action.GET, Resource.CLUSTER)
_LIST = Permission(Action.LIST, Resource.TOPIC)
_CHANGE = Permission(Action.UPDATE, Resource.CLUSTER)
_decoded = partial(decode_body, dialect_bytes_max=SERVED_DIALECT_BYTES_MAX)


class NamesrvProcessor:
    """Handles requests.

    Args:
        routes: Brokers and topics.
        kv_config: Values by namespace and key.
        configuration: The settings in force.
        clock: Time.
        notify: Called with changes of the smallest broker id of a name.
    """

    def __init__(
        self,
        *,
        routes: RouteInfoManager,
        kv_config: KVConfigManager,
        configuration: Configuration,
        clock: Clock,
        notify: Callable[[MinBrokerIdChange], None],
    ) -> None:
        self._routes = routes
        self._kv_config = kv_config
        self._configuration = configuration
        self._clock = clock
        self._notify = notify
        self._in_order = BrokerRequestOrder()
        self._started_ns = clock.monotonic_ns()

    # Clients

    @processor(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        header=headers.GetRouteInfoRequestHeader,
        permission=_LOOK,
        request_class=RequestClass.CLIENT,
        ports=_PORTS,
    )
    def route(
        self, context: RequestContext, header: headers.GetRouteInfoRequestHeader
    ) -> RemotingCommand:
        """The route of a topic, in the client's dialect."""
        config = self._configuration.current
        if config.need_wait_for_service:
            up_ns = self._clock.monotonic_ns() - self._started_ns
            if up_ns < config.wait_seconds_for_service * 1_000_000_000:
                return context.response(ResponseCode.SYSTEM_ERROR, remark="name server not ready")
        route = self._routes.route(header.topic)
        if route is None:
            remark = NO_ROUTE.format(topic=header.topic)
            return context.response(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        if config.order_message:
            order = self._kv_config.get(NAMESPACE_ORDER_TOPIC_CONFIG, header.topic)
            route.order_topic_conf = order
        body = encode_route(
            _in_zone_of(context.request, route),
            client_version=context.request.version,
            standard_json_only=bool(header.accept_standard_json_only),
        )
        return context.response(ResponseCode.SUCCESS, body=body)

    # Brokers

    @processor(
        RequestCode.REGISTER_BROKER,
        header=headers.RegisterBrokerRequestHeader,
        permission=_CHANGE,
        ports=_PORTS,
    )
    def register_broker(
        self, context: RequestContext, header: headers.RegisterBrokerRequestHeader
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Register a broker; a slave gets the address of its master."""
        broker = BrokerAddress(header.broker_address, header.broker_name)
        is_large = len(context.request.body) > READ_AT_ONCE_BYTES_MAX
        if is_large or self._in_order.is_busy(broker):
            return self._in_order.run(broker, partial(self._register_in_steps, context, header))
        body = _register_body(context.request, header)
        return self._registered(context, self._routes.register(_broker(context, header, body)))

    async def _register_in_steps(
        self, context: RequestContext, header: headers.RegisterBrokerRequestHeader
    ) -> RemotingCommand:
        """Register a broker with many topics, or one behind it, while others are served."""
        loop = asyncio.get_running_loop()
        body = await loop.run_in_executor(None, _register_body, context.request, header)
        steps = self._routes.register_in_steps(_broker(context, header, body))
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return self._registered(context, end.value)
            await asyncio.sleep(0)

    def _registered(
        self, context: RequestContext, result: RegisterBrokerResult | None
    ) -> RemotingCommand:
        if result is None:
            return context.response(ResponseCode.SYSTEM_ERROR, remark="register broker failed")
        for change in result.changes:
            self._notify(change)
        answer = headers.RegisterBrokerResponseHeader(
            ha_server_address=result.ha_server_address, master_address=result.master_address
        )
        order_topics = None
        if self._configuration.current.return_order_topic_config_to_broker:
            order_topics = self._kv_config.encoded(NAMESPACE_ORDER_TOPIC_CONFIG)
        return context.response(ResponseCode.SUCCESS, answer, body=order_topics or b"")

    @processor(
        RequestCode.UNREGISTER_BROKER,
        header=headers.UnregisterBrokerRequestHeader,
        permission=_CHANGE,
        ports=_PORTS,
    )
    def unregister_broker(
        self, context: RequestContext, header: headers.UnregisterBrokerRequestHeader
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Unregister a broker."""
        broker = BrokerAddress(header.broker_address, header.broker_name)
        if self._in_order.is_busy(broker):
            return self._in_order.run(broker, partial(self._unregister_later, context, header))
        return self._unregister(context, header)

    async def _unregister_later(
        self, context: RequestContext, header: headers.UnregisterBrokerRequestHeader
    ) -> RemotingCommand:
        return self._unregister(context, header)

    def _unregister(
        self, context: RequestContext, header: headers.UnregisterBrokerRequestHeader
    ) -> RemotingCommand:
        change = self._routes.unregister(header.broker_address, header.broker_name)
        if change is not None:
            self._notify(change)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.QUERY_DATA_VERSION,
        header=headers.QueryDataVersionRequestHeader,
        permission=_LOOK,
        request_class=RequestClass.CLIENT,
        ports=_PORTS,
    )
    def query_data_version(
        self, context: RequestContext, header: headers.QueryDataVersionRequestHeader
    ) -> RemotingCommand:
        """Whether a broker must register again; also counts as a heartbeat."""
        body = context.request.body
        asked = _decoded(DataVersion, body) if body else None
        cluster, address = header.cluster_name, header.broker_address
        changed = self._routes.is_data_version_changed(cluster, address, asked)
        self._routes.heartbeat(cluster, address)
        known = self._routes.data_version(cluster, address)
        return context.response(
            ResponseCode.SUCCESS,
            headers.QueryDataVersionResponseHeader(changed=changed),
            body=b"" if known is None else encode_body(known),
        )

    @processor(
        RequestCode.BROKER_HEARTBEAT,
        header=headers.BrokerHeartbeatRequestHeader,
        permission=_CHANGE,
        request_class=RequestClass.CLIENT,
        ports=_PORTS,
    )
    def broker_heartbeat(
        self, context: RequestContext, header: headers.BrokerHeartbeatRequestHeader
    ) -> RemotingCommand:
        """Record the heartbeat of a broker."""
        self._routes.heartbeat(header.cluster_name, header.broker_address)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.GET_BROKER_MEMBER_GROUP,
        header=headers.GetBrokerMemberGroupRequestHeader,
        permission=_LOOK,
        ports=_PORTS,
    )
    def broker_member_group(
        self, context: RequestContext, header: headers.GetBrokerMemberGroupRequestHeader
    ) -> RemotingCommand:
        """The brokers of one name."""
        group = self._routes.member_group(header.cluster_name, header.broker_name)
        body = GetBrokerMemberGroupResponseBody(broker_member_group=group)
        return context.response(ResponseCode.SUCCESS, remark=UNSET_REMARK, body=encode_body(body))

    @processor(
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        header=headers.RegisterTopicRequestHeader,
        permission=_CHANGE,
        request_class=RequestClass.CLIENT,
        ports=_PORTS,
    )
    def register_topic(
        self, context: RequestContext, header: headers.RegisterTopicRequestHeader
    ) -> RemotingCommand:
        """Register one topic."""
        body = context.request.body
        if body:
            self._routes.register_topic(header.topic, _decoded(TopicRouteData, body).queue_datas)
        return context.response(ResponseCode.SUCCESS)

    # Operators

    @processor(RequestCode.GET_BROKER_CLUSTER_INFO, permission=_LOOK, ports=_PORTS)
    def cluster_info(self, context: RequestContext) -> RemotingCommand:
        """Clusters and their brokers."""
        return context.response(ResponseCode.SUCCESS, body=encode_body(self._routes.cluster_info()))

    @processor(
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        header=headers.BrokerNameRequestHeader,
        permission=_CHANGE,
        ports=_PORTS,
    )
    def wipe_write_perm(
        self, context: RequestContext, header: headers.BrokerNameRequestHeader
    ) -> RemotingCommand:
        """Forbid sends to a broker."""
        count = self._routes.wipe_write_perm(header.broker_name)
        answer = headers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
        return context.response(ResponseCode.SUCCESS, answer)

    @processor(
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        header=headers.BrokerNameRequestHeader,
        permission=_CHANGE,
        ports=_PORTS,
    )
    def add_write_perm(
        self, context: RequestContext, header: headers.BrokerNameRequestHeader
    ) -> RemotingCommand:
        """Allow sends to a broker again."""
        count = self._routes.add_write_perm(header.broker_name)
        answer = headers.AddWritePermOfBrokerResponseHeader(add_topic_count=count)
        return context.response(ResponseCode.SUCCESS, answer)

    @processor(
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        header=headers.DeleteTopicFromNamesrvRequestHeader,
        permission=_CHANGE,
        ports=_PORTS,
    )
    def delete_topic(
        self, context: RequestContext, header: headers.DeleteTopicFromNamesrvRequestHeader
    ) -> RemotingCommand:
        """Drop a topic's route."""
        self._routes.delete_topic(header.topic, header.cluster_name)
        return context.response(ResponseCode.SUCCESS)

    # Lists of topics

    @processor(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, permission=_LIST, ports=_PORTS)
    def all_topics(self, context: RequestContext) -> RemotingCommand:
        """All topics."""
        allowed = self._configuration.current.all_topic_list
        return _topics(context, self._routes.all_topics, allowed=allowed)

    @processor(
        RequestCode.GET_TOPICS_BY_CLUSTER,
        header=headers.GetTopicsByClusterRequestHeader,
        permission=_LIST,
        ports=_PORTS,
    )
    def topics_of_cluster(
        self, context: RequestContext, header: headers.GetTopicsByClusterRequestHeader
    ) -> RemotingCommand:
        """Topics of a cluster."""
        allowed = self._configuration.current.topic_list
        return _topics(
            context, lambda: self._routes.topics_of_cluster(header.cluster), allowed=allowed
        )

    @processor(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, permission=_LIST, ports=_PORTS)
    def system_topics(self, context: RequestContext) -> RemotingCommand:
        """Names of clusters and brokers."""
        return _topics(context, self._routes.system_topics, allowed=True)

    @processor(RequestCode.GET_UNIT_TOPIC_LIST, permission=_LIST, ports=_PORTS)
    def unit_topics(self, context: RequestContext) -> RemotingCommand:
        """Topics of a unit."""
        allowed = self._configuration.current.topic_list
        return _topics(context, self._routes.unit_topics, allowed=allowed)

    @processor(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, permission=_LIST, ports=_PORTS)
    def unit_sub_topics(self, context: RequestContext) -> RemotingCommand:
        """Topics with subscribers in units."""
        allowed = self._configuration.current.topic_list
        return _topics(context, self._routes.unit_sub_topics, allowed=allowed)

    @processor(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, permission=_LIST, ports=_PORTS)
    def unit_sub_topics_without_unit(self, context: RequestContext) -> RemotingCommand:
        """Topics with subscribers in units that are in no unit themselves."""
        allowed = self._configuration.current.topic_list
        return _topics(context, self._routes.unit_sub_topics_without_unit, allowed=allowed)


def _in_zone_of(request: RemotingCommand, route: TopicRouteData) -> TopicRouteData:
    fields = request.ext_fields or {}
    zone_name = fields.get(ZONE_NAME, "")
    if zone_name.strip() and fields.get(ZONE_MODE, "").lower() == "true":
        return in_zone(route, zone_name)
    return route


def _broker(
    context: RequestContext, header: headers.RegisterBrokerRequestHeader, body: RegisterBrokerBody
) -> BrokerRegistration:
    return BrokerRegistration(
        cluster_name=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_address,
        ha_server_address=header.ha_server_address,
        zone_name=(context.request.ext_fields or {}).get(ZONE_NAME),
        heartbeat_timeout_ms=header.heartbeat_timeout_ms,
        enable_acting_master=header.enable_acting_master,
        topics=body.topic_config_serialize_wrapper,
        filter_servers=body.filter_server_list,
        connection=context.connection,
    )


def _register_body(
    request: RemotingCommand, header: headers.RegisterBrokerRequestHeader
) -> RegisterBrokerBody:
    # The CRC covers the bytes on the wire, so it is checked before they are decoded.
    if header.body_crc32 and zlib.crc32(request.body) & _CRC_MASK != header.body_crc32:
        raise RequestRefused("crc32 not match")
    if not request.body:
        return RegisterBrokerBody()
    try:
        if request.version >= REGISTER_BODY_VERSION:
            return decode_register_body(
                request.body, compressed=header.compressed, broker_version=request.version
            )
        topics = _decoded(TopicConfigAndMappingSerializeWrapper, request.body)
        return RegisterBrokerBody(topic_config_serialize_wrapper=topics)
    except ProtocolError as error:
        raise ProtocolError(
            "Failed to decode RegisterBrokerBody",
            code=error.code,
            detail=" ".join(filter(None, (error.message, error.detail))),
        ) from error


def _topics(
    context: RequestContext, topics: Callable[[], TopicList], *, allowed: bool
) -> RemotingCommand:
    if not allowed:
        return context.response(ResponseCode.SYSTEM_ERROR, remark="disable")
    return context.response(ResponseCode.SUCCESS, body=encode_body(topics()))
