"""What becomes of the filters of a query, which Spark hands to ``rocketmq-log``.

Owns the translation of filters into a :class:`~roquet.spark.log.selection.Selection`, which is
checked before rows are made:

================ ======================================== ====================================
columns          filters                                  what happens
================ ======================================== ====================================
``topic``        ``=``, ``<>``, ``IN``, ``NOT IN``,       the reader returns exactly their rows,
``tags``         ranges, ``LIKE 'prefix%'``,              and Spark does not check them again
``keys``         ``IS NOT NULL``
``msgId``
``queueId``      the same, without prefixes               the same
``queueOffset``
``physicalOffset``
``storeTimestamp`` ``=``, ranges, ``IS NOT NULL``         the same
``storeTimestamp`` ``IN``                                 its range is read; Spark checks it
all              all others                               Spark checks the filter
================ ======================================== ====================================

A query returns the same rows with and without this. Damaged bytes of an unknown message have a
physical offset only, so no filter on another column selects them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from roquet.spark.log.conditions import NumberCondition, TextCondition
from roquet.spark.log.log_options import LogOptions
from roquet.spark.log.selection import Selection
from roquet.spark.schema import TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS

__all__ = [
    "NUMBER_COLUMNS",
    "TEXT_COLUMNS",
    "PushedFilters",
    "column_of",
    "narrowed_number",
    "narrowed_text",
]

NUMBER_COLUMNS = ("queueId", "queueOffset", "physicalOffset")
TEXT_COLUMNS = ("topic", "tags", "keys", "msgId")

_T = TypeVar("_T")
_C = TypeVar("_C", NumberCondition, TextCondition)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class PushedFilters:
    """Takes the filters of one query.

    Args:
        options: The options of the query, which the filters narrow.

    Attributes:
        left: The filters that Spark has to check.
    """

    def __init__(self, options: LogOptions, filters: Sequence[Filter]) -> None:
        self._options = options
        self._selection: Selection = options.rules.selection
        self._numbers: dict[str, NumberCondition] = {}
        self._texts: dict[str, TextCondition] = {}
        self._drops_unknown = False
        self.left = [each for each in filters if not self._takes(each)]

    @property
    def is_empty(self) -> bool:
        """Whether no row can match."""
        if any(each.is_empty for each in self._numbers.values()):
            return True
        if any(each.is_empty for each in self._texts.values()):
            return True
        return self._selection.store_from_ms >= self._selection.store_to_ms

    @property
    def options(self) -> LogOptions:
        """The narrowed options."""
        selection = replace(self._selection, numbers=self._numbers, texts=self._texts)
        rules = replace(
            self._options.rules, selection=selection, drops_unknown_damage=self._drops_unknown
        )
        return replace(self._options, rules=rules)

    def _takes(self, pushed: Filter) -> bool:
        """Narrow the selection; whether Spark need not check the filter."""
        column = column_of(pushed)
        if column in TEXT_COLUMNS:
            text = narrowed_text(self._texts.get(column, TextCondition()), pushed)
            if text is None:
                return False
            self._texts[column] = text
        elif column in NUMBER_COLUMNS:
            number = narrowed_number(self._numbers.get(column, NumberCondition()), pushed)
            if number is None:
                return False
            self._numbers[column] = number
        elif column != "storeTimestamp" or not self._takes_time(pushed):
            return False
        self._drops_unknown |= column != "physicalOffset"
        return True

    def _takes_time(self, pushed: Filter) -> bool:
        """Narrow the store times; one that Spark cannot represent is null, which never matches."""
        if isinstance(pushed, IsNotNull):
            return self._is_stored_between(TIMESTAMP_MIN_MS, TIMESTAMP_MAX_MS + 1)
        if isinstance(pushed, In):
            times = _values(pushed, datetime) or ()
            if times and all(each.tzinfo is not None for each in times):
                self._is_stored_between(_ms_from(min(times)), _ms_after(max(times)))
                self._drops_unknown = True  # without it, the clock would not be looked at either
            return False
        value = getattr(pushed, "value", None)
        if not isinstance(value, datetime) or value.tzinfo is None:
            return False
        low_ms, high_ms = TIMESTAMP_MIN_MS, TIMESTAMP_MAX_MS + 1
        if isinstance(pushed, EqualTo | EqualNullSafe):
            low_ms, high_ms = _ms_from(value), _ms_after(value)
        elif isinstance(pushed, GreaterThanOrEqual):
            low_ms = _ms_from(value)
        elif isinstance(pushed, GreaterThan):
            low_ms = _ms_after(value)
        elif isinstance(pushed, LessThan):
            high_ms = _ms_from(value)
        elif isinstance(pushed, LessThanOrEqual):
            high_ms = _ms_after(value)
        else:
            return False
        return self._is_stored_between(low_ms, high_ms)

    def _is_stored_between(self, low_ms: int, high_ms: int) -> bool:
        known = self._selection
        low_ms, high_ms = max(low_ms, known.store_from_ms), min(high_ms, known.store_to_ms)
        self._selection = replace(known, store_from_ms=low_ms, store_to_ms=high_ms)
        return True


def column_of(pushed: Filter) -> str:
    """Return the column that a filter is about; an empty text if it is not just one column."""
    inner = pushed.child if isinstance(pushed, Not) else pushed
    attribute: tuple[str, ...] = getattr(inner, "attribute", ())
    return attribute[0] if len(attribute) == 1 else ""


def _ms_from(time: datetime) -> int:
    """The first millisecond at or after a time."""
    return -(-((time - _EPOCH) // _MICROSECOND) // 1000)


def _ms_after(time: datetime) -> int:
    """The first millisecond after a time."""
    return (time - _EPOCH) // _MICROSECOND // 1000 + 1


def narrowed_text(known: TextCondition, pushed: Filter) -> TextCondition | None:
    """Return a condition narrowed by a filter on its column; ``None`` if Spark has to check it."""
    if isinstance(pushed, StringStartsWith):
        prefix = _values(EqualTo(pushed.attribute, pushed.value), str)
        return None if prefix is None else known.starting_with(prefix[0].encode())
    inner = pushed.child if isinstance(pushed, Not) else pushed
    values = _values(inner, str)
    return _narrowed(known, pushed, None if values is None else [each.encode() for each in values])


def narrowed_number(known: NumberCondition, pushed: Filter) -> NumberCondition | None:
    """Return a condition narrowed by a filter on its column; ``None`` if Spark has to check it."""
    inner = pushed.child if isinstance(pushed, Not) else pushed
    return _narrowed(known, pushed, _values(inner, int))


def _narrowed(
    known: _C, pushed: Filter, values: Sequence[int] | Sequence[bytes] | None
) -> _C | None:
    if isinstance(pushed, IsNotNull):
        return known
    if values is None:
        return None
    wanted: Sequence[object] = values
    condition: _C | None = None
    if isinstance(pushed, Not):
        if isinstance(pushed.child, EqualTo | In):
            condition = known.none_of(wanted)  # type: ignore[arg-type]
    elif isinstance(pushed, EqualTo | EqualNullSafe | In):
        condition = known.one_of(wanted)  # type: ignore[arg-type]
    elif isinstance(pushed, GreaterThan | GreaterThanOrEqual):
        or_equal = isinstance(pushed, GreaterThanOrEqual)
        condition = known.above(wanted[0], or_equal=or_equal)  # type: ignore[arg-type]
    elif isinstance(pushed, LessThan | LessThanOrEqual):
        or_equal = isinstance(pushed, LessThanOrEqual)
        condition = known.below(wanted[0], or_equal=or_equal)  # type: ignore[arg-type]
    return condition


def _values(pushed: Filter, kind: type[_T]) -> Sequence[_T] | None:
    """The values that a filter compares with; ``None`` if any is of another kind, or null.

    A text that is not valid UTF-16 cannot be compared by its UTF-8, so it does not count.
    """
    values: Sequence[object] = (getattr(pushed, "value", None),)
    if isinstance(pushed, In):
        values = pushed.value
    found: list[_T] = []
    for each in values:
        if not isinstance(each, kind) or isinstance(each, bool):
            return None
        if isinstance(each, str) and any(0xD800 <= ord(letter) <= 0xDFFF for letter in each):
            return None
        found.append(each)
    return found
