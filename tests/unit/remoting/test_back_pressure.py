"""What peers can make a server hold, and for how long."""

import asyncio
import gc
import socket

import pytest

from roquet.errors import ProtocolError
from roquet.remoting import endpoint as endpoint_module
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import GIVE_BACK_BYTES, RemotingLimits, server_limits
from roquet.remoting.frame import Received, SerializeType, encode_frame
from roquet.remoting.hot_reader import HOT_OUTPUT_BYTES, Taken
from roquet.remoting.server import RemotingServer, ServerConfig
from roquet.runtime.clock import ManualClock
from roquet.runtime.garbage import ReclaimableMemory
from tests.patience import PATIENCE_S
from tests.unit.remoting.net_kit import (
    BIG,
    ECHO,
    LOOPBACK,
    Peer,
    Processors,
    Serving,
    SizeHeader,
    peer_of,
    serving,
    turns,
    until,
)

HALF_BYTES = 100_000


def half_frame(peer: Peer) -> bytes:
    return peer.frame(ECHO, body=bytes(2 * HALF_BYTES))[:HALF_BYTES]


def held(up: Serving) -> int:
    return up.server._endpoint.held_bytes


async def test_half_frames_of_any_size_count_toward_the_total() -> None:
    limits = RemotingLimits(max_held_bytes=10 * HALF_BYTES)
    async with serving(limits=limits) as up, peer_of(up) as healthy:
        peers = [await Peer.connect(up) for _ in range(20)]
        for peer in peers:
            peer.writer.write(half_frame(peer))
        await until(lambda: up.server.statistics.overload_closed > 0)
        await until(lambda: held(up) == HALF_BYTES * (len(up.server.connections) - 1))
        await turns()
        assert held(up) <= limits.max_held_bytes
        assert up.server.statistics.overload_closed == 21 - len(up.server.connections)
        assert (await healthy.ask(ECHO)).code == 0
        for peer in peers:
            peer.writer.transport.abort()
        await until(lambda: held(up) == 0)


async def test_the_largest_are_disconnected_first() -> None:
    limits = RemotingLimits(max_held_bytes=10 * HALF_BYTES)
    async with serving(limits=limits) as up, peer_of(up) as small, peer_of(up) as large:
        small.writer.write(half_frame(small)[:1_000])
        await until(lambda: held(up) == 1_000)
        large.writer.write(large.frame(ECHO, body=bytes(20 * HALF_BYTES))[: 11 * HALF_BYTES])
        assert await large.closed_by_server()
        await until(lambda: held(up) == 1_000)
        assert len(up.server.connections) == 1


async def test_a_closed_connection_holds_nothing() -> None:
    async with serving() as up:
        peer = await Peer.connect(up)
        peer.writer.write(half_frame(peer))
        await until(lambda: held(up) == HALF_BYTES)
        (connection,) = up.server.connections
        peer.writer.transport.abort()
        await connection.wait_closed()
        assert connection.held_bytes == held(up) == 0
        assert connection.input.hot_reader is None


def errors_alive() -> dict[int, ProtocolError]:
    return {id(each): each for each in gc.get_objects() if type(each) is ProtocolError}


async def test_a_bad_header_is_not_kept_by_its_error() -> None:
    """Its error would refer to it until a full collection, which may be minutes away."""
    gc.disable()
    earlier = errors_alive()  # held here, so that none of them gives its place to a new one
    try:
        async with serving() as up, peer_of(up) as peer:
            peer.writer.write(encode_frame(SerializeType.JSON, b'{"code":'))
            assert await peer.closed_by_server()
        assert up.server.statistics.bad_frames == 1
        assert errors_alive().keys() <= earlier.keys()
    finally:
        gc.enable()


async def flood_without_reading(up: Serving, peer: Peer) -> Connection:
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    peer.writer.write(b"".join(peer.frame(BIG, SizeHeader(size=100_000)) for _ in range(500)))
    await until(lambda: up.server.statistics.reading_paused > 0)
    await turns()
    (connection,) = up.server.connections
    assert connection.held_bytes > 0
    return connection


async def test_a_peer_that_reads_nothing_is_disconnected_after_a_while() -> None:
    clock = ManualClock()
    limits = RemotingLimits(write_high_bytes=1 << 16, write_low_bytes=1 << 15)
    async with serving(limits=limits, clock=clock) as up, peer_of(up, limit=1 << 10) as peer:
        connection = await flood_without_reading(up, peer)
        up.close_idle()
        clock.advance(limits.write_stall_ms - 1)
        up.close_idle()
        assert up.server.statistics.overload_closed == 0
        clock.advance(1)
        up.close_idle()
        assert up.server.statistics.overload_closed == 1
        await connection.wait_closed()
        assert held(up) == 0


async def test_a_peer_whose_frame_trickles_in_is_disconnected_after_the_idle_time() -> None:
    clock = ManualClock()
    async with serving(clock=clock) as up, peer_of(up) as slow, peer_of(up) as steady:
        frame = slow.frame(ECHO, body=bytes(1_000))
        sent = 0
        for _ in range(5):
            slow.writer.write(frame[sent : sent + 10])
            steady.writer.write(frame)
            await steady.answer()
            sent += 10
            await until(lambda wanted=sent: held(up) == wanted)  # type: ignore[misc]
            up.close_idle()
            clock.advance(30_000)
        await until(lambda: len(up.server.connections) == 1)
        assert up.server.statistics.overload_closed == 1
        assert await slow.closed_by_server()
        assert (await steady.ask(ECHO)).code == 0


async def test_connections_are_checked_by_a_timer_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint_module, "WATCH_STEP", 2)
    async with serving(limits=RemotingLimits(idle_timeout_ms=20)) as up:
        peers = [await Peer.connect(up) for _ in range(5)]
        for peer in peers:
            assert await peer.closed_by_server()
            await peer.close()
        assert up.server.statistics.idle_closed == 5


async def test_memory_is_returned_when_much_was_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back = asyncio.Event()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(
        endpoint_module, "give_back", lambda: loop.call_soon_threadsafe(given_back.set)
    )
    async with serving(limits=RemotingLimits(write_stall_ms=20)) as up:
        up.server._endpoint.count_held(GIVE_BACK_BYTES)
        await turns()
        assert not given_back.is_set()
        up.server._endpoint.count_held(-GIVE_BACK_BYTES)
        async with asyncio.timeout(PATIENCE_S):
            await given_back.wait()


async def test_memory_is_returned_when_many_objects_were_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_back = asyncio.Event()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(
        endpoint_module, "give_back", lambda: loop.call_soon_threadsafe(given_back.set)
    )
    monkeypatch.setattr(ReclaimableMemory, "is_seen", lambda _self: True)
    async with serving(limits=RemotingLimits(write_stall_ms=20)), asyncio.timeout(PATIENCE_S):
        await given_back.wait()


def test_water_marks_are_nettys_unless_both_are_set() -> None:
    marks = [
        server_limits(idle_timeout_ms=1),
        server_limits(idle_timeout_ms=1, write_high_bytes=5),
        server_limits(idle_timeout_ms=1, write_high_bytes=5, write_low_bytes=3),
    ]
    assert [(each.write_high_bytes, each.write_low_bytes) for each in marks] == [
        (65_536, 32_768),
        (65_536, 32_768),
        (5, 3),
    ]


class LongAnswers:
    """A hot path that responds to each frame of one byte with as much as it may."""

    def __init__(self) -> None:
        self.taken = 0

    def open(self, connection: Connection) -> "LongAnswers":
        del connection
        return self

    def take(self, data: Received, position: int) -> Taken:
        """Take one frame."""
        if position >= len(data):
            return position, 0, b""
        self.taken += 1
        length = 4 + int.from_bytes(data[position : position + 4], "big")
        return position + length, 1, bytes(HOT_OUTPUT_BYTES)


async def test_the_hot_path_is_not_called_while_the_peer_does_not_read() -> None:
    """Each response is sent before the hot path makes the next one."""
    server = RemotingServer(
        Processors().registry(), ServerConfig(limits=server_limits(idle_timeout_ms=60_000))
    )
    hot_path = LongAnswers()
    server.set_hot_path(hot_path)
    port = await server.start(LOOPBACK, 0)
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    raw.connect((LOOPBACK, port))
    reader, writer = await asyncio.open_connection(sock=raw, limit=1 << 10)
    peer = Peer(reader, writer)
    try:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"".join(peer.frame(ECHO) for _ in range(1_000)))
        await until(lambda: server.statistics.reading_paused > 0)
        await turns()
        taken = hot_path.taken
        assert taken < 500
        (connection,) = server.connections
        assert connection.held_bytes < 4 * HOT_OUTPUT_BYTES
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(PATIENCE_S):
            await reader.readexactly(1_000 * HOT_OUTPUT_BYTES)
        assert hot_path.taken == 1_000
    finally:
        await peer.close()
        await server.stop()


async def test_an_unexpected_error_in_a_turn_ends_one_connection_only() -> None:
    async with serving() as up:
        failed: list[None] = []

        def fail_once() -> None:
            if up.server._endpoint.turns._is_running and not failed:
                failed.append(None)
                raise RuntimeError("a burst that fails")

        up.server.add_burst_listener(fail_once)
        peers = [await Peer.connect(up) for _ in range(4)]
        for peer in peers:
            peer.writer.write(b"".join(peer.frame(ECHO) for _ in range(1_000)))
        ended = await asyncio.gather(*(_answers(peer, 1_000) for peer in peers))
        assert sorted(ended)[1:] == [1_000] * 3
        assert min(ended) < 1_000
        assert failed
        for peer in peers:
            peer.writer.close()


async def _answers(peer: Peer, wanted: int) -> int:
    """How many responses came before the server closed the connection."""
    for number in range(wanted):
        try:
            await peer.answer()
        except (EOFError, OSError):
            return number
    return wanted


class _Holding:
    """A connection with output that was not counted yet."""

    is_closed = False

    def __init__(self, endpoint: endpoint_module.Endpoint, held_bytes: int) -> None:
        self.was_cut_off = False
        self._endpoint = endpoint
        self._held_bytes = held_bytes
        self._counted_bytes = 0

    def count_held(self) -> int:
        change = self._held_bytes - self._counted_bytes
        if change:
            self._counted_bytes = self._held_bytes
            self._endpoint.count_held(change)
        return self._held_bytes

    def cut_off(self, reason: str, held_bytes: int) -> None:
        del reason
        self.was_cut_off = True
        self._endpoint.count_held(-held_bytes)


async def test_a_recount_over_a_thousand_connections_does_not_recurse() -> None:
    limits = RemotingLimits(max_held_bytes=1_000)
    async with serving(limits=limits) as up:
        endpoint = up.server._endpoint
        holding = [_Holding(endpoint, 10) for _ in range(1_500)]
        endpoint.connections.update(holding)  # type: ignore[arg-type]
        endpoint.count_held(1_001)
        endpoint.count_held(-1_001)
        endpoint.connections.difference_update(holding)
        assert 0 < sum(each.was_cut_off for each in holding) <= 1_500
