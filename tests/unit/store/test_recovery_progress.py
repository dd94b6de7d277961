"""Progress lines of a long recovery."""

from __future__ import annotations

import logging

import pytest

from roquet.runtime.clock import ManualClock
from roquet.store.recovery_progress import RecoveryProgress


def test_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    progress = RecoveryProgress(clock)
    progress.begin("checking the log", 100 << 20, 500 << 20)
    progress.reached(150 << 20)
    clock.advance(1_999)
    progress.reached(180 << 20)
    assert caplog.messages == []
    clock.advance(1)
    progress.reached(200 << 20)
    clock.advance(1_000)
    progress.reached(300 << 20)
    assert caplog.messages == [
        "Recovery: checking the log, 25 % of 400 MiB, about 6 s left.",
    ]


def test_a_step_without_bytes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    progress = RecoveryProgress(clock)
    progress.begin("checking the log", 5, 5)
    clock.advance(5_000)
    progress.reached(5)
    assert caplog.messages == ["Recovery: checking the log, 100 % of 0 MiB, about 0 s left."]
