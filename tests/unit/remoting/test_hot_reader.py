"""Hot readers: when they get the frames of a connection first, and when there is none."""

from __future__ import annotations

from roquet.remoting.connection import Connection
from roquet.remoting.frame import Received
from roquet.remoting.hooks import RpcCall, RpcHook
from roquet.remoting.hot_reader import Taken
from roquet.runtime.clock import ManualClock
from tests.unit.remoting.net_kit import ECHO, peer_of, serving, until


class TakesSome:
    """A hot path that responds to what begins with a mark, and is called again for the rest."""

    def __init__(self, *, mark: bytes = b"hot") -> None:
        self.mark = mark
        self.asked: list[bytes] = []
        self.connections: list[Connection] = []

    def open(self, connection: Connection) -> TakesSome:
        self.connections.append(connection)
        return self

    def take(self, data: Received, position: int) -> Taken:
        self.asked.append(bytes(data[position:]))
        answers, requests = b"", 0
        while True:
            length = int.from_bytes(data[position : position + 4], "big")
            frame = bytes(data[position : position + 4 + length])
            if len(frame) < 8 or len(frame) < 4 + length or not frame.endswith(self.mark):
                return position, requests, answers
            # The response is the request with the response bit; the header is JSON.
            answers += frame.replace(b'"flag":0', b'"flag":1')
            position += len(frame)
            requests += 1


async def test_a_hot_reader_comes_before_the_processors_and_again_after_each() -> None:
    hot_path = TakesSome()
    async with serving() as up:
        up.server.set_hot_path(hot_path)
        async with peer_of(up) as peer:
            bodies = [b"1 hot", b"2", b"3 hot", b"4 hot", b"5"]
            peer.writer.write(b"".join(peer.frame(ECHO, body=body) for body in bodies))
            answers = [await peer.answer() for _ in bodies]
        assert sorted(answer.body for answer in answers) == sorted(bodies)
        assert up.server.statistics.requests == 5
        assert len(hot_path.connections) == 1


async def test_half_a_frame_is_left_for_later() -> None:
    hot_path = TakesSome()
    async with serving() as up:
        up.server.set_hot_path(hot_path)
        async with peer_of(up) as peer:
            data = peer.frame(ECHO, body=b"1 hot")
            peer.writer.write(data[:20])
            await peer.writer.drain()
            await until(lambda: bool(hot_path.asked))
            peer.writer.write(data[20:])
            assert (await peer.answer()).body == b"1 hot"
        assert up.server.statistics.requests == 1


async def test_with_hooks_there_is_no_hot_reader() -> None:
    seen: list[RpcCall] = []

    class Notes(RpcHook):
        def before_request(self, call: RpcCall) -> None:
            seen.append(call)

    hot_path = TakesSome()
    async with serving(hooks=(Notes(),)) as up:
        up.server.set_hot_path(hot_path)
        async with peer_of(up) as peer:
            assert (await peer.ask(ECHO, body=b"1 hot")).body == b"1 hot"
    assert len(seen) == 1
    assert hot_path.asked == []


async def test_frames_for_a_closed_connection_are_dropped() -> None:
    hot_path = TakesSome()
    async with serving() as up:
        up.server.set_hot_path(hot_path)
        async with peer_of(up) as peer:
            await peer.ask(ECHO, body=b"1")
            (connection,) = hot_path.connections
            connection.write_frames(peer.frame(ECHO, body=b"late"))
            assert (await peer.answer()).body == b"late"
            connection.close()
            await connection.wait_closed()
            connection.write_frames(peer.frame(ECHO, body=b"too late"))
            assert await peer.reader.read() == b""


async def test_short_responses_are_reported_with_the_time_between_reads() -> None:
    clock = ManualClock()
    gaps: list[int] = []
    async with serving(clock=clock) as up:
        up.server.set_hot_path(TakesSome())
        up.server.add_response_listener(gaps.append)
        async with peer_of(up) as peer:
            for gap_ms, body in ((5, b"hot"), (7, b"not plain"), (9, bytes(1 << 15) + b"hot")):
                clock.advance(gap_ms)
                assert (await peer.ask(ECHO, body=body)).body == body
    assert gaps == [5_000_000, 7_000_000]
