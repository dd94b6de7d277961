"""A server stops taking connections before the process has no descriptors left."""

from __future__ import annotations

import errno
import socket

import pytest

from roquet.remoting.endpoint import RemotingLimits
from roquet.remoting.listener import Listener, SpareDescriptor
from roquet.runtime.clock import ManualClock
from roquet.runtime.open_files import PROCESS_SHARE, DescriptorBudget, OpenFilesLimit
from tests.unit.remoting.net_kit import ECHO, LOOPBACK, Peer, peer_of, serving, until

LIMIT = 1_000_000
"""More descriptors than this process will ever number, so that only connections count."""


async def test_connections_beyond_the_budget_are_closed_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store_files = LIMIT - PROCESS_SHARE - 3
    budget = DescriptorBudget(lambda: store_files, limit=lambda: OpenFilesLimit(LIMIT, LIMIT))
    async with serving(budget=budget) as up:
        assert up.server.connections_max == 3
        peers = [await Peer.connect(up) for _ in range(3)]
        for peer in peers:
            assert (await peer.ask(ECHO)).code == 0
        async with peer_of(up) as refused:
            assert await refused.closed_by_server()
        assert up.server.statistics.connections_refused == 1
        assert (await peers[0].ask(ECHO)).code == 0
        await peers.pop().close()
        await until(lambda: len(up.server.connections) == 2)
        async with peer_of(up) as taken:
            assert (await taken.ask(ECHO)).code == 0
        for peer in peers:
            await peer.close()
    assert f"the limit of open files is {LIMIT}" in caplog.text
    assert "ulimit -n" in caplog.text


async def test_peers_that_never_sent_anything_make_room() -> None:
    clock = ManualClock()
    async with serving(limits=RemotingLimits(max_connections=3), clock=clock) as up:
        async with peer_of(up) as spoke, peer_of(up) as first:
            assert (await spoke.ask(ECHO)).code == 0
            await until(lambda: len(up.server.connections) == 2)
            async with peer_of(up) as second:
                await until(lambda: len(up.server.connections) == 3)
                async with peer_of(up) as refused:
                    assert await refused.closed_by_server()
                assert len(up.server.connections) == 3  # no peer was silent for long
                clock.advance(3_000)
                async with peer_of(up) as refused:
                    assert await refused.closed_by_server()
                assert await first.closed_by_server()
                async with peer_of(up) as late:
                    assert (await late.ask(ECHO)).code == 0
                assert (await second.ask(ECHO)).code == 0
                assert (await spoke.ask(ECHO)).code == 0
        assert up.server.statistics.idle_closed == 1


class Full:
    """A listening socket of a process that has no descriptor but the spare one."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.is_full = True

    def accept(self) -> tuple[socket.socket, object]:
        if self.is_full:
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listening.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self._listening, name)


async def test_without_descriptors_the_spare_one_closes_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turned_away = 0

    def turn_away(spare: SpareDescriptor, listening: socket.socket) -> None:
        nonlocal turned_away
        listening.is_full = False  # type: ignore[attr-defined]
        try:
            really_turn_away(spare, listening)
            turned_away += 1
        finally:
            listening.is_full = turned_away < 2  # type: ignore[attr-defined]

    really_turn_away = SpareDescriptor.turn_away
    monkeypatch.setattr(SpareDescriptor, "turn_away", turn_away)
    async with serving() as up:
        listener: Listener
        (listener,) = up.server._listeners
        monkeypatch.setattr(listener, "_listening", Full(listener._listening))
        for _ in range(2):
            async with peer_of(up) as refused:
                assert await refused.closed_by_server()
        assert turned_away == 2
        async with peer_of(up) as peer:
            assert (await peer.ask(ECHO)).code == 0
        assert up.server.statistics.connections_refused == 2
    assert "Nothing is accepted" not in caplog.text


def test_the_spare_descriptor_is_reopened() -> None:
    spare = SpareDescriptor()
    with socket.create_server((LOOPBACK, 0)) as listening:
        listening.settimeout(0)
        with socket.create_connection(listening.getsockname()) as peer:
            spare.turn_away(listening)
            assert peer.recv(1) == b""
        with pytest.raises(BlockingIOError):
            spare.turn_away(listening)
    assert spare._kept is not None
    spare.close()
    spare.refill()
    assert spare._kept is not None
    spare.close()
