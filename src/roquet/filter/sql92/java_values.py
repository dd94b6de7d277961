"""Java's values: parsing numbers, comparing, printing.

Owns the behaviour of Java's Integer, Long, Double, Boolean and String in SQL92 expressions. A value
is a ``str``, ``int``, ``float``, ``bool`` or ``None``. Whether an ``int`` is an Integer or a Long
follows from its size: upstream parses every literal that fits as an Integer, and only the negation
of a Long gives the smallest Integer.
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import lru_cache
from typing import TypeAlias

__all__ = [
    "ClassCastError",
    "Number",
    "NumberFormatError",
    "Value",
    "compare",
    "compare_doubles",
    "double_text",
    "is_integer_class",
    "parse_double",
    "parse_whole",
    "value_text",
]

Number: TypeAlias = int | float
Value: TypeAlias = str | Number | bool | None

INTEGER_MIN, INTEGER_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_WHOLE_ANY_SCRIPT = re.compile(r"([+-]?)(\d+)")
_LONG_DIGITS = 19

_JAVA_BLANKS = "".join(map(chr, range(0x21)))
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_NAMED = re.compile(r"([+-]?)(NaN|Infinity)")


class NumberFormatError(ValueError):
    """Java's NumberFormatException; its text is Java's."""


class ClassCastError(TypeError):
    """Java's ClassCastException; its text is Java's."""


def is_integer_class(value: int) -> bool:
    """Whether upstream has this value as an Integer, rather than a Long."""
    return INTEGER_MIN < value <= INTEGER_MAX


def parse_whole(text: str, *, as_integer: bool) -> int:
    """``Integer.valueOf`` or ``Long.valueOf``.

    Raises:
        NumberFormatError: The text is not such a number, or it is out of range.
    """
    value = int(text) if _WHOLE.fullmatch(text) else _parse_rare_whole(text)
    if as_integer and not INTEGER_MIN <= value <= INTEGER_MAX:
        raise _bad_number(text)
    return value


@lru_cache(maxsize=8)
def _parse_rare_whole(text: str) -> int:
    """Parse numbers with many digits, or with digits of any script, which Java accepts too.

    They may have thousands of zeros, and an expression may use a property many times.
    """
    match = _WHOLE_ANY_SCRIPT.fullmatch(text)
    # Java looks at UTF-16 units, so digits outside the BMP do not count.
    if match is None or max(text) > "\uffff":
        raise _bad_number(text)
    sign, digits = match.groups()
    if not digits.isascii():
        digits = "".join(str(unicodedata.decimal(digit)) for digit in digits)
    ascii_digits = digits.lstrip("0") or "0"
    if len(ascii_digits) > _LONG_DIGITS:
        raise _bad_number(text)
    value = -int(ascii_digits) if sign == "-" else int(ascii_digits)
    if not LONG_MIN <= value <= LONG_MAX:
        raise _bad_number(text)
    return value


def parse_double(text: str) -> float:
    """``Double.valueOf``: also hexadecimal, ``NaN``, ``Infinity``, and with ``f`` or ``d``.

    Raises:
        NumberFormatError: The text is not a number.
    """
    if match := _DECIMAL.fullmatch(text):
        return float(match[1])
    trimmed = text.strip(_JAVA_BLANKS)
    if match := _DECIMAL.fullmatch(trimmed):
        return float(match[1])
    if match := _NAMED.fullmatch(trimmed):
        return float(match[1] + match[2])
    if match := _HEXADECIMAL.fullmatch(trimmed):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return -math.inf if trimmed.startswith("-") else math.inf
    if not trimmed:
        raise NumberFormatError("empty String")
    raise _bad_number(trimmed)


def _bad_number(text: str) -> NumberFormatError:
    return NumberFormatError(f'For input string: "{text}"')


def compare_doubles(left: float, right: float) -> int:
    """``Double.compareTo``: NaN equals itself and is the greatest, -0.0 is less than 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_rank = (math.isnan(left), math.copysign(1.0, left) if left == 0 else 0.0)
    right_rank = (math.isnan(right), math.copysign(1.0, right) if right == 0 else 0.0)
    return (left_rank > right_rank) - (left_rank < right_rank)


def compare(left: Value, right: Value) -> int:
    """Upstream's comparison of two values that are not null, converting strings.

    Returns a negative number also where upstream finds the values not comparable.

    Raises:
        NumberFormatError: A string should be a number and is not.
        ClassCastError: A Boolean is compared with a String, which upstream gets wrong.
    """
    assert left is not None
    assert right is not None
    if isinstance(left, bool):
        return _compare_boolean(left, right)
    if isinstance(right, bool):
        return (left.lower() == "true") - right if isinstance(left, str) else -1
    if isinstance(left, str):
        if isinstance(right, str):
            return _compare_texts(left, right)
        return _compare_numbers(_parse_like(right, left), right)
    if isinstance(right, str):
        return _compare_numbers(left, _parse_like(left, right))
    return _compare_numbers(left, right)


def _compare_boolean(left: bool, right: str | Number | bool) -> int:  # noqa: FBT001 - a value
    if isinstance(right, bool):
        return left - right
    if isinstance(right, str):
        raise ClassCastError(
            "class java.lang.Boolean cannot be cast to class java.lang.String (java.lang.Boolean "
            "and java.lang.String are in module java.base of loader 'bootstrap')"
        )
    return -1


def _parse_like(number: Number, text: str) -> Number:
    """The text as a number of the same class."""
    if isinstance(number, float):
        return parse_double(text)
    return parse_whole(text, as_integer=is_integer_class(number))


def _compare_numbers(left: Number, right: Number) -> int:
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def _compare_texts(left: str, right: str) -> int:
    left_units = left.encode("utf-16-be", "surrogatepass")
    right_units = right.encode("utf-16-be", "surrogatepass")
    return (left_units > right_units) - (left_units < right_units)


def value_text(value: Value) -> str:
    """``String.valueOf``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    return "null" if value is None else str(value)


def double_text(value: float) -> str:
    """``Double.toString`` of a finite number.

    Example:
        >>> double_text(0.5), double_text(1e7), double_text(5e-324)
        ('0.5', '1.0E7', '4.9E-324')
    """
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    digits, exponent = _shortest_digits(abs(value))
    if not -3 <= exponent < 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    digits = digits.ljust(exponent + 2, "0")
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :]}"


def _shortest_digits(value: float) -> tuple[str, int]:
    """The fewest digits that identify a number, and the exponent of the first."""
    if value == 0:
        return "0", 0
    mantissa, exponent = f"{value:.16e}".split("e")
    for precision in range(1, 17):
        # Java always prints at least two digits, and picks the nearest two where one is enough.
        mantissa, exponent = f"{value:.{precision}e}".split("e")
        if float(f"{mantissa}e{exponent}") == value:
            break
    return mantissa.replace(".", "").rstrip("0"), int(exponent)
