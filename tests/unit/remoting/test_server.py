import asyncio
import errno
import logging
import socket

import pytest

from roquet.errors import ConfigError
from roquet.remoting import listener as listener_module
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.endpoint import READ_BUFFER_BYTES, LogLimiter, RemotingLimits
from roquet.remoting.frame import SerializeType
from roquet.remoting.hooks import RequestRefused, RpcCall, RpcHook
from roquet.remoting.processor import PUBLIC, Port, ProcessorRegistry
from roquet.remoting.server import RemotingServer, ServerConfig, fast_port
from roquet.runtime.clock import ManualClock
from tests.unit.remoting.net_kit import (
    BIG,
    BROKEN,
    BROKEN_LATER,
    BY_HAND,
    ECHO,
    LATER,
    LOOPBACK,
    NOBODY,
    NOT_AN_ANSWER,
    OVERSIZED,
    PULL,
    REFUSED,
    SLOW,
    TYPED,
    Peer,
    SizeHeader,
    peer_of,
    serving,
    turns,
    until,
)


@pytest.mark.parametrize("serialize_type", SerializeType)
async def test_an_answer_has_the_codec_of_its_request(serialize_type: SerializeType) -> None:
    async with serving() as up, peer_of(up) as peer:
        peer.writer.write(peer.frame(ECHO, body=b"hello", serialize_type=serialize_type))
        response = await peer.answer()
    assert response.is_response
    assert (response.code, response.opaque, response.body) == (0, 1, b"hello")
    assert response.serialize_type is serialize_type


async def test_a_server_can_be_told_to_write_one_codec() -> None:
    config = ServerConfig(serialize_type=SerializeType.ROCKETMQ)
    async with serving(config=config) as up, peer_of(up) as peer:
        assert (await peer.ask(ECHO)).serialize_type is SerializeType.ROCKETMQ
        assert (await peer.ask(NOBODY)).serialize_type is SerializeType.ROCKETMQ


async def test_unknown_code_is_refused_in_upstream_s_words() -> None:
    async with serving() as up, peer_of(up) as peer:
        response = await peer.ask(NOBODY)
        assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert response.remark == " request type 9999 not supported"
        assert up.server.statistics.requests_unknown == 1


async def test_oneway_gets_no_answer_even_when_it_fails() -> None:
    async with serving() as up, peer_of(up) as peer:
        for code in (ECHO, BROKEN, NOBODY, BROKEN_LATER):
            peer.writer.write(peer.frame(code, oneway=True))
        response = await peer.ask(ECHO, body=b"last")
        assert response.body == b"last"
        await until(lambda: up.server.in_flight == 0)
        assert (await peer.ask(ECHO, body=b"after")).body == b"after"


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


async def test_one_burst_is_answered_in_order_with_one_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bursts: list[int] = []
    async with serving() as up, peer_of(up) as peer:
        up.server.add_burst_listener(lambda: bursts.append(len(up.processors.seen)))
        await peer.ask(ECHO)
        bursts.clear()
        (connection,) = up.server.connections
        assert connection._transport is not None
        recorder = Recorder(connection._transport)
        monkeypatch.setattr(connection, "_transport", recorder)
        frames = [peer.frame(ECHO, body=b"%d" % number) for number in range(100)]
        peer.writer.write(b"".join(frames))
        bodies = [(await peer.answer()).body for _ in frames]
    assert bodies == [b"%d" % number for number in range(100)]
    assert len(recorder.written) == 1
    assert bursts == [101]


async def test_half_frames_are_put_together() -> None:
    async with serving() as up, peer_of(up) as peer:
        frame = peer.frame(ECHO, body=b"hello")
        for cut in range(len(frame)):
            peer.writer.write(frame[cut : cut + 1])
            await peer.writer.drain()
        assert (await peer.answer()).body == b"hello"


@pytest.mark.parametrize("size_bytes", [1_000, READ_BUFFER_BYTES // 3, 3 * READ_BUFFER_BYTES])
async def test_half_frames_of_several_peers_do_not_mix(size_bytes: int) -> None:
    """All are read into one buffer, in turn; the longest fit no half of it."""
    async with serving() as up, peer_of(up) as first, peer_of(up) as second:
        bodies = {first: b"a" * size_bytes, second: b"b" * size_bytes}
        frames = {peer: peer.frame(ECHO, body=body) for peer, body in bodies.items()}
        step = size_bytes // 5
        for start in range(0, size_bytes + 2 * step, step):
            for peer, frame in frames.items():
                peer.writer.write(frame[start : start + step])
                await peer.writer.drain()
                await asyncio.sleep(0)
        for peer, body in bodies.items():
            assert (await peer.answer()).body == body


async def test_header_of_the_wrong_content_is_answered() -> None:
    async with serving() as up, peer_of(up) as peer:
        response = await peer.ask(TYPED)
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert response.remark == "the custom field <size> is null"
        assert (await peer.ask(TYPED, SizeHeader(size=3))).remark == "3"


async def test_failing_processors_are_answered_without_their_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as up, peer_of(up) as peer:
        response = await peer.ask(BROKEN)
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert response.remark == "KeyError while handling 9004"
        response = await peer.ask(BROKEN_LATER)
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert response.remark == "cannot do 9009"
        response = await peer.ask(NOT_AN_ANSWER)
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert up.server.statistics.processor_errors == 2
        response = await peer.ask(OVERSIZED)
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert "too long" in (response.remark or "")
        assert (await peer.ask(REFUSED)).code == ResponseCode.SYSTEM_BUSY
    assert "KeyError while handling 9004" in caplog.text


async def test_answers_in_parts() -> None:
    async with serving() as up, peer_of(up) as peer:
        response = await peer.ask(BIG, SizeHeader(size=100_000))
        assert response.body == b"x" * 100_000 + b"!"
        peer.writer.write(peer.frame(BIG, SizeHeader(size=1)) + peer.frame(BIG, SizeHeader(size=2)))
        assert [(await peer.answer()).body for _ in range(2)] == [b"x!", b"xx!"]


async def test_an_answer_is_paired_with_its_request_however_it_was_made() -> None:
    async with serving() as up, peer_of(up) as peer:
        response = await peer.ask(BY_HAND)
        assert (response.is_response, response.opaque) == (True, 1)


async def test_async_processors_are_answered_when_done() -> None:
    async with serving() as up, peer_of(up) as peer:
        peer.writer.write(peer.frame(SLOW, body=b"slow"))
        assert (await peer.ask(ECHO, body=b"quick")).body == b"quick"
        assert up.server.in_flight == 1
        up.processors.gate.set()
        response = await peer.answer()
        assert (response.body, response.opaque) == (b"slow", 1)
        assert up.server.in_flight == 0


async def test_a_processor_may_reply_later_and_once() -> None:
    async with serving() as up, peer_of(up) as peer:
        peer.writer.write(peer.frame(LATER))
        await until(lambda: bool(up.processors.contexts))
        assert up.server.in_flight == 0
        context = up.processors.contexts[0]
        context.reply(context.response(ResponseCode.PULL_NOT_FOUND))
        response = await peer.answer()
        assert (response.code, response.opaque) == (ResponseCode.PULL_NOT_FOUND, 1)
        with pytest.raises(RuntimeError, match="answered twice"):
            context.reply(None)


async def test_a_reply_to_a_peer_that_is_gone_is_dropped() -> None:
    async with serving() as up:
        async with peer_of(up) as peer:
            peer.writer.write(peer.frame(LATER))
            await until(lambda: bool(up.processors.contexts))
        await until(lambda: not up.server.connections)
        context = up.processors.contexts[0]
        context.reply(context.response(ResponseCode.SUCCESS))


# ------------------------------------------------------------------------------- bad bytes

BAD_STARTS = {
    "garbage": b"\xff" * 64,
    "negative length": b"\xff\xff\xff\xf0" + b"\0" * 16,
    "length of 3": b"\0\0\0\3" + b"\0" * 16,
    "length beyond 16 MiB": b"\x01\0\0\1" + b"\0" * 16,
    "unknown serialize type": b"\0\0\0\x20\7\0\0\2{}" + b"\0" * 32,
    "header longer than the frame": b"\0\0\0\x20\0\0\0\xff" + b"\0" * 32,
    "header that is no JSON": b"\0\0\0\x06\0\0\0\2][",
    "binary header that is too short": b"\0\0\0\x06\1\0\0\2][",
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "tls": b"\x16\3\1\2\0\1\0\1\xfc\3\3",
}


@pytest.mark.parametrize("name", BAD_STARTS)
async def test_bad_bytes_close_the_connection_and_nothing_else(name: str) -> None:
    async with serving() as up, peer_of(up) as good, peer_of(up) as bad:
        bad.writer.write(bad.frame(ECHO, body=b"before"))
        assert (await bad.answer()).body == b"before"
        bad.writer.write(BAD_STARTS[name])
        assert await bad.closed_by_server()
        assert up.server.statistics.bad_frames == 1
        assert (await good.ask(ECHO, body=b"still")).body == b"still"


async def test_answers_before_a_bad_frame_are_still_written() -> None:
    async with serving() as up, peer_of(up) as peer:
        peer.writer.write(peer.frame(ECHO, body=b"good") + BAD_STARTS["garbage"])
        assert (await peer.answer()).body == b"good"
        assert await peer.closed_by_server()


async def test_ten_megabytes_of_garbage(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    async with serving(clock=clock) as up, peer_of(up) as good:
        for _ in range(3):
            async with peer_of(up) as bad:
                bad.writer.write(b"\xee" * 10_000_000)
                assert await bad.closed_by_server()
        assert up.server.statistics.bad_frames == 3
        assert (await good.ask(ECHO, body=b"still")).body == b"still"
    assert caplog.text.count("is closed") == 1, "the log is limited in rate"


def test_suppressed_messages_are_counted() -> None:
    clock = ManualClock()
    limiter = LogLimiter(clock)
    assert limiter.allow("a") == ""
    assert limiter.allow("a") is None
    assert limiter.allow("b") == ""
    clock.advance(1_000)
    assert limiter.allow("a") == " (1 more like this)"
    clock.advance(1_000)
    assert limiter.allow("a") == ""


# --------------------------------------------------------------------------- back-pressure


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


async def test_a_peer_for_which_too_much_piles_up_is_cut_off() -> None:
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


async def test_accepting_goes_on_after_descriptors_ran_out(
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


# ---------------------------------------------------------------- connections and their end


async def test_five_hundred_idle_connections_and_the_idle_time() -> None:
    clock = ManualClock()
    async with serving(clock=clock) as up:
        peers = [await Peer.connect(up) for _ in range(500)]
        await until(lambda: len(up.server.connections) == 500)
        clock.advance(119_000)
        assert (await peers[0].ask(ECHO)).code == 0
        up.server.close_idle_connections()
        await turns()
        assert len(up.server.connections) == 500
        clock.advance(1_000)
        up.server.close_idle_connections()
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


async def test_a_peer_that_never_reads_is_idle_in_the_end() -> None:
    clock = ManualClock()
    limits = RemotingLimits(write_high_bytes=1 << 16)
    async with serving(limits=limits, clock=clock) as up, peer_of(up, limit=1 << 10) as peer:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.writer.write(b"".join(peer.frame(BIG, SizeHeader(size=100_000)) for _ in range(500)))
        await until(lambda: up.server.statistics.reading_paused > 0)
        await turns()
        up.server.close_idle_connections()
        assert len(up.server.connections) == 1
        clock.advance(120_000)
        up.server.close_idle_connections()
        await until(lambda: not up.server.connections)


async def test_a_peer_that_reads_slowly_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    async with serving(clock=clock) as up, peer_of(up) as peer:
        await peer.ask(ECHO)
        (connection,) = up.server.connections
        unwritten = iter([100, 99, 99])
        monkeypatch.setattr(connection, "_unwritten_bytes", lambda: next(unwritten))
        up.server.close_idle_connections()
        clock.advance(120_000)
        up.server.close_idle_connections()
        assert not connection.is_closed
        clock.advance(120_000)
        up.server.close_idle_connections()
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


# ----------------------------------------------------------------------------------- hooks


class Recording(RpcHook):
    def __init__(self) -> None:
        self.before: list[tuple[int, bool]] = []
        self.after: list[tuple[int, int | None]] = []

    def before_request(self, call: RpcCall) -> None:
        self.before.append((call.request.code, call.is_incoming))
        if call.request.body == b"forbidden":
            assert call.permission == PUBLIC
            raise RequestRefused("not you", response_code=ResponseCode.NO_PERMISSION)

    def after_response(self, call: RpcCall, response: RemotingCommand | None) -> None:
        self.after.append((call.request.code, None if response is None else response.code))
        if response is not None and response.body == b"spoil":
            raise OSError("broken hook")


async def test_hooks_run_before_and_after() -> None:
    hook = Recording()
    async with serving(hooks=(hook,)) as up, peer_of(up) as peer:
        assert (await peer.ask(ECHO)).code == 0
        up.processors.gate.set()
        assert (await peer.ask(SLOW)).code == 0
        assert (await peer.ask(BIG, SizeHeader(size=1))).code == 0
        assert (await peer.ask(NOBODY)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        peer.writer.write(peer.frame(ECHO, oneway=True))
        assert (await peer.ask(ECHO)).code == 0
    assert hook.before == [(code, True) for code in (ECHO, SLOW, BIG, ECHO, ECHO)]
    assert hook.after == [(code, 0) for code in (ECHO, SLOW, BIG, ECHO, ECHO)]


async def test_a_hook_may_refuse_a_request(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(hooks=(Recording(),)) as up, peer_of(up) as peer:
        response = await peer.ask(ECHO, body=b"forbidden")
        assert (response.code, response.remark) == (ResponseCode.NO_PERMISSION, "not you")
        assert not up.processors.seen
        with caplog.at_level(logging.CRITICAL):
            response = await peer.ask(ECHO, body=b"spoil")
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert response.remark == "OSError while handling 9001"


def test_real_codes_have_names_in_remarks() -> None:
    assert RequestCode.PULL_MESSAGE == PULL
