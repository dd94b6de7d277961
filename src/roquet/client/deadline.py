"""How long a send may take, and how it waits between attempts."""

from __future__ import annotations

from roquet.client.instance import ClientInstance
from roquet.errors import RequestTimeout
from roquet.runtime.randomness import Randomness

__all__ = ["BackOff", "Deadline"]

BACK_OFF_MS_FIRST = 50
BACK_OFF_MS_MAX = 1_000
_NS_PER_MS = 1_000_000


class Deadline:
    """The deadline of a send.

    Args:
        client: The client whose clock is used.
        timeout_ms: How long the send may take.
        began_ns: Since when, on the monotonic clock; by default from now.
    """

    __slots__ = ("_clock", "_end_ns", "timeout_ms")

    def __init__(
        self, client: ClientInstance, timeout_ms: int, *, began_ns: int | None = None
    ) -> None:
        self._clock = client.clock
        self.timeout_ms = timeout_ms
        if began_ns is None:
            began_ns = self._clock.monotonic_ns()
        self._end_ns = began_ns + timeout_ms * _NS_PER_MS

    def left_ms(self) -> int:
        """The time left; less than 1 if there is none."""
        return (self._end_ns - self._clock.monotonic_ns()) // _NS_PER_MS

    def passed(self, doing: str) -> RequestTimeout:
        """Return the error of a send that timed out before its first attempt."""
        return RequestTimeout(
            f"Timed out while {doing}",
            detail=f"the timeout of the send is {self.timeout_ms} ms",
            hint="Nothing was sent. Allow more time, or send less at once.",
        )


class BackOff:
    """Waits that get longer, with jitter.

    Args:
        randomness: Chooses each wait from the upper half of its range.

    Example:
        >>> from roquet.runtime.randomness import seeded
        >>> back_off = BackOff(seeded(1))
        >>> waits_ms = [back_off.next_ms() for _ in range(7)]
        >>> all(most // 2 <= each <= most for each, most in zip(waits_ms, [50, 100, 200, 400, 800]))
        True
        >>> max(waits_ms) <= BACK_OFF_MS_MAX
        True
    """

    __slots__ = ("_next_ms", "_randomness")

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._next_ms = BACK_OFF_MS_FIRST

    def next_ms(self) -> int:
        """Return the next wait."""
        most_ms = self._next_ms
        self._next_ms = min(most_ms * 2, BACK_OFF_MS_MAX)
        least_ms = most_ms // 2
        return least_ms + self._randomness.randrange(most_ms - least_ms + 1)
