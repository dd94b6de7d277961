"""Time that passes only while a send waits between its attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from roquet.client import Producer, sender
from roquet.runtime.clock import ManualClock
from tests.patience import TIMEOUT_MS


class Waits:
    """Lets time pass only while a send waits between attempts; these may take as long as they do.

    The producer's time-out must be longer than `TIMEOUT_MS`, which is kept for the last attempt.
    """

    def __init__(self, producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.waits_ms: list[int] = []
        self.then: Callable[[], None] = lambda: None
        monkeypatch.setattr(producer.client, "clock", self.clock)
        monkeypatch.setattr(sender, "asyncio", self)
        monkeypatch.setattr(sender, "LAST_ATTEMPT_MS", TIMEOUT_MS)

    async def sleep(self, seconds: float) -> None:
        self.waits_ms.append(round(seconds * 1000))
        self.clock.advance(self.waits_ms[-1])
        self.then()
        await asyncio.sleep(0)

    def __getattr__(self, name: str) -> object:
        return getattr(asyncio, name)
