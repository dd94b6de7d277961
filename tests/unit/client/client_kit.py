"""Callbacks that record their calls, and a server that responds as a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager

from roquet.client import ClientInstance, ClientOptions
from roquet.client.message import ReceivedMessage
from roquet.format.commit_log import decode_record, encode_record
from roquet.model.message import BrokerMessage
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.remoting.bodies.client import (
    CMResult,
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    HeartbeatData,
    MessageModel,
)
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.connection import Connection
from roquet.remoting.headers.client import UnregisterClientRequestHeader
from roquet.remoting.headers.namesrv import GetRouteInfoRequestHeader
from roquet.remoting.headers.send import CheckTransactionStateRequestHeader
from roquet.remoting.processor import PUBLIC, ProcessorRegistry, RequestContext, Response, processor
from roquet.remoting.server import RemotingServer, ServerConfig

LOOPBACK = "127.0.0.1"


async def until(condition: Callable[[], bool]) -> None:
    """Run the loop until a condition holds; the test's time-out bounds it."""
    while not condition():  # noqa: ASYNC110 - counters have no event to wait for
        await asyncio.sleep(0.001)


class Producer:
    """A producer that records its calls."""

    def __init__(self, *topics: str, takes_replies: bool = True) -> None:
        self.topics = topics
        self.takes_replies = takes_replies
        self.checks: list[tuple[ReceivedMessage, CheckTransactionStateRequestHeader, str]] = []
        self.replies: list[ReceivedMessage] = []

    def publish_topics(self) -> Collection[str]:
        return self.topics

    def check_transaction(
        self,
        message: ReceivedMessage,
        header: CheckTransactionStateRequestHeader,
        broker_address: str,
    ) -> None:
        self.checks.append((message, header, broker_address))

    def reply_arrived(self, message: ReceivedMessage) -> bool:
        if self.takes_replies:
            self.replies.append(message)
        return self.takes_replies


class Consumer:
    """A consumer that records its calls."""

    def __init__(self, group: str, *topics: str) -> None:
        self.group = group
        self.topics = topics
        self.rebalances = 0
        self.persisted = 0
        self.resets: list[tuple[str, dict[MessageQueue, int]]] = []
        self.consumed: list[tuple[ReceivedMessage, str]] = []
        self.offsets: dict[MessageQueue, int] = {}

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            group_name=self.group,
            message_model=MessageModel.CLUSTERING,
            subscription_data_set=[
                SubscriptionData(topic=topic, sub_string="*") for topic in self.topics
            ],
        )

    def rebalance_now(self) -> None:
        self.rebalances += 1

    async def persist_offsets(self) -> None:
        self.persisted += 1

    def reset_offsets(self, topic: str, queue_offsets: Mapping[MessageQueue, int]) -> None:
        self.resets.append((topic, dict(queue_offsets)))

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        return {queue: at for queue, at in self.offsets.items() if queue.topic == topic}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(properties={"PROP_CONSUMER_START_TIMESTAMP": "17"})

    async def consume_directly(
        self, message: ReceivedMessage, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        self.consumed.append((message, broker_name))
        return ConsumeMessageDirectlyResult(consume_result=CMResult.CR_SUCCESS)


class FakeServer:
    """A name server and broker in one, which responds as a test wants and records its requests."""

    def __init__(self, config: ServerConfig | None = None) -> None:
        self.routes: dict[str, TopicRouteData] = {}
        self.code: int = ResponseCode.SUCCESS
        self.standard_json = True
        self.gate: asyncio.Event | None = None
        self.asked: list[str] = []
        self.heartbeats: list[HeartbeatData] = []
        self.left: list[UnregisterClientRequestHeader] = []
        self.fields: list[dict[str, str]] = []
        self.events: list[str] = []
        self.port = 0
        self._server = RemotingServer(ProcessorRegistry(self), config or ServerConfig())

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def connections(self) -> list[Connection]:
        return sorted(self._server.connections, key=lambda each: each.id)

    async def start(self, port: int = 0) -> None:
        self.port = await self._server.start(LOOPBACK, port)

    async def stop(self) -> None:
        await self._server.stop()

    @processor(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, header=GetRouteInfoRequestHeader, permission=PUBLIC
    )
    async def route(self, context: RequestContext, header: GetRouteInfoRequestHeader) -> Response:
        self.asked.append(header.topic)
        self.fields.append(dict(context.request.ext_fields or {}))
        if self.gate is not None:
            await self.gate.wait()
        if self.code != ResponseCode.SUCCESS:
            return context.response(self.code, remark="told to")
        found = self.routes.get(header.topic)
        if found is None:
            return context.response(ResponseCode.TOPIC_NOT_EXIST, remark="not there")
        return context.response(
            ResponseCode.SUCCESS, body=encode_body(found, standard=self.standard_json)
        )

    @processor(RequestCode.HEART_BEAT, permission=PUBLIC)
    async def heart_beat(self, context: RequestContext) -> Response:
        if self.gate is not None:
            await self.gate.wait()
        self.heartbeats.append(decode_body(HeartbeatData, context.request.body))
        self.events.append("heartbeat")
        return context.response(self.code, remark="told to")

    @processor(
        RequestCode.UNREGISTER_CLIENT, header=UnregisterClientRequestHeader, permission=PUBLIC
    )
    def unregister(
        self, context: RequestContext, header: UnregisterClientRequestHeader
    ) -> Response:
        self.left.append(header)
        self.events.append("unregister")
        return context.response(ResponseCode.SUCCESS)


@asynccontextmanager
async def fake_server(
    *, port: int = 0, config: ServerConfig | None = None
) -> AsyncIterator[FakeServer]:
    server = FakeServer(config)
    await server.start(port)
    try:
        yield server
    finally:
        if server.gate is not None:
            server.gate.set()
        await server.stop()


def route_of(
    *brokers: tuple[str, dict[int, str]], queues: int = 2, perm: int = 6
) -> TopicRouteData:
    """A route: by broker name, the addresses by id."""
    return TopicRouteData(
        broker_datas=[
            BrokerData(broker_name=name, cluster="c", broker_addrs=addresses)
            for name, addresses in brokers
        ],
        queue_datas=[
            QueueData(broker_name=name, perm=perm, read_queue_nums=queues, write_queue_nums=queues)
            for name, _ in brokers
        ],
    )


def record_of(message: BrokerMessage) -> bytes:
    """The message as a record at queue offset 5 and physical offset 777."""
    return bytes(
        encode_record(
            topic=message.topic.encode(),
            body=message.body,
            properties=message.properties,
            queue_id=message.queue_id,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host.pack(),
            store_host=message.store_host.pack(),
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
            queue_offset=5,
            physical_offset=777,
            store_timestamp_ms=1_700_000_000_123,
        )
    )


def received(message: BrokerMessage) -> ReceivedMessage:
    """The same as a consumer gets it."""
    data = record_of(message)
    return ReceivedMessage.of(decode_record(data, 0, len(data)), "broker-a")


def options_of(namesrv: str, **changes: object) -> ClientOptions:
    settings: dict[str, object] = {"client_ip": "127.0.0.1"} | changes
    return ClientOptions(namesrv=namesrv, **settings)  # type: ignore[arg-type]


@asynccontextmanager
async def opened(namesrv: str, **changes: object) -> AsyncIterator[ClientInstance]:
    async with await ClientInstance.open(options_of(namesrv, **changes)) as client:
        yield client
