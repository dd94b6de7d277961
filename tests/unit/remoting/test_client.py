import asyncio
import errno
import socket

import pytest
from msgspec import structs

from roquet.errors import (
    AnswerLost,
    ClientError,
    ConfigError,
    ConnectFailed,
    RequestTimeout,
    SendFailed,
)
from roquet.remoting.client import ClientConfig, RemotingClient, split_address
from roquet.remoting.codes import LanguageCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.endpoint import RemotingLimits
from roquet.remoting.frame import SerializeType
from roquet.remoting.hooks import RequestRefused, RpcCall, RpcHook
from roquet.remoting.processor import (
    PUBLIC,
    ProcessorRegistry,
    RequestContext,
    Response,
    processor,
)
from roquet.remoting.server import RemotingServer, ServerConfig
from roquet.runtime.clock import ManualClock
from tests.patience import PATIENT
from tests.unit.remoting.net_kit import (
    BIG,
    ECHO,
    LATER,
    LOOPBACK,
    NOBODY,
    SLOW,
    TYPED,
    SizeHeader,
    serving,
    turns,
    until,
)


@pytest.mark.parametrize("serialize_type", SerializeType)
async def test_requests_share_one_connection(serialize_type: SerializeType) -> None:
    config = structs.replace(PATIENT, serialize_type=serialize_type)
    async with serving() as up, RemotingClient(config=config) as client:
        answers = await asyncio.gather(
            *(client.invoke(up.address, ECHO, body=b"%d" % n) for n in range(200))
        )
        assert [each.body for each in answers] == [b"%d" % n for n in range(200)]
        assert (await client.invoke(up.address, TYPED, SizeHeader(size=9))).remark == "9"
        assert up.server.statistics.connections_opened == 1
        assert len(client.connections) == 1


async def test_response_codes_are_not_errors() -> None:
    async with serving() as up, RemotingClient(config=PATIENT) as client:
        response = await client.invoke(up.address, NOBODY)
        assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_a_client_without_descriptors_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_descriptor(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", no_descriptor)
    async with RemotingClient(config=PATIENT) as client:
        with pytest.raises(ConnectFailed) as caught:
            await client.invoke(f"{LOOPBACK}:1", ECHO)
    assert "Too many open files" in (caught.value.detail or "")
    assert "ulimit -n" in (caught.value.hint or "")
    assert caught.value.retriable


async def test_oneway() -> None:
    async with serving() as up, RemotingClient(config=PATIENT) as client:
        await client.invoke_oneway(up.address, ECHO)
        await until(lambda: up.processors.seen == [ECHO])
        assert (await client.invoke(up.address, ECHO, body=b"on")).body == b"on"


async def test_responses_larger_than_the_buffers() -> None:
    async with serving() as up, RemotingClient(config=PATIENT) as client:
        response = await client.invoke(up.address, BIG, SizeHeader(size=10_000_000))
        assert len(response.body) == 10_000_001
        response = await client.invoke(up.address, ECHO, body=bytes(10_000_000))
        assert len(response.body) == 10_000_000


@pytest.mark.parametrize("count", [1, 2_000])
async def test_both_sides_write_more_than_the_other_has_read(count: int) -> None:
    # If a client that cannot write stopped reading as well, both sides would wait forever.
    limits = RemotingLimits(write_high_bytes=1 << 16)
    config = structs.replace(PATIENT, limits=limits)
    async with serving(limits=limits) as up, RemotingClient(config=config) as client:
        size = 12_000_000 if count == 1 else 40_000
        answers = await asyncio.gather(
            *(client.invoke(up.address, ECHO, body=bytes(size)) for _ in range(count))
        )
        assert {len(each.body) for each in answers} == {size}


async def test_a_timeout_leaves_the_connection_usable() -> None:
    async with serving() as up, RemotingClient(config=PATIENT) as client:
        await client.connect(up.address)
        with pytest.raises(RequestTimeout, match="did not answer 9003 in time") as caught:
            await client.invoke(up.address, LATER, timeout_ms=20)
        assert (caught.value.detail, caught.value.retriable) == ("waited 20 ms", True)
        await until(lambda: bool(up.processors.contexts))
        context = up.processors.contexts[0]
        context.reply(context.response(0))
        assert (await client.invoke(up.address, ECHO, body=b"on")).body == b"on"
        assert client.statistics.unmatched_responses == 1
        assert up.server.statistics.connections_opened == 1


async def test_nothing_listens_at_the_address() -> None:
    with socket.create_server((LOOPBACK, 0)) as reserved:
        address = f"{LOOPBACK}:{reserved.getsockname()[1]}"
    async with RemotingClient(config=PATIENT) as client:
        with pytest.raises(ConnectFailed, match=f"Cannot connect to {address}") as caught:
            await client.invoke(address, ECHO)
        assert caught.value.retriable
        assert caught.value.detail
        assert caught.value.exit_code == 3


async def test_a_connection_that_is_not_accepted_in_time() -> None:
    # A full backlog of one: further connections hang.
    with socket.socket() as busy:
        busy.bind((LOOPBACK, 0))
        busy.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for each in fillers:
            each.settimeout(0)
            each.connect_ex(busy.getsockname())
        async with RemotingClient(config=ClientConfig(connect_timeout_ms=20)) as client:
            with pytest.raises(ConnectFailed) as caught:
                await client.invoke(f"{LOOPBACK}:{busy.getsockname()[1]}", ECHO)
            assert caught.value.detail == "no connection within 20 ms"
        for each in fillers:
            each.close()


async def test_a_lost_connection_fails_its_requests_and_is_reopened() -> None:
    async with serving() as up, RemotingClient(config=PATIENT) as client:
        asked = asyncio.ensure_future(client.invoke(up.address, LATER))
        await until(lambda: bool(up.processors.contexts))
        up.processors.contexts[0].connection.abort()
        with pytest.raises(SendFailed) as caught:
            await asked
        assert caught.value.retriable
        assert (await client.invoke(up.address, ECHO, body=b"again")).body == b"again"
        assert up.server.statistics.connections_opened == 2


async def test_requests_in_flight_are_bounded_and_wait() -> None:
    config = structs.replace(PATIENT, max_in_flight=2)
    async with serving() as up, RemotingClient(config=config) as client:
        asked = [asyncio.ensure_future(client.invoke(up.address, SLOW)) for _ in range(5)]
        await until(lambda: up.server.in_flight == 2)
        await turns()
        assert up.server.in_flight == 2
        with pytest.raises(RequestTimeout):
            await client.invoke(up.address, ECHO, timeout_ms=5)
        up.processors.gate.set()
        assert [each.code for each in await asyncio.gather(*asked)] == [0] * 5
        assert (await client.invoke(up.address, ECHO)).code == 0


async def test_a_cancelled_caller_does_not_abort_the_connecting_of_others() -> None:
    async with serving() as up, RemotingClient(config=PATIENT) as client:
        first = asyncio.ensure_future(client.invoke(up.address, ECHO))
        second = asyncio.ensure_future(client.invoke(up.address, ECHO, body=b"2"))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).body == b"2"
        assert up.server.statistics.connections_opened == 1


async def test_close_ends_open_requests_and_refuses_new_ones() -> None:
    async with serving() as up:
        client = RemotingClient(config=PATIENT)
        asked = asyncio.ensure_future(client.invoke(up.address, LATER))
        await until(lambda: bool(up.processors.contexts))
        await client.close()
        with pytest.raises(SendFailed):
            await asked
        with pytest.raises(ClientError, match="The client is closed"):
            await client.invoke(up.address, ECHO)
        await until(lambda: not up.server.connections)


class Leaving:
    """Tells every peer to go away on its first connections."""

    def __init__(self, connections: int) -> None:
        self.connections = connections

    @processor(ECHO, permission=PUBLIC)
    def echo(self, context: RequestContext) -> Response:
        is_sent_away = context.connection.id <= self.connections
        code = ResponseCode.GO_AWAY if is_sent_away else ResponseCode.SUCCESS
        return context.response(code, body=context.request.body)


@pytest.mark.parametrize("connects_first", [False, True])
@pytest.mark.parametrize(
    ("connections", "code"), [(1, ResponseCode.SUCCESS), (9, ResponseCode.GO_AWAY)]
)
async def test_after_go_away_a_request_is_repeated_on_a_new_connection(
    connections: int, code: int, *, connects_first: bool
) -> None:
    server = RemotingServer(ProcessorRegistry(Leaving(connections)), ServerConfig())
    port = await server.start(LOOPBACK, 0)
    try:
        async with RemotingClient(config=PATIENT) as client:
            address = f"{LOOPBACK}:{port}"
            if connects_first:
                await client.connect(address)
            answers = await asyncio.gather(
                *(client.invoke(address, ECHO, body=b"%d" % each) for each in range(5))
            )
            assert [answer.code for answer in answers] == [code] * 5
            assert [answer.body for answer in answers] == [b"%d" % each for each in range(5)]
            if code == ResponseCode.SUCCESS:
                assert server.statistics.connections_opened == 2
    finally:
        await server.stop()


async def test_idle_connections_are_closed() -> None:
    clock = ManualClock()
    async with serving() as up, RemotingClient(config=PATIENT, clock=clock) as client:
        await client.invoke(up.address, ECHO)
        clock.advance(120_000)
        client._endpoint.watch_over(client.connections)
        await until(lambda: not client.connections)
        await until(lambda: not client._connections)
        assert (await client.invoke(up.address, ECHO)).code == 0


async def test_a_request_larger_than_the_server_accepts() -> None:
    limits = RemotingLimits(max_frame_bytes=1 << 16)
    async with serving(limits=limits) as up, RemotingClient(config=PATIENT) as client:
        with pytest.raises(SendFailed):
            await client.invoke(up.address, ECHO, body=bytes(1 << 17))
        assert (await client.invoke(up.address, ECHO)).code == 0


class Signing(RpcHook):
    def __init__(self) -> None:
        self.answers: list[int | None] = []

    def before_request(self, call: RpcCall) -> None:
        assert not call.is_incoming
        call.request.ext_fields = {**(call.request.ext_fields or {}), "size": "12"}

    def after_response(self, call: RpcCall, response: RemotingCommand | None) -> None:
        assert call.connection.remote_address
        self.answers.append(None if response is None else response.code)


async def test_hooks_may_change_requests_and_see_responses() -> None:
    hook = Signing()
    async with serving() as up, RemotingClient(config=PATIENT, hooks=[hook]) as client:
        assert (await client.invoke(up.address, TYPED)).remark == "12"
    assert hook.answers == [0]


class Failing(RpcHook):
    def __init__(self, at: str) -> None:
        self._at = at

    def before_request(self, call: RpcCall) -> None:
        if self._at == "before":
            raise ZeroDivisionError(call)

    def after_response(self, call: RpcCall, response: RemotingCommand | None) -> None:
        if self._at == "after":
            raise RequestRefused(f"{call} {response}")


@pytest.mark.parametrize("at", ["before", "after"])
async def test_a_hook_that_fails_is_a_send_that_fails(at: str) -> None:
    async with serving() as up, RemotingClient(config=PATIENT, hooks=[Failing(at)]) as client:
        with pytest.raises(SendFailed, match="blocked by a hook") as caught:
            await client.invoke(up.address, ECHO)
        assert isinstance(caught.value, AnswerLost) is (at == "after")
        assert len(client.connections) == 1, "the connection is usable for others"


async def test_the_language_is_sent() -> None:
    config = structs.replace(PATIENT, language=LanguageCode.OTHER)
    async with serving() as up, RemotingClient(config=config) as client:
        asked = asyncio.ensure_future(client.invoke(up.address, LATER))
        await until(lambda: bool(up.processors.contexts))
        context = up.processors.contexts[0]
        assert context.request.language is LanguageCode.OTHER
        context.reply(context.response(0))
        await asked


@pytest.mark.parametrize("address", ["", "host", ":1", "host:", "host:0", "host:x", "h:65536"])
def test_bad_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match="is no address"):
        split_address(address)


def test_good_addresses() -> None:
    assert split_address("10.0.0.1:10911") == ("10.0.0.1", 10911)
    assert split_address("[fe80::1]:9876") == ("fe80::1", 9876)
