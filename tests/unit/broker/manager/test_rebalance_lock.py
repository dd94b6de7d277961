"""Queues that are consumed in order have one holder, as long as it renews its lock."""

from __future__ import annotations

import pytest

from roquet.broker.manager import rebalance_lock as module
from roquet.broker.manager.rebalance_lock import RebalanceLockManager
from roquet.model.message_queue import MessageQueue
from roquet.runtime.clock import ManualClock

Q = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(4)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def locks(clock: ManualClock) -> RebalanceLockManager:
    return RebalanceLockManager(clock)


def test_a_queue_has_one_holder_in_a_group(locks: RebalanceLockManager) -> None:
    assert locks.try_lock_batch("g", Q[:2], "a") == Q[:2]
    assert locks.try_lock_batch("g", Q, "b") == Q[2:]
    assert locks.try_lock_batch("g", Q, "a") == Q[:2]
    assert locks.try_lock_batch("h", Q, "b") == Q
    assert not locks.has_locks("i")


def test_only_the_holder_unlocks(locks: RebalanceLockManager) -> None:
    locks.try_lock_batch("g", Q[:2], "a")
    locks.unlock_batch("g", Q, "b")
    locks.unlock_batch("h", Q, "a")
    assert locks.has_locks("g")
    locks.unlock_batch("g", Q, "a")
    assert not locks.has_locks("g")
    assert locks.try_lock_batch("g", Q, "b") == Q


def test_a_lease_ends_after_a_minute(locks: RebalanceLockManager, clock: ManualClock) -> None:
    locks.try_lock_batch("g", Q, "a")
    clock.advance(30_000)
    locks.try_lock_batch("g", Q[:1], "a")
    clock.advance(30_000)
    assert locks.try_lock_batch("g", Q, "b") == [], "a minute is allowed"
    clock.advance(1)
    assert locks.try_lock_batch("g", Q, "b") == Q[1:]
    assert locks.try_lock_batch("g", Q, "a") == Q[:1]
    clock.advance(60_001)
    assert not locks.has_locks("g")
    assert locks.try_lock_batch("g", Q, "a") == Q


def test_an_old_holder_may_renew_first(locks: RebalanceLockManager, clock: ManualClock) -> None:
    locks.try_lock_batch("g", Q, "a")
    clock.advance(60_001)
    assert not locks.has_locks("g")
    assert locks.try_lock_batch("g", Q, "a") == Q
    assert locks.try_lock_batch("g", Q, "b") == []


def test_an_old_holder_cannot_unlock_for_the_new_one(
    locks: RebalanceLockManager, clock: ManualClock
) -> None:
    locks.try_lock_batch("g", Q, "a")
    clock.advance(60_001)
    locks.try_lock_batch("g", Q, "b")
    locks.unlock_batch("g", Q, "a")
    assert locks.try_lock_batch("g", Q, "a") == []
    assert locks.try_lock_batch("g", Q, "b") == Q


def test_setting_the_clock_ends_no_lease(locks: RebalanceLockManager, clock: ManualClock) -> None:
    locks.try_lock_batch("g", Q, "a")
    clock.set(clock.now_ms() + 10_000_000)
    assert locks.has_locks("g")
    clock.set(0)
    clock.advance(60_001)
    assert not locks.has_locks("g")


def test_a_queue_listed_twice_is_held_once(locks: RebalanceLockManager) -> None:
    assert locks.try_lock_batch("g", [Q[0], Q[0]], "a") == [Q[0]]
    locks.unlock_batch("g", [Q[0], Q[0]], "a")
    assert not locks.has_locks("g")
    assert locks.try_lock_batch("g", [], "a") == []


def test_locks_are_bounded(
    locks: RebalanceLockManager, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCKS_MAX", 3)
    assert locks.try_lock_batch("g", Q, "a") == Q[:3]
    assert locks.try_lock_batch("h", Q, "a") == []
    assert locks.try_lock_batch("g", [Q[3], Q[0]], "a") == [Q[0]], "held locks are renewed"
    locks.unlock_batch("g", [Q[0]], "a")
    assert locks.try_lock_batch("h", Q, "a") == Q[:1]
    clock.advance(60_001)
    assert locks.try_lock_batch("i", Q, "a") == Q[:3], "expired locks make room"
    clock.advance(60_001)
    locks.scan_expired()
    locks.scan_expired()
    assert locks.try_lock_batch("j", Q, "a") == Q[:3]


def test_groups_without_locks_leave_nothing_behind(
    locks: RebalanceLockManager, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks.try_lock_batch("none", [], "a")
    locks.try_lock_batch("unlocked", Q, "a")
    locks.unlock_batch("unlocked", Q, "a")
    locks.try_lock_batch("expired", Q, "a")
    clock.advance(60_001)
    locks.scan_expired()
    monkeypatch.setattr(module, "LOCKS_MAX", 0)
    locks.try_lock_batch("refused", Q, "a")
    assert locks._locks == {}
    assert locks._count == 0


def test_a_scan_keeps_what_is_held(locks: RebalanceLockManager, clock: ManualClock) -> None:
    locks.try_lock_batch("g", Q, "a")
    clock.advance(60_000)
    locks.scan_expired()
    assert locks.try_lock_batch("g", Q, "b") == []
