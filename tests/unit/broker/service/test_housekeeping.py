"""Timers: rounds repeat, whatever happens in one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.broker.service import housekeeping
from roquet.broker.service.housekeeping import PeriodicTasks, persist_tables, schedule_housekeeping
from roquet.errors import StoreError
from tests.unit.broker.admin.kit import Desk, desk
from tests.unit.broker.manager.kit import channel
from tests.unit.remoting.net_kit import turns, until


class Rounds:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


async def test_rounds_repeat_until_the_stop() -> None:
    rounds, later = Rounds(), Rounds()
    tasks = PeriodicTasks()
    tasks.every(1, "rounds", rounds)
    await turns()
    assert rounds.count == 0
    tasks.start()
    tasks.every(1, "later", later)
    await until(lambda: rounds.count >= 3 and later.count >= 3)
    await tasks.stop()
    await tasks.stop()
    ended = (rounds.count, later.count)
    await turns()
    assert (rounds.count, later.count) == ended


async def test_rounds_may_wait() -> None:
    gate = asyncio.Event()
    waiting, ended = Rounds(), Rounds()

    async def round_() -> None:
        waiting()
        await gate.wait()
        ended()

    tasks = PeriodicTasks()
    tasks.every(1, "slow", round_)
    tasks.start()
    await until(lambda: waiting.count == 1)
    await turns()
    assert (waiting.count, ended.count) == (1, 0)
    gate.set()
    await until(lambda: ended.count >= 2)
    gate.clear()
    await until(lambda: waiting.count > ended.count)
    await tasks.stop()


@pytest.mark.parametrize("error", [StoreError("disk"), KeyError("bug")])
async def test_a_failed_round_is_logged_and_the_next_one_runs(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    rounds = Rounds()

    def fail() -> None:
        rounds()
        raise error

    tasks = PeriodicTasks()
    tasks.every(1, "the failing one", fail)
    tasks.start()
    await until(lambda: rounds.count >= 3)
    await tasks.stop()
    assert "the failing one" in caplog.text


class FakeTable:
    """A table that notes in which thread it was written."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.writers: list[threading.Thread] = []
        self.is_dirty = True

    def begin_persist(self) -> Callable[[], None] | None:
        return self._save if self.is_dirty else None

    def _save(self) -> None:
        if self.error is not None:
            raise self.error
        self.is_dirty = False
        self.writers.append(threading.current_thread())


async def test_tables_are_written_off_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    broken, good = FakeTable(StoreError("no space")), FakeTable()
    for _ in range(2):
        assert await persist_tables([broken, good]) == [broken.error]
    assert len(good.writers) == 1
    assert good.writers[0] is not threading.main_thread()
    assert "FakeTable could not be saved: no space" in caplog.text


async def test_the_brokers_housekeeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SCAN_INTERVAL_MS", "LOCK_SCAN_INTERVAL_MS", "DEFERRED_NOTIFY_INTERVAL_MS"):
        monkeypatch.setattr(housekeeping, name, 1)
    with desk(
        tmp_path, real_time_notify_consumer_change=False, flush_consumer_offset_interval_ms=1
    ) as at:
        tasks = PeriodicTasks()
        schedule_housekeeping(tasks, at.parts)
        at.producers.register("P", channel())
        _join(at, "c1")
        at.offsets.commit("G", "T", 0, 7)
        tasks.start()
        saved = tmp_path / "store" / "config" / "consumerOffset.json"
        await until(lambda: saved.exists() and "T@G" in saved.read_text())
        await until(lambda: at.notified == [("G", ["c1"])])
        at.clock.advance(120_001)
        await until(lambda: at.producers.groups == {} and at.consumers.find("G") is None)
        await tasks.stop()


async def test_clients_are_notified_at_once_by_default(tmp_path: Path) -> None:
    with desk(tmp_path) as at:
        tasks = PeriodicTasks()
        schedule_housekeeping(tasks, at.parts)
        assert [each.name for each in tasks._known] == [
            "scan of producers",
            "scan of consumers",
            "scan of queue locks",
            "sweep of held pulls",
            "sampling of statistics",
            "cleaning of mappings",
            "writing of tables",
        ]
        assert tasks._known[-1].interval_ms == 5_000


def _join(at: Desk, client_id: str) -> None:
    at.consumers.register(
        "G",
        channel(client_id),
        consume_type=None,
        message_model=None,
        consume_from_where=None,
        subscriptions=(),
        notify_enabled=True,
    )
