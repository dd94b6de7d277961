"""What a server's connection can do besides answering: ask, tell, remember, end."""

import asyncio

import pytest

from roquet.errors import RequestTimeout, SendFailed
from roquet.remoting.client import RemotingClient
from roquet.remoting.codec import encode_command
from roquet.remoting.codes import LanguageCode, RequestCode, ResponseCode
from roquet.remoting.command import create_response
from roquet.remoting.connection import TURN_NS, Connection
from roquet.remoting.endpoint import READ_BUFFER_BYTES, RemotingLimits
from roquet.remoting.server import RemotingServer
from roquet.runtime.clock import ManualClock
from tests.unit.remoting.net_kit import (
    BIG,
    ECHO,
    PATIENT,
    SLOW,
    Peer,
    Processors,
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


async def test_a_connection_knows_its_peer_and_remembers_things() -> None:
    async with serving() as up, peer_of(up) as first, peer_of(up):
        await until(lambda: len(up.server.connections) == 2)
        connections = sorted(up.server.connections, key=lambda each: each.id)
        host, port = first.writer.get_extra_info("sockname")
        assert connections[0].remote_address == f"{host}:{port}"
        assert [each.id for each in connections] == [1, 2]
        assert repr(connections[0]) == f"<Connection 1 {host}:{port} open>"
        connections[0].attributes["clientId"] = "c"
        assert connections[1].attributes == {}


async def test_the_server_asks_and_the_client_answers() -> None:
    processors = Processors()
    async with serving() as up, RemotingClient(processors.registry(), PATIENT) as client:
        await client.connect(up.address)
        connection = await only_connection(up.server)
        response = await connection.send_request(ECHO, body=b"you?", timeout_ms=10_000)
        assert (response.code, response.body) == (0, b"you?")
        assert response.language is LanguageCode.JAVA
        response = await connection.send_request(NOTIFY, timeout_ms=10_000)
        assert response.remark == " request type 40 not supported: NOTIFY_CONSUMER_IDS_CHANGED"


async def test_the_server_tells_without_an_answer() -> None:
    processors = Processors()
    async with serving() as up, RemotingClient(processors.registry(), PATIENT) as client:
        await client.connect(up.address)
        connection = await only_connection(up.server)
        connection.send_oneway(ECHO, SizeHeader(size=1))
        await until(lambda: processors.seen == [ECHO])
        assert up.server.statistics.requests_sent == 1


async def test_answers_are_paired_by_opaque_whatever_their_order() -> None:
    async with serving() as up, peer_of(up) as peer:
        connection = await only_connection(up.server)
        asked = [
            asyncio.ensure_future(
                connection.send_request(NOTIFY, body=b"%d" % n, timeout_ms=30_000)
            )
            for n in range(3)
        ]
        requests = [await peer.answer() for _ in asked]
        assert len({each.opaque for each in requests}) == 3
        for request in reversed(requests):
            peer.writer.write(encode_command(create_response(request, 0, body=request.body)))
        answers = [(await each).body for each in asked]
        assert answers == [b"0", b"1", b"2"]


async def test_no_answer_in_time_and_a_late_one() -> None:
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
        asked = asyncio.ensure_future(connection.send_request(NOTIFY, timeout_ms=30_000))
        await peer.answer()
        await peer.close()
        with pytest.raises(SendFailed, match="lost before the answer came"):
            await asked
        with pytest.raises(SendFailed, match="is closed"):
            await connection.send_request(NOTIFY, timeout_ms=30_000)
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
        asked = asyncio.ensure_future(connection.send_request(NOTIFY, timeout_ms=30_000))
        request = await peer.answer()
        with pytest.raises(SendFailed, match="too many requests"):
            await connection.send_request(NOTIFY, timeout_ms=30_000)
        peer.writer.write(encode_command(create_response(request, ResponseCode.SUCCESS)))
        assert (await asked).code == 0


async def test_opaques_wrap_and_skip_those_in_use() -> None:
    async with serving() as up, peer_of(up) as peer:
        connection = await only_connection(up.server)
        connection.outgoing.next_opaque = 0x7FFFFFFF
        asked = asyncio.ensure_future(connection.send_request(NOTIFY, timeout_ms=30_000))
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


async def test_answers_that_get_ready_together_share_a_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as up, peer_of(up) as peer:
        peer.writer.write(b"".join(peer.frame(SLOW) for _ in range(50)))
        await until(lambda: up.server.in_flight == 50)
        connection = await only_connection(up.server)
        flushed: list[int] = []
        flush = connection._flush

        def counted() -> None:
            flushed.append(len(connection._output))
            flush()

        monkeypatch.setattr(connection, "_flush", counted)
        up.processors.gate.set()
        for _ in range(50):
            await peer.answer()
    assert max(flushed) == 50


async def test_a_peer_that_sends_without_end_leaves_others_their_turn() -> None:
    """Each request takes longer than a turn; a loop reads many of them in one go if it is let."""
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
            clock.advance(TURN_NS // 1_000_000)

        up.server.add_burst_listener(burst_ended)
        request = peer.frame(ECHO, body=bytes(300_000))
        peer.writer.write(request * 20)
        for _ in range(20):
            await peer.answer()
        is_done.set()
    large_reads = 20 * len(request) // READ_BUFFER_BYTES
    assert len(set(seen)) >= large_reads
    assert up.server.statistics.reading_paused == 0
