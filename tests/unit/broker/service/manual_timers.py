"""Timers that follow a clock which a test moves."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from roquet.errors import RoquetError
from roquet.runtime.clock import ManualClock

T = TypeVar("T")


class Call:
    def __init__(self, at_ms: int, number: int, callback: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.number = number
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def __lt__(self, other: Call) -> bool:
        return (self.at_ms, self.number) < (other.at_ms, other.number)


class ManualTimers:
    """An event loop in which time passes only on demand.

    Attributes:
        turns: How many calls were made.
        threads: How many jobs were given to threads.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.turns = 0
        self.threads = 0
        self._soon: deque[Call] = deque()
        self._later: list[Call] = []
        self._number = 0

    def _call(self, delay_ms: int, callback: Callable[[], None]) -> Call:
        self._number += 1
        return Call(self.clock.now_ms() + delay_ms, self._number, callback)

    def call_soon(self, callback: Callable[[], None]) -> Call:
        call = self._call(0, callback)
        self._soon.append(call)
        return call

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Call:
        call = self._call(delay_ms, callback)
        heapq.heappush(self._later, call)
        return call

    def in_thread(self, work: Callable[[], T], done: Callable[[Callable[[], T]], None]) -> None:
        self.threads += 1

        def run() -> None:
            try:
                value = work()
            except RoquetError as error:
                failure = error

                def fail() -> T:
                    raise failure

                done(fail)
            else:
                done(lambda: value)

        self.call_soon(run)

    @property
    def pending(self) -> int:
        """How many calls are scheduled."""
        return sum(call.callback is not None for call in (*self._soon, *self._later))

    def step(self) -> bool:
        """Make the next call; return whether one was due."""
        while self._later and self._later[0].at_ms <= self.clock.now_ms():
            self._soon.append(heapq.heappop(self._later))
        while self._soon:
            call = self._soon.popleft()
            if call.callback is not None:
                self.turns += 1
                call.callback()
                return True
        return False

    def run(self) -> None:
        """Make all calls that are due."""
        while self.step():
            pass

    def advance(self, millis: int) -> None:
        """Let time pass, with every call made at its time."""
        end_ms = self.clock.now_ms() + millis
        self.run()
        while self._later and self._later[0].at_ms <= end_ms:
            self.clock.advance(max(self._later[0].at_ms - self.clock.now_ms(), 0))
            self.run()
        self.clock.advance(end_ms - self.clock.now_ms())
        self.run()
