"""Makes up SQL92 expressions and properties: sound ones, and ones that are refused in some way.

Three kinds: expressions by the grammar, whose operands are mostly of a fitting kind; the same with
a few words lost, doubled or put elsewhere; and words and characters in any order. The properties
are numbers, almost numbers and texts that the expressions look for.
"""

from __future__ import annotations

import random
import re

NAMES = ("a", "b", "c", "_n1", "$x", "ORDERS", "notx", "inner", "Ab", "TAGS", "missing")
WHOLE = (
    "0", "1", "5", "7", "10", "42", "100L", "2147483647", "2147483648", "2147483649l",
    "9223372036854775807", "9223372036854775808", "99999999999999999999", "007", "3000000000",
)  # fmt: skip
FLOATS = (
    "1.0", "5.5", "5.", ".5", "1e3", "1E-3", "10.", "2.5e10", "1e400", "0.0", "0.", "1e-400",
    "00.5", "1.5E+2", "9223372036854775807.0", "2147483648.0", "3.0", "123456789.125", "0.001",
    "1e7",
)  # fmt: skip
SMALL = ("0", "1", "5", "7", "10", "42", "5.5", "0.5", "1e3", "2147483648", "3000000000", "16L")
TEXTS = (
    "", "x", "abc", "5", "5.5", "true", "TRUE", "it''s", "''", "a b", "中文", "😀", "x😀y", "5 ",
    "NaN", "--", "/*", "\n", "\t", "é", "10", "bc", "ab", "-1", "1e3", "0x10", "\\", '"',
)  # fmt: skip
VALUES = (
    "", " ", "x", "abc", "ab", "bc", "5", "5.5", "true", "TRUE", "false", "it's", "'", "a b",
    "中文", "😀", "x😀y", "5 ", " 5", "+5", "-5", "-0", "0", "-0.0", "0.0", "NaN", "-NaN",
    "Infinity", "-Infinity", "1e3", "1000", "1000.0", "0x10", "0x1p4", "0x1.8p1d", "0x1p99999",
    "16", "5f", "5d", "5L", "5_0", "\u0665", "\uff15", "+", "-", ".", "5.", ".5", "1e", "1e400",
    "1e-400", "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807",
    "9223372036854775808", "3000000000", "-9223372036854775808", "-9223372036854775809", "1e7",
    "000000000000000000000000005", "10", "7", "42", "100", "1", "2.5e10", "\n5\t", "\u00a05",
    "infinity", "nan", "9223372036854775806", "\U0001d7d3", "0x.p1", "0x1", "-0x1p-2", "--5",
    "-1e400",
)  # fmt: skip
KEYWORDS = (
    "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH",
    "ENDSWITH",
)  # fmt: skip
SYMBOLS = ("=", "<>", ">", ">=", "<", "<=", "(", ")", ",", "+", "-", "!=", "==", "*", "/")
RUBBISH = (
    "#", "'", "''", ".", "/", "/*", "*/", "--", "\x00", "\x01", "\x7f", "é", "中", "😀", '"',
    "\\", ";", "\n", "\r", "\r\n", "\t", "\f", "\x0b", "\u00a0", "?", "%", "@", ".e", "1.e", "1e",
    "0x1F", "5l5", "0l",
)  # fmt: skip
BLANKS = (" ",) * 12 + (
    "  ", "\t", "\n", "\r\n", "\r", "\f", " /* c */ ", "/**/", " -- c\n", "/* * / ** */", " --\r",
)  # fmt: skip

_WORD = re.compile(r"'(?:[^']|'')*'|[A-Za-z0-9_$.]+|<>|>=|<=|\s+|.", re.DOTALL)


class CaseMaker:
    """Makes cases from a seeded source.

    Args:
        source: Decides everything.
    """

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._pick = source.choice

    def expression(self) -> str:
        """The next expression."""
        kind = self._source.random()
        if kind < 0.65:
            return self._selector(3)
        if kind < 0.9:
            return self._damaged(self._selector(2))
        return self._words()

    def properties(self) -> dict[str, str]:
        """A set of properties; some are missing."""
        return {name: self._pick(VALUES) for name in NAMES[:-1] if self._source.random() < 0.75}

    def _chance(self, probability: float) -> bool:
        return self._source.random() < probability

    def _blank(self) -> str:
        return self._pick(BLANKS)

    def _word(self, keyword: str) -> str:
        style = self._source.random()
        if style < 0.6:
            return keyword
        return keyword.lower() if style < 0.9 else keyword.title()

    def _joined(self, *parts: str) -> str:
        return "".join(part + self._blank() for part in parts[:-1]) + parts[-1]

    def _selector(self, depth: int) -> str:
        text = self._condition(depth)
        return text + self._pick(("", "", "", " ", " x", " )", " --", "\n")) if text else text

    def _condition(self, depth: int) -> str:
        choice = self._source.random()
        if depth == 0 or choice < 0.45:
            return self._test(depth)
        if choice < 0.7:
            parts = [self._condition(depth - 1)]
            for _ in range(self._source.randint(1, 3)):
                parts += [self._word(self._pick(("AND", "OR"))), self._condition(depth - 1)]
            return self._joined(*parts)
        if choice < 0.85:
            return f"({self._condition(depth - 1)})"
        if choice < 0.95:
            return self._joined(self._word("NOT"), self._operand(depth - 1, loose=True))
        return self._pick((*NAMES, "TRUE", "false", "Null"))

    def _test(self, depth: int) -> str:
        choice = self._source.random()
        if self._chance(0.8):
            left = self._pick(NAMES)
        else:
            left = self._operand(depth, loose=self._chance(0.3))
        negation = [self._word("NOT")] if self._chance(0.4) else []
        if choice < 0.3:
            right = self._operand(depth, loose=self._chance(0.5))
            return self._joined(left, self._pick(("=", "<>")), right)
        if choice < 0.5:
            right = self._operand(depth, loose=self._chance(0.1))
            return self._joined(left, self._pick((">", ">=", "<", "<=")), right)
        if choice < 0.62:
            search = self._word(self._pick(("CONTAINS", "STARTSWITH", "ENDSWITH")))
            return self._joined(left, *negation, search, self._text())
        if choice < 0.75:
            low = self._operand(depth, loose=self._chance(0.15))
            high = self._operand(depth, loose=self._chance(0.15))
            words = (*negation, self._word("BETWEEN"), low, self._word("AND"), high)
            return self._joined(left, *words)
        if choice < 0.87:
            count = self._pick((1, 2, 3, 4, 5, 6, 13, 30))
            elements = self._pick((",", ", ")).join(self._text() for _ in range(count))
            return self._joined(left, *negation, self._word("IN"), f"({elements})")
        test = self._joined(left, self._word("IS"), *negation, self._word("NULL"))
        return self._joined(test, self._pick(("= TRUE", "IS NULL", "> 5"))) if depth == 1 else test

    def _operand(self, depth: int, *, loose: bool) -> str:
        """A value; a loose one is of any kind."""
        choice = self._source.random()
        if not loose:
            if choice < 0.55:
                return self._pick(NAMES)
            numbers = self._pick((WHOLE, FLOATS) if self._chance(0.3) else (SMALL,))
            return self._pick(("", "", "-", "- ", "+", "-+-")) + self._pick(numbers)
        if choice < 0.3:
            return self._text()
        if choice < 0.45:
            return self._word(self._pick(("TRUE", "FALSE", "NULL")))
        if choice < 0.65 and depth:
            return f"({self._condition(depth - 1)})"
        if choice < 0.75 and depth:
            return self._pick(("-", "+", "- - ")) + f"({self._condition(depth - 1)})"
        return self._pick((*NAMES, *WHOLE))

    def _text(self) -> str:
        return f"'{self._pick(TEXTS)}'"

    def _damaged(self, text: str) -> str:
        words = _WORD.findall(text)
        for _ in range(self._source.randint(1, 3)):
            at = self._source.randrange(len(words) + 1)
            choice = self._source.random()
            if choice < 0.4:
                del words[at : at + self._source.randint(1, 2)]
            elif choice < 0.7:
                words.insert(at, self._any_word())
            elif choice < 0.9:
                words[at : at + 1] = [self._any_word()]
            else:
                del words[at:]
        return "".join(words)

    def _any_word(self) -> str:
        kinds = (NAMES, WHOLE, FLOATS, KEYWORDS, KEYWORDS, SYMBOLS, SYMBOLS, RUBBISH)
        kind = self._pick(kinds)
        return self._text() if self._chance(0.1) else self._pick(kind)

    def _words(self) -> str:
        count = self._source.randint(0, 9)
        return "".join(self._any_word() + self._pick(("", " ", " ", "\t")) for _ in range(count))
