"""Requests that wait for a response: which one gets it, and which ones time out."""

from __future__ import annotations

import asyncio

import pytest

from roquet.errors import RequestTimeout, SendFailed
from roquet.remoting.command import RemotingCommand
from roquet.remoting.outgoing import OutgoingRequests


async def test_each_request_is_failed_when_it_is_due_and_not_before() -> None:
    waiting = OutgoingRequests(asyncio.get_running_loop())
    late = waiting.expect(1, 10, "peer", timeout_ms=60_000)
    soon = waiting.expect(2, 10, "peer", timeout_ms=20)
    sooner = waiting.expect(3, 10, "peer", timeout_ms=5)
    endless = waiting.expect(4, 10, "peer", timeout_ms=None)
    with pytest.raises(RequestTimeout, match="peer did not answer"):
        await sooner
    with pytest.raises(RequestTimeout) as caught:
        await soon
    assert caught.value.detail == "waited 20 ms"
    assert not late.done()
    assert not endless.done()
    assert len(waiting) == 2
    assert waiting.answered(RemotingCommand(code=0, opaque=1))
    assert (await late).opaque == 1
    waiting.fail(lambda: SendFailed("gone"))
    with pytest.raises(SendFailed):
        await endless
    assert len(waiting) == 0


async def test_requests_that_were_given_up_are_forgotten() -> None:
    waiting = OutgoingRequests(asyncio.get_running_loop())
    waiting.expect(1, 10, "peer", timeout_ms=60_000).cancel()
    waiting.expect(2, 10, "peer", timeout_ms=1).cancel()
    last = waiting.expect(3, 10, "peer", timeout_ms=5)
    with pytest.raises(RequestTimeout):
        await last
    assert len(waiting) == 0
    assert not waiting.answered(RemotingCommand(code=0, opaque=1))
    waiting.fail(lambda: SendFailed("gone"))


async def test_many_pending_requests_are_checked_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    waiting = OutgoingRequests(loop)
    now_s = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now_s)
    pending = [waiting.expect(each, 10, "peer", timeout_ms=each) for each in range(1, 10_002)]
    now_s += 0.001
    waiting._look()
    assert isinstance(pending[0].exception(), RequestTimeout)
    assert not pending[1].done()
    assert waiting.timer_s == pytest.approx(now_s + 0.05), "not at once for the next one"
    waiting.fail(lambda: SendFailed("gone"))
    assert all(isinstance(each.exception(), SendFailed) for each in pending[1:])
