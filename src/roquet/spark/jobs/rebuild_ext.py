"""Rebuilds the units of a ConsumeQueueExt from the log and from the filters of groups.

Owns the content of a unit. Tags code and store time are the record's. The bit map holds the results
of the broker's SQL92 filters, which are in its config, not in the log. A filter applies to messages
stored after it was registered, as on a broker, which never uses the bit map of an older message for
it. Filters changed or dropped since are unknown, but no longer needed.

Light queues get no units, as upstream.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import msgspec

from roquet.errors import ConfigError, ProtocolError
from roquet.filter.consumer_filters import (
    ConsumerFilter,
    ConsumerFilterData,
    ConsumerFilters,
    compile_expression,
    filter_bitmap,
)
from roquet.filter.sql92 import Sql92Error
from roquet.format.commit_log import DispatchRequest
from roquet.format.config_files import CONSUMER_FILTERS, decode_table
from roquet.format.consume_queue_ext import CqExtUnit, fits
from roquet.format.derived import QueueKey
from roquet.storefiles.view import StoreView

_BITS_A_BYTE = 8


@dataclass(frozen=True)
class ExtRules:
    """How units are made.

    Attributes:
        file_bytes: Length of a file.
        filters: The filters in bit maps; none to make no bit maps.
    """

    file_bytes: int
    filters: tuple[ConsumerFilterData, ...] = ()


def sound_filters(filters: Iterable[ConsumerFilterData]) -> tuple[ConsumerFilterData, ...]:
    """Return the filters, or none if a broker would reject their bits: sizes must be equal."""
    found = tuple(filters)
    counts = {0 if (bits := each.bloom_filter_data) is None else bits.bit_num for each in found}
    count = max(counts, default=0)
    is_sound = (
        len(counts) == 1
        and count > 0
        and count % _BITS_A_BYTE == 0
        and all(
            0 <= position < count
            for each in found
            if each.bloom_filter_data is not None
            for position in each.bloom_filter_data.bit_pos or ()
        )
    )
    return found if is_sound else ()


def consumer_filters(view: StoreView) -> list[ConsumerFilterData]:
    """Read the broker's SQL92 filters from ``consumerFilter.json`` or its backup."""
    for data in view.config_contents(CONSUMER_FILTERS):
        with suppress(ConfigError, UnicodeDecodeError):
            table = decode_table(ConsumerFilters, data.decode()).filter_data_by_topic
            return [
                msgspec.structs.replace(each, topic=topic)
                for topic, filters in table.items()
                for each in filters.group_filter_data.values()
            ]
    return []


class UnitMaker:
    """Makes units, with parsed filters."""

    def __init__(self, rules: ExtRules) -> None:
        self._file_bytes = rules.file_bytes
        self._bit_count = 0
        self._filters: dict[str, list[ConsumerFilter]] = {}
        for data in rules.filters:
            bits = data.bloom_filter_data
            self._bit_count = 0 if bits is None else bits.bit_num
            with suppress(ProtocolError, Sql92Error):  # no broker can use such a filter
                expression = compile_expression(data.expression_type, data.expression)
                found = ConsumerFilter(data, expression, data.born_time_ms)
                self._filters.setdefault(data.topic, []).append(found)

    @classmethod
    def of(cls, rules: ExtRules | None) -> Self | None:
        """Return a maker, or ``None`` if no units are made."""
        return None if rules is None else cls(rules)

    def unit(self, key: QueueKey, record: DispatchRequest) -> CqExtUnit | None:
        """Return the unit of a record in a queue; ``None`` if it gets none."""
        if key.topic != record.topic:
            return None
        stored_ms = record.store_timestamp_ms
        judges = [
            each for each in self._filters.get(record.topic, ()) if stored_ms > each.judged_from_ms
        ]
        bitmap = filter_bitmap(judges, self._bit_count, record.properties)
        unit = CqExtUnit(record.tags_code, stored_ms, bitmap or b"")
        return unit if fits(unit.size_bytes, self._file_bytes) else None
