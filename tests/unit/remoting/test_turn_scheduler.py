"""Fair turns, on a clock and a loop that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from roquet.remoting.turn_scheduler import (
    BUDGET_NS,
    OVERLOAD,
    SHORT_TURN_NS,
    TURN_NS,
    TURN_REQUESTS,
    ClassLimits,
    RequestClass,
    Ring,
    TurnScheduler,
)

MS = 1_000_000
ADMIN = RequestClass.ADMIN


class Loop:
    """Passes of a loop, and time that only the work itself uses up."""

    def __init__(self, limits: Mapping[RequestClass, ClassLimits] | None = None) -> None:
        self.now_ns = 1 << 40
        self.soon: list[Callable[[], None]] = []
        self.later: list[tuple[int, Callable[[], None]]] = []
        self.turns = TurnScheduler(
            lambda: self.now_ns,
            call_soon=self._call_soon,
            call_later=lambda wait_ms, run: self.later.append((wait_ms, run)),
            limits=limits,
        )

    def _call_soon(self, run: Callable[[], None]) -> None:
        self.soon.append(run)

    def go_round(self) -> int:
        """One pass; how long it took."""
        began_ns = self.now_ns
        soon, self.soon = self.soon, []
        for run in soon:
            run()
        return self.now_ns - began_ns

    def wait(self, ms: int) -> None:
        self.now_ns += ms * MS
        later, self.later = self.later, []
        for _, run in later:
            run()


class Peer:
    """A connection with requests that each take the loop for some time."""

    def __init__(
        self,
        loop: Loop,
        name: str,
        requests: int,
        *,
        cost_ns: int = MS // 10,
        ring: Ring = Ring.BUSY,
    ) -> None:
        self.loop = loop
        self.name = name
        self.left = requests
        self.cost_ns = cost_ns
        self.ring = ring
        self.turns_taken = 0

    def take_turn(self) -> None:
        """As a connection does."""
        self.turns_taken += 1
        turns = self.loop.turns
        if turns.is_spent:
            turns.wait(self, Ring.FRESH)
            return
        turn = turns.begin()
        while self.left:
            self.left -= 1
            self.loop.now_ns += self.cost_ns
            if not turn.goes_on():
                break
        turns.end(turn)
        if self.left:
            turns.wait(self, self.ring)


class Pending:
    def __init__(self) -> None:
        self.callbacks: list[Callable[[object], None]] = []

    def add_done_callback(self, callback: Callable[[object], None], /) -> None:
        self.callbacks.append(callback)

    def finish(self) -> None:
        for callback in self.callbacks:
            callback(self)


class Request:
    """A request of a queued class, with its outcome."""

    def __init__(
        self, owner: Peer, log: list[str], *, name: str = "", takes_time: bool = True
    ) -> None:
        self.owner = owner
        self.name = name or owner.name
        self.log = log
        self.pending = Pending() if takes_time else None

    def wait(self) -> None:
        self.log.append(f"{self.name} waits")

    def start(self) -> Pending | None:
        self.log.append(f"{self.name} starts")
        return self.pending

    def refuse(self, remark: str) -> None:
        self.log.append(f"{self.name} {remark}")

    def drop(self) -> None:
        self.log.append(f"{self.name} dropped")


def test_a_turn_ends_after_its_time_or_its_requests() -> None:
    loop = Loop()
    slow = Peer(loop, "slow", 1_000, cost_ns=TURN_NS // 4)
    slow.take_turn()
    assert slow.left == 996
    loop = Loop()
    quick = Peer(loop, "quick", 1_000, cost_ns=0)
    quick.take_turn()
    assert quick.left == 1_000 - TURN_REQUESTS


def test_a_turn_is_shorter_while_others_wait() -> None:
    loop = Loop()
    Peer(loop, "first", 1_000, cost_ns=TURN_NS // 4).take_turn()
    second = Peer(loop, "second", 1_000, cost_ns=SHORT_TURN_NS // 2)
    second.take_turn()
    assert second.left == 998


def test_a_flood_leaves_the_loop_free_after_each_budget() -> None:
    loop = Loop()
    peer = Peer(loop, "flood", 4_000)
    peer.take_turn()
    longest_ns = 0
    while peer.left:
        longest_ns = max(longest_ns, loop.go_round())
    assert longest_ns <= BUDGET_NS + peer.cost_ns


def test_many_floods_together_get_one_budget() -> None:
    loop = Loop()
    peers = [Peer(loop, f"{n}", 400, ring=Ring.ADMIN) for n in range(50)]
    began_ns = loop.now_ns
    for peer in peers:
        peer.take_turn()
    assert loop.now_ns - began_ns <= BUDGET_NS + TURN_NS
    while any(peer.left for peer in peers):
        assert loop.go_round() <= BUDGET_NS + TURN_NS


def test_requests_that_cost_nothing_are_bounded_in_number() -> None:
    loop = Loop()
    peers = [Peer(loop, f"{n}", 100, cost_ns=0) for n in range(10)]
    for peer in peers:
        peer.take_turn()
    served = sum(100 - peer.left for peer in peers)
    assert served < 400
    loop.go_round()
    assert 0 < sum(100 - peer.left for peer in peers) - served < 400


def test_connections_take_turns_in_order() -> None:
    loop = Loop()
    peers = [Peer(loop, f"{n}", 100, cost_ns=TURN_NS) for n in range(4)]
    for peer in peers:
        loop.turns.wait(peer, Ring.BUSY)
    for _ in range(8):
        loop.go_round()
    assert max(p.left for p in peers) - min(p.left for p in peers) <= 1


def test_fresh_connections_go_before_those_that_have_had_a_turn() -> None:
    loop = Loop()
    floods = [Peer(loop, f"{n}", 10_000, ring=Ring.ADMIN) for n in range(50)]
    for flood in floods:
        flood.take_turn()
    assert loop.turns.is_spent
    healthy = Peer(loop, "healthy", 1)
    healthy.take_turn()
    assert healthy.left == 1
    began_ns = loop.now_ns
    while healthy.left:
        loop.go_round()
    assert loop.now_ns - began_ns <= 50 * MS


def test_clients_go_before_administrators_and_both_progress() -> None:
    loop = Loop()
    admins = [Peer(loop, f"a{n}", 10_000, ring=Ring.ADMIN) for n in range(10)]
    clients = [Peer(loop, f"c{n}", 10_000) for n in range(3)]
    for peer in (*admins, *clients):
        loop.turns.wait(peer, peer.ring)
    for _ in range(10):
        loop.go_round()
    served = [sum(10_000 - peer.left for peer in peers) for peers in (clients, admins)]
    assert served[0] >= served[1] > 0


def test_every_ring_gets_a_turn_however_long_one_takes() -> None:
    loop = Loop()
    peers = [Peer(loop, ring.name, 2, cost_ns=10 * BUDGET_NS, ring=ring) for ring in Ring]
    for peer in peers:
        loop.turns.wait(peer, peer.ring)
    loop.go_round()
    assert [peer.left for peer in peers] == [1, 1, 1]


def test_the_budget_is_restored_after_a_while() -> None:
    loop = Loop()
    for _ in range(100):
        Peer(loop, "now and then", 1, cost_ns=MS).take_turn()
        loop.now_ns += 10 * MS
    assert not loop.soon
    assert not loop.turns.is_spent


def test_output_of_the_lane_uses_up_the_budget() -> None:
    loop = Loop()
    spent: list[bool] = []
    for output_bytes in (BUDGET_NS - 1, 1):
        loop.turns.spend(output_bytes)
        spent.append(loop.turns.is_spent)
    loop.go_round()
    assert [*spent, loop.turns.is_spent] == [False, True, False]


def test_a_closed_connection_has_no_more_turns() -> None:
    loop = Loop()
    log: list[str] = []
    peer = Peer(loop, "gone", 10_000)
    peer.take_turn()
    loop.turns.submit(ADMIN, Request(peer, log, takes_time=False))
    left = peer.left
    loop.turns.forget(peer)
    loop.go_round()
    assert peer.left == left
    assert not loop.soon


def limited(workers: int, capacity: int, wait_ms: int | None = 5_000) -> Loop:
    return Loop({ADMIN: ClassLimits(workers, capacity, wait_ms)})


def test_requests_in_progress_of_a_class_are_bounded() -> None:
    loop = limited(2, 100)
    log: list[str] = []
    peer = Peer(loop, "p", 0)
    requests = [Request(peer, log, name=f"r{n}") for n in range(5)]
    for request in requests:
        loop.turns.submit(ADMIN, request)
    assert log == ["r0 starts", "r1 starts", "r2 waits", "r3 waits", "r4 waits"]
    assert loop.turns._queues[ADMIN].size == 3
    log.clear()
    assert requests[0].pending is not None
    requests[0].pending.finish()
    loop.go_round()
    assert log == ["r2 starts"]
    assert requests[2].pending is not None
    requests[2].pending.finish()
    loop.go_round()
    assert log == ["r2 starts", "r3 starts"]


def test_connections_share_a_class_and_keep_their_own_order() -> None:
    loop = limited(1, 100)
    log: list[str] = []
    greedy, modest = Peer(loop, "g", 0), Peer(loop, "m", 0)
    running = Request(greedy, log, name="g0")
    loop.turns.submit(ADMIN, running)
    for n in range(1, 4):
        loop.turns.submit(ADMIN, Request(greedy, log, name=f"g{n}", takes_time=False))
    loop.turns.submit(ADMIN, Request(modest, log, name="m0", takes_time=False))
    log.clear()
    assert running.pending is not None
    running.pending.finish()
    loop.go_round()
    assert log == ["g1 starts", "m0 starts", "g2 starts", "g3 starts"]


def test_a_full_queue_refuses_without_shutting_out_other_connections() -> None:
    loop = limited(1, 2)
    log: list[str] = []
    greedy, modest = Peer(loop, "g", 0), Peer(loop, "m", 0)
    for n in range(4):
        loop.turns.submit(ADMIN, Request(greedy, log, name=f"g{n}"))
    assert log == ["g0 starts", "g1 waits", "g2 waits", f"g3 {OVERLOAD}"]
    log.clear()
    loop.turns.submit(ADMIN, Request(modest, log, name="m0"))
    loop.turns.submit(ADMIN, Request(modest, log, name="m1"))
    assert log == ["m0 waits", f"m1 {OVERLOAD}"]


def test_a_request_that_waits_too_long_is_refused() -> None:
    loop = limited(1, 100)
    log: list[str] = []
    peer = Peer(loop, "p", 0)
    for n in range(3):
        loop.turns.submit(ADMIN, Request(peer, log, name=f"r{n}"))
        loop.now_ns += 1_000 * MS
    log.clear()
    loop.wait(2_999)
    assert not log
    loop.wait(1)
    assert log == [
        "r1 [TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        "period in queue: 5000ms, size of queue: 1"
    ]
    loop.wait(1_000)
    assert len(log) == 2
    assert loop.turns._queues[ADMIN].size == 0
    assert not loop.later


def test_many_expired_requests_are_refused_in_steps() -> None:
    loop = limited(1, 1_000)
    log: list[str] = []
    for n in range(601):
        loop.turns.submit(ADMIN, Request(Peer(loop, f"{n}", 0), log))
    log.clear()
    loop.wait(5_000)
    assert 0 < len(log) < 600
    while loop.later:
        loop.wait(1)
    assert len(log) == 600


def test_nothing_expires_without_a_timeout() -> None:
    loop = Loop({kind: ClassLimits(1, 10, None) for kind in Loop().turns.queued})
    log: list[str] = []
    peer = Peer(loop, "p", 0)
    loop.turns.submit(ADMIN, Request(peer, log))
    loop.turns.submit(ADMIN, Request(peer, log))
    assert not loop.later


def test_waiting_requests_of_a_lost_connection_are_dropped() -> None:
    loop = limited(1, 100)
    log: list[str] = []
    gone, other = Peer(loop, "gone", 0), Peer(loop, "other", 0)
    running = Request(gone, log)
    loop.turns.submit(ADMIN, running)
    for _ in range(3):
        loop.turns.submit(ADMIN, Request(gone, log))
    loop.turns.submit(ADMIN, Request(other, log))
    log.clear()
    loop.turns.forget(gone)
    assert log == ["gone dropped"] * 3
    assert running.pending is not None
    running.pending.finish()
    loop.go_round()
    assert log[3:] == ["other starts"]


def test_queued_requests_are_started_within_the_budget() -> None:
    loop = limited(1, 1_000)
    log: list[str] = []
    peer = Peer(loop, "p", 0)
    running = Request(peer, log)
    loop.turns.submit(ADMIN, running)

    class Costly(Request):
        def start(self) -> Pending | None:
            loop.now_ns += MS
            return super().start()

    for _ in range(20):
        loop.turns.submit(ADMIN, Costly(peer, log, takes_time=False))
    assert running.pending is not None
    running.pending.finish()
    log.clear()
    passes = [loop.go_round() for _ in range(5)]
    assert passes == [BUDGET_NS] * 5
    assert len(log) == 20


@pytest.mark.parametrize("kind", [RequestClass.SEND, RequestClass.PULL, RequestClass.CLIENT])
def test_classes_without_a_queue(kind: RequestClass) -> None:
    turns = Loop().turns
    assert kind not in turns.queued


class Failing(Peer):
    """A connection whose turn ends in an unexpected error."""

    def take_turn(self) -> None:
        raise RuntimeError(self.name)


def test_an_error_in_one_turn_leaves_the_others_theirs() -> None:
    loop = Loop()
    healthy = Peer(loop, "healthy", 3)
    loop.turns.wait(Failing(loop, "failing", 1), Ring.BUSY)
    loop.turns.wait(healthy, Ring.BUSY)
    with pytest.raises(RuntimeError):
        loop.go_round()
    loop.go_round()
    assert healthy.left == 0
