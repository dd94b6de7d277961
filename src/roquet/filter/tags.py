"""Filters by tags.

Owns the grammar of a tag expression and the test of a queue entry against it. An expression is
``*`` or nothing for every message, or tags separated by ``||``. A queue entry holds the Java hash
of a message's tags and not the tags, so a filter may pass another tag with the same hash; consumers
compare the tags themselves again.

Follows upstream's FilterAPI, ExpressionType and, for tags, ExpressionMessageFilter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from roquet.errors import ProtocolError
from roquet.model.java_string import java_hash
from roquet.model.subscription import EXPRESSION_TYPE_TAG, SUBSCRIBE_ALL, SubscriptionData

__all__ = ["QueueFilter", "TagFilter", "build_subscription", "is_tag_type", "tag_filter"]

QueueFilter: TypeAlias = Callable[[int, object], bool]
"""Whether a queue entry matches, by its tags code, and its ext unit if it has one."""

_SEPARATOR = "||"
_JAVA_BLANKS = "".join(map(chr, range(0x21)))
"""What ``String.trim`` removes."""

_CACHED_CHARACTERS_MAX = 256
"""Longer expressions are not cached, so that clients cannot fill our memory with them."""


class _Tags(NamedTuple):
    names: tuple[str, ...]
    codes: tuple[int, ...]


def is_tag_type(expression_type: str | None) -> bool:
    """Whether the expression type is TAG."""
    return not expression_type or expression_type == EXPRESSION_TYPE_TAG


def build_subscription(
    topic: str, expression: str | None, expression_type: str | None = None
) -> SubscriptionData:
    """Parse an expression; one of another type than TAG is kept as it is.

    Raises:
        ProtocolError: The expression is missing, or has separators only.

    Example:
        >>> found = build_subscription("Orders", "paid || sent")
        >>> found.tags_set, found.code_set
        (['paid', 'sent'], [3433164, 3526552])
        >>> build_subscription("Orders", None).sub_string
        '*'
    """
    if expression_type is not None and expression_type != EXPRESSION_TYPE_TAG:
        if not expression:
            raise ProtocolError(
                f"Expression can't be null! {expression_type}", code="empty_expression"
            )
        return SubscriptionData(topic=topic, sub_string=expression, expression_type=expression_type)
    if not expression or expression == SUBSCRIBE_ALL:
        return SubscriptionData(topic=topic, sub_string=SUBSCRIBE_ALL)
    is_short = len(expression) <= _CACHED_CHARACTERS_MAX
    tags = _parse_cached(expression) if is_short else _parse(expression)
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=list(tags.names),
        code_set=list(tags.codes),
    )


@dataclass(frozen=True, slots=True)
class TagFilter:
    """Matches queue entries whose tags have one of these hashes.

    Upstream compares the low 32 bits of an entry's 64, as a signed number.
    """

    codes: frozenset[int]

    def __call__(self, tags_code: int, _ext: object) -> bool:
        """Whether an entry matches."""
        return (tags_code + 0x80000000 & 0xFFFFFFFF) - 0x80000000 in self.codes


def tag_filter(subscription: SubscriptionData) -> TagFilter | None:
    """The filter of a subscription; ``None`` if all entries match.

    The expression type must be TAG.
    """
    if subscription.class_filter_mode or subscription.sub_string == SUBSCRIBE_ALL:
        return None
    return TagFilter(frozenset(subscription.code_set))


def _parse(expression: str) -> _Tags:
    parts = expression.split(_SEPARATOR)
    if not any(parts):
        # Java's split drops trailing empty parts, which here leaves nothing at all.
        raise ProtocolError(
            "subString split error",
            code="bad_tag_expression",
            detail=f"{expression[:40]!r} has separators only",
            hint="Separate tags with ||, or write * for all messages.",
        )
    names = dict.fromkeys(tag for part in parts if (tag := part.strip(_JAVA_BLANKS)))
    return _Tags(tuple(names), tuple(dict.fromkeys(map(java_hash, names))))


_parse_cached = lru_cache(maxsize=1024)(_parse)
