"""Processors, a server and raw peers for the network tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from roquet.errors import ProtocolError
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import ResponseCode
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.endpoint import RemotingLimits
from roquet.remoting.frame import FrameDecoder, SerializeType
from roquet.remoting.headers.base import Header, Int32
from roquet.remoting.hooks import RequestRefused, RpcHook
from roquet.remoting.processor import (
    PUBLIC,
    Action,
    Permission,
    Port,
    ProcessorRegistry,
    RequestContext,
    Resource,
    Response,
    SlicedResponse,
    processor,
)
from roquet.remoting.server import RemotingServer, ServerConfig
from roquet.remoting.turn_scheduler import RequestClass
from roquet.runtime.clock import Clock
from roquet.runtime.open_files import DescriptorBudget
from tests.patience import PATIENCE_S

LOOPBACK = "127.0.0.1"
CLIENT = RequestClass.CLIENT

"""For clients whose time-outs are not what is tested, so that a busy machine fails no test."""

ECHO = 9001
SLOW = 9002
LATER = 9003
BROKEN = 9004
TYPED = 9005
REFUSED = 9006
BIG = 9007
PULL = 11
OVERSIZED = 9008
BROKEN_LATER = 9009
NOT_AN_ANSWER = 9010
BY_HAND = 9011
ADMIN = 9012
READ = 9013
NOBODY = 9999


class SizeHeader(Header, kw_only=True):
    size: Int32


class Processors:
    """One processor of each kind, with a record of its calls."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.seen: list[int] = []
        self.contexts: list[RequestContext] = []

    def registry(self) -> ProcessorRegistry:
        return ProcessorRegistry(self)

    @processor(ECHO, permission=PUBLIC, request_class=CLIENT)
    def echo(self, context: RequestContext) -> Response:
        self.seen.append(ECHO)
        return context.response(ResponseCode.SUCCESS, body=context.request.body)

    @processor(SLOW, permission=PUBLIC, request_class=CLIENT)
    async def slow(self, context: RequestContext) -> Response:
        self.seen.append(SLOW)
        await self.gate.wait()
        return context.response(ResponseCode.SUCCESS, body=context.request.body)

    @processor(ADMIN, permission=PUBLIC)
    async def admin(self, context: RequestContext) -> Response:
        self.seen.append(ADMIN)
        await self.gate.wait()
        return context.response(ResponseCode.SUCCESS, body=context.request.body)

    @processor(READ, permission=PUBLIC, request_class=RequestClass.PULL)
    async def read(self, context: RequestContext) -> Response:
        await self.gate.wait()
        self.seen.append(READ)
        return context.response(ResponseCode.SUCCESS)

    @processor(LATER, permission=PUBLIC, request_class=CLIENT)
    def later(self, context: RequestContext) -> None:
        self.contexts.append(context)

    @processor(BROKEN, permission=PUBLIC, request_class=CLIENT)
    def broken(self, context: RequestContext) -> Response:
        raise KeyError(f"/secret/path {context.request.code}")

    @processor(BROKEN_LATER, permission=PUBLIC, request_class=CLIENT)
    async def broken_later(self, context: RequestContext) -> Response:
        await asyncio.sleep(0)
        raise ProtocolError(f"cannot do {context.request.code}", detail="not for peers")

    @processor(TYPED, header=SizeHeader, permission=PUBLIC, request_class=CLIENT)
    def typed(self, context: RequestContext, header: SizeHeader) -> Response:
        return context.response(ResponseCode.SUCCESS, remark=str(header.size))

    @processor(REFUSED, permission=PUBLIC, request_class=CLIENT)
    def refused(self, context: RequestContext) -> Response:
        raise RequestRefused(
            f"[REJECTREQUEST]{context.request.code}", response_code=ResponseCode.SYSTEM_BUSY
        )

    @processor(BIG, header=SizeHeader, permission=PUBLIC, request_class=CLIENT)
    def big(self, context: RequestContext, header: SizeHeader) -> Response:
        self.seen.append(BIG)
        part = memoryview(b"x" * header.size)
        return SlicedResponse(context.response(ResponseCode.SUCCESS), (part, b"!"))

    @processor(OVERSIZED, permission=PUBLIC, request_class=CLIENT)
    def oversized(self, context: RequestContext) -> Response:
        return context.response(ResponseCode.SUCCESS, body=bytes(17 << 20))

    @processor(NOT_AN_ANSWER, permission=PUBLIC, request_class=CLIENT)
    def not_an_answer(self, context: RequestContext) -> object:
        return context.request.code

    @processor(BY_HAND, permission=PUBLIC, request_class=CLIENT)
    def by_hand(self, context: RequestContext) -> Response:
        return RemotingCommand(code=0, opaque=-1, remark=context.request.code_name)

    @processor(PULL, permission=Permission(Action.SUB, Resource.TOPIC), ports={Port.MAIN})
    def pull(self, context: RequestContext) -> Response:
        return context.response(ResponseCode.PULL_NOT_FOUND)


class Serving:
    """A running server with its processors."""

    def __init__(self, server: RemotingServer, processors: Processors, port: int) -> None:
        self.server = server
        self.processors = processors
        self.port = port
        self.address = f"{LOOPBACK}:{port}"

    def close_idle(self) -> None:
        """Do what the timer does."""
        self.server._endpoint.watch_over(self.server.connections)


@asynccontextmanager
async def serving(
    *,
    limits: RemotingLimits | None = None,
    config: ServerConfig | None = None,
    hooks: tuple[RpcHook, ...] = (),
    clock: Clock | None = None,
    budget: DescriptorBudget | None = None,
) -> AsyncIterator[Serving]:
    processors = Processors()
    config = config or ServerConfig(limits=limits or RemotingLimits())
    server = RemotingServer(processors.registry(), config, hooks=hooks, clock=clock, budget=budget)
    port = await server.start(LOOPBACK, 0)
    try:
        yield Serving(server, processors, port)
    finally:
        processors.gate.set()
        await server.stop()


class Peer:
    """A peer that writes whatever bytes it wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()
        self._opaque = 0

    @classmethod
    async def connect(cls, serving_: Serving, *, limit: int = 1 << 16) -> Peer:
        return cls(*await asyncio.open_connection(LOOPBACK, serving_.port, limit=limit))

    def frame(
        self,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        oneway: bool = False,
        serialize_type: SerializeType = SerializeType.JSON,
    ) -> bytes:
        self._opaque += 1
        request = create_request(
            code,
            header,
            opaque=self._opaque,
            body=body,
            oneway=oneway,
            serialize_type=serialize_type,
        )
        return encode_command(request)

    async def answer(self) -> RemotingCommand:
        """The next response."""
        async with asyncio.timeout(PATIENCE_S):
            while (frame := self._decoder.next_frame()) is None:
                data = await self.reader.read(1 << 16)
                if not data:
                    raise EOFError
                self._decoder.feed(data)
        return decode_command(frame)

    async def ask(
        self, code: int, header: Header | None = None, *, body: bytes = b""
    ) -> RemotingCommand:
        self.writer.write(self.frame(code, header, body=body))
        return await self.answer()

    async def closed_by_server(self) -> bool:
        """Wait until the server closes the connection; nothing may arrive before."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return not await self.reader.read(1)
            except ConnectionError:
                return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


@asynccontextmanager
async def peer_of(serving_: Serving, *, limit: int = 1 << 16) -> AsyncIterator[Peer]:
    peer = await Peer.connect(serving_, limit=limit)
    try:
        yield peer
    finally:
        await peer.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; a test that waits in vain fails."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what is watched has no events
            await asyncio.sleep(0.001)


async def turns(count: int = 20) -> None:
    """Run the loop a few turns, for what must not happen."""
    for _ in range(count):
        await asyncio.sleep(0.001)


class Recorder:
    """A transport that remembers what was written."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)
