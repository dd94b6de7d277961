"""Which rows a query wants, and how files and row groups without one are known.

Owns the conditions of a query: those of the options, which the reader applies to rows, and those of
a ``where``, which Spark checks again. Both say beforehand where no row can match:

======================= =========================================================================
known of                tested
======================= =========================================================================
a file, by its manifest its broker, topic and day; offsets and store times in it
a row group             the least and the greatest value of a column, and the Bloom filters of
                        ``keys`` and ``msgId``
======================= =========================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from roquet.spark.lake.bloom import may_have

__all__ = ["Bounds", "Conditions", "FileFacts", "Read"]

_TEXTS = frozenset({"topic", "day", "brokerName", "tags", "keys", "msgId", "offsetMsgId"})
_NUMBERS = frozenset({"queueId", "queueOffset", "physicalOffset"})
_TIMES = frozenset({"bornTimestamp", "storeTimestamp"})
_ROW_TEXTS, _ROW_VALUES = ("topic", "brokerName"), frozenset({"physicalOffset", "storeTimestamp"})

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET_DIGITS = 16
"""At the end of an ``offsetMsgId``: the physical offset, in hexadecimal."""

Read = Callable[[int, int], bytes]


class Bounds(NamedTuple):
    """The values of a column that can match, both ends included; ``None`` for no bound."""

    low: Any = None
    high: Any = None

    def narrowed(self, low: Any, high: Any) -> Bounds:  # noqa: ANN401 - a value of any column
        """Return what is within other bounds as well."""
        lows = [each for each in (self.low, low) if each is not None]
        highs = [each for each in (self.high, high) if each is not None]
        return Bounds(max(lows, default=None), min(highs, default=None))

    def misses(self, least: Any, greatest: Any) -> bool:  # noqa: ANN401 - a value of any column
        """Whether no value from one to another is within the bounds."""
        return (self.low is not None and greatest < self.low) or (
            self.high is not None and least > self.high
        )


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """What is known of a file without opening it; ``None`` for what is not.

    Attributes:
        topic: The topic of all its messages.
        day: Their day; empty for messages without a store time.
        broker_name: The broker that they are from.
        offsets: The lowest and the highest physical offset.
        times_ms: The earliest and the latest store time, in milliseconds since the epoch.
    """

    topic: str | None = None
    day: str | None = None
    broker_name: str | None = None
    offsets: tuple[int, int] | None = None
    times_ms: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What the rows of a query have in common.

    Attributes:
        keys: Words of KEYS, or unique ids; a message has one of them. Empty for any.
        equal: By column: the values of which it has one.
        bounds: By column: where its value lies.
    """

    keys: frozenset[str] = frozenset()
    equal: dict[str, frozenset[Any]] = field(default_factory=dict)
    bounds: dict[str, Bounds] = field(default_factory=dict)

    def with_filters(self, filters: Iterable[Filter]) -> Conditions:
        """Return the conditions with those of a ``where``, as far as they tell files apart."""
        equal, bounds = dict(self.equal), dict(self.bounds)
        for each in filters:
            attribute: tuple[str, ...] = getattr(each, "attribute", ())
            name = attribute[0] if len(attribute) == 1 else ""
            if isinstance(each, EqualTo | In):
                given = each.value if isinstance(each, In) else (each.value,)
                values = [_comparable(name, value) for value in given if value is not None]
                if None not in values:
                    found = frozenset(values)
                    equal[name] = equal[name] & found if name in equal else found
            elif isinstance(each, GreaterThan | GreaterThanOrEqual):
                low = _comparable(name, each.value)
                bounds[name] = bounds.get(name, Bounds()).narrowed(low, None)
            elif isinstance(each, LessThan | LessThanOrEqual):
                high = _comparable(name, each.value)
                bounds[name] = bounds.get(name, Bounds()).narrowed(None, high)
        return Conditions(keys=self.keys, equal=equal, bounds=bounds)

    # ----------------------------------------------------------------------------------- files

    def may_have_file(self, facts: FileFacts) -> bool:
        """Whether a file may have a matching row."""
        least, greatest = facts.offsets or (None, None)
        known = {
            "topic": (facts.topic, facts.topic),
            "day": (facts.day, facts.day),
            "brokerName": (facts.broker_name, facts.broker_name),
            "physicalOffset": (least, greatest),
            "storeTimestamp": _span_of(facts),
        }
        return not any(
            first is not None and self._misses(name, first, last)
            for name, (first, last) in known.items()
        )

    def _misses(self, name: str, least: Any, greatest: Any) -> bool:  # noqa: ANN401 - any value
        """Whether no value from one to another matches."""
        wanted: Iterable[Any] | None = self.equal.get(name)
        if name == "physicalOffset" and "offsetMsgId" in self.equal and wanted is None:
            wanted = _offsets_of(self.equal["offsetMsgId"])
        if wanted is not None and not any(least <= value <= greatest for value in wanted):
            return True
        return name in self.bounds and self.bounds[name].misses(least, greatest)

    # ------------------------------------------------------------------------------ row groups

    def may_have_group(
        self, group: pq.RowGroupMetaData, read: Read, *, has_single_words: bool
    ) -> bool:
        """Whether a row group may have a matching row.

        Args:
            group: Its description.
            read: Returns some bytes of the file: from where, how many.
            has_single_words: Whether no message of the file has more than one word as KEYS.
        """
        columns = {
            column.path_in_schema: column
            for column in (group.column(at) for at in range(group.num_columns))
        }
        for name in {*self.equal, *self.bounds} & columns.keys():
            found = columns[name].statistics
            if found is None or not found.has_min_max:
                continue
            # Whoever rewrote a table may have other types.
            least, greatest = _comparable(name, found.min), _comparable(name, found.max)
            if None not in {least, greatest} and self._misses(name, least, greatest):
                return False
        for name in {"keys", "msgId"} & self.equal.keys() & columns.keys():
            if not any(_has(columns[name], read, value) for value in self.equal[name]):
                return False
        if not self.keys or not has_single_words or not {"keys", "msgId"} <= columns.keys():
            return True
        return any(
            _has(columns[name], read, word) for name in ("msgId", "keys") for word in self.keys
        )

    # ------------------------------------------------------------------------------------ rows

    @property
    def columns(self) -> frozenset[str]:
        """The columns that :meth:`chosen` looks at, if the rows have them."""
        looked = {*_ROW_TEXTS, *_ROW_VALUES} & {*self.equal, *self.bounds}
        return frozenset(looked | ({"keys", "msgId"} if self.keys else set()))

    def chosen(self, rows: pa.Table) -> pa.Table:
        """Return the rows that match the options, and maybe others that fail a ``where``."""
        masks = [
            pc.is_in(rows.column(name), pa.array(sorted(map(str, self.equal[name])), pa.string()))
            for name in _ROW_TEXTS
            if name in self.equal
        ]
        for name in self.bounds.keys() & _ROW_VALUES:
            (low, high), column = self.bounds[name], rows.column(name)
            if low is not None:
                masks.append(pc.greater_equal(column, pa.scalar(low, column.type)))
            if high is not None:
                masks.append(pc.less_equal(column, pa.scalar(high, column.type)))
        if self.keys:
            masks.append(self.key_mask(rows))
        return rows.filter(reduce(pc.and_, masks)) if masks else rows

    def key_mask(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return which rows have one of the keys."""
        words = "|".join(re.escape(word) for word in sorted(self.keys))
        has_word = pc.match_substring_regex(rows.column("keys"), rf"(^|\s)({words})(\s|$)")
        has_id = pc.is_in(rows.column("msgId"), pa.array(sorted(self.keys), pa.string()))
        return pc.or_(pc.fill_null(has_word, fill_value=False), has_id)


def _has(column: pq.ColumnChunkMetaData, read: Read, value: object) -> bool:
    """Whether a column of a row group may have a text."""
    if not isinstance(value, str):
        return True
    found = column.statistics
    if found is not None and found.has_min_max and not found.min <= value <= found.max:
        return False
    offset = column.bloom_filter_offset
    return offset is None or may_have(read, offset, value)


def _comparable(name: str, value: object) -> object:
    """Return a value as files have it; ``None`` if it cannot be compared with theirs."""
    if name in _TEXTS and isinstance(value, str):
        return value
    if name in _NUMBERS and isinstance(value, int):
        return value
    if name in _TIMES and isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return None


def _span_of(facts: FileFacts) -> tuple[datetime | None, datetime | None]:
    """Return the first and the last moment at which a message of a file was stored."""
    if facts.times_ms is not None:
        first_ms, last_ms = facts.times_ms
        last = timedelta(milliseconds=last_ms, microseconds=999)
        return _EPOCH + timedelta(milliseconds=first_ms), _EPOCH + last
    try:
        first = datetime.fromisoformat(facts.day or "").replace(tzinfo=UTC)
    except ValueError:
        return None, None
    return first, first.replace(hour=23, minute=59, second=59, microsecond=999_999)


def _offsets_of(ids: Iterable[object]) -> Iterable[int] | None:
    """Return the physical offsets that message ids contain; ``None`` if one is of another kind."""
    try:
        return [int(str(each)[-_OFFSET_DIGITS:], 16) for each in ids]
    except ValueError:
        return None
