"""Staying awake for a peer that asks again at once.

Owns the moment after a burst. A client with one request at a time sends the next one as soon as it
has its answer. If the loop sleeps meanwhile, both sides pay for waking a processor that has gone
idle, which takes longer than all the work for the request. So while bursts follow each other that
closely, the loop goes on asking the kernel for events instead of sleeping.

Invariants: no longer than ``window_ns`` after a burst, and only if the one before it was as near.
Requests that come further apart cost nothing more than they did; a loop under load has no moment to
stay awake in. Other threads and other events of the loop go on as always. On a single processor it
does nothing: the peer could not run.
"""

from __future__ import annotations

import asyncio

from roquet.runtime.clock import Clock
from roquet.runtime.process import usable_processors

__all__ = ["TURNS_MAX", "WINDOW_NS", "Linger"]

WINDOW_NS = 150_000
"""About what a wake-up and an answer cost; who comes later has been asleep as well."""

TURNS_MAX = 1_000
"""No loop stays awake for more turns, however slowly its clock goes."""


class Linger:
    """Keeps a loop awake between bursts that follow each other closely.

    Args:
        clock: The time.
        window_ns: How near the next burst has to be; by default never near enough where there is
            one processor.
    """

    def __init__(self, clock: Clock, *, window_ns: int | None = None) -> None:
        if window_ns is None:
            window_ns = WINDOW_NS if usable_processors() > 1 else 0
        self._clock = clock
        self._window_ns = window_ns
        self._last_burst_ns = -window_ns
        self._awake_until_ns = 0
        self._turns_left = 0
        self._is_awake = False

    @property
    def is_awake(self) -> bool:
        """Whether the loop is kept from sleeping now."""
        return self._is_awake

    def burst_ended(self) -> None:
        """Take note of a burst; to be called on the loop."""
        now_ns = self._clock.monotonic_ns()
        is_near = now_ns - self._last_burst_ns < self._window_ns
        self._last_burst_ns = now_ns
        if not is_near:
            return
        self._awake_until_ns = now_ns + self._window_ns
        self._turns_left = TURNS_MAX
        if not self._is_awake:
            self._is_awake = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self._stay, loop)

    def _stay(self, loop: asyncio.AbstractEventLoop) -> None:
        """A callback that is always ready keeps the loop from waiting for anything else."""
        self._turns_left -= 1
        if self._turns_left and self._clock.monotonic_ns() < self._awake_until_ns:
            loop.call_soon(self._stay, loop)
        else:
            self._is_awake = False
