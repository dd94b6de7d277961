"""The loop stays awake only for peers that send again at once."""

from __future__ import annotations

import asyncio

import pytest

from roquet.broker.service import linger
from roquet.broker.service.linger import REST_BURSTS, TRIED_BURSTS, TURNS_MAX, Linger
from roquet.runtime.clock import ManualClock

WINDOW_MS = 10
NEAR_NS, FAR_NS = 1_000_000, WINDOW_MS * 1_000_000


async def turns_awake(lingering: Linger, clock: ManualClock, *, turn_ms: int) -> int:
    """How many turns the loop is kept awake, each of which takes so long."""
    turns = 0
    while lingering.is_awake:
        turns += 1
        clock.advance(turn_ms)
        await asyncio.sleep(0)
    return turns


async def test_stays_awake_for_a_burst_that_follows_closely() -> None:
    clock = ManualClock()
    lingering = Linger(clock, window_ns=WINDOW_MS * 1_000_000)
    lingering.answered(FAR_NS - 1)
    assert await turns_awake(lingering, clock, turn_ms=1) == WINDOW_MS


async def test_every_burst_restarts_the_wait() -> None:
    clock = ManualClock()
    lingering = Linger(clock, window_ns=WINDOW_MS * 1_000_000)
    for _ in range(50):
        lingering.answered(NEAR_NS)
        clock.advance(WINDOW_MS // 2)
        await asyncio.sleep(0)
    assert lingering.is_awake
    assert await turns_awake(lingering, clock, turn_ms=1) == WINDOW_MS // 2


@pytest.mark.parametrize("gap_ns", [FAR_NS, FAR_NS + 1, 100 * FAR_NS])
async def test_sleeps_when_the_bursts_of_a_connection_come_apart(gap_ns: int) -> None:
    """Those of different connections may be as close as they like."""
    lingering = Linger(ManualClock(), window_ns=WINDOW_MS * 1_000_000)
    for _ in range(3):
        lingering.answered(gap_ns)
        assert not lingering.is_awake


async def test_with_one_processor_the_peer_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linger, "usable_processors", lambda: 1)
    lingering = Linger(ManualClock())
    for _ in range(3):
        lingering.answered(0)
        assert not lingering.is_awake


async def test_a_stopped_clock_does_not_keep_the_loop_awake_forever() -> None:
    clock = ManualClock()
    lingering = Linger(clock, window_ns=1)
    lingering.answered(0)
    assert await turns_awake(lingering, clock, turn_ms=0) == TURNS_MAX


async def bursts(lingering: Linger, clock: ManualClock, count: int, *, polls: int) -> int:
    """Bursts that follow each other closely; return how many of them the loop was awake for."""
    awake = 0
    for _ in range(count):
        clock.advance(1)
        lingering.answered(NEAR_NS)
        awake += lingering.is_awake
        await asyncio.sleep(0)
        for _ in range(polls):
            clock.advance(1)
            await asyncio.sleep(0)
    return awake


async def test_sleeps_for_a_while_if_polling_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linger, "WAKE_UP_NS", 3_000_000)
    clock = ManualClock()
    lingering = Linger(clock, window_ns=WINDOW_MS * 1_000_000)
    assert await bursts(lingering, clock, TRIED_BURSTS, polls=4) == TRIED_BURSTS
    assert not lingering.is_awake
    assert await bursts(lingering, clock, REST_BURSTS, polls=0) == 0
    assert await bursts(lingering, clock, 3, polls=0) > 0, "it tries again"


async def test_stays_awake_while_polling_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linger, "WAKE_UP_NS", 3_000_000)
    clock = ManualClock()
    lingering = Linger(clock, window_ns=WINDOW_MS * 1_000_000)
    count = 5 * TRIED_BURSTS
    assert await bursts(lingering, clock, count, polls=2) == count
