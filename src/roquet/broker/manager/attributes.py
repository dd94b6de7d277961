"""Attributes of topics and groups: which exist, and how a request changes them.

Owns the rules of upstream's ``AttributeUtil``. A sign says what a request does:

.. code-block:: text

    +message.type=FIFO      set; the only form allowed for a new topic
    -message.type           remove

The messages are upstream's, because ``mqadmin`` prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from roquet.errors import ConfigError

__all__ = ["GROUP_ATTRIBUTES", "TOPIC_ATTRIBUTES", "Attribute", "alter_attributes"]

LONG_MAX = (1 << 63) - 1


class Attribute(Struct, frozen=True, kw_only=True):
    """The allowed values of an attribute: a set of words, or a range of numbers.

    Attributes:
        is_changeable: Whether it can be changed after the topic was created.
        words: The words, in the order in which upstream prints them; empty for a number.
        least: The smallest number.
        most: The largest number.
    """

    is_changeable: bool
    words: tuple[str, ...] = ()
    least: int = 0
    most: int = LONG_MAX

    def fault(self, value: str) -> str | None:
        """Return why a value is refused, or ``None``."""
        if self.words:
            if value in self.words:
                return None
            return f"value is not in set: [{', '.join(self.words)}]"
        digits = value[1:] if value[:1] in {"+", "-"} else value
        if not (digits.isascii() and digits.isdigit()) or abs(int(value)) > LONG_MAX:
            return f'For input string: "{value}"'
        if self.least <= int(value) <= self.most:
            return None
        return f"value is not in range({self.least}, {self.most})"


TOPIC_ATTRIBUTES: Mapping[str, Attribute] = MappingProxyType(
    {
        "queue.type": Attribute(is_changeable=False, words=("SimpleCQ", "BatchCQ")),
        "cleanup.policy": Attribute(is_changeable=False, words=("DELETE", "COMPACTION")),
        "message.type": Attribute(
            is_changeable=True,
            words=("UNSPECIFIED", "MIXED", "TRANSACTION", "PRIORITY", "FIFO", "DELAY", "NORMAL"),
        ),
        "reserve.time": Attribute(is_changeable=True, least=-1),
    }
)

GROUP_ATTRIBUTES: Mapping[str, Attribute] = MappingProxyType(
    {"priority.factor": Attribute(is_changeable=True, most=100)}
)


def alter_attributes(
    current: Mapping[str, str],
    alterations: Mapping[str, str],
    known: Mapping[str, Attribute],
    *,
    is_new: bool,
) -> dict[str, str]:
    """Return the attributes after a request.

    Args:
        current: The attributes before.
        alterations: The changes of the request, with signs.
        known: The supported attributes.
        is_new: Whether this request creates the topic or group.

    Raises:
        ConfigError: The request is refused.

    Example:
        >>> alter_attributes(
        ...     {"reserve.time": "5"},
        ...     {"+message.type": "FIFO", "-reserve.time": ""},
        ...     TOPIC_ATTRIBUTES,
        ...     is_new=False,
        ... )
        {'message.type': 'FIFO'}
    """
    altered = dict(current)
    seen: set[str] = set()
    for signed_key in alterations:
        key = signed_key[1:]
        fault = _key_fault(signed_key, key, current, is_new=is_new)
        if fault is None and key in seen:
            fault = f"alter duplication key. key: {key}"
        if fault is not None:
            raise _refused(fault)
        seen.add(key)
    for signed_key, value in alterations.items():
        key = signed_key[1:]
        attribute = known.get(key)
        if attribute is None:
            raise _refused(f"unsupported key: {key}")
        if not (is_new or attribute.is_changeable):
            raise _refused(f"attempt to update an unchangeable attribute. key: {key}")
        if signed_key.startswith("-"):
            del altered[key]
            continue
        fault = attribute.fault(value)
        if fault is not None:
            raise _refused(fault)
        altered[key] = value
    return altered


def _key_fault(
    signed_key: str, key: str, current: Mapping[str, str], *, is_new: bool
) -> str | None:
    if not key or "+" in key or "-" in key:
        return "kv string format wrong."
    sign = signed_key[0]
    if is_new:
        if sign != "+":
            return f"only add attribute is supported while creating topic. key: {key}"
    elif sign == "-":
        if key not in current:
            return f"attempt to delete a nonexistent key: {key}"
    elif sign != "+":
        return f"wrong format key: {key}"
    return None


def _refused(message: str) -> ConfigError:
    return ConfigError(message, code="attribute_refused")
