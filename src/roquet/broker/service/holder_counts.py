"""Finds the holder with the highest count at any time.

Owns counts by holder, in buckets of equal counts, so that the highest is found without a search.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["HolderCounts"]

H = TypeVar("H", bound=Hashable)


class HolderCounts(Generic[H]):
    """Counts by holder.

    Attributes:
        total: The sum of all counts.

    Example:
        >>> held: HolderCounts[str] = HolderCounts()
        >>> for name in "abb":
        ...     held.add(name)
        >>> held.first(), held.total
        ('b', 3)
        >>> held.remove("b")
        >>> held.first(), held.total
        ('a', 1)
    """

    def __init__(self) -> None:
        self.total = 0
        self._counts: dict[H, int] = {}
        self._holders: dict[int, dict[H, None]] = {}
        self._most = 0

    def add(self, holder: H) -> None:
        """Add one to a holder's count."""
        count = self._take_out(holder) + 1
        self._put(holder, count)
        self._most = max(self._most, count)

    def subtract(self, holder: H) -> None:
        """Subtract one; the holder's count is at least one."""
        count = self._take_out(holder) - 1
        assert count >= 0, "a holder's count never drops below zero"
        self._put(holder, count)
        self._lower()

    def remove(self, holder: H) -> None:
        """Remove a holder, whatever its count."""
        self._take_out(holder)
        self._lower()

    def first(self) -> H:
        """Return one of the holders with the highest count; there must be one."""
        return next(iter(self._holders[self._most]))

    def _take_out(self, holder: H) -> int:
        count = self._counts.pop(holder, 0)
        if count:
            self.total -= count
            holders = self._holders[count]
            del holders[holder]
            if not holders:
                del self._holders[count]
        return count

    def _put(self, holder: H, count: int) -> None:
        if count:
            self.total += count
            self._counts[holder] = count
            self._holders.setdefault(count, {})[holder] = None

    def _lower(self) -> None:
        while self._most and self._most not in self._holders:
            self._most -= 1
