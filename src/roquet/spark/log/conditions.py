"""Conditions on one column, which are checked before a row is made.

Owns what a condition is: a range, the values allowed within it, and the values excluded from it.
Texts are compared as Spark does it, by the bytes of their UTF-8. Null satisfies no condition.
Conditions are sent to the executors as part of a :class:`~roquet.spark.log.selection.Selection`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

PREFILTER_WORDS_MAX = 16
"""The maximum number of words to search for in the bytes of a record."""

_REPLACED = "\N{REPLACEMENT CHARACTER}".encode()
_LAST_BYTE = 0xFF


@dataclass(frozen=True, slots=True)
class NumberCondition:
    """A condition on a column of whole numbers.

    Attributes:
        low: The smallest value.
        high: The largest value.
        values: The values allowed; ``None`` for all.
        excluded: The values not allowed.

    Example:
        >>> NumberCondition().above(3).one_of([1, 5, 7]).takes(5)
        True
    """

    low: int = INT64_MIN
    high: int = INT64_MAX
    values: frozenset[int] | None = None
    excluded: frozenset[int] = frozenset()

    def one_of(self, values: Iterable[int]) -> NumberCondition:
        """Allow only these values; they narrow the range too."""
        wanted = frozenset(values)
        kept = frozenset(
            each
            for each in (wanted if self.values is None else wanted & self.values)
            if self.low <= each <= self.high and each not in self.excluded
        )
        low, high = (min(kept), max(kept)) if kept else (0, -1)
        return replace(self, low=low, high=high, values=kept)

    def above(self, value: int, *, or_equal: bool = False) -> NumberCondition:
        """Raise the lower end of the range."""
        return replace(self, low=max(self.low, value if or_equal else value + 1)).settled()

    def below(self, value: int, *, or_equal: bool = False) -> NumberCondition:
        """Lower the upper end of the range."""
        return replace(self, high=min(self.high, value if or_equal else value - 1)).settled()

    def none_of(self, values: Iterable[int]) -> NumberCondition:
        """Exclude these values."""
        return replace(self, excluded=self.excluded | frozenset(values)).settled()

    def settled(self) -> NumberCondition:
        """Drop values that the rest of the condition rules out."""
        return self if self.values is None else self.one_of(self.values)

    @property
    def is_empty(self) -> bool:
        """Whether no value satisfies it."""
        return self.low > self.high

    @property
    def is_range(self) -> bool:
        """Whether every value of the range satisfies it."""
        is_single = self.values is not None and self.low == self.high
        return is_single or (self.values is None and not self.excluded)

    def takes(self, value: int) -> bool:
        """Whether a value satisfies it."""
        return (
            self.low <= value <= self.high
            and (self.values is None or value in self.values)
            and value not in self.excluded
        )


@dataclass(frozen=True, slots=True)
class TextCondition:
    """A condition on a column of texts, each as UTF-8.

    Attributes:
        low: The smallest value.
        high: The end of the values, exclusive; ``None`` if there is no end.
        values: The values allowed; ``None`` for all.
        excluded: The values not allowed.

    Example:
        >>> TextCondition().starting_with(b"Order").takes(b"Orders")
        True
    """

    low: bytes = b""
    high: bytes | None = None
    values: frozenset[bytes] | None = None
    excluded: frozenset[bytes] = frozenset()

    def one_of(self, values: Iterable[bytes]) -> TextCondition:
        """Allow only these values."""
        wanted = frozenset(values)
        kept = wanted if self.values is None else wanted & self.values
        rest = replace(self, values=None)
        return replace(self, values=frozenset(each for each in kept if rest.takes(each)))

    def above(self, value: bytes, *, or_equal: bool = False) -> TextCondition:
        """Raise the lower end of the range; the next text after another has a zero appended."""
        low = max(self.low, value if or_equal else value + b"\0")
        return replace(self, low=low).settled()

    def below(self, value: bytes, *, or_equal: bool = False) -> TextCondition:
        """Lower the upper end of the range."""
        high = value + b"\0" if or_equal else value
        return replace(self, high=high if self.high is None else min(self.high, high)).settled()

    def starting_with(self, prefix: bytes) -> TextCondition:
        """Allow only texts with a prefix, which are a range."""
        if not prefix:
            return self
        assert prefix[-1] < _LAST_BYTE  # no byte of UTF-8 has this value
        following = prefix[:-1] + bytes([prefix[-1] + 1])
        return self.above(prefix, or_equal=True).below(following)

    def none_of(self, values: Iterable[bytes]) -> TextCondition:
        """Exclude these values."""
        return replace(self, excluded=self.excluded | frozenset(values)).settled()

    def settled(self) -> TextCondition:
        """Drop values that the rest of the condition rules out."""
        return self if self.values is None else self.one_of(self.values)

    @property
    def is_empty(self) -> bool:
        """Whether no value satisfies it, as far as it is known."""
        return self.values is not None and not self.values

    @property
    def single(self) -> bytes | None:
        """The only value that satisfies it, if there is just one."""
        if self.values is None or len(self.values) != 1:
            return None
        return next(iter(self.values))

    def takes(self, value: bytes) -> bool:
        """Whether a value satisfies it."""
        return (
            self.low <= value
            and (self.high is None or value < self.high)
            and (self.values is None or value in self.values)
            and value not in self.excluded
        )

    def words(self) -> tuple[bytes, ...] | None:
        """Bytes of which a record must contain one; ``None`` if that is not known.

        Bytes of a record that are not UTF-8 are read as U+FFFD, so a value with that character need
        not be in the record.
        """
        if self.values is None or len(self.values) > PREFILTER_WORDS_MAX:
            return None
        if any(_REPLACED in each for each in self.values):
            return None
        return tuple(sorted(self.values))
