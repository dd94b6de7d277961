"""Units of a ConsumeQueueExt, made anew from the log and from the filters of groups.

Owns what a unit holds. Tags code and store time are those of the record. The bit map is what the
broker's SQL92 filters say of it; they are in its config, not in the log. A filter has a say in
what was stored after it was registered, as then: brokers never ask the bit map of an older message
for it. Filters that were changed or dropped since are not known any more, and nobody asks for them.

Light queues get no units, as with upstream.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from roquet.errors import ProtocolError
from roquet.filter.consumer_filters import (
    ConsumerFilter,
    ConsumerFilterData,
    compile_expression,
    filter_bitmap,
)
from roquet.filter.sql92 import Sql92Error
from roquet.format.commit_log import DispatchRequest
from roquet.format.consume_queue_ext import CqExtUnit, fits
from roquet.format.derived import QueueKey

_BITS_A_BYTE = 8


@dataclass(frozen=True)
class ExtRules:
    """How units are made.

    Attributes:
        file_bytes: Length of a file.
        filters: Filters that have a say in bit maps; none to make no bit maps.
    """

    file_bytes: int
    filters: tuple[ConsumerFilterData, ...] = ()


def sound_filters(filters: Iterable[ConsumerFilterData]) -> tuple[ConsumerFilterData, ...]:
    """The filters, or none if their bits are not all out of one number, as brokers demand."""
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


class UnitMaker:
    """Makes units, with the filters at hand."""

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
        """One, if units are made."""
        return None if rules is None else cls(rules)

    def unit(self, key: QueueKey, record: DispatchRequest) -> CqExtUnit | None:
        """The unit of a record in a queue, ``None`` if it gets none."""
        if key.topic != record.topic:
            return None
        stored_ms = record.store_timestamp_ms
        judges = [
            each for each in self._filters.get(record.topic, ()) if stored_ms > each.judged_from_ms
        ]
        bitmap = filter_bitmap(judges, self._bit_count, record.properties)
        unit = CqExtUnit(record.tags_code, stored_ms, bitmap or b"")
        return unit if fits(unit.size_bytes, self._file_bytes) else None
