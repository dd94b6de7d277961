"""The loop stays awake for peers that ask again at once, and for nobody else."""

from __future__ import annotations

import asyncio

import pytest

from roquet.broker.service import linger
from roquet.broker.service.linger import TURNS_MAX, Linger
from roquet.runtime.clock import ManualClock

WINDOW_MS = 10


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
    lingering.burst_ended()
    clock.advance(WINDOW_MS - 1)
    lingering.burst_ended()
    assert await turns_awake(lingering, clock, turn_ms=1) == WINDOW_MS


async def test_every_burst_begins_the_time_anew() -> None:
    clock = ManualClock()
    lingering = Linger(clock, window_ns=WINDOW_MS * 1_000_000)
    for _ in range(50):
        lingering.burst_ended()
        clock.advance(WINDOW_MS // 2)
        await asyncio.sleep(0)
    assert lingering.is_awake
    assert await turns_awake(lingering, clock, turn_ms=1) == WINDOW_MS // 2


@pytest.mark.parametrize("gap_ms", [WINDOW_MS, WINDOW_MS + 1, 1_000])
async def test_sleeps_when_bursts_come_apart(gap_ms: int) -> None:
    clock = ManualClock()
    lingering = Linger(clock, window_ns=WINDOW_MS * 1_000_000)
    for _ in range(3):
        lingering.burst_ended()
        assert not lingering.is_awake
        clock.advance(gap_ms)


async def test_a_single_processor_is_left_to_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linger, "usable_processors", lambda: 1)
    lingering = Linger(ManualClock())
    for _ in range(3):
        lingering.burst_ended()
        assert not lingering.is_awake


async def test_a_clock_that_stands_still_keeps_nobody_awake_for_ever() -> None:
    clock = ManualClock()
    lingering = Linger(clock, window_ns=1)
    lingering.burst_ended()
    lingering.burst_ended()
    assert await turns_awake(lingering, clock, turn_ms=0) == TURNS_MAX
