"""The SQL92 filters of groups: how they are stored, and how they are evaluated.

Owns the members of ``consumerFilter.json``, and the bitmap that says which filters of a topic may
match a message. A broker computes it when it dispatches the message, and a rebuild recomputes it.

Follows upstream's ConsumerFilterData and CommitLogDispatcherCalcBitMap.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from msgspec import Struct, field

from roquet.errors import ProtocolError
from roquet.filter.bloom import BitsArray, BloomFilterData
from roquet.filter.sql92 import Sql92Expression, compile_sql92
from roquet.model.subscription import EXPRESSION_TYPE_SQL92

__all__ = [
    "ConsumerFilter",
    "ConsumerFilterData",
    "ConsumerFilters",
    "TopicFilters",
    "compile_expression",
    "filter_bitmap",
]

BITMAP_CHARACTERS_MAX: Final = 16 << 10
"""Up to this total length of a topic's expressions, new messages get a bitmap."""


class ConsumerFilterData(Struct, frozen=True, kw_only=True, rename="camel"):
    """A filter as stored in the file.

    Attributes:
        born_time_ms: When it was registered with this expression.
        dead_time_ms: When its last client left, if that is later than ``born_time_ms``.
        client_version: The version of the subscription it came from.
    """

    bloom_filter_data: BloomFilterData | None = None
    born_time_ms: int = field(default=0, name="bornTime")
    client_version: int = 0
    consumer_group: str = ""
    dead_time_ms: int = field(default=0, name="deadTime")
    expression: str = ""
    expression_type: str = ""
    topic: str = ""

    @property
    def is_dead(self) -> bool:
        """Whether no client uses it."""
        return self.dead_time_ms >= self.born_time_ms


class TopicFilters(Struct, kw_only=True, rename="camel"):
    """The filters of a topic by group."""

    group_filter_data: dict[str, ConsumerFilterData] = field(default_factory=dict)
    topic: str = ""


class ConsumerFilters(Struct, kw_only=True, rename="camel"):
    """The content of the file."""

    filter_data_by_topic: dict[str, TopicFilters] = field(default_factory=dict)


class ConsumerFilter(NamedTuple):
    """A filter with its compiled expression.

    Attributes:
        data: The stored part.
        expression: Its expression, compiled.
        judged_from_ms: Bitmaps of messages stored after this include the filter.
    """

    data: ConsumerFilterData
    expression: Sql92Expression
    judged_from_ms: int


def compile_expression(kind: str, text: str) -> Sql92Expression:
    """Compile an expression of a type other than TAG.

    Raises:
        ProtocolError: The expression type is unknown.
        Sql92Error: The expression is invalid; clients get the message.
    """
    if kind != EXPRESSION_TYPE_SQL92:
        raise ProtocolError(
            f"There are no expressions of type {kind[:40]}.",
            code="unknown_expression_type",
            hint="Filter by TAG or SQL92.",
        )
    return compile_sql92(text)


def filter_bitmap(
    filters: Collection[ConsumerFilter], bit_count: int, properties: Mapping[str, str]
) -> bytes | None:
    """Evaluate the filters of a topic for a message.

    Dead filters are included: their consumers may come back.

    Args:
        filters: The topic's filters; made for ``bit_count`` bits.
        bit_count: How many bits there are.
        properties: The properties of the message.

    Returns:
        The bitmap; ``None`` if there are no filters, or so many that senders would have to wait.
    """
    if not filters or sum(len(each.data.expression) for each in filters) > BITMAP_CHARACTERS_MAX:
        return None
    bitmap = BitsArray.of_length(bit_count)
    for data, expression, _ in filters:
        bits = data.bloom_filter_data
        if bits is not None and expression.matches(properties):
            bitmap.add(bits)
    return bytes(bitmap)
