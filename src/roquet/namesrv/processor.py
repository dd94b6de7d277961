"""The requests that a name server answers, one method a code.

Owns the answers: codes, ext fields, bodies and remarks as upstream's ``DefaultRequestProcessor``
and ``ClientRequestProcessor`` give them. It knows no socket: what has to be sent to brokers goes
to a function that is handed in. Calls that keep something in a file block until it is there.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from roquet.errors import ConfigError, ProtocolError
from roquet.model.data_version import DataVersion
from roquet.namesrv.config import UPDATE_REFUSED, Configuration
from roquet.namesrv.kv_config import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfigManager
from roquet.namesrv.registration import BrokerRegistration, MinBrokerIdChange
from roquet.namesrv.route_info import RouteInfoManager
from roquet.namesrv.route_query import in_zone
from roquet.remoting.bodies.broker import KVTable
from roquet.remoting.bodies.codec import decode_body, encode_body
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
from roquet.runtime.clock import Clock

__all__ = ["NamesrvProcessor"]

ZONE_NAME = "__ZONE_NAME"
ZONE_MODE = "__ZONE_MODE"

NO_ROUTE = (
    "No topic route info in name server for the topic: {topic}"
    "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)

REGISTER_BODY_VERSION = version_ordinal("V3_0_11")
"""Brokers before this one register with their topics alone."""

_CRC_MASK = 0x7FFFFFFF
_PORTS = frozenset({Port.MAIN})
_LOOK = Permission(Action.GET, Resource.CLUSTER)
_LIST = Permission(Action.LIST, Resource.TOPIC)
_CHANGE = Permission(Action.UPDATE, Resource.CLUSTER)


class NamesrvProcessor:
    """Answers requests.

    Args:
        routes: Brokers and topics.
        kv_config: Values by namespace and key.
        configuration: The settings in force.
        clock: Time.
        notify: Takes what brokers are to be told of the least id of their name.
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
        self._started_ns = clock.monotonic_ns()

    # Clients

    @processor(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        header=headers.GetRouteInfoRequestHeader,
        permission=_LOOK,
        ports=_PORTS,
    )
    def route(
        self, context: RequestContext, header: headers.GetRouteInfoRequestHeader
    ) -> RemotingCommand:
        """The route of a topic, in the dialect that the client reads."""
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
    ) -> RemotingCommand:
        """Take in a broker; a slave learns where its master is."""
        request = context.request
        # The CRC is that of the bytes on the wire, so it comes before anything is made of them.
        if header.body_crc32 and zlib.crc32(request.body) & _CRC_MASK != header.body_crc32:
            return context.response(ResponseCode.SYSTEM_ERROR, remark="crc32 not match")
        body = _register_body(request, compressed=header.compressed)
        result = self._routes.register(
            BrokerRegistration(
                cluster_name=header.cluster_name,
                broker_name=header.broker_name,
                broker_id=header.broker_id,
                address=header.broker_address,
                ha_server_address=header.ha_server_address,
                zone_name=(request.ext_fields or {}).get(ZONE_NAME),
                heartbeat_timeout_ms=header.heartbeat_timeout_ms,
                enable_acting_master=header.enable_acting_master,
                topics=body.topic_config_serialize_wrapper,
                filter_servers=body.filter_server_list,
                connection=context.connection,
            )
        )
        if result is None:
            return context.response(ResponseCode.SYSTEM_ERROR, remark="register broker failed")
        for change in result.changes:
            self._notify(change)
        answer = headers.RegisterBrokerResponseHeader(
            ha_server_address=result.ha_server_address, master_address=result.master_address
        )
        order_topics = None
        if self._configuration.current.return_order_topic_config_to_broker:
            order_topics = self._kv_table(NAMESPACE_ORDER_TOPIC_CONFIG)
        return context.response(ResponseCode.SUCCESS, answer, body=order_topics or b"")

    @processor(
        RequestCode.UNREGISTER_BROKER,
        header=headers.UnregisterBrokerRequestHeader,
        permission=_CHANGE,
        ports=_PORTS,
    )
    def unregister_broker(
        self, context: RequestContext, header: headers.UnregisterBrokerRequestHeader
    ) -> RemotingCommand:
        """Drop a broker."""
        change = self._routes.unregister(header.broker_address, header.broker_name)
        if change is not None:
            self._notify(change)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.QUERY_DATA_VERSION,
        header=headers.QueryDataVersionRequestHeader,
        permission=_LOOK,
        ports=_PORTS,
    )
    def query_data_version(
        self, context: RequestContext, header: headers.QueryDataVersionRequestHeader
    ) -> RemotingCommand:
        """Whether a broker must register again; asking is a sign of life."""
        body = context.request.body
        asked = decode_body(DataVersion, body) if body else None
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
        ports=_PORTS,
    )
    def broker_heartbeat(
        self, context: RequestContext, header: headers.BrokerHeartbeatRequestHeader
    ) -> RemotingCommand:
        """A broker is still here."""
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
        ports=_PORTS,
    )
    def register_topic(
        self, context: RequestContext, header: headers.RegisterTopicRequestHeader
    ) -> RemotingCommand:
        """Take in one topic."""
        body = context.request.body
        if body:
            self._routes.register_topic(header.topic, decode_body(TopicRouteData, body).queue_datas)
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
        """No more sends to a broker."""
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
        """Sends to it again."""
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
        """Those of them that are in no unit."""
        allowed = self._configuration.current.topic_list
        return _topics(context, self._routes.unit_sub_topics_without_unit, allowed=allowed)

    # Values and settings

    @processor(
        RequestCode.PUT_KV_CONFIG,
        header=headers.PutKVConfigRequestHeader,
        permission=_CHANGE,
        ports=_PORTS,
    )
    def put_kv_config(
        self, context: RequestContext, header: headers.PutKVConfigRequestHeader
    ) -> RemotingCommand:
        """Set a value."""
        self._kv_config.put(header.namespace, header.key, header.value)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.GET_KV_CONFIG,
        header=headers.KVKeyRequestHeader,
        permission=_LOOK,
        ports=_PORTS,
    )
    def get_kv_config(
        self, context: RequestContext, header: headers.KVKeyRequestHeader
    ) -> RemotingCommand:
        """One value."""
        value = self._kv_config.get(header.namespace, header.key)
        answer = headers.GetKVConfigResponseHeader(value=value)
        if value is not None:
            return context.response(ResponseCode.SUCCESS, answer)
        remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
        return context.response(ResponseCode.QUERY_NOT_FOUND, answer, remark=remark)

    @processor(
        RequestCode.DELETE_KV_CONFIG,
        header=headers.KVKeyRequestHeader,
        permission=_CHANGE,
        ports=_PORTS,
    )
    def delete_kv_config(
        self, context: RequestContext, header: headers.KVKeyRequestHeader
    ) -> RemotingCommand:
        """Drop a value."""
        self._kv_config.delete(header.namespace, header.key)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        header=headers.GetKVListByNamespaceRequestHeader,
        permission=_LOOK,
        ports=_PORTS,
    )
    def kv_list(
        self, context: RequestContext, header: headers.GetKVListByNamespaceRequestHeader
    ) -> RemotingCommand:
        """Values of a namespace."""
        body = self._kv_table(header.namespace)
        if body is not None:
            return context.response(ResponseCode.SUCCESS, body=body)
        remark = f"No config item, Namespace: {header.namespace}"
        return context.response(ResponseCode.QUERY_NOT_FOUND, remark=remark)

    @processor(RequestCode.UPDATE_NAMESRV_CONFIG, permission=_CHANGE, ports=_PORTS)
    def update_config(self, context: RequestContext) -> RemotingCommand:
        """Change settings, of which only some may be."""
        try:
            self._configuration.update(context.request.body.decode())
        except UnicodeDecodeError as error:
            raise RequestRefused("string2Properties error") from error
        except ConfigError as error:
            code = (
                ResponseCode.NO_PERMISSION
                if error.code == UPDATE_REFUSED
                else ResponseCode.INVALID_PARAMETER
            )
            words = [error.message, error.hint or ""]
            raise RequestRefused(" ".join(words).strip(), response_code=code) from error
        return context.response(ResponseCode.SUCCESS)

    @processor(RequestCode.GET_NAMESRV_CONFIG, permission=_LOOK, ports=_PORTS)
    def get_config(self, context: RequestContext) -> RemotingCommand:
        """All settings."""
        return context.response(ResponseCode.SUCCESS, body=self._configuration.text().encode())

    def _kv_table(self, namespace: str) -> bytes | None:
        values = self._kv_config.namespace(namespace)
        return None if values is None else encode_body(KVTable(table=dict(values)))


def _in_zone_of(request: RemotingCommand, route: TopicRouteData) -> TopicRouteData:
    fields = request.ext_fields or {}
    zone_name = fields.get(ZONE_NAME, "")
    if zone_name.strip() and fields.get(ZONE_MODE, "").lower() == "true":
        return in_zone(route, zone_name)
    return route


def _register_body(request: RemotingCommand, *, compressed: bool) -> RegisterBrokerBody:
    if not request.body:
        return RegisterBrokerBody()
    try:
        if request.version >= REGISTER_BODY_VERSION:
            return decode_register_body(
                request.body, compressed=compressed, broker_version=request.version
            )
        topics = decode_body(TopicConfigAndMappingSerializeWrapper, request.body)
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
