"""How a server responds to requests and to bad bytes, and its hooks."""

import asyncio
import logging

import pytest

from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.endpoint import READ_BUFFER_BYTES, LogLimiter
from roquet.remoting.frame import SerializeType
from roquet.remoting.hooks import RequestRefused, RpcCall, RpcHook
from roquet.remoting.processor import PUBLIC
from roquet.remoting.server import ServerConfig
from roquet.runtime.clock import ManualClock
from tests.unit.remoting.net_kit import (
    BIG,
    BROKEN,
    BROKEN_LATER,
    BY_HAND,
    ECHO,
    LATER,
    NOBODY,
    NOT_AN_ANSWER,
    OVERSIZED,
    PULL,
    REFUSED,
    SLOW,
    TYPED,
    Recorder,
    SizeHeader,
    peer_of,
    serving,
    until,
)


@pytest.mark.parametrize("serialize_type", SerializeType)
async def test_a_response_has_the_codec_of_its_request(serialize_type: SerializeType) -> None:
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


async def test_unknown_code_is_refused_in_upstreams_words() -> None:
    async with serving() as up, peer_of(up) as peer:
        response = await peer.ask(NOBODY)
        assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert response.remark == " request type 9999 not supported"
        assert up.server.statistics.requests_unknown == 1


async def test_oneway_gets_no_response_even_when_it_fails() -> None:
    async with serving() as up, peer_of(up) as peer:
        for code in (ECHO, BROKEN, NOBODY, BROKEN_LATER):
            peer.writer.write(peer.frame(code, oneway=True))
        response = await peer.ask(ECHO, body=b"last")
        assert response.body == b"last"
        await until(lambda: up.server.in_flight == 0)
        assert (await peer.ask(ECHO, body=b"after")).body == b"after"


async def test_one_burst_gets_its_responses_in_order_with_one_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bursts: list[int] = []
    async with serving(clock=ManualClock()) as up, peer_of(up) as peer:
        up.server.add_burst_listener(lambda: bursts.append(len(up.processors.seen)))
        await peer.ask(ECHO)
        bursts.clear()
        (connection,) = up.server.connections
        assert connection._transport is not None
        recorder = Recorder(connection._transport)
        monkeypatch.setattr(connection._output, "_transport", recorder)
        frames = [peer.frame(ECHO, body=b"%d" % number) for number in range(100)]
        peer.writer.write(b"".join(frames))
        bodies = [(await peer.answer()).body for _ in frames]
    assert bodies == [b"%d" % number for number in range(100)]
    assert len(recorder.written) == 1
    assert bursts == [101]


async def test_half_frames_are_reassembled() -> None:
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


async def test_header_of_the_wrong_content_gets_a_response() -> None:
    async with serving() as up, peer_of(up) as peer:
        response = await peer.ask(TYPED)
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert response.remark == "the custom field <size> is null"
        assert (await peer.ask(TYPED, SizeHeader(size=3))).remark == "3"


async def test_responses_of_failing_processors_leak_no_secrets(
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


async def test_responses_in_parts() -> None:
    async with serving() as up, peer_of(up) as peer:
        response = await peer.ask(BIG, SizeHeader(size=100_000))
        assert response.body == b"x" * 100_000 + b"!"
        peer.writer.write(peer.frame(BIG, SizeHeader(size=1)) + peer.frame(BIG, SizeHeader(size=2)))
        assert [(await peer.answer()).body for _ in range(2)] == [b"x!", b"xx!"]


async def test_a_response_is_paired_with_its_request_however_it_was_made() -> None:
    async with serving() as up, peer_of(up) as peer:
        response = await peer.ask(BY_HAND)
        assert (response.is_response, response.opaque) == (True, 1)


async def test_async_processors_respond_when_done() -> None:
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


async def test_a_reply_to_a_disconnected_peer_is_dropped() -> None:
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


async def test_responses_before_a_bad_frame_are_still_written() -> None:
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
