"""How a server accepts connections, and when it closes them."""

import asyncio
import socket

import pytest

from roquet.errors import ConfigError
from roquet.remoting.codes import ResponseCode
from roquet.remoting.endpoint import RemotingLimits
from roquet.remoting.processor import Port, ProcessorRegistry
from roquet.remoting.server import RemotingServer, fast_port
from roquet.runtime.clock import ManualClock
from roquet.runtime.open_files import raise_open_files_limit
from tests.unit.remoting.net_kit import (
    BIG,
    ECHO,
    LOOPBACK,
    PULL,
    SLOW,
    Peer,
    Recorder,
    SizeHeader,
    peer_of,
    serving,
    turns,
    until,
)


async def test_five_hundred_idle_connections_and_the_idle_time() -> None:
    raise_open_files_limit()  # both ends are in this process
    clock = ManualClock()
    async with serving(clock=clock) as up:
        peers = [await Peer.connect(up) for _ in range(500)]
        await until(lambda: len(up.server.connections) == 500)
        clock.advance(119_000)
        assert (await peers[0].ask(ECHO)).code == 0
        up.close_idle()
        await turns()
        assert len(up.server.connections) == 500
        clock.advance(1_000)
        up.close_idle()
        for peer in peers[1:]:
            assert await peer.closed_by_server()
        assert (await peers[0].ask(ECHO)).code == 0
        assert up.server.statistics.idle_closed == 499
        for peer in peers:
            await peer.close()


async def test_idle_connections_are_closed_by_a_timer() -> None:
    async with serving(limits=RemotingLimits(idle_timeout_ms=20)) as up, peer_of(up) as peer:
        assert await peer.closed_by_server()
        assert up.server.statistics.idle_closed == 1


async def test_a_peer_that_never_reads_becomes_idle() -> None:
    clock = ManualClock()
    limits = RemotingLimits(write_high_bytes=1 << 16)
    async with serving(limits=limits, clock=clock) as up, peer_of(up, limit=1 << 10) as peer:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.writer.write(b"".join(peer.frame(BIG, SizeHeader(size=100_000)) for _ in range(500)))
        await until(lambda: up.server.statistics.reading_paused > 0)
        await turns()
        up.close_idle()
        assert len(up.server.connections) == 1
        clock.advance(120_000)
        up.close_idle()
        await until(lambda: not up.server.connections)


async def test_a_peer_that_reads_slowly_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    async with serving(clock=clock) as up, peer_of(up) as peer:
        await peer.ask(ECHO)
        (connection,) = up.server.connections
        unwritten = 100
        assert connection._transport is not None
        slow = Recorder(connection._transport)
        monkeypatch.setattr(slow, "get_write_buffer_size", lambda: unwritten, raising=False)
        monkeypatch.setattr(connection._output, "_transport", slow)
        up.close_idle()
        clock.advance(120_000)
        unwritten = 99
        up.close_idle()
        assert not connection.is_closed
        clock.advance(120_000)
        up.close_idle()
        assert connection.is_closed


async def test_too_many_connections_are_closed_at_once() -> None:
    async with serving(limits=RemotingLimits(max_connections=2)) as up:
        async with peer_of(up) as first, peer_of(up) as second:
            assert (await first.ask(ECHO)).code == 0
            assert (await second.ask(ECHO)).code == 0
            async with peer_of(up) as third:
                assert await third.closed_by_server()
            assert up.server.statistics.connections_refused == 1
        await until(lambda: not up.server.connections)
        async with peer_of(up) as fourth:
            assert (await fourth.ask(ECHO)).code == 0


async def test_the_fast_port_shares_everything_but_pulls() -> None:
    async with serving() as up, peer_of(up) as main:
        up_fast = await up.server.start(LOOPBACK, 0, kind=Port.FAST)
        fast = Peer(*await asyncio.open_connection(LOOPBACK, up_fast))
        assert (await fast.ask(ECHO, body=b"fast")).body == b"fast"
        response = await fast.ask(PULL)
        assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert response.remark == " request type 11 not supported: PULL_MESSAGE"
        assert (await main.ask(PULL)).code == ResponseCode.PULL_NOT_FOUND
        assert {each.port for each in up.server.connections} == {Port.MAIN, Port.FAST}
        await fast.close()
    assert (fast_port(10911), fast_port(0)) == (10909, 0)


async def test_an_address_in_use_is_an_error_with_a_hint() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        server = RemotingServer(ProcessorRegistry())
        with pytest.raises(ConfigError, match="Cannot listen on 127") as caught:
            await server.start(LOOPBACK, taken.getsockname()[1])
        assert caught.value.code == "listen"
        assert caught.value.hint
        await server.stop()


async def test_stop_lets_requests_in_flight_finish() -> None:
    async with serving() as up, peer_of(up) as peer:
        peer.writer.write(peer.frame(SLOW, body=b"slow"))
        await until(lambda: up.server.in_flight == 1)
        stopping = asyncio.ensure_future(up.server.stop())
        await turns()
        assert not stopping.done()
        response = await peer.ask(ECHO)
        assert (response.code, response.remark) == (ResponseCode.GO_AWAY, "please go away")
        with pytest.raises(OSError, match=r"Connect call failed|refused"):
            await asyncio.open_connection(LOOPBACK, up.port)
        up.processors.gate.set()
        assert (await peer.answer()).body == b"slow"
        await stopping
        assert await peer.closed_by_server()


async def test_stop_cancels_what_takes_too_long(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as up, peer_of(up) as peer:
        peer.writer.write(peer.frame(SLOW))
        await until(lambda: up.server.in_flight == 1)
        await up.server.stop(grace_ms=1)
        assert up.server.in_flight == 0
        assert await peer.closed_by_server()
    assert "1 requests were cancelled" in caplog.text
