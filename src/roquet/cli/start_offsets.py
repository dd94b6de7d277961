"""Queue positions as users write them: ``earliest``, ``17``, ``-10``, a time, ``15m``.

Owns :class:`Start` and its parser; ``roquet tail``, ``roquet offset`` and others use it.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from roquet.cli.output import parse_span_ms
from roquet.errors import ConfigError

__all__ = ["START_HELP", "Start", "StartKind", "start_of"]

START_HELP = (
    "earliest, latest, an offset (17), the last ones of each queue (-10), a time, or so long ago "
    "(15m)."
)


class StartKind(Enum):
    """What the number of a :class:`Start` means."""

    OFFSET = "offset"
    LAST = "last"
    TIME = "time"


class Start(NamedTuple):
    """A position in each queue.

    Attributes:
        kind: What the number means.
        number: The queue offset, how many messages before the end, or milliseconds since 1970.
    """

    kind: StartKind
    number: int

    @property
    def is_earliest(self) -> bool:
        """Whether it is the first available message."""
        return self == (StartKind.OFFSET, 0)

    @property
    def is_latest(self) -> bool:
        """Whether it is the end."""
        return self == (StartKind.LAST, 0)


def start_of(text: str, now_ms: int, *, flag: str = "--from") -> Start:
    """Parse a position.

    Args:
        text: The text.
        now_ms: The current time.
        flag: The flag, for error messages.

    Raises:
        ConfigError: The text is not a position.

    Example:
        >>> [start_of(text, 1_000_000).number for text in ("earliest", "17", "-10", "15m")]
        [0, 17, 10, 100000]
    """
    if text in {"earliest", "latest"}:
        return Start(StartKind.OFFSET if text == "earliest" else StartKind.LAST, 0)
    if re.fullmatch(r"(?a)-?\d{1,18}", text):
        number = int(text)
        return Start(StartKind.OFFSET, number) if number >= 0 else Start(StartKind.LAST, -number)
    if re.fullmatch(r"(?a)@\d{1,18}", text):
        return Start(StartKind.TIME, int(text[1:]))
    span_ms = parse_span_ms(text)
    if span_ms is not None:
        return Start(StartKind.TIME, max(now_ms - span_ms, 0))
    try:
        return Start(StartKind.TIME, round(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{flag} is {text!r}",
            hint="It is earliest, latest, an offset (17), the last ones (-10), a time "
            "(2026-01-31T12:00:00, or @ and milliseconds since 1970) or so long ago (15m, 2h).",
        ) from None
