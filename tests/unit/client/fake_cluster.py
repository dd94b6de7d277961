"""A name server and brokers that respond to sends as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.client import HeartbeatRequestHeader, UnregisterClientRequestHeader
from roquet.remoting.headers.namesrv import GetRouteInfoRequestHeader
from roquet.remoting.headers.send import (
    EndTransactionRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from roquet.remoting.processor import (
    PUBLIC,
    ProcessorRegistry,
    RequestContext,
    Response,
    processor,
)
from roquet.remoting.server import RemotingServer

Script = Callable[[RequestContext], Awaitable[Response | None]]
"""Gives the answer to a send; ``None`` for the usual one."""


class FakeBroker:
    """A broker that stores nothing and responds to sends as configured."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = ""
        self.sends: list[tuple[SendMessageRequestHeaderV2, RemotingCommand]] = []
        self.ends: list[EndTransactionRequestHeader] = []
        self.code = ResponseCode.SUCCESS
        self.remark: str | None = None
        self.script: Script | None = None
        self.heartbeats = 0

    async def _send(self, context: RequestContext, header: SendMessageRequestHeaderV2) -> Response:
        self.sends.append((header, context.request))
        if self.script is not None:
            answer = await self.script(context)
            if answer is not None:
                return answer
        stored = SendMessageResponseHeader(
            msg_id="7F00000100002A9F" + f"{len(self.sends):016X}",
            queue_id=header.queue_id,
            queue_offset=len(self.sends) - 1,
            transaction_id=f"transaction-{len(self.sends)}",
        )
        return context.response(self.code, stored, remark=self.remark)

    @processor(RequestCode.SEND_MESSAGE_V2, header=SendMessageRequestHeaderV2, permission=PUBLIC)
    async def send_v2(
        self, context: RequestContext, header: SendMessageRequestHeaderV2
    ) -> Response:
        return await self._send(context, header)

    @processor(RequestCode.SEND_BATCH_MESSAGE, header=SendMessageRequestHeaderV2, permission=PUBLIC)
    async def send_batch(
        self, context: RequestContext, header: SendMessageRequestHeaderV2
    ) -> Response:
        return await self._send(context, header)

    @processor(RequestCode.END_TRANSACTION, header=EndTransactionRequestHeader, permission=PUBLIC)
    def end_transaction(
        self, context: RequestContext, header: EndTransactionRequestHeader
    ) -> Response:
        self.ends.append(header)
        return context.response(ResponseCode.SUCCESS)

    @processor(RequestCode.HEART_BEAT, header=HeartbeatRequestHeader, permission=PUBLIC)
    def heartbeat(self, context: RequestContext, header: HeartbeatRequestHeader) -> Response:
        del header
        self.heartbeats += 1
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.UNREGISTER_CLIENT, header=UnregisterClientRequestHeader, permission=PUBLIC
    )
    def unregister(
        self, context: RequestContext, header: UnregisterClientRequestHeader
    ) -> Response:
        del header
        return context.response(ResponseCode.SUCCESS)


class FakeCluster:
    """The brokers, and the requested routes."""

    def __init__(self, *brokers: FakeBroker, queues: int = 2) -> None:
        self.brokers = brokers
        self.queues = queues
        self.namesrv = ""
        self.asked: list[str] = []
        self.unknown: set[str] = {"Missing"}
        self.hangs = False

    def __getitem__(self, index: int) -> FakeBroker:
        return self.brokers[index]

    @property
    def sent_to(self) -> list[str]:
        return [each.name for each in self.brokers for _ in each.sends]

    @processor(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, header=GetRouteInfoRequestHeader, permission=PUBLIC
    )
    async def route(self, context: RequestContext, header: GetRouteInfoRequestHeader) -> Response:
        self.asked.append(header.topic)
        if self.hangs:
            await asyncio.Event().wait()
        if header.topic in self.unknown or header.topic == "TBW102":
            return context.response(ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info")
        data = TopicRouteData(
            broker_datas=[
                BrokerData(broker_name=each.name, cluster="c", broker_addrs={0: each.address})
                for each in self.brokers
            ],
            queue_datas=[
                QueueData(
                    broker_name=each.name,
                    perm=6,
                    read_queue_nums=self.queues,
                    write_queue_nums=self.queues,
                )
                for each in self.brokers
            ],
        )
        return context.response(ResponseCode.SUCCESS, body=encode_body(data))


@asynccontextmanager
async def fake_cluster(*brokers: str | FakeBroker, queues: int = 2) -> AsyncIterator[FakeCluster]:
    """Brokers, or the names of ordinary ones."""
    named = (
        FakeBroker(each) if isinstance(each, str) else each for each in brokers or ("broker-a",)
    )
    made = FakeCluster(*named, queues=queues)
    async with AsyncExitStack() as running:
        made.namesrv = await _serve(made, running)
        for each in made.brokers:
            each.address = await _serve(each, running)
        yield made


async def _serve(part: FakeBroker | FakeCluster, running: AsyncExitStack) -> str:
    server = RemotingServer(ProcessorRegistry(part))
    port = await server.start("127.0.0.1", 0)
    running.push_async_callback(partial(server.stop, grace_ms=0))
    return f"127.0.0.1:{port}"
