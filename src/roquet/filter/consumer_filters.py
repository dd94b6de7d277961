"""The SQL92 filters of groups: as they are kept, and as they judge messages.

Owns the members of ``consumerFilter.json``, and the bit map in which the filters of a topic say
whether they may want a message. A broker makes it when it dispatches the message; a rebuild makes
it again.

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
"""Characters of a topic's expressions up to which each new message is judged for them all."""


class ConsumerFilterData(Struct, frozen=True, kw_only=True, rename="camel"):
    """A filter, as the file has it.

    Attributes:
        born_time_ms: When it was registered with this expression.
        dead_time_ms: When its last client went away, if that is later than it was born.
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
        """Whether nobody uses it."""
        return self.dead_time_ms >= self.born_time_ms


class TopicFilters(Struct, kw_only=True, rename="camel"):
    """The filters of a topic by group."""

    group_filter_data: dict[str, ConsumerFilterData] = field(default_factory=dict)
    topic: str = ""


class ConsumerFilters(Struct, kw_only=True, rename="camel"):
    """What the file holds."""

    filter_data_by_topic: dict[str, TopicFilters] = field(default_factory=dict)


class ConsumerFilter(NamedTuple):
    """A filter that can be used.

    Attributes:
        data: What is kept of it.
        expression: Its expression, compiled.
        judged_from_ms: Bit maps of messages that were stored later speak for it.
    """

    data: ConsumerFilterData
    expression: Sql92Expression
    judged_from_ms: int


def compile_expression(kind: str, text: str) -> Sql92Expression:
    """Read an expression that is not one of tags.

    Raises:
        ProtocolError: There is no such type of expressions.
        Sql92Error: The expression is refused; the message is what clients are told.
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
    """What the filters of a topic say of a message.

    The dead are judged for too: their consumers may come back.

    Args:
        filters: Those of the topic; their bits are out of ``bit_count``.
        bit_count: How many bits there are.
        properties: Those of the message.

    Returns:
        The bit map; ``None`` if nobody filters the topic, or so many do that it would hold up
        whoever sends.
    """
    if not filters or sum(len(each.data.expression) for each in filters) > BITMAP_CHARACTERS_MAX:
        return None
    bitmap = BitsArray.of_length(bit_count)
    for data, expression, _ in filters:
        bits = data.bloom_filter_data
        if bits is not None and expression.matches(properties):
            bitmap.add(bits)
    return bytes(bitmap)
