from __future__ import annotations

import logging
import threading

import pytest

from roquet.runtime.worker import Worker

FOREVER_MS = 3_600_000
PATIENCE_S = 60


def test_wake_runs_a_round() -> None:
    ran = threading.Event()
    worker = Worker("test", ran.set, interval_ms=lambda: FOREVER_MS)
    worker.start()
    assert worker.is_alive
    worker.wake()
    assert ran.wait(PATIENCE_S)
    worker.stop()
    assert not worker.is_alive


def test_the_interval_is_read_before_each_wait() -> None:
    intervals = iter([0, 0, FOREVER_MS])
    rounds: list[None] = []
    done = threading.Event()

    def round_() -> None:
        rounds.append(None)
        if len(rounds) == 2:
            done.set()

    worker = Worker("test", round_, interval_ms=lambda: next(intervals))
    worker.start()
    assert done.wait(PATIENCE_S)
    worker.stop()
    assert len(rounds) == 2


def test_stop_before_start_and_twice() -> None:
    rounds: list[None] = []
    worker = Worker("test", lambda: rounds.append(None), interval_ms=lambda: 0)
    worker.stop()
    worker.stop()
    assert rounds == []


def test_stop_from_its_own_round_does_not_wait_for_itself() -> None:
    stopped = threading.Event()

    def round_() -> None:
        worker.stop()
        stopped.set()

    worker = Worker("test", round_, interval_ms=lambda: FOREVER_MS)
    worker.start()
    worker.wake()
    assert stopped.wait(PATIENCE_S)
    worker.stop()
    assert not worker.is_alive


def test_a_round_that_raises_is_logged_and_the_thread_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rounds: list[None] = []
    second = threading.Event()

    def round_() -> None:
        rounds.append(None)
        if len(rounds) == 1:
            worker.wake()
            raise ValueError("once")
        second.set()

    worker = Worker("the-name", round_, interval_ms=lambda: FOREVER_MS)
    with caplog.at_level(logging.ERROR):
        worker.start()
        worker.wake()
        assert second.wait(PATIENCE_S)
        worker.stop()
    assert "the-name" in caplog.text
    assert "once" in caplog.text
