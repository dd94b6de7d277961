"""A server's connection besides responding: requests, one-way requests, attributes, closing."""

import asyncio
from itertools import pairwise

import pytest

from roquet.errors import RequestTimeout, SendFailed
from roquet.remoting.client import RemotingClient
from roquet.remoting.codec import encode_command
from roquet.remoting.codes import LanguageCode, RequestCode, ResponseCode
from roquet.remoting.command import create_response
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import READ_BUFFER_BYTES, RemotingLimits
from roquet.remoting.frame import FrameDecoder
from roquet.remoting.input import LONG_READ_NS
from roquet.remoting.server import RemotingServer, ServerConfig
from roquet.remoting.turn_scheduler import TURN_REQUESTS, ClassLimits, RequestClass
from roquet.runtime.clock import ManualClock
from tests.patience import PATIENT, TIMEOUT_MS
from tests.unit.remoting.net_kit import (
    ADMIN,
    BIG,
    ECHO,
    READ,
    SLOW,
    Peer,
    Processors,
    Recorder,
    SizeHeader,
    peer_of,
    serving,
    turns,
    until,
)

NOTIFY = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


async def only_connection(server: RemotingServer) -> Connection:
    await until(lambda: len(server.connections) == 1)
    (connection,) = server.connections
    return connection


async def test_a_connection_has_its_peer_and_attributes() -> None:
    async with serving() as up, peer_of(up) as first, peer_of(up):
        await until(lambda: len(up.server.connections) == 2)
        connections = sorted(up.server.connections, key=lambda each: each.id)
        host, port = first.writer.get_extra_info("sockname")
        assert connections[0].remote_address == f"{host}:{port}"
        assert [each.id for each in connections] == [1, 2]
        assert repr(connections[0]) == f"<Connection 1 {host}:{port} open>"
        connections[0].attributes["clientId"] = "c"
        assert connections[1].attributes == {}


async def test_the_server_sends_a_request_and_the_client_responds() -> None:
    processors = Processors()
    async with serving() as up, RemotingClient(processors.registry(), PATIENT) as client:
        await client.connect(up.address)
        connection = await only_connection(up.server)
        response = await connection.send_request(ECHO, body=b"you?", timeout_ms=TIMEOUT_MS)
        assert (response.code, response.body) == (0, b"you?")
        assert response.language is LanguageCode.JAVA
        response = await connection.send_request(NOTIFY, timeout_ms=TIMEOUT_MS)
        assert response.remark == " request type 40 not supported: NOTIFY_CONSUMER_IDS_CHANGED"


async def test_the_server_sends_one_way_requests() -> None:
    processors = Processors()
    async with serving() as up, RemotingClient(processors.registry(), PATIENT) as client:
        await client.connect(up.address)
        connection = await only_connection(up.server)
        connection.send_oneway(ECHO, SizeHeader(size=1))
        await until(lambda: processors.seen == [ECHO])
        assert up.server.statistics.requests_sent == 1


async def test_responses_are_paired_by_opaque_in_any_order() -> None:
    async with serving() as up, peer_of(up) as peer:
        connection = await only_connection(up.server)
        asked = [
            asyncio.ensure_future(
                connection.send_request(NOTIFY, body=b"%d" % n, timeout_ms=TIMEOUT_MS)
            )
            for n in range(3)
        ]
        requests = [await peer.answer() for _ in asked]
        assert len({each.opaque for each in requests}) == 3
        for request in reversed(requests):
            peer.writer.write(encode_command(create_response(request, 0, body=request.body)))
        answers = [(await each).body for each in asked]
        assert answers == [b"0", b"1", b"2"]


async def test_a_timeout_and_a_late_response() -> None:
    async with serving() as up, peer_of(up) as peer:
        connection = await only_connection(up.server)
        with pytest.raises(RequestTimeout, match="NOTIFY_CONSUMER_IDS_CHANGED") as caught:
            await connection.send_request(NOTIFY, timeout_ms=5)
        assert caught.value.retriable
        assert caught.value.detail == "waited 5 ms"
        request = await peer.answer()
        peer.writer.write(encode_command(create_response(request, 0)))
        assert (await peer.ask(ECHO, body=b"alive")).body == b"alive"
        assert up.server.statistics.unmatched_responses == 1


async def test_requests_end_with_the_connection() -> None:
    async with serving() as up:
        peer = await Peer.connect(up)
        connection = await only_connection(up.server)
        asked = asyncio.ensure_future(connection.send_request(NOTIFY, timeout_ms=TIMEOUT_MS))
        await peer.answer()
        await peer.close()
        with pytest.raises(SendFailed, match="lost before the response arrived"):
            await asked
        with pytest.raises(SendFailed, match="is closed"):
            await connection.send_request(NOTIFY, timeout_ms=TIMEOUT_MS)
        with pytest.raises(SendFailed, match="is closed"):
            connection.send_oneway(NOTIFY)


async def test_nothing_is_sent_to_a_peer_that_does_not_read() -> None:
    limits = RemotingLimits(write_high_bytes=1 << 16)
    async with serving(limits=limits) as up, peer_of(up, limit=1 << 10) as peer:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.writer.write(b"".join(peer.frame(BIG, SizeHeader(size=100_000)) for _ in range(500)))
        await until(lambda: up.server.statistics.reading_paused > 0)
        connection = await only_connection(up.server)
        await turns()
        with pytest.raises(SendFailed, match="does not read"):
            connection.send_oneway(NOTIFY)
        waiting = asyncio.ensure_future(connection.wait_writable())
        await turns()
        assert not waiting.done()
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(500):
            await peer.answer()
        await waiting
        connection.send_oneway(NOTIFY)
        assert (await peer.answer()).code == NOTIFY


async def test_open_requests_to_a_peer_are_bounded() -> None:
    async with serving(limits=RemotingLimits(max_outgoing=1)) as up, peer_of(up) as peer:
        connection = await only_connection(up.server)
        asked = asyncio.ensure_future(connection.send_request(NOTIFY, timeout_ms=TIMEOUT_MS))
        request = await peer.answer()
        with pytest.raises(SendFailed, match="too many requests"):
            await connection.send_request(NOTIFY, timeout_ms=TIMEOUT_MS)
        peer.writer.write(encode_command(create_response(request, ResponseCode.SUCCESS)))
        assert (await asked).code == 0


async def test_opaques_wrap_and_skip_those_in_use() -> None:
    async with serving() as up, peer_of(up) as peer:
        connection = await only_connection(up.server)
        connection.outgoing.next_opaque = 0x7FFFFFFF
        asked = asyncio.ensure_future(connection.send_request(NOTIFY, timeout_ms=TIMEOUT_MS))
        first = await peer.answer()
        connection.outgoing.next_opaque = 0x7FFFFFFF
        connection.send_oneway(NOTIFY)
        second = await peer.answer()
        assert (first.opaque, second.opaque) == (0x7FFFFFFF, 0)
        peer.writer.write(encode_command(create_response(first, 0)))
        await asked


async def test_close_listeners_are_called_once() -> None:
    gone: list[Connection] = []
    async with serving() as up:
        async with peer_of(up):
            connection = await only_connection(up.server)
            connection.on_close(gone.append)
            await turns()
            assert not gone
        await connection.wait_closed()
        await until(lambda: gone == [connection])
        connection.on_close(gone.append)
        await until(lambda: gone == [connection, connection])
        assert connection.is_closed
        assert up.server.statistics.connections_closed == 1


async def test_responses_that_are_ready_together_share_a_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as up, peer_of(up) as peer:
        peer.writer.write(b"".join(peer.frame(SLOW) for _ in range(50)))
        await until(lambda: up.server.in_flight == 50)
        connection = await only_connection(up.server)
        assert connection._transport is not None
        recorder = Recorder(connection._transport)
        monkeypatch.setattr(connection._output, "_transport", recorder)
        up.processors.gate.set()
        for _ in range(50):
            await peer.answer()
    decoder = FrameDecoder()
    frames_a_write: list[int] = []
    for written in recorder.written:
        decoder.feed(written)
        frames_a_write.append(len(list(decoder)))
    assert max(frames_a_write) == 50


async def test_a_peer_that_sends_endlessly_leaves_others_their_turn() -> None:
    """Each request takes longer than a turn; a loop would read many of them in one go."""
    clock = ManualClock()
    turn = 0
    seen: list[int] = []

    def tick() -> None:
        nonlocal turn
        turn += 1
        if not is_done.is_set():
            loop.call_soon(tick)

    is_done = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with serving(clock=clock) as up, peer_of(up) as peer:
        loop.call_soon(tick)

        def burst_ended() -> None:
            seen.append(turn)
            clock.advance(LONG_READ_NS // 1_000_000)

        up.server.add_burst_listener(burst_ended)
        request = peer.frame(ECHO, body=bytes(300_000))
        peer.writer.write(request * 20)
        for _ in range(20):
            await peer.answer()
        is_done.set()
    large_reads = 20 * len(request) // READ_BUFFER_BYTES
    assert len(set(seen)) >= large_reads
    assert up.server.statistics.reading_paused == 0


async def test_a_flood_of_requests_is_handled_in_turns() -> None:
    """With a clock that stands still, turns are bounded by the number of requests."""
    bursts: list[int] = []
    async with serving(clock=ManualClock()) as up, peer_of(up) as peer, peer_of(up) as other:
        seen = up.processors.seen
        up.server.add_burst_listener(lambda: bursts.append(len(seen)))
        peer.writer.write(b"".join(peer.frame(ECHO, body=b"%d" % n) for n in range(1_000)))
        assert (await other.ask(ECHO, body=b"other")).body == b"other"
        bodies = [(await peer.answer()).body for _ in range(1_000)]
    assert bodies == [b"%d" % n for n in range(1_000)]
    steps = [after - before for before, after in pairwise([0, *bursts])]
    assert max(steps) <= TURN_REQUESTS
    assert up.server.statistics.reading_paused == 0


async def test_requests_sent_before_a_half_close_are_handled() -> None:
    async with serving(clock=ManualClock()) as up, peer_of(up) as peer:
        peer.writer.write(b"".join(peer.frame(ECHO) for _ in range(1_000)))
        peer.writer.write_eof()
        for _ in range(1_000):
            await peer.answer()
        assert await peer.closed_by_server()
    assert len(up.processors.seen) == 1_000


async def test_requests_of_a_connection_that_is_lost_are_not_handled() -> None:
    async with serving(clock=ManualClock()) as up, peer_of(up) as peer:
        connection = await only_connection(up.server)
        up.server.add_burst_listener(connection.abort)
        peer.writer.write(b"".join(peer.frame(ECHO) for _ in range(1_000)))
        await connection.wait_closed()
        await turns()
        assert 0 < len(up.processors.seen) <= TURN_REQUESTS


async def test_administrators_requests_wait_for_each_other() -> None:
    limits = {RequestClass.ADMIN: ClassLimits(workers=2, capacity=3, wait_ms=None)}
    config = ServerConfig(class_limits=limits)
    async with serving(config=config) as up, peer_of(up) as peer, peer_of(up) as other:
        peer.writer.write(b"".join(peer.frame(ADMIN, body=b"%d" % n) for n in range(6)))
        refused = await peer.answer()
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert refused.remark == "[OVERLOAD]system busy, start flow control for a while"
        assert up.processors.seen == [ADMIN, ADMIN]
        assert up.server.in_flight == 5
        assert up.server.turns._queues[RequestClass.ADMIN].size == 3
        assert (await other.ask(ECHO)).code == 0
        up.processors.gate.set()
        assert [(await peer.answer()).body for _ in range(5)] == [b"%d" % n for n in range(5)]
        await until(lambda: up.server.in_flight == 0)


async def test_waiting_requests_of_a_lost_connection_are_dropped() -> None:
    limits = {RequestClass.ADMIN: ClassLimits(workers=1, capacity=100, wait_ms=None)}
    async with serving(config=ServerConfig(class_limits=limits)) as up, peer_of(up) as other:
        peer = await Peer.connect(up)
        peer.writer.write(b"".join(peer.frame(ADMIN) for _ in range(6)))
        await until(lambda: up.server.in_flight == 6)
        peer.writer.transport.abort()
        await until(lambda: up.server.in_flight == 1)
        up.processors.gate.set()
        assert (await other.ask(ADMIN, body=b"next")).body == b"next"
        assert up.processors.seen == [ADMIN, ADMIN]


async def test_reads_of_a_lost_connection_end_and_changes_complete() -> None:
    async with serving() as up:
        peer = await Peer.connect(up)
        peer.writer.write(b"".join(peer.frame(code) for code in (READ, SLOW, READ, READ)))
        await until(lambda: up.server.in_flight == 4)
        peer.writer.transport.abort()
        await until(lambda: up.server.in_flight == 1)
        up.processors.gate.set()
        await until(lambda: up.server.in_flight == 0)
        assert up.processors.seen == [SLOW]


async def test_waiting_requests_get_responses_before_the_server_stops() -> None:
    limits = {RequestClass.ADMIN: ClassLimits(workers=1, capacity=100, wait_ms=None)}
    async with serving(config=ServerConfig(class_limits=limits)) as up, peer_of(up) as peer:
        peer.writer.write(b"".join(peer.frame(ADMIN) for _ in range(4)))
        await until(lambda: up.server.in_flight == 4)
        stopping = asyncio.ensure_future(up.server.stop(grace_ms=60_000))
        await turns(3)
        up.processors.gate.set()
        assert [(await peer.answer()).code for _ in range(4)] == [0] * 4
        await stopping


async def test_a_frame_that_trickles_in_is_not_copied_each_time() -> None:
    """A long frame in short reads is appended to, not copied with each of them."""
    async with serving() as up, peer_of(up) as peer:
        connection = await only_connection(up.server)
        frame = peer.frame(ECHO, body=bytes(100_000))
        peer.writer.write(frame[:90_000])
        await until(lambda: connection.held_bytes == 90_000)
        for at in range(90_000, 90_010):
            peer.writer.write(frame[at : at + 1])
            await until(lambda wanted=at + 1: connection.held_bytes == wanted)  # type: ignore[misc]
            assert connection.input._read_at == 0 or at == 90_000
        peer.writer.write(frame[90_010:])
        assert (await peer.answer()).body == bytes(100_000)
