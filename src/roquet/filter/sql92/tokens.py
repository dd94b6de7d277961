"""The tokens of an SQL92 expression: their kinds, how upstream prints them, and a reader.

Kinds and their order are those of upstream's SelectorParserConstants: its messages list what was
expected in that order. Tokens are read one at a time and as late as possible, because upstream
looks at only one token after a whole expression: ``a = 1 b #`` is valid, ``a = 1 #`` is not.

Upstream reads UTF-16 units, which shows in columns and in the character that a message names. A
text with other characters is therefore split into its units, and strings are rejoined.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final, NamedTuple

from roquet.filter.sql92.errors import Sql92Error, refuse

__all__ = ["IMAGES", "Kind", "Token", "TokenReader", "escape", "string_value"]

_LEXICAL_ERROR = "org.apache.rocketmq.filter.parser.TokenMgrError"
_TAB_COLUMNS = 8


class Kind(IntEnum):
    """The kind of a token."""

    EOF = 0
    NOT = 8
    AND = 9
    OR = 10
    BETWEEN = 11
    IN = 12
    TRUE = 13
    FALSE = 14
    NULL = 15
    IS = 16
    CONTAINS = 17
    STARTSWITH = 18
    ENDSWITH = 19
    DECIMAL = 20
    FLOAT = 21
    STRING = 23
    ID = 24
    EQUAL = 25
    NOT_EQUAL = 26
    GREATER = 27
    GREATER_EQUAL = 28
    LESS = 29
    LESS_EQUAL = 30
    OPEN = 31
    COMMA = 32
    CLOSE = 33
    PLUS = 34
    MINUS = 35


_KEYWORDS: Final = {kind.name: kind for kind in Kind if Kind.NOT <= kind <= Kind.ENDSWITH}
_SYMBOLS: Final = {
    "=": Kind.EQUAL,
    "<>": Kind.NOT_EQUAL,
    ">": Kind.GREATER,
    ">=": Kind.GREATER_EQUAL,
    "<": Kind.LESS,
    "<=": Kind.LESS_EQUAL,
    "(": Kind.OPEN,
    ",": Kind.COMMA,
    ")": Kind.CLOSE,
    "+": Kind.PLUS,
    "-": Kind.MINUS,
}

IMAGES: Final[dict[Kind, str]] = {
    Kind.EOF: "<EOF>",
    Kind.DECIMAL: "<DECIMAL_LITERAL>",
    Kind.FLOAT: "<FLOATING_POINT_LITERAL>",
    Kind.STRING: "<STRING_LITERAL>",
    Kind.ID: "<ID>",
    **{kind: f'"{name}"' for name, kind in _KEYWORDS.items()},
    **{kind: f'"{symbol}"' for symbol, kind in _SYMBOLS.items()},
}
"""The names of kinds in messages."""

_BLANKS = re.compile(r"[ \t\n\r\f]*")
_LINE_END = re.compile(r"\r\n|\n|\r")
_TOKEN = re.compile(
    r"(?P<ID>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<STRING>'[^']*(?:''[^']*)*')"
    r"|(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<DECIMAL>0|[1-9][0-9]*[lL]?)"
    r"|(?P<SYMBOL><>|>=|<=|[=><(),+-])"
)

_ESCAPES: Final = {
    "\0": "",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
    '"': '\\"',
    "'": "\\'",
    "\\": "\\\\",
}


class Token(NamedTuple):
    """One token.

    Attributes:
        kind: Its kind.
        text: The token as written; empty for the end.
        start: Where it starts, in UTF-16 units; for the end, where the last unit is.
    """

    kind: Kind
    text: str
    start: int


class TokenReader:
    """Reads the tokens of one expression from left to right."""

    def __init__(self, text: str) -> None:
        is_plain = text.isascii() or max(text) <= "\uffff"
        self._units = text if is_plain else _to_units(text)
        self._at = 0
        self._last_line_end = max(self._units.rfind("\n"), self._units.rfind("\r"))

    def read(self) -> Token:
        """The next token; at the end of the text, always the end token.

        Raises:
            Sql92Error: No token starts here.
        """
        units = self._units
        at = self._skip()
        if at == len(units):
            return Token(Kind.EOF, "", at - 1)
        match = _TOKEN.match(units, at)
        if match is None:
            raise self._lexical_error(at)
        self._at = match.end()
        text = match[0]
        if match.lastgroup == "ID":
            return Token(_KEYWORDS.get(text.upper(), Kind.ID), text, at)
        if match.lastgroup == "SYMBOL":
            return Token(_SYMBOLS[text], text, at)
        assert match.lastgroup is not None
        return Token(Kind[match.lastgroup], text, at)

    def _skip(self) -> int:
        """Where the next token starts, after blanks and comments."""
        units, at = self._units, self._at
        while True:
            blanks = _BLANKS.match(units, at)
            assert blanks is not None
            at = blanks.end()
            # Without a line end it is not a comment, but two signs.
            if units.startswith("--", at) and at < self._last_line_end:
                line_end = _LINE_END.search(units, at)
                assert line_end is not None
                at = line_end.end()
            elif units.startswith("/*", at) and (end := units.find("*/", at + 2)) >= 0:
                at = end + 2
            else:
                return at

    def place(self, index: int) -> tuple[int, int]:
        """Line and column of a unit as upstream counts them: tab stops are eight columns apart."""
        line, column = 1, 0
        before = ""
        for unit in self._units[: index + 1]:
            column += 1
            if before == "\n" or (before == "\r" and unit != "\n"):
                line, column = line + 1, 1
            if unit == "\t":
                column += _TAB_COLUMNS - 1 - (column - 1) % _TAB_COLUMNS
            before = unit
        # Nothing of an empty text was read, so nothing was counted.
        return (line, column) if before else (0, 0)

    def _lexical_error(self, at: int) -> Sql92Error:
        """Upstream names the character that cannot continue any token, or the end."""
        units = self._units
        first = units[at]
        last = at
        if first == "'" or units.startswith("/*", at):
            last = len(units) - 1
        elif first in "./":
            last = min(at + 1, len(units) - 1)
        line, column = self.place(last)
        is_one_unit = last == at
        if last == len(units) - 1:
            ends_line = units[last] in "\r\n"
            line, column = (line + 1, 0) if ends_line else (line, column + 1)
            found = "<EOF> "
            after = "" if is_one_unit else units[at:]
        else:
            found = f'"{escape(units[last])}" ({ord(units[last])}), '
            after = units[at:last]
        return refuse(
            _LEXICAL_ERROR,
            f"Lexical error at line {line}, column {column}.  "
            f'Encountered: {found}after : "{escape(after)}"',
        )


def string_value(token: Token) -> str:
    """The value of a string: without its quotes, doubled quotes as one."""
    value = token.text[1:-1].replace("''", "'")
    if value.isascii():
        return value
    return value.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def escape(units: str) -> str:
    """Text as upstream's messages show it, in printable ASCII only."""
    return "".join(map(_escape_unit, units))


def _escape_unit(unit: str) -> str:
    escaped = _ESCAPES.get(unit)
    if escaped is not None:
        return escaped
    return unit if " " <= unit <= "~" else f"\\u{ord(unit):04x}"


def _to_units(text: str) -> str:
    encoded = text.encode("utf-16-be", "surrogatepass")
    return "".join(
        chr(int.from_bytes(encoded[at : at + 2], "big")) for at in range(0, len(encoded), 2)
    )
