"""Names of topics and groups: what is allowed, and namespaces.

A namespace is put before a name, separated by ``%``: ``shop%Orders``, and in retry and dead-letter
topics after their prefix: ``%RETRY%shop%billing``. System names are never wrapped. Names are
wrapped on the wire; users see them without the namespace.
"""

from __future__ import annotations

from roquet.errors import BadName
from roquet.model.topic import (
    DLQ_GROUP_TOPIC_PREFIX,
    NOT_ALLOWED_SEND_TOPICS,
    RETRY_GROUP_TOPIC_PREFIX,
    group_fault,
    is_system_topic,
    topic_fault,
)

__all__ = ["check_group", "check_publish_topic", "check_topic", "unwrap", "wrap"]

SEPARATOR = "%"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
TOOLS_GROUP = "TOOLS_CONSUMER"
"""The group of admin tools, which every broker knows; it commits nothing."""

_HINT = "Letters, digits, %, |, _ and - are allowed."


def check_topic(topic: str) -> None:
    """Check that a topic can have this name.

    Raises:
        BadName: With upstream's message.

    Example:
        >>> check_topic("Orders")
        >>> try:
        ...     check_topic("")
        ... except BadName as error:
        ...     print(error.message)
        The specified topic is blank.
    """
    fault = topic_fault(topic)
    if fault is not None:
        raise BadName(fault, hint=_HINT)


def check_publish_topic(topic: str) -> None:
    """Check that clients can send to a topic.

    Raises:
        BadName: The name is not allowed, or the topic is a system topic.
    """
    check_topic(topic)
    if topic in NOT_ALLOWED_SEND_TOPICS:
        raise BadName(
            f"Sending message to topic[{topic}] is forbidden.",
            hint="Only brokers write to it; choose another topic.",
        )


def check_group(group: str) -> None:
    """Check that a group can have this name.

    Raises:
        BadName: With upstream's message.
    """
    fault = group_fault(group)
    if fault is not None:
        raise BadName(fault, hint=_HINT)
    if group in {DEFAULT_PRODUCER_GROUP, DEFAULT_CONSUMER_GROUP}:
        raise BadName(
            f"The group cannot be {group}",
            hint="All clients without a name of their own would share it; choose another one.",
        )


def wrap(namespace: str, name: str) -> str:
    """Return the name of a topic or group on the wire.

    Example:
        >>> wrap("shop", "Orders"), wrap("shop", "%RETRY%billing"), wrap("", "Orders")
        ('shop%Orders', '%RETRY%shop%billing', 'Orders')
        >>> wrap("shop", "shop%Orders"), wrap("shop", "TBW102")
        ('shop%Orders', 'TBW102')
    """
    if not namespace or not name or _is_of_system(name):
        return name
    prefix, bare = _split(name)
    head = namespace + SEPARATOR
    return name if bare.startswith(head) else f"{prefix}{head}{bare}"


def unwrap(namespace: str, name: str) -> str:
    """Return a name as users see it; names in other namespaces are unchanged.

    Example:
        >>> unwrap("shop", "shop%Orders"), unwrap("shop", "%RETRY%shop%billing")
        ('Orders', '%RETRY%billing')
        >>> unwrap("shop", "other%Orders")
        'other%Orders'
    """
    if not namespace or not name or _is_of_system(name):
        return name
    prefix, bare = _split(name)
    head = namespace + SEPARATOR
    return prefix + bare[len(head) :] if bare.startswith(head) else name


def _is_of_system(name: str) -> bool:
    return is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX)


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
