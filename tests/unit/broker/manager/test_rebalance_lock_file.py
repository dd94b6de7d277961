"""Locks of queues survive a restart of the broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.manager import rebalance_lock_file as module
from roquet.broker.manager.rebalance_lock import CLIENT_LEASE_MS, RebalanceLockManager
from roquet.broker.manager.rebalance_lock_file import RebalanceLockFile
from roquet.model.message_queue import MessageQueue
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files

Q = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(4)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def life(root: Path, clock: ManualClock) -> tuple[RebalanceLockManager, RebalanceLockFile]:
    """The locks of a broker that was just started."""
    locks = RebalanceLockManager(clock)
    file = RebalanceLockFile.at(BrokerConfig(store_root=str(root)), Files(), locks=locks)
    assert file.load() is None
    return locks, file


def persist(file: RebalanceLockFile) -> bool:
    """Write the file; return whether there was something to write."""
    job = file.begin_persist()
    if job is not None:
        job()
    return job is not None


def test_only_owners_get_their_locks_back_after_a_restart(
    tmp_path: Path, clock: ManualClock
) -> None:
    locks, file = life(tmp_path, clock)
    locks.try_lock_batch("g", Q[:2], "a")
    locks.try_lock_batch("g", Q[2:], "b")
    assert persist(file)
    locks, _ = life(tmp_path, clock)
    assert locks.try_lock_batch("g", Q, "c") == []
    assert locks.try_lock_batch("g", Q, "a") == Q[:2]
    locks.unlock_batch("g", Q, "b")
    assert locks.try_lock_batch("g", Q, "a") == Q
    assert locks.try_lock_batch("other", Q, "c") == Q


def test_locks_that_no_owner_renews_expire(tmp_path: Path, clock: ManualClock) -> None:
    locks, file = life(tmp_path, clock)
    locks.try_lock_batch("g", Q, "a")
    assert persist(file)
    locks, _ = life(tmp_path, clock)
    clock.advance(CLIENT_LEASE_MS)
    assert locks.try_lock_batch("g", Q[:1], "a") == Q[:1]
    assert locks.try_lock_batch("g", Q, "b") == []
    clock.advance(1)
    assert locks.try_lock_batch("g", Q, "b") == Q[1:]


def test_the_file_is_written_when_owners_change(tmp_path: Path, clock: ManualClock) -> None:
    locks, file = life(tmp_path, clock)
    assert not persist(file)
    locks.try_lock_batch("g", Q, "a")
    assert persist(file)
    locks.try_lock_batch("g", Q, "a")
    locks.try_lock_batch("g", Q, "b")
    assert not persist(file), "renewed, and refused"
    locks.unlock_batch("g", Q[:1], "a")
    assert persist(file)
    clock.advance(60_001)
    locks.scan_expired()
    assert persist(file)
    text = (tmp_path / "config" / "rebalanceLock.json").read_text()
    assert json.loads(text) == {"lockTable": {}}


def test_a_failed_write_is_retried(tmp_path: Path, clock: ManualClock) -> None:
    locks, file = life(tmp_path, clock)
    locks.try_lock_batch("g", Q, "a")
    assert file.begin_persist() is not None
    assert persist(file), "the first job never ran"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"lockTable":{"g":{"a":[1]}}}', "\x00" * 9])
def test_a_damaged_file_does_not_prevent_a_start(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    path = tmp_path / "config" / "rebalanceLock.json"
    path.parent.mkdir()
    path.write_text(text)
    locks, file = life(tmp_path, clock)
    assert "are lost" in caplog.text
    assert locks.try_lock_batch("g", Q, "a") == Q
    assert persist(file)
    assert life(tmp_path, clock)[0].try_lock_batch("g", Q, "b") == []


def test_the_number_of_saved_locks_is_bounded(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCKS_MAX", 3)
    locks, file = life(tmp_path, clock)
    locks.try_lock_batch("g", Q, "a")
    assert persist(file)
    assert life(tmp_path, clock)[0].try_lock_batch("g", Q, "b") == Q[3:]
