"""Text and numbers of report pages.

Invariant: every value goes through :func:`escaped`, whose result is safe in HTML text and in quoted
attributes, and can be encoded as UTF-8.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata

from roquet.spark.report import Cell

__all__ = [
    "cell_text",
    "duration_text",
    "escaped",
    "is_size",
    "label",
    "shortened",
    "size_text",
    "value_text",
]

TEXT_LENGTH_MAX = 4_000
"""Longer texts are cut, such as a body in ``dlq show``."""

_NONE = "–"  # noqa: RUF001 - an en dash, as in printed tables
_LARGEST = 2**63
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_WIDE = {"W", "F"}
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def escaped(text: str) -> str:
    r"""Return text for HTML; characters that cannot be seen are written as escapes.

    Example:
        >>> escaped('<b a="1">\x07')
        '&lt;b a=&quot;1&quot;&gt;\\x07'
    """
    if len(text) > TEXT_LENGTH_MAX:
        text = f"{text[:TEXT_LENGTH_MAX]}…"
    if not text.isprintable():
        text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return html.escape(text, quote=True)


def shortened(text: str, width_max: int) -> str:
    """Cut text to a width in average letters; East Asian wide characters have two.

    Example:
        >>> shortened("Orders", 10), shortened("PaymentsOfShop", 10)
        ('Orders', 'Payment…')
    """
    width = 0.0
    for at, char in enumerate(text):
        if unicodedata.east_asian_width(char) in _WIDE:
            width += 2
        else:
            width += 1.4 if char.isupper() or char in "mw@%" else 1
        if width > width_max:
            return f"{text[: max(at - 1, 0)]}…"
    return text


def label(name: str) -> str:
    """Return the words of a number's name.

    Example:
        >>> label("bytesADay"), label("lastStoreTimestamp")
        ('bytes a day', 'last store timestamp')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name).lower()


def is_size(name: str) -> bool:
    """Whether the name of a number or column says that it counts bytes.

    Example:
        >>> is_size("freeBytes"), is_size("messages")
        (True, False)
    """
    return "bytes" in name.lower()


def size_text(size_bytes: float) -> str:
    """Return a number of bytes for people.

    Example:
        >>> size_text(512), size_text(1536), size_text(3 << 40)
        ('512 B', '1.5 KiB', '3 TiB')
    """
    power = 0
    while abs(size_bytes) >= 1024 and power < len(_SIZE_UNITS) - 1:
        size_bytes /= 1024
        power += 1
    return f"{_trimmed(size_bytes, 1)} {_SIZE_UNITS[power]}"


def duration_text(time_ms: float) -> str:
    """Return milliseconds for people.

    Example:
        >>> duration_text(0), duration_text(1500), duration_text(90_000), duration_text(90_000_000)
        ('0 ms', '1.5 s', '1.5 min', '25 h')
    """
    for unit, length_ms in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if abs(time_ms) >= length_ms:
            return f"{_trimmed(time_ms / length_ms, 1)} {unit}"
    return f"{_trimmed(time_ms, 1)} ms"


def value_text(name: str, value: Cell) -> str:
    """Return a value of a named number or column for people; not yet escaped.

    Example:
        >>> value_text("messages", 1234567), value_text("storeBytes", 2048)
        ('1,234,567', '2 KiB')
        >>> value_text("isExtrapolated", False), value_text("seconds", 1.25)
        ('no', '1.25')
    """
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value.replace("T", " ") if _TIME.fullmatch(value) else value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return size_text(value) if is_size(name) and abs(value) <= _LARGEST else _trimmed(value, 2)


def cell_text(name: str, value: Cell) -> str:
    """Return a value as HTML; a size has its exact number as a tooltip."""
    text = escaped(value_text(name, value))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and is_size(name):
        return f'<span title="{escaped(str(value))}">{text}</span>'
    return text


def _trimmed(value: float, digits: int) -> str:
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
