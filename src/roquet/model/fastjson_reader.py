r"""The reader of fastjson's JSON dialect, behind :mod:`roquet.model.fastjson`.

Standard JSON goes through msgspec's compiled reader, which returns the same values; everything
else goes through our own parser.

Reading accepts, beyond standard JSON: unquoted integers, identifiers and objects as keys,
single-quoted strings, line breaks and control characters inside strings, fastjson's escapes
(``\x41``, ``\v``, ``\'``, ``\0`` to ``\7``), one comma before a closing bracket, ``//`` and
``/* */`` comments, numbers with a sign ``+``, leading zeros or one of Java's type letters
(``5L``), and a byte order mark. Type names (``@type``) and references (``$ref``) are members like
any other.

Invariants:

* Both readers return the same value for every text that both accept.
* A returned string never holds half a surrogate pair, so it can always be written as UTF-8.
* Whatever the text, the outcome is a value or a :class:`JsonSyntaxError` that says where.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import msgspec

from roquet.errors import RoquetError

__all__ = [
    "MAX_DEPTH",
    "SURROGATE",
    "JsonKey",
    "JsonScalar",
    "JsonSyntaxError",
    "JsonValue",
    "ObjectKey",
    "loads",
]

MAX_DEPTH = 100
"""How many brackets may be open at once; RocketMQ's own texts nest less than ten deep."""

JsonScalar: TypeAlias = bool | int | float | str | None
JsonKey: TypeAlias = "str | int | ObjectKey"
JsonValue: TypeAlias = "JsonScalar | list[JsonValue] | dict[JsonKey, JsonValue]"
"""What :func:`loads` returns."""


class JsonSyntaxError(RoquetError):
    """The text is not JSON, not even in fastjson's dialect.

    Attributes:
        line: Where reading stopped, counted from 1.
        column: The character of that line, counted from 1.
    """

    default_code = "json_syntax"
    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """An object that is the key of a map, such as a message queue in a table of offsets.

    Two keys with the same members are equal, whatever order the text had them in.

    Attributes:
        members: Name and value of each member, sorted by name as RocketMQ prints them.

    Example:
        >>> key = ObjectKey.of({"topic": "T", "brokerName": "b", "queueId": 2})
        >>> loads('{{"brokerName":"b","queueId":2,"topic":"T"}:9}') == {key: 9}
        True
        >>> key["queueId"]
        2
    """

    members: tuple[tuple[str, JsonScalar], ...]

    @classmethod
    def of(cls, members: Mapping[str, JsonScalar]) -> ObjectKey:
        """Create a key from an object's members."""
        return cls(tuple((name, members[name]) for name in sorted(members)))

    def __getitem__(self, name: str) -> JsonScalar:
        """Return a member's value; raise ``KeyError`` if there is none of that name."""
        return dict(self.members)[name]


_SKIP = re.compile(r"(?:[ \t\r\n\f\b]++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+")
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_SINGLE_QUOTED = re.compile(r"'((?:[^'\\]++|\\.)*+)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|.)", re.DOTALL)
SURROGATE = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"[^\W\d][\w$]*+|\$[\w$]*+")
_INTEGER = re.compile(r"-?[0-9]++")
_INTEGER_KEY = re.compile(r"-?[0-9]++(?![\w.$])")
_NUMBER = re.compile(
    r"[+-]?(?P<int>[0-9]++)?(?P<fraction>\.[0-9]*+)?(?P<exponent>[eE][+-]?[0-9]++)?"
    r"(?P<type>[BDFLS])?(?![\w.$])"
)
# Most of a large file is maps of queue id to offset: one match reads a whole map.
_INTEGER_MAP = re.compile(
    r"\{[ \t\r\n]*+("
    r"(?:-?[0-9]{1,19}+[ \t\r\n]*+:[ \t\r\n]*+-?[0-9]{1,19}+[ \t\r\n]*+(?:,[ \t\r\n]*+|(?=\})))++"
    r")\}"
)

_LITERALS: dict[str, JsonScalar] = {"true": True, "false": False, "null": None}
_UNESCAPED = {
    **{char: char for char in "\"'\\/"},
    **{digit: chr(int(digit)) for digit in "01234567"},
    **dict(zip("bfFnrtv", "\b\f\f\n\r\t\v", strict=True)),
}
_EXCERPT_CHARS = 24
_HINT = "Look for a missing quote, comma or bracket at or before this position."
_HINT_END = "The text is cut off: compare it with a complete copy."


def loads(text: str | bytes) -> JsonValue:
    """Read one JSON value in fastjson's dialect.

    Args:
        text: The whole text; bytes are UTF-8.

    Returns:
        ``None``, ``bool``, ``int``, ``float``, ``str``, ``list`` or ``dict``. The keys of a dict
        are ``str``, ``int`` where the text has an unquoted integer, or :class:`ObjectKey`.

    Raises:
        JsonSyntaxError: The text is anything else; the detail shows where.

    Example:
        >>> loads('{"offsetTable":{"T@G":{0:5,1:7}}}')
        {'offsetTable': {'T@G': {0: 5, 1: 7}}}
    """
    try:
        value: JsonValue = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _Parser(_decoded(text)).document()
    return value if _is_shallow(value) else _Parser(_decoded(text)).document()


def _decoded(text: str | bytes) -> str:
    if isinstance(text, bytes):
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as error:
            before = text[: error.start].decode("utf-8")
            rest = text[error.start :].decode("utf-8", "backslashreplace")
            _fail("bytes that are not UTF-8", before + rest, len(before))
    half = SURROGATE.search(text)
    if half is not None:
        _fail("half a surrogate pair", text, half.start())
    return text


def _is_shallow(value: JsonValue) -> bool:
    level: list[JsonValue] = [value]
    for _ in range(MAX_DEPTH):
        children: list[JsonValue] = []
        for item in level:
            if isinstance(item, dict):
                children.extend(item.values())
            elif isinstance(item, list):
                children.extend(item)
        if not children:
            return True
        level = children
    return not any(isinstance(item, dict | list) for item in level)


def _fail(problem: str, text: str, position: int) -> NoReturn:
    line_start = text.rfind("\n", 0, position) + 1
    line = text.count("\n", 0, position) + 1
    column = position - line_start + 1
    excerpt = text[max(line_start, position - _EXCERPT_CHARS) : position + _EXCERPT_CHARS]
    at_end = position >= len(text)
    error = JsonSyntaxError(
        f"This is not JSON as RocketMQ writes it: {problem}.",
        detail=f"line {line}, column {column}, near {excerpt.partition(chr(10))[0]!r}",
        hint=_HINT_END if at_end else _HINT,
    )
    error.line, error.column = line, column
    raise error


class _Parser:
    """Reads one text from front to back; ``depth`` counts the open brackets."""

    __slots__ = ("position", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 1 if text.startswith("\ufeff") else 0

    def fail(self, problem: str, *, at: int | None = None) -> NoReturn:
        _fail(problem, self.text, self.position if at is None else at)

    def skip(self) -> str:
        """Skip whitespace and comments; return the character after them, '' at the end."""
        match = _SKIP.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
        return self.text[self.position : self.position + 1]

    def document(self) -> JsonValue:
        if not self.skip():
            self.fail("there is no value")
        value = self.value(0)
        if self.skip():
            self.fail("something follows the value")
        return value

    def value(self, depth: int) -> JsonValue:
        char = self.skip()
        match char:
            case '"' | "'":
                return self.string(char)
            case "{":
                return self.object(depth + 1)
            case "[":
                return self.array(depth + 1)
            case "":
                self.fail("it ends where a value must follow")
        word = _WORD.match(self.text, self.position)
        if word is None:
            return self.number()
        if word[0] not in _LITERALS:
            self.fail(f"{word[0]!r} is not a value; a string needs quotes")
        self.position = word.end()
        return _LITERALS[word[0]]

    def object(self, depth: int) -> dict[JsonKey, JsonValue]:
        if depth > MAX_DEPTH:
            self.fail(f"it nests deeper than {MAX_DEPTH} levels")
        whole = _INTEGER_MAP.match(self.text, self.position)
        if whole is not None:
            self.position = whole.end()
            numbers = [int(number) for number in _INTEGER.findall(whole[1])]
            return dict(zip(numbers[::2], numbers[1::2], strict=True))
        self.position += 1
        result: dict[JsonKey, JsonValue] = {}
        while (char := self.skip()) != "}":
            key = self.key(char, depth)
            if self.skip() != ":":
                self.fail("a ':' must follow the key")
            self.position += 1
            result[key] = self.value(depth)
            self.separator("}")
        self.position += 1
        return result

    def array(self, depth: int) -> list[JsonValue]:
        if depth > MAX_DEPTH:
            self.fail(f"it nests deeper than {MAX_DEPTH} levels")
        self.position += 1
        result: list[JsonValue] = []
        while self.skip() != "]":
            result.append(self.value(depth))
            self.separator("]")
        self.position += 1
        return result

    def separator(self, closing: str) -> None:
        char = self.skip()
        if char == ",":
            self.position += 1
        elif char != closing:
            self.fail(f"a ',' or '{closing}' must follow")

    def key(self, char: str, depth: int) -> JsonKey:
        if char in {'"', "'"}:
            return self.string(char)
        start = self.position
        if char == "{":
            members: dict[str, JsonScalar] = {}
            for name, value in self.object(depth + 1).items():
                if not isinstance(name, str) or isinstance(value, dict | list):
                    self.fail("an object that is a key holds plain members only", at=start)
                members[name] = value
            return ObjectKey.of(members)
        number = _INTEGER_KEY.match(self.text, start)
        match = number or _WORD.match(self.text, start)
        if match is None:
            self.fail("a key or '}' must follow")
        self.position = match.end()
        return match[0] if number is None else self.integer(number[0], start)

    def string(self, quote: str) -> str:
        pattern = _DOUBLE_QUOTED if quote == '"' else _SINGLE_QUOTED
        match = pattern.match(self.text, self.position)
        if match is None:
            self.fail("a string is not closed")
        self.position = match.end()
        content: str = match[1]
        return self.unescaped(content, match.start(1)) if "\\" in content else content

    def unescaped(self, content: str, start: int) -> str:
        def replaced(escape: re.Match[str]) -> str:
            code: str = escape[1]
            if len(code) > 1:
                return chr(int(code[1:], 16))
            if code not in _UNESCAPED:
                self.fail(f"'\\{code}' is not an escape", at=start + escape.start())
            return _UNESCAPED[code]

        result = _ESCAPE.sub(replaced, content)
        if SURROGATE.search(result) is not None:
            try:
                result = result.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
            except UnicodeDecodeError:
                self.fail("a string holds half a surrogate pair", at=start)
        return result

    def number(self) -> int | float:
        start = self.position
        match = _NUMBER.match(self.text, start)
        if match is None or not any(char.isdigit() for char in match[0]):
            self.fail("a value must follow")
        self.position = match.end()
        digits = match[0].rstrip("BDFLS")
        if match["fraction"] is None and match["exponent"] is None and match["type"] not in {*"DF"}:
            return self.integer(digits, start)
        if match["type"] in {*"BLS"} or (match["int"] is None and match["fraction"] == "."):
            self.fail("this is not a number", at=start)
        result = float(digits)
        if math.isinf(result):
            self.fail("a number is too large", at=start)
        return result

    def integer(self, digits: str, start: int) -> int:
        try:
            return int(digits)
        except ValueError:
            self.fail("a number is too long", at=start)
