"""Fair reads, on a loop that the test moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roquet.remoting.read_budget import BUDGET_BYTES, READERS_A_PASS, SPENT_READ_BYTES, ReadBudget

READ_BYTES = 256 << 10


class Loop:
    """Passes of a loop."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.budget = ReadBudget(self.soon.append)

    def go_round(self) -> None:
        soon = self.soon.copy()
        self.soon.clear()
        for run in soon:
            run()


class Peer:
    """A connection whose socket always has more to read."""

    def __init__(self, loop: Loop) -> None:
        self.read_bytes = 0
        self._loop = loop

    def read_on(self) -> None:
        while True:
            read_bytes = SPENT_READ_BYTES if self._loop.budget.is_spent else READ_BYTES
            self.read_bytes += read_bytes
            if not self._loop.budget.allows_more(read_bytes):
                self._loop.budget.wait(self)
                return


def test_a_pass_reads_no_more_than_the_budget_and_one_read_of_each() -> None:
    loop = Loop()
    peers = [Peer(loop) for _ in range(100)]
    for peer in peers:
        peer.read_on()
    assert sum(peer.read_bytes for peer in peers) <= BUDGET_BYTES + len(peers) * SPENT_READ_BYTES
    for _ in range(20):
        before = sum(peer.read_bytes for peer in peers)
        loop.go_round()
        read_bytes = sum(peer.read_bytes for peer in peers) - before
        assert read_bytes <= BUDGET_BYTES + READERS_A_PASS * SPENT_READ_BYTES


def test_waiting_connections_are_read_in_order() -> None:
    loop = Loop()
    peers = [Peer(loop) for _ in range(3 * READERS_A_PASS)]
    for peer in peers:
        loop.budget.wait(peer)
    loop.go_round()
    assert [bool(peer.read_bytes) for peer in peers] == [True] * READERS_A_PASS + [False] * (
        2 * READERS_A_PASS
    )
    loop.go_round()
    loop.go_round()
    assert all(peer.read_bytes for peer in peers)


def test_a_closed_connection_is_not_read() -> None:
    loop = Loop()
    peer = Peer(loop)
    loop.budget.wait(peer)
    loop.budget.forget(peer)
    loop.go_round()
    assert peer.read_bytes == 0
    assert loop.soon == []


def test_little_traffic_is_never_scheduled() -> None:
    loop = Loop()
    assert loop.budget.allows_more(READ_BYTES)
    assert loop.soon == []


def test_every_pass_has_a_budget_of_its_own() -> None:
    loop = Loop()
    for _ in range(10):
        assert loop.budget.allows_more(BUDGET_BYTES - 1)
        loop.go_round()


class Failing(Peer):
    """A connection that cannot be read."""

    def read_on(self) -> None:
        raise RuntimeError


def test_an_error_of_one_connection_does_not_affect_the_others() -> None:
    loop = Loop()
    healthy = Peer(loop)
    loop.budget.wait(Failing(loop))
    loop.budget.wait(healthy)
    with pytest.raises(RuntimeError):
        loop.go_round()
    loop.go_round()
    assert healthy.read_bytes > 0
