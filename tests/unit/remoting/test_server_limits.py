"""What a server holds for its peers has limits, and reading waits when they are reached."""

import errno
import socket

import pytest

from roquet.remoting import listener as listener_module
from roquet.remoting.codes import ResponseCode
from roquet.remoting.endpoint import RemotingLimits
from tests.unit.remoting.net_kit import (
    BIG,
    ECHO,
    LATER,
    SLOW,
    Peer,
    SizeHeader,
    peer_of,
    serving,
    turns,
    until,
)


async def test_a_client_that_never_reads_cannot_make_memory_grow() -> None:
    limits = RemotingLimits(write_high_bytes=1 << 16)
    async with serving(limits=limits) as up, peer_of(up, limit=1 << 10) as peer:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        frames = [peer.frame(BIG, SizeHeader(size=50_000)) for _ in range(2_000)]
        peer.writer.write(b"".join(frames))
        await until(lambda: up.server.statistics.reading_paused > 0)
        await turns()
        (connection,) = up.server.connections
        assert connection.held_bytes < (1 << 16) + (1 << 18) + 4 * 50_000
        assert len(up.processors.seen) < 1_500, "requests wait as well"
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for opaque in range(1, len(frames) + 1):
            response = await peer.answer()
            assert (response.opaque, len(response.body)) == (opaque, 50_001)


async def test_a_peer_with_too_much_pending_output_is_disconnected() -> None:
    limits = RemotingLimits(write_high_bytes=1 << 16, write_max_bytes=1 << 20)
    async with serving(limits=limits) as up, peer_of(up, limit=1 << 10) as peer:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.writer.write(b"".join(peer.frame(LATER) for _ in range(100)))
        await until(lambda: len(up.processors.contexts) == 100)
        for context in up.processors.contexts:
            context.reply(context.response(ResponseCode.SUCCESS, body=bytes(1 << 18)))
        await until(lambda: not up.server.connections)
        assert up.server.statistics.overload_closed == 1


async def test_half_frames_of_all_connections_are_bounded() -> None:
    limits = RemotingLimits(max_held_bytes=5 << 20)
    async with serving(limits=limits) as up, peer_of(up) as good:
        bad = [await Peer.connect(up) for _ in range(4)]
        for peer in bad:
            half = peer.frame(ECHO, body=bytes(4 << 20))[: 2 << 20]
            peer.writer.write(half)
        await until(lambda: up.server.statistics.overload_closed >= 1)
        await turns()
        assert sum(each.held_bytes for each in up.server.connections) <= limits.max_held_bytes
        assert (await good.ask(ECHO, body=b"still")).body == b"still"
        for peer in bad:
            await peer.close()


async def test_requests_in_flight_of_a_connection_are_bounded() -> None:
    async with serving(limits=RemotingLimits(max_in_flight=3)) as up, peer_of(up) as peer:
        frames = [peer.frame(SLOW, body=b"%d" % number) for number in range(10)]
        peer.writer.write(b"".join(frames))
        await until(lambda: up.server.in_flight == 3)
        await turns()
        assert len(up.processors.seen) == 3
        async with peer_of(up) as other:
            assert (await other.ask(ECHO, body=b"other")).body == b"other"
        up.processors.gate.set()
        assert {(await peer.answer()).body for _ in frames} == {b"%d" % n for n in range(10)}
        assert (await peer.ask(ECHO, body=b"on")).body == b"on"


async def test_bytes_in_flight_of_a_connection_are_bounded() -> None:
    limits = RemotingLimits(max_in_flight_bytes=1_000)
    async with serving(limits=limits) as up, peer_of(up) as peer:
        peer.writer.write(b"".join(peer.frame(SLOW, body=bytes(900)) for _ in range(5)))
        await until(lambda: up.server.in_flight == 1)
        await turns()
        assert up.server.in_flight == 1
        up.processors.gate.set()
        for _ in range(5):
            assert len((await peer.answer()).body) == 900


async def test_bytes_in_flight_in_all_are_bounded() -> None:
    limits = RemotingLimits(max_in_flight_bytes_in_all=1_000)
    async with serving(limits=limits) as up, peer_of(up) as first, peer_of(up) as second:
        first.writer.write(first.frame(SLOW, body=bytes(1_000)))
        await until(lambda: up.server.in_flight == 1)
        second.writer.write(second.frame(SLOW, body=bytes(1_000)))
        await turns()
        assert up.server.in_flight == 1
        up.processors.gate.set()
        assert len((await first.answer()).body) == 1_000
        assert len((await second.answer()).body) == 1_000


async def test_requests_in_flight_in_all_are_bounded() -> None:
    async with serving(limits=RemotingLimits(max_in_flight_in_all=4)) as up:
        peers = [await Peer.connect(up) for _ in range(5)]
        for peer in peers:
            peer.writer.write(b"".join(peer.frame(SLOW) for _ in range(3)))
        await until(lambda: up.server.in_flight == 4)
        await turns()
        assert len(up.processors.seen) == 4
        up.processors.gate.set()
        for peer in peers:
            for _ in range(3):
                assert (await peer.answer()).code == 0
            await peer.close()
        assert len(up.processors.seen) == 15
        assert up.server.in_flight == 0


@pytest.mark.parametrize("requests", [2, 4])
async def test_a_lost_peer_frees_what_it_had_in_flight(requests: int) -> None:
    async with serving(limits=RemotingLimits(max_in_flight_in_all=3)) as up:
        async with peer_of(up) as gone:
            gone.writer.write(b"".join(gone.frame(SLOW) for _ in range(requests)))
            await until(lambda: up.server.in_flight == min(requests, 3))
        up.processors.gate.set()
        await until(lambda: not up.server.connections)
        await until(lambda: up.server.in_flight == 0)
        async with peer_of(up) as peer:
            assert (await peer.ask(ECHO)).code == 0


async def test_accepting_resumes_after_descriptors_ran_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_module, "_ACCEPT_PAUSE_S", 0.005)
    async with serving() as up:
        (listener,) = up.server._listeners
        exhausted = Exhausted(listener._listening)
        monkeypatch.setattr(listener, "_listening", exhausted)
        async with peer_of(up) as peer:
            assert (await peer.ask(ECHO)).code == 0
        assert exhausted.failures == 0
    assert "Nothing is accepted" in caplog.text


class Exhausted:
    """A listening socket in a process that has no descriptors left at first."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.failures = 2

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listening.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self._listening, name)
