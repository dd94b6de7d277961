"""Latencies in bounded memory.

Owns :class:`Latencies`: counts in buckets, each about 3 % wider than the one before it, so that a
percentile is at most that much too high, however many values there are.
"""

from __future__ import annotations

from collections import Counter

__all__ = ["Latencies"]

_STEPS = 32
"""Buckets for each doubling."""


class Latencies:
    """Counts latencies.

    Attributes:
        count: How many there were.
        max_us: The greatest.

    Example:
        >>> latencies = Latencies()
        >>> for value_us in (100, 200, 300, 40_000):
        ...     latencies.add(value_us)
        >>> latencies.percentile_us(50), latencies.max_us
        (203, 40000)
    """

    def __init__(self) -> None:
        self.count = 0
        self.max_us = 0
        self._sum_us = 0
        self._buckets: Counter[int] = Counter()

    def add(self, value_us: int) -> None:
        """Count one; a negative value, after a clock change, counts as 0."""
        value_us = max(value_us, 0)
        self.count += 1
        self._sum_us += value_us
        self.max_us = max(self.max_us, value_us)
        self._buckets[_bucket(value_us)] += 1

    @property
    def mean_us(self) -> float:
        """The mean; 0 if there are none."""
        return self._sum_us / max(self.count, 1)

    def percentile_us(self, percent: float) -> int:
        """A percentile, rounded up to the end of its bucket; 0 if there are no values."""
        left = self.count * percent / 100
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return min(_upper_us(bucket), self.max_us)
        return self.max_us


def _bucket(value_us: int) -> int:
    if value_us < 2 * _STEPS:
        return value_us
    shift = value_us.bit_length() - _STEPS.bit_length()
    return shift * _STEPS + (value_us >> shift)


def _upper_us(bucket: int) -> int:
    """The greatest value of a bucket."""
    if bucket < 2 * _STEPS:
        return bucket
    shift = bucket // _STEPS - 1
    return ((bucket - shift * _STEPS + 1) << shift) - 1
