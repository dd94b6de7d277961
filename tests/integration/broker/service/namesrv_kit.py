"""Name servers for registration: the real one, and one that misbehaves on command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from roquet.broker.config import BrokerConfig, replace
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.manager.topic_queue_mapping import TopicQueueMappingManager
from roquet.broker.service.advertised_addresses import AdvertisedAddresses
from roquet.broker.service.registration import NamesrvRegistration
from roquet.model.topic_config import TopicConfig
from roquet.namesrv.config import NamesrvConfig
from roquet.namesrv.namesrv import Namesrv
from roquet.remoting.bodies.register import RegisterBrokerBody, decode_register_body
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import CURRENT_VERSION, RemotingCommand
from roquet.remoting.headers import namesrv as headers
from roquet.remoting.headers.base import decode_header
from roquet.remoting.processor import (
    PUBLIC,
    ProcessorRegistry,
    RequestContext,
    processor,
    unknown_code_response,
)
from roquet.remoting.server import RemotingServer
from roquet.runtime.clock import SystemClock
from roquet.runtime.files import Files
from roquet.runtime.network import reserve_port
from tests.patience import PATIENT, TIMEOUT_MS
from tests.table_changes import put_topics

LOOPBACK = "127.0.0.1"
BROKER_IP = "10.0.0.1"
BROKER_PORT = 10911
BROKER_ADDRESS = f"{BROKER_IP}:{BROKER_PORT}"


def topic_manager(root: Path, config: BrokerConfig) -> TopicConfigManager:
    return TopicConfigManager.at(replace(config, store_root=str(root)), Files(), SystemClock())


def mapping_manager(root: Path, config: BrokerConfig) -> TopicQueueMappingManager:
    return TopicQueueMappingManager.at(
        replace(config, store_root=str(root)), Files(), SystemClock()
    )


def add_topic(topics: TopicConfigManager, name: str) -> None:
    put_topics(topics, TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4))


@asynccontextmanager
async def real_namesrv(root: Path, port: int = 0) -> AsyncIterator[Namesrv]:
    """A name server as users have it."""
    config = NamesrvConfig(
        bind_address=LOOPBACK,
        listen_port=port,
        kv_config_path=str(root / "kv.json"),
        config_store_path=str(root / "namesrv.properties"),
    )
    async with Namesrv(config) as namesrv:
        yield namesrv


def knows(namesrv: Namesrv, topic: str) -> bool:
    route = namesrv.routes.route(topic)
    return route is not None and route.broker_datas[0].broker_addrs == {0: BROKER_ADDRESS}


def address_of(namesrv: Namesrv) -> str:
    return f"{LOOPBACK}:{namesrv.port}"


@asynccontextmanager
async def registering(
    root: Path, *namesrv_addresses: str, **settings: object
) -> AsyncIterator[tuple[NamesrvRegistration, TopicConfigManager]]:
    """A broker that registers."""
    config = replace(
        BrokerConfig(
            broker_name="broker-a",
            broker_ip1=BROKER_IP,
            broker_ip2=BROKER_IP,
            namesrv_address=";".join(namesrv_addresses),
        ),
        **settings,
    )
    topics = topic_manager(root, config)
    async with RemotingClient(config=PATIENT) as client:
        registration = NamesrvRegistration(
            config,
            client=client,
            topics=topics,
            mappings=mapping_manager(root, config),
            advertised=AdvertisedAddresses(config, BROKER_PORT),
            clock=SystemClock(),
        )
        await registration.start()
        try:
            yield registration, topics
        finally:
            await registration.stop()


def registered_at(registration: NamesrvRegistration) -> list[str]:
    """The name servers that have accepted the broker."""
    return [each.address for each in registration._namesrvs.values() if each.is_registered]


async def register_now(registration: NamesrvRegistration) -> None:
    """Register all topics with all name servers, as when the period is over."""
    registration._generation += 1
    for namesrv in registration._namesrvs.values():
        namesrv.register_at = 0.0
        namesrv.wake.set()
    await registration.wait_registered(timeout_ms=TIMEOUT_MS)


class OddNamesrv:
    """A name server that misbehaves as instructed.

    Attributes:
        gate: While cleared, requests hang.
        requests: What came in.
        answer: Makes the response to a registration.
        is_old: Whether it knows whole registrations only.
        known_version: The version that it claims to have; ``None`` for the queried one.
    """

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.requests: list[RemotingCommand] = []
        self.answer: Callable[[RequestContext], RemotingCommand] = _taken_in
        self.is_changed = False
        self.is_old = False
        self.known_version: bytes | None = None
        self.address = ""

    def count(self, code: int) -> int:
        return sum(each.code == code for each in self.requests)

    def registrations(self) -> list[RegisterBrokerBody]:
        return [
            decode_register_body(
                each.body,
                compressed=decode_header(
                    headers.RegisterBrokerRequestHeader, each.ext_fields
                ).compressed,
                broker_version=CURRENT_VERSION,
            )
            for each in self.requests
            if each.code == RequestCode.REGISTER_BROKER
        ]

    @processor(RequestCode.REGISTER_BROKER, permission=PUBLIC)
    async def register(self, context: RequestContext) -> RemotingCommand:
        self.requests.append(context.request)
        await self.gate.wait()
        return self.answer(context)

    @processor(RequestCode.UNREGISTER_BROKER, RequestCode.BROKER_HEARTBEAT, permission=PUBLIC)
    async def other(self, context: RequestContext) -> RemotingCommand:
        self.requests.append(context.request)
        await self.gate.wait()
        return context.response(ResponseCode.SUCCESS)

    @processor(RequestCode.REGISTER_TOPIC_IN_NAMESRV, permission=PUBLIC)
    async def register_topic(self, context: RequestContext) -> RemotingCommand:
        if self.is_old:
            return unknown_code_response(context.request)
        return await self.other(context)

    @processor(RequestCode.QUERY_DATA_VERSION, permission=PUBLIC)
    def query_data_version(self, context: RequestContext) -> RemotingCommand:
        self.requests.append(context.request)
        if self.is_old:
            return unknown_code_response(context.request)
        answer = headers.QueryDataVersionResponseHeader(changed=self.is_changed)
        version = context.request.body if self.known_version is None else self.known_version
        return context.response(ResponseCode.SUCCESS, answer, body=version)


def _taken_in(context: RequestContext) -> RemotingCommand:
    return context.response(ResponseCode.SUCCESS, headers.RegisterBrokerResponseHeader())


@asynccontextmanager
async def odd_namesrv() -> AsyncIterator[OddNamesrv]:
    namesrv = OddNamesrv()
    server = RemotingServer(ProcessorRegistry(namesrv))
    port = await server.start(LOOPBACK, 0)
    namesrv.address = f"{LOOPBACK}:{port}"
    try:
        yield namesrv
    finally:
        namesrv.gate.set()
        await server.stop()


@contextmanager
def unused_address() -> Iterator[str]:
    """An address at which nothing listens within the block."""
    with reserve_port(LOOPBACK) as held:
        yield f"{LOOPBACK}:{held.getsockname()[1]}"


@asynccontextmanager
async def web_server(answer: Callable[[str], bytes | None]) -> AsyncIterator[str]:
    """A web server; ``answer`` gets the request and gives all bytes, or None to hang."""
    hanging = asyncio.Event()
    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            data = answer(request.decode())
            if data is None:
                await hanging.wait()
            else:
                writer.write(data)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    try:
        yield f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    finally:
        hanging.set()
        server.close()
        await server.wait_closed()
        # Before Python 3.12 the server does not wait for open connections.
        await asyncio.gather(*(each for each in serving if each), return_exceptions=True)
        await asyncio.sleep(0)


def http(text: str | bytes, *, status: str = "200 OK", head: str = "") -> bytes:
    """A response of a web server."""
    body = text if isinstance(text, bytes) else text.encode()
    return f"HTTP/1.1 {status}\r\nServer: test\r\n{head}\r\n".encode() + body
