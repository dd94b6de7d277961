from __future__ import annotations

import time

import pytest

from roquet.runtime.clock import ManualClock, SystemClock, stamp_of


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("TZ", "UTC-5:30")  # five and a half hours ahead of Greenwich
    time.tzset()
    return monkeypatch


@pytest.fixture(autouse=True)
def _restore_zone() -> object:
    yield
    time.tzset()


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(1000)
    assert (clock.now_ms(), clock.monotonic_ns()) == (1000, 0)
    assert (clock.now_ms(), clock.monotonic_ns()) == (1000, 0)
    clock.advance(5)
    assert (clock.now_ms(), clock.monotonic_ns()) == (1005, 5_000_000)


def test_going_back_leaves_durations_alone() -> None:
    clock = ManualClock(1000)
    clock.advance(-300)
    assert (clock.now_ms(), clock.monotonic_ns()) == (700, 0)
    clock.set(5)
    assert (clock.now_ms(), clock.monotonic_ns()) == (5, 0)


def test_stamps_are_of_the_machines_zone(zone: pytest.MonkeyPatch) -> None:
    assert stamp_of(0) == "19700101053000000"
    assert ManualClock(1_700_000_000_007).local_stamp() == "20231115034320007"
    assert ManualClock(1_700_000_000_007).local_hour() == 3
    zone.setenv("TZ", "UTC")
    time.tzset()
    assert ManualClock(1_700_000_000_007).local_stamp() == "20231114221320007"
    assert ManualClock(1_700_000_000_007).local_hour() == 22


def test_the_system_clock_is_the_machines() -> None:
    clock = SystemClock()
    before = time.time_ns() // 1_000_000
    assert before <= clock.now_ms() <= time.time_ns() // 1_000_000
    assert clock.monotonic_ns() <= time.monotonic_ns()
    assert 0 <= clock.local_hour() <= 23
    assert len(clock.local_stamp()) == 17
