"""Randomness, which can be injected.

Owns the only use of a random source; a test passes a seeded one. It is for spreading load and
distinguishing processes, not for secrets.
"""

from __future__ import annotations

import random
from typing import Protocol

__all__ = ["Randomness", "seeded"]


class Randomness(Protocol):
    """The random source of the broker."""

    def randrange(self, start: int, /) -> int:
        """A number from 0 up to, not including, ``start``."""
        ...

    def getrandbits(self, k: int, /) -> int:
        """A number of ``k`` bits."""
        ...


def seeded(seed: int | None = None) -> Randomness:
    """A random source; without a seed, different every time.

    Example:
        >>> seeded(1).randrange(10) == seeded(1).randrange(10)
        True
    """
    return random.Random(seed)
