r"""The JSON dialect of RocketMQ's configuration files and of some of its message bodies.

RocketMQ prints JSON with fastjson (1.2.83 up to 5.3, fastjson2 2.0.43 since 5.4), and both write
maps whose keys are not strings without quotes, which no standard JSON library reads. This module
owns a reader for what RocketMQ and people write, and a writer that matches fastjson character for
character.

.. code-block:: text

    Python                       text
    str key                      "name":
    int key                      0:                      Map<Integer, …>: queue ids, broker ids
    ObjectKey                    {"brokerName":"b","queueId":2,"topic":"T"}:
    None as a map's value        the entry is left out
    None in a list               null
    float                        as Java prints a double: 0.0, 1.0E10; NaN and infinities as null
    list                         a Java collection: one element a line when pretty
    tuple                        what fastjson keeps on one line when pretty: an array of numbers,
                                 fields declared List<Long>, List<Integer> or List<String> (2),
                                 sets (1)

    fastjson 2, pretty           fastjson 1, pretty
    {                            {
    →"offsetTable":{             →"offsetTable":{
    →→"T@G":{                    →→"T@G":{0:5,1:7
    →→→0:5,                      →→},
    →→→1:7                       →→"U@G":{}
    →→},                         →}
    →→"U@G":{                    }
    →→→
    →→}                          The arrow is one TAB. No space follows a colon, and no line
    →}                           break ends the text. An empty map or collection has a line of
    }                            its own in fastjson 2, which holds only TABs.

:mod:`roquet.model.fastjson_reader` describes reading; its names are re-exported here, so that
callers import only this module.

Invariants:

* Order is kept: entries are read in the order of the text, and written in the order of the
  mapping. RocketMQ sorts the members of its objects by name; callers that build values do too.
* A returned string never holds half a surrogate pair, so it can always be written as UTF-8.
* Nesting is bounded by :data:`MAX_DEPTH` in both directions.
* A member that upstream's class does not know must not hold an unquoted key: fastjson 2 skips
  unknown members with a stricter reader and then rejects the whole file.

No I/O happens here. Any layer may call it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from json.encoder import encode_basestring
from typing import TypeAlias

from roquet.model.fastjson_reader import (
    MAX_DEPTH,
    SURROGATE,
    JsonKey,
    JsonScalar,
    JsonSyntaxError,
    JsonValue,
    ObjectKey,
    loads,
)

__all__ = [
    "MAX_DEPTH",
    "Dialect",
    "JsonKey",
    "JsonScalar",
    "JsonSyntaxError",
    "JsonValue",
    "ObjectKey",
    "WritableJson",
    "dumps",
    "loads",
    "without_nulls",
]

_PlainMapping: TypeAlias = "Mapping[str, WritableJson] | Mapping[int, WritableJson]"
_ObjectMapping: TypeAlias = "Mapping[ObjectKey, WritableJson] | Mapping[JsonKey, WritableJson]"
WritableJson: TypeAlias = "JsonScalar | Sequence[WritableJson] | _PlainMapping | _ObjectMapping"
"""What :func:`dumps` accepts; a sequence is a list or a tuple."""


class Dialect(enum.Enum):
    """Which fastjson :func:`dumps` imitates."""

    FASTJSON2 = enum.auto()
    """RocketMQ 5.4 and later."""

    FASTJSON1 = enum.auto()
    """RocketMQ up to 5.3."""


_FASTJSON1_ESCAPES = str.maketrans(
    {
        **{code: f"\\u{code:04X}" for code in [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]},
        **{
            ord(char): f"\\{letter}"
            for char, letter in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)
        },
    }
)


def dumps(
    value: WritableJson, *, pretty: bool = False, dialect: Dialect = Dialect.FASTJSON2
) -> str:
    """Write a value as fastjson does.

    Half a surrogate pair becomes ``?``, as in Java's UTF-8.

    Args:
        value: Plain values; see the table at the top of this module for lists and tuples.
        pretty: One entry per line, as in RocketMQ's files; otherwise no whitespace at all.
        dialect: Which fastjson.

    Raises:
        TypeError: A value or key cannot be represented in JSON.
        ValueError: The value nests deeper than :data:`MAX_DEPTH`, or contains itself.

    Example:
        >>> dumps({"brokerAddrs": {0: "127.0.0.1:10911"}, "zoneName": None})
        '{"brokerAddrs":{0:"127.0.0.1:10911"}}'
    """
    writer = _Writer(pretty=pretty, dialect=dialect)
    writer.value(value, 0)
    text = "".join(writer.out)
    if not text.isascii() and SURROGATE.search(text) is not None:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


class _Writer:
    """Collects the pieces of one text; ``level`` counts the TABs of the current line."""

    __slots__ = ("each_on_its_line", "out", "pretty", "quoted")

    def __init__(self, *, pretty: bool, dialect: Dialect) -> None:
        self.out: list[str] = []
        self.pretty = pretty
        self.each_on_its_line = pretty and dialect is Dialect.FASTJSON2
        self.quoted: Callable[[str], str] = encode_basestring
        if dialect is Dialect.FASTJSON1:
            self.quoted = lambda text: f'"{text.translate(_FASTJSON1_ESCAPES)}"'

    def value(self, value: WritableJson, level: int) -> None:
        match value:
            case str():
                self.out.append(self.quoted(value))
            case None:
                self.out.append("null")
            case bool():
                self.out.append("true" if value else "false")
            case int():
                self.out.append(int.__repr__(value))
            case float():
                self.out.append(_java_double(value))
            case Mapping():
                self.map(value.items(), self.deeper(level))
            case list():
                self.lines(value, self.deeper(level))
            case tuple():
                self.one_line(value, level)
            case _:
                raise TypeError(f"{type(value).__name__} cannot be represented in JSON")

    def deeper(self, level: int) -> int:
        if level >= MAX_DEPTH:
            raise ValueError(f"the value nests deeper than {MAX_DEPTH} levels")
        return level + 1

    def map(self, entries: Collection[tuple[JsonKey, WritableJson]], level: int) -> None:
        inner, outer = self.line_breaks(level)
        self.out.append("{")
        is_first = True
        for key, value in entries:
            if value is None:
                continue
            if not is_first:
                self.out.append(",")
            is_first = False
            # fastjson 1 breaks the line before a string key only.
            if self.each_on_its_line or isinstance(key, str):
                self.out.append(inner)
            self.key(key, level)
            self.out.append(":")
            self.value(value, level)
        if is_first and self.each_on_its_line:
            self.out.append(inner)
        if entries or self.each_on_its_line:
            self.out.append(outer)
        self.out.append("}")

    def key(self, key: JsonKey, level: int) -> None:
        match key:
            case str():
                self.out.append(self.quoted(key))
            case int() if not isinstance(key, bool):
                self.out.append(int.__repr__(key))
            case ObjectKey():
                self.map(key.members, self.deeper(level))
            case _:
                raise TypeError(f"{type(key).__name__} cannot be a key in JSON")

    def lines(self, elements: Sequence[WritableJson], level: int) -> None:
        inner, outer = self.line_breaks(level)
        self.out.append("[")
        for index, element in enumerate(elements):
            self.out.append("," + inner if index else inner)
            self.value(element, level)
        if self.each_on_its_line and not elements:
            self.out.append(inner)
        if self.each_on_its_line or elements:
            self.out.append(outer)
        self.out.append("]")

    def one_line(self, elements: Sequence[WritableJson], level: int) -> None:
        self.out.append("[")
        for index, element in enumerate(elements):
            if index:
                self.out.append(",")
            self.value(element, level)
        self.out.append("]")

    def line_breaks(self, level: int) -> tuple[str, str]:
        """The text before an entry, and before the closing bracket."""
        return ("\n" + "\t" * level, "\n" + "\t" * (level - 1)) if self.pretty else ("", "")


def _java_double(value: float) -> str:
    if not math.isfinite(value):
        return "null"
    digits = repr(abs(value)).partition("e")[0].replace(".", "").strip("0")
    # Java prints at least two digits, and chooses those nearest to the number.
    mantissa, _, exponent = f"{value:.{max(len(digits), 2) - 1}e}".partition("e")
    power = int(exponent)
    if -3 <= power < 7:
        return f"{value:.{max(len(digits) - 1 - power, 1)}f}"
    if len(digits) > 1:
        # At a power of two, the nearest digits may read back as the number below it, which is
        # twice as near as the one above; the shortest digits never do.
        mantissa = f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:]}"
    return f"{mantissa}E{power}"


def without_nulls(value: object) -> object:
    """Return a value as upstream reads it: null members of objects are dropped.

    Example:
        >>> without_nulls({"a": None, "b": [None, {"c": None}]})
        {'b': [None, {}]}
    """
    match value:
        case dict():
            return {key: without_nulls(item) for key, item in value.items() if item is not None}
        case list():
            return [without_nulls(item) for item in value]
    return value
