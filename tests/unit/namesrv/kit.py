"""A name server without sockets: requests are handed in, time moves on demand."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from typing import cast

from roquet.errors import RoquetError
from roquet.model.data_version import DataVersion
from roquet.model.topic_config import TopicConfig
from roquet.namesrv.config import Configuration, NamesrvConfig
from roquet.namesrv.config_processor import ConfigProcessor
from roquet.namesrv.kv_config import KVConfigManager
from roquet.namesrv.processor import NamesrvProcessor
from roquet.namesrv.registration import MinBrokerIdChange
from roquet.namesrv.route_info import RouteInfoManager
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.register import RegisterBrokerBody, encode_register_body
from roquet.remoting.bodies.route import ClusterInfo, TopicRouteData
from roquet.remoting.bodies.topic import TopicConfigAndMappingSerializeWrapper, TopicList
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import (
    CURRENT_VERSION,
    RemotingCommand,
    create_request,
    create_response,
)
from roquet.remoting.connection import Connection
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.namesrv import (
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
    UnregisterBrokerRequestHeader,
)
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    Port,
    ProcessorRegistry,
    RequestContext,
    unknown_code_response,
)
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files


class FullDisk(Files):
    """A full disk."""

    def write_at(self, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


class FakeConnection:
    """A distinguishable connection."""


def register_body(
    *topics: str | TopicConfig,
    counter: int = 1,
    state_version: int = 0,
    filter_servers: list[str] | None = None,
) -> RegisterBrokerBody:
    """The topics of a broker; names stand for topics with four queues."""
    configs = [
        each
        if isinstance(each, TopicConfig)
        else TopicConfig(topic_name=each, read_queue_nums=4, write_queue_nums=4)
        for each in topics
    ]
    return RegisterBrokerBody(
        filter_server_list=filter_servers or [],
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            data_version=DataVersion(counter=counter, state_version=state_version),
            topic_config_table={str(each.topic_name): each for each in configs},
        ),
    )


class Server:
    """A name server."""

    def __init__(
        self,
        config: NamesrvConfig | None = None,
        *,
        kv_config: KVConfigManager | None = None,
        configuration: Configuration | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.configuration = configuration or Configuration(config or NamesrvConfig())
        self.routes = RouteInfoManager(lambda: self.configuration.current, self.clock)
        self.kv_config = kv_config or KVConfigManager()
        self.told: list[MinBrokerIdChange] = []
        self.registry = ProcessorRegistry(
            NamesrvProcessor(
                routes=self.routes,
                kv_config=self.kv_config,
                configuration=self.configuration,
                clock=self.clock,
                notify=self.told.append,
            ),
            ConfigProcessor(self.kv_config, self.configuration),
        )

    def handle(self, request: RemotingCommand, connection: object) -> RemotingCommand:
        """Handle a request; failures become responses, as on a connection."""
        registration = self.registry.find(request.code, Port.MAIN)
        if registration is None:
            return unknown_code_response(request)
        context = RequestContext(cast("Connection", connection), request, registration.permission)
        try:
            answer = registration.handle(context)
            if isinstance(answer, Coroutine):
                answer = asyncio.run(answer)
        except RequestRefused as error:
            return create_response(request, error.response_code, remark=error.message)
        except RoquetError as error:
            return create_response(request, ResponseCode.SYSTEM_ERROR, remark=error.message)
        assert isinstance(answer, RemotingCommand)
        return answer

    def ask(
        self,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        version: int = CURRENT_VERSION,
        connection: object = None,
        ext_fields: dict[str, str] | None = None,
    ) -> RemotingCommand:
        """Send a request."""
        request = create_request(code, header, opaque=1, body=body)
        request.version = version
        request.ext_fields = {**(request.ext_fields or {}), **(ext_fields or {})}
        return self.handle(request, connection)

    def register(
        self,
        body: RegisterBrokerBody,
        *,
        name: str = "broker-a",
        cluster: str = "C",
        broker_id: int = 0,
        address: str | None = None,
        acting: bool | None = False,
        timeout_ms: int | None = None,
        connection: object = None,
        zone: str | None = None,
    ) -> RemotingCommand:
        """Register a broker; its address follows from its name and id."""
        header = RegisterBrokerRequestHeader(
            broker_name=name,
            broker_address=address or f"{name}:{10911 + broker_id}",
            cluster_name=cluster,
            ha_server_address=f"{name}:{20911 + broker_id}",
            broker_id=broker_id,
            heartbeat_timeout_ms=timeout_ms,
            enable_acting_master=acting,
        )
        return self.ask(
            RequestCode.REGISTER_BROKER,
            header,
            body=encode_register_body(body),
            connection=connection,
            ext_fields={} if zone is None else {"__ZONE_NAME": zone},
        )

    def unregister(
        self, *, name: str = "broker-a", cluster: str = "C", broker_id: int = 0
    ) -> RemotingCommand:
        """Unregister a broker that :meth:`register` registered."""
        header = UnregisterBrokerRequestHeader(
            broker_name=name,
            broker_address=f"{name}:{10911 + broker_id}",
            cluster_name=cluster,
            broker_id=broker_id,
        )
        return self.ask(RequestCode.UNREGISTER_BROKER, header)

    def route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic as a client reads it."""
        header = GetRouteInfoRequestHeader(topic=topic)
        answer = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return decode_body(TopicRouteData, answer.body)

    def topics(self, code: int, header: Header | None = None) -> list[str]:
        """A list of topics."""
        answer = self.ask(code, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return decode_body(TopicList, answer.body).topic_list


def addresses(server: Server, topic: str) -> dict[int, str]:
    """The addresses of the one broker name that a topic has."""
    route = server.route(topic)
    assert route is not None
    (broker,) = route.broker_datas
    return broker.broker_addrs


def perms(server: Server, topic: str) -> dict[str | None, int]:
    """The permissions of a topic by broker name."""
    route = server.route(topic)
    assert route is not None
    return {queue.broker_name: queue.perm for queue in route.queue_datas}


def cluster_info(server: Server) -> ClusterInfo:
    """Clusters and their brokers as an operator reads them."""
    return decode_body(ClusterInfo, server.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
