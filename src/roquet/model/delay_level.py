"""Delay levels: the table ``messageDelayLevel`` and delivery times.

Owns the mapping from a level (1, 2, …) to milliseconds.
"""

from __future__ import annotations

from roquet.errors import ConfigError

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNKNOWN_LEVEL_DELAY_MS = 1000

_DIGITS_MAX = 9
_SHOWN_CHARACTERS = 80
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class DelayLevels:
    """The parsed table."""

    def __init__(self, text: str = DEFAULT_DELAY_LEVELS) -> None:
        """Parse ``1s 5s …``; raise for a word that is not a number with s, m, h or d."""
        self._delays_ms: list[int] = []
        for word in text.split():
            unit_ms = _UNIT_MS.get(word[-1:])
            if unit_ms is None or not word[:-1].isdecimal() or len(word) > _DIGITS_MAX + 1:
                raise ConfigError(
                    f"messageDelayLevel holds {word[:_SHOWN_CHARACTERS]!r}",
                    detail=f"the whole value is {text[:_SHOWN_CHARACTERS]!r}",
                    hint="write levels as whole numbers of at most nine digits with s, m, h or d, "
                    "such as '1s 5s 1m 2h'",
                )
            self._delays_ms.append(int(word[:-1]) * unit_ms)

    @property
    def max_level(self) -> int:
        """The highest level."""
        return len(self._delays_ms)

    def deliver_timestamp_ms(self, level: int, store_timestamp_ms: int) -> int:
        """Return when a message of this level, stored at this time, is due."""
        if 1 <= level <= len(self._delays_ms):
            return store_timestamp_ms + self._delays_ms[level - 1]
        return store_timestamp_ms + UNKNOWN_LEVEL_DELAY_MS
