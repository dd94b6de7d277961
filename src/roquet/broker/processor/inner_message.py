"""How the broker transforms a message before it is stored; upstream's MessageExtBrokerInner.

Owns the properties that the broker reads, replaces and adds, and the topics of messages that are
not delivered at once: the schedule topic for delayed ones, the half topic for transactions.

Properties are stored in this order. The hot path writes the same bytes, so the order is part
of the format here, although readers treat properties as a map:

==== ========================================== ==========================================
#    what                                       when
==== ========================================== ==========================================
1    the producer's pairs, in its order         always, except those replaced below
2    UNIQ_KEY                                   the producer gave none
3    MSG_REGION, TRACE_ON, CLUSTER              always, see :func:`added_properties`
4    __transactionId__                          half messages
5    REAL_TOPIC, REAL_QID                       half messages and delayed ones
==== ========================================== ==========================================

A producer's string is parsed as upstream parses it, and written again: the last of equal names
wins, empty names and values are dropped. If names are unique and have values, it stays unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from roquet.broker.config import BrokerConfig
from roquet.errors import ProtocolError
from roquet.model import properties as prop
from roquet.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC

__all__ = [
    "POP_CHECKPOINT",
    "PRIORITY",
    "REPLACED",
    "TIMER_REQUESTS",
    "Placement",
    "added_properties",
    "delay_level",
    "delayed_placement",
    "encoded",
    "half_placement",
    "is_true",
    "priority",
    "read_properties",
    "region_properties",
]

POP_CHECKPOINT = "POP_CK"
PRIORITY = "_SYS_MSG_PRIORITY_"
TRANSACTION_ID = "__transactionId__"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_REQUESTS = ("TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS")
"""Properties by which a producer requests delivery at a specific time."""

REPLACED = (POP_CHECKPOINT, prop.MSG_REGION, prop.TRACE_SWITCH, prop.CLUSTER)
"""Properties that only the broker sets; a producer's are dropped."""

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


class Placement(NamedTuple):
    """Where a message is stored instead of its own topic, and the properties it gets for that."""

    topic: str
    queue_id: int
    added: dict[str, str]


def added_properties(config: BrokerConfig) -> bytes:
    r"""The properties at the end of every message of a single send, unless placed elsewhere.

    Example:
        >>> added_properties(BrokerConfig())
        b'MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02'
    """
    return prop.encode_properties({**region_properties(config), prop.CLUSTER: config.cluster_name})


def region_properties(config: BrokerConfig) -> dict[str, str]:
    """The properties that describe the broker in messages and responses: region, trace switch.

    Example:
        >>> region_properties(BrokerConfig(trace_on=False))
        {'MSG_REGION': 'DefaultRegion', 'TRACE_ON': 'false'}
    """
    return {
        prop.MSG_REGION: config.region_id,
        prop.TRACE_SWITCH: "true" if config.trace_on else "false",
    }


def read_properties(text: str) -> dict[str, str]:
    r"""Parse a producer's property string.

    Example:
        >>> read_properties("TAGS\x01A\x02TAGS\x01B\x02=\x02KEYS\x01\x02")
        {'TAGS': 'B'}
    """
    properties: dict[str, str] = {}
    for pair in text.split(prop.PROPERTY_SEPARATOR):
        name, _, value = pair.partition(prop.NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def encoded(text: str) -> bytes:
    """Encode a string for the store; half a surrogate pair becomes a question mark, as in Java."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def is_true(text: str | None) -> bool:
    """``Boolean.parseBoolean``."""
    return text is not None and text.lower() == "true"


def delay_level(properties: Mapping[str, str]) -> int:
    """Return the delay level of a message, 0 for none.

    Raises:
        ProtocolError: It is not a number.
    """
    text = properties.get(prop.DELAY_TIME_LEVEL)
    if text is None:
        return 0
    level = _java_int(text)
    if level is None:
        raise ProtocolError(
            f'the property <{prop.DELAY_TIME_LEVEL}> is no number. For input string: "{text[:40]}"',
            code="bad_property",
            hint="set a delay level of 1 or more",
        )
    return level


def priority(properties: Mapping[str, str]) -> int:
    """Return the priority of a message, -1 if it is missing or not a number."""
    level = _java_int(properties.get(PRIORITY, ""))
    return -1 if level is None else level


def _java_int(text: str) -> int | None:
    """``Integer.parseInt``; ``None`` where that would throw."""
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not digits.isdecimal() or len(digits) > 10:
        return None
    value = int(text)
    return value if _INT_MIN <= value <= _INT_MAX else None


def delayed_placement(topic: str, queue_id: int, level: int) -> Placement:
    """Where a message with a delay level waits: each level has its own queue.

    Example:
        >>> delayed_placement("T", 0, 3)[:2]
        ('SCHEDULE_TOPIC_XXXX', 2)
    """
    real = {prop.REAL_TOPIC: topic, prop.REAL_QUEUE_ID: str(queue_id)}
    return Placement(SCHEDULE_TOPIC, level - 1, real)


def half_placement(topic: str, queue_id: int, unique_key: str) -> Placement:
    """Where a message waits for the end of its transaction.

    Example:
        >>> half_placement("T", 2, "ID").added
        {'__transactionId__': 'ID', 'REAL_TOPIC': 'T', 'REAL_QID': '2'}
    """
    added = {
        TRANSACTION_ID: unique_key,
        prop.REAL_TOPIC: topic,
        prop.REAL_QUEUE_ID: str(queue_id),
    }
    return Placement(TRANS_HALF_TOPIC, 0, added)
