"""Frees the memory of dicts that have shrunk.

Owns :func:`compacted`. A dict never shrinks when entries are removed: one that had a hundred
thousand of them keeps the space for as many, and is slow to iterate.
"""

from __future__ import annotations

import sys
from typing import TypeVar

__all__ = ["compacted"]

_SMALL_BYTES = 16 << 10
_ENTRY_BYTES_MAX = 256
"""More than twice the size of an entry in a table that only grew."""

K = TypeVar("K")
V = TypeVar("V")


def compacted(table: dict[K, V]) -> dict[K, V]:
    """The table itself, or a copy if it has space for far more entries than it holds.

    Example:
        >>> table = dict.fromkeys(range(10_000))
        >>> for number in range(9_990):
        ...     del table[number]
        >>> sys.getsizeof(compacted(table)) < sys.getsizeof(table) // 100
        True
    """
    if sys.getsizeof(table) <= _SMALL_BYTES + _ENTRY_BYTES_MAX * len(table):
        return table
    return dict(table.items())
