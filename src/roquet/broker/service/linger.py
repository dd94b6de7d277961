"""Stays awake for a peer that is about to send its next request.

Owns the moment after a burst. A client with one request at a time sends the next one as soon as it
has the response. If the loop sleeps meanwhile, both sides pay for waking a processor that has gone
idle, which takes longer than all the work for the request. So while a connection's bursts follow
each other that closely, the loop keeps polling the kernel for events instead of sleeping.

Polling costs processor time, so it has to pay. Many connections that each send at their own rate
keep nobody awake, however close their bursts are together: none of them waits for its response.
And a loop that on average polls for longer than ``WAKE_UP_NS`` before the next burst sleeps through
the next ``REST_BURSTS``, then tries again.

Invariants: no longer than ``window_ns`` after a burst, and only if the connection's burst before it
was as close. Requests that are further apart cost no more than before; a busy loop never idles
anyway. Other threads and other events of the loop run as usual. On a single processor it does
nothing: the peer could not run.
"""

from __future__ import annotations

import asyncio

from roquet.runtime.clock import Clock
from roquet.runtime.process import usable_processors

__all__ = ["REST_BURSTS", "TRIED_BURSTS", "TURNS_MAX", "WAKE_UP_NS", "WINDOW_NS", "Linger"]

WINDOW_NS = 150_000
"""About the cost of two wake-ups and a response; a peer that takes longer has slept as well."""

WAKE_UP_NS = 70_000
"""About what a wake-up costs both sides on a virtual machine, which is what polling saves."""

TRIED_BURSTS = 16
"""How many bursts show whether polling pays."""

REST_BURSTS = 1_024
"""For how many bursts the loop sleeps as usual after polling did not pay."""

TURNS_MAX = 1_000
"""The most iterations a loop stays awake for, however slow its clock is."""


class Linger:
    """Keeps a loop awake between bursts that follow each other closely.

    Args:
        clock: The time.
        window_ns: How soon the next burst has to follow; by default 0 on a single processor, which
            disables lingering.

    Attributes:
        is_awake: Whether the loop is being kept awake.
    """

    def __init__(self, clock: Clock, *, window_ns: int | None = None) -> None:
        if window_ns is None:
            window_ns = WINDOW_NS if usable_processors() > 1 else 0
        self._monotonic_ns = clock.monotonic_ns
        self._window_ns = window_ns
        self._awake_until_ns = 0
        self._turns_left = 0
        self._polls_since_ns = 0
        self._polled_ns = 0
        self._tried = 0
        self._rest = 0
        self.is_awake = False

    def answered(self, gap_ns: int) -> None:
        """Record the end of a burst; call it on the loop.

        Args:
            gap_ns: Between this burst and the one before it on the same connection.
        """
        if self._rest:
            self._rest -= 1
            return
        if gap_ns >= self._window_ns:
            return
        self._awake_until_ns = self._monotonic_ns() + self._window_ns
        self._turns_left = TURNS_MAX
        self._polls_since_ns = 0
        self._judge()
        if not (self.is_awake or self._rest):
            self.is_awake = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self._stay, loop)

    def _judge(self) -> None:
        """After some bursts, rest if the loop polled for longer than a wake-up takes."""
        self._tried += 1
        if self._tried == TRIED_BURSTS:
            if self._polled_ns > TRIED_BURSTS * WAKE_UP_NS:
                self._rest = REST_BURSTS
            self._tried = self._polled_ns = 0

    def _stay(self, loop: asyncio.AbstractEventLoop) -> None:
        """Reschedule itself: a callback that is always ready keeps the loop from sleeping."""
        now_ns = self._monotonic_ns()
        if self._polls_since_ns:
            self._polled_ns += now_ns - self._polls_since_ns
        self._polls_since_ns = now_ns
        self._turns_left -= 1
        if self._turns_left and now_ns < self._awake_until_ns and not self._rest:
            loop.call_soon(self._stay, loop)
        else:
            self.is_awake = False
