"""Refused SQL92 expressions, with the messages that upstream's clients get."""

from __future__ import annotations

import pytest

from roquet.filter.sql92 import Sql92Error, compile_sql92
from roquet.filter.sql92.errors import MESSAGE_CHARACTERS_MAX
from roquet.filter.sql92.java_values import double_text

LEXICAL = "org.apache.rocketmq.filter.parser.TokenMgrError: Lexical error at "
PARSE = "org.apache.rocketmq.filter.parser.ParseException: "
RUNTIME = "java.lang.RuntimeException: "
OPERANDS = (
    '"NOT" "TRUE" "FALSE" "NULL" <DECIMAL_LITERAL> <FLOATING_POINT_LITERAL> <STRING_LITERAL> <ID> '
    '"(" "-" "+"'
)


def _refusal(text: str) -> str:
    with pytest.raises(Sql92Error) as caught:
        compile_sql92(text)
    return caught.value.message


def _expected(words: str) -> str:
    kinds = words.split(" ")
    one_of = "" if len(kinds) == 1 else " one of"
    return f"Was expecting{one_of}:\n    " + "".join(f"{kind} ...\n    " for kind in kinds)


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        ("", '"<EOF>" at line 0, column 0', OPERANDS),
        ("a = ", '"<EOF>" at line 1, column 4', OPERANDS),
        ("a\n\t= =", '" "=" "= "" at line 2, column 11', OPERANDS),
        ("a = +(b c)", '" "+" "+ "" at line 1, column 5', OPERANDS.removesuffix(' "+"')),
        ("a CONTAINS 5", '" <DECIMAL_LITERAL> "5 "" at line 1, column 12', "<STRING_LITERAL>"),
        ("a BETWEEN 1 OR", '" "OR" "OR "" at line 1, column 13', '"AND"'),
        ("a IN 'x'", '" <STRING_LITERAL> "\\\'x\\\' "" at line 1, column 6', '"("'),
        ("a in ('x' b", '" <ID> "b "" at line 1, column 11', '"," ")"'),
        ("a is b", '" <ID> "b "" at line 1, column 6', '"NOT" "NULL"'),
        ("a is not b", '" <ID> "b "" at line 1, column 10', '"NULL"'),
        ("(a is null b", '" <ID> "b "" at line 1, column 12', '"AND" "OR" "IS" "=" "<>" ")"'),
        (
            "a not b",
            '" "NOT" "not "" at line 1, column 3',
            '"BETWEEN" "IN" "CONTAINS" "STARTSWITH" "ENDSWITH" ">" ">=" "<" "<="',
        ),
        (
            "(a",
            '"<EOF>" at line 1, column 2',
            '"NOT" "AND" "OR" "BETWEEN" "IN" "IS" "CONTAINS" "STARTSWITH" "ENDSWITH" "=" "<>" ">" '
            '">=" "<" "<=" ")"',
        ),
    ],
)
def test_unexpected_tokens_and_what_was_expected(text: str, found: str, expected: str) -> None:
    assert _refusal(text) == f"{PARSE}Encountered {found}.\n{_expected(expected)}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = #x", 'line 1, column 5.  Encountered: "#" (35), after : ""'),
        ("a = #", 'line 1, column 6.  Encountered: <EOF> after : ""'),
        ("a = 'x\n", 'line 2, column 0.  Encountered: <EOF> after : "\\\'x\\n"'),
        ("a = .x5", 'line 1, column 6.  Encountered: "x" (120), after : "."'),
        ("a /* b", 'line 1, column 7.  Encountered: <EOF> after : "/* b"'),
        ("'😀' = 😀x", 'line 1, column 8.  Encountered: "\\ud83d" (55357), after : ""'),
        ("\r\n\r!x", 'line 3, column 1.  Encountered: "!" (33), after : ""'),
    ],
)
def test_invalid_tokens(text: str, message: str) -> None:
    assert _refusal(text) == LEXICAL + message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", f"{PARSE}Expression will not result in a boolean value: 5"),
        ("-a", f"{PARSE}Expression will not result in a boolean value: (- a)"),
        ("a > 'x'", f"{RUNTIME}Value ''x'' cannot be compared."),
        ("a > NULL", f"{RUNTIME}Value 'NULL' cannot be compared."),
        ("a = NULL", f"{RUNTIME}'NULL' cannot be compared."),
        ("TRUE = 5.0", f"{RUNTIME}'TRUE' cannot be compared with '5.0'"),
        ("(a = 1 OR NOT b) > 5", f"{RUNTIME}Value '((a == 1) || (NOT b))' cannot be compared."),
        (
            "(a NOT BETWEEN 1 AND 2) > 5",
            f"{RUNTIME}Value '((a < 1) || (a > 2))' cannot be compared.",
        ),
        ("(a NOT CONTAINS 'x') > 5", f"{RUNTIME}Value '(NOT CONTAINS a)' cannot be compared."),
        ("5 IN ('x')", f"{RUNTIME}Expected a property for In expression, got: 5"),
        ("a IN ('x', 'y') > 5", f"{RUNTIME}Value 'a IN ( x, y )' cannot be compared."),
        ("a = 0.0", f"{RUNTIME}0.0 is less than 4.9E-324"),
        ("a = 1e400", f"{RUNTIME}1e400 is greater than 1.7976931348623157E308"),
        (
            "a = 9223372036854775808",
            'java.lang.NumberFormatException: For input string: "9223372036854775808"',
        ),
        (
            "a BETWEEN 2 AND 1",
            f"{RUNTIME}Illegal values of between, left value(2) must less than or equal to right "
            "value(1)",
        ),
        (
            "a BETWEEN NULL AND 1",
            f"{RUNTIME}Illegal values of between, values can not be null!",
        ),
        (
            "a BETWEEN 'x' AND 1",
            f'{RUNTIME}java.lang.NumberFormatException: For input string: "x"',
        ),
        (
            "a BETWEEN '' AND 1.5",
            f"{RUNTIME}java.lang.NumberFormatException: empty String",
        ),
    ],
)
def test_what_cannot_be_built(text: str, message: str) -> None:
    assert _refusal(text) == message


def test_an_unexpected_token_after_a_plus_is_reported_first() -> None:
    assert _refusal("+(a > 'x' b)").startswith(f'{PARSE}Encountered " "+" "+ ""')
    assert _refusal("+(a > 'x')") == f"{RUNTIME}Value ''x'' cannot be compared."


def test_text_after_a_selector_is_read_as_little_as_possible() -> None:
    assert compile_sql92("a = 1 b #").matches({"a": "1"})
    assert _refusal("a = 1 #").startswith(LEXICAL)


def test_messages_are_bounded() -> None:
    assert len(_refusal("'" + "\x01" * 60_000)) == MESSAGE_CHARACTERS_MAX
    doubled = "-(" * 50 + "a" + " BETWEEN 1 AND 2)" * 50
    assert len(_refusal(doubled)) == MESSAGE_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (123.456, "123.456"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-12345678.5, "-1.23456785E7"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (0.1 + 0.2, "0.30000000000000004"),
        (100.0, "100.0"),
    ],
)
def test_numbers_are_printed_as_java_does(number: float, text: str) -> None:
    assert double_text(number) == text
