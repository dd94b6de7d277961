"""What becomes of the filters of a query, which Spark hands to ``rocketmq-log``.

Owns the translation of filters into a :class:`~roquet.spark.log.selection.Selection`, which is
checked before rows are made. There are three kinds:

======== ================================================ ====================================
kind     filters                                          what happens
======== ================================================ ====================================
taken    ``topic``, ``queueId``: ``=``, ``IN``;           the reader returns exactly their rows,
         ``storeTimestamp``: ``=`` and ranges;            and Spark does not check them again
         any of these: ``IS NOT NULL``
narrowed ``keys``: ``=``, ``IN``, of single words         fewer rows are made, and Spark checks
                                                          the filter
left     all others                                       Spark checks the filter
======== ================================================ ====================================

A query returns the same rows with and without this. Damaged bytes of an unknown message have no
topic, queue or time, so no filter on these selects them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from roquet.spark.log.log_options import LogOptions
from roquet.spark.log.selection import Selection
from roquet.spark.schema import TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS

__all__ = ["PushedFilters"]

_T = TypeVar("_T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class PushedFilters:
    """Takes the filters of one query.

    Args:
        options: The options of the query, which the filters narrow.

    Attributes:
        left: The filters that Spark has to check.
        is_empty: Whether no row can match.
    """

    def __init__(self, options: LogOptions, filters: Sequence[Filter]) -> None:
        self._options = options
        self._selection: Selection = options.rules.selection
        self._drops_unknown = False
        self.is_empty = False
        self.left = [each for each in filters if not self._takes(each)]

    @property
    def options(self) -> LogOptions:
        """The narrowed options."""
        rules = replace(
            self._options.rules,
            selection=self._selection,
            drops_unknown_damage=self._drops_unknown,
        )
        return replace(self._options, rules=rules)

    def _takes(self, pushed: Filter) -> bool:
        """Narrow the selection; whether Spark need not check the filter."""
        attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
        column = attribute[0] if len(attribute) == 1 else ""
        if column == "topic":
            is_taken = self._takes_topic(pushed)
        elif column == "queueId":
            is_taken = self._takes_queue(pushed)
        elif column == "storeTimestamp":
            is_taken = self._takes_time(pushed)
        else:
            if column == "keys":
                self._narrow_keys(pushed)
            return False
        self._drops_unknown |= is_taken
        return is_taken

    def _takes_topic(self, pushed: Filter) -> bool:
        if isinstance(pushed, IsNotNull):
            return True
        values = _values(pushed, str)
        if values is None:
            return False
        known = self._selection.topic_test()
        topics = frozenset(each for each in values if known is None or known(each))
        self._select(topics=topics, topic_pattern=None)
        self.is_empty |= not topics
        return True

    def _takes_queue(self, pushed: Filter) -> bool:
        if isinstance(pushed, IsNotNull):
            return True
        values = _values(pushed, int)
        if values is None:
            return False
        known = self._selection.queue_ids
        queue_ids = frozenset(values) & known if known else frozenset(values)
        self._select(queue_ids=queue_ids)
        self.is_empty |= not queue_ids
        return True

    def _takes_time(self, pushed: Filter) -> bool:
        """Narrow the store times; one that Spark cannot represent is null, which never matches."""
        low_ms, high_ms = TIMESTAMP_MIN_MS, TIMESTAMP_MAX_MS + 1
        if not isinstance(pushed, IsNotNull):
            value = getattr(pushed, "value", None)
            if not isinstance(value, datetime) or value.tzinfo is None:
                return False
            # The first millisecond at or after the time, and the first one after it.
            time_us = (value - _EPOCH) // _MICROSECOND
            at_ms, after_ms = -(-time_us // 1000), time_us // 1000 + 1
            if isinstance(pushed, EqualTo):
                low_ms, high_ms = at_ms, after_ms
            elif isinstance(pushed, GreaterThanOrEqual):
                low_ms = at_ms
            elif isinstance(pushed, GreaterThan):
                low_ms = after_ms
            elif isinstance(pushed, LessThan):
                high_ms = at_ms
            elif isinstance(pushed, LessThanOrEqual):
                high_ms = after_ms
            else:
                return False
        known = self._selection
        low_ms, high_ms = max(low_ms, known.store_from_ms), min(high_ms, known.store_to_ms)
        self._select(store_from_ms=low_ms, store_to_ms=high_ms)
        self.is_empty |= low_ms >= high_ms
        return True

    def _narrow_keys(self, pushed: Filter) -> None:
        """Look for a word of KEYS; keys that were given as an option are looked for instead."""
        words = _values(pushed, str)
        if words and not self._selection.keys and all(each.split() == [each] for each in words):
            self._select(keys=frozenset(words))

    def _select(self, **changes: object) -> None:
        self._selection = replace(self._selection, **changes)  # type: ignore[arg-type]


def _values(pushed: Filter, kind: type[_T]) -> Sequence[_T] | None:
    """The values that a column must have one of; ``None`` if the filter is of another kind."""
    if isinstance(pushed, EqualTo):
        values: Sequence[object] = (pushed.value,)
    elif isinstance(pushed, In):
        values = pushed.value
    else:
        return None
    found = [each for each in values if isinstance(each, kind) and not isinstance(each, bool)]
    return found if len(found) == len(values) else None
