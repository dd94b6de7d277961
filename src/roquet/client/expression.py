"""Converts the filter expression of a consumer to a subscription.

Owns :class:`Sql` and :func:`subscription_of`. A string contains tags: ``*`` for all messages, or
tags separated by ``||``. The subscription is the one that Apache RocketMQ's Java client builds;
brokers compare ``sub_version`` to find the newer of two.
"""

from __future__ import annotations

from msgspec import Struct

from roquet.errors import BadExpression, ProtocolError
from roquet.filter.tags import build_subscription
from roquet.model.subscription import EXPRESSION_TYPE_SQL92, SUBSCRIBE_ALL, SubscriptionData

__all__ = ["Expression", "Sql", "subscription_of"]


class Sql(Struct, frozen=True):
    """A condition over the properties of messages, in SQL92.

    The broker must allow such filters (``enablePropertyFilter``).

    Attributes:
        text: The condition.

    Example:
        >>> Sql("region = 'eu' AND price > 10").text
        "region = 'eu' AND price > 10"
    """

    text: str


Expression = str | Sql
"""Tags, such as ``"paid || sent"``, or an :class:`Sql` condition.

Example:
    await consumer.subscribe("Orders", "paid || sent")
    await consumer.subscribe("Parcels", Sql("weight_kg > 10"))
"""


def subscription_of(topic: str, expression: Expression, *, version_ms: int) -> SubscriptionData:
    """Return the subscription to send to brokers.

    Args:
        topic: The topic on the wire.
        expression: Which of its messages.
        version_ms: When it was created or last changed.

    Raises:
        BadExpression: There are blanks or separators but no tags, or the condition is blank. Only
            the broker checks whether a condition can be parsed.

    Example:
        >>> found = subscription_of("Orders", "paid || sent", version_ms=17)
        >>> found.tags_set, found.code_set, found.sub_version
        (['paid', 'sent'], [3433164, 3526552], 17)
    """
    is_sql = isinstance(expression, Sql)
    text = expression.text if isinstance(expression, Sql) else expression
    try:
        if is_sql and not text.strip():
            text = ""
        found = build_subscription(topic, text, EXPRESSION_TYPE_SQL92 if is_sql else None)
    except ProtocolError as error:
        raise BadExpression(
            f"The subscription to {topic} cannot be parsed",
            detail=error.detail or error.message,
            hint=error.hint or "Write a condition such as price > 10.",
        ) from error
    if not is_sql and found.sub_string != SUBSCRIBE_ALL and not found.tags_set:
        raise BadExpression(
            f"The subscription to {topic} has no tags",
            detail=repr(text),
            hint="Write tags such as paid || sent, or * for all messages.",
        )
    found.sub_version = version_ms
    return found
