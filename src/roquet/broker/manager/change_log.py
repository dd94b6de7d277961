"""The recently changed entries of a table.

Keeps the names of the latest changes, so that followers of a table need not compare all of it.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

__all__ = ["ChangeLog"]

NAMES_MAX = 10_000


class ChangeLog:
    """The latest changes.

    Args:
        names_max: How many are kept.

    Attributes:
        position: How many changes there were.

    Example:
        >>> changes = ChangeLog(names_max=2)
        >>> for name in "abcb":
        ...     changes.note(name)
        >>> changes.since(2)
        ['c', 'b']
        >>> changes.since(changes.position), changes.since(0)
        ([], None)
    """

    def __init__(self, *, names_max: int = NAMES_MAX) -> None:
        self.position = 0
        self._names: deque[str] = deque(maxlen=names_max)

    def note(self, name: str) -> None:
        """Record a change."""
        self.position += 1
        self._names.append(name)

    def since(self, position: int) -> list[str] | None:
        """Names changed since a position, without duplicates; ``None`` if that is too long ago."""
        passed_over = len(self._names) - (self.position - position)
        if passed_over < 0:
            return None
        return list(dict.fromkeys(islice(self._names, passed_over, None)))
