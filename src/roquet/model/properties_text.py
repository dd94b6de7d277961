r"""Settings as text, in the form of ``java.util.Properties``.

Owns the reader and the writer. The form, as far as it is read:

.. code-block:: text

    key=value  key:value  key value    white space around the separator does not count
    # or !                             a comment, to the end of its line
    \ at the end of a line             continues on the next line, without its leading white space
    \t \n \r \f \uXXXX                 as in Java; any other character after \ stands for itself

If a key occurs twice, the last value counts. Text is UTF-8, where Java takes each byte as a
character; for ASCII both are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from roquet.errors import ConfigError

__all__ = ["PropertyLine", "format_properties", "parse_properties", "property_lines"]

_BLANK = " \t\f"
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")


class PropertyLine(NamedTuple):
    """One setting, with the number of the line that it starts on."""

    key: str
    value: str
    line_number: int


def property_lines(text: str) -> Iterator[PropertyLine]:
    r"""Read settings one by one, in the order of the text.

    Raises:
        ConfigError: ``\u`` is not followed by four hexadecimal digits.

    Example:
        >>> list(property_lines("# ports\nlistenPort = 9876\n"))
        [PropertyLine(key='listenPort', value='9876', line_number=2)]
    """
    for number, line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None, "the pattern matches any text"
        yield PropertyLine(_plain(match[1], number), _plain(line[match.end() :], number), number)


def parse_properties(text: str) -> dict[str, str]:
    r"""Read settings.

    Raises:
        ConfigError: ``\u`` is not followed by four hexadecimal digits.

    Example:
        >>> parse_properties("# ports\nlistenPort = 9876\nname: a\\\n   b\n")
        {'listenPort': '9876', 'name': 'ab'}
    """
    return {line.key: line.value for line in property_lines(text)}


def format_properties(settings: Mapping[str, str]) -> str:
    r"""Write settings as upstream returns them: sorted, one per line, nothing escaped.

    Example:
        >>> format_properties({"b": "2", "a": "1"})
        'a=1\nb=2\n'
    """
    return "".join(f"{key}={settings[key]}\n" for key in sorted(settings))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers: continuations joined, comments dropped."""
    joined = ""
    start = 0
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(_BLANK)
        if not joined:
            if not line or line[0] in "#!":
                continue
            start = number
        joined += line
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
            if joined:
                continue
        if joined:
            yield start, joined
        joined = ""
    if joined:
        yield start, joined


def _plain(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text

    def replaced(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise ConfigError(
                "Malformed \\uxxxx encoding.",
                detail=f"line {line_number}",
                hint="write a backslash as \\\\",
            )
        return _LETTERS.get(match[2], match[2])

    return _ESCAPE.sub(replaced, text)
