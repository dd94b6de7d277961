"""Chance, as something that can be handed in.

Owns the only use of a random source; a test hands in one with a seed. It spreads load and tells
processes apart; it is not for secrets.
"""

from __future__ import annotations

import random
from typing import Protocol

__all__ = ["Randomness", "seeded"]


class Randomness(Protocol):
    """What the broker may ask of chance."""

    def randrange(self, start: int, /) -> int:
        """A number from 0 up to, not including, ``start``."""
        ...

    def getrandbits(self, k: int, /) -> int:
        """A number of ``k`` bits."""
        ...


def seeded(seed: int | None = None) -> Randomness:
    """A random source; without a seed, another one every time.

    Example:
        >>> seeded(1).randrange(10) == seeded(1).randrange(10)
        True
    """
    return random.Random(seed)
