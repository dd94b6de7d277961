"""The values of SQL92 expressions."""

from __future__ import annotations

import pytest

from roquet.errors import RoquetError
from roquet.filter.sql92 import (
    Sql92Error,
    Sql92EvaluationError,
    compile_sql92,
    expression,
    java_values,
)

UNKNOWN = None


def _value(text: str, **properties: str) -> bool | None:
    return compile_sql92(text).evaluate(properties)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a > 4", True),
        ("a > 5", False),
        ("a >= 5", True),
        ("a < 5", False),
        ("a <= 5", True),
        ("4 < a", True),
        ("5 > a", False),
        ("a = 5", True),
        ("a <> 5", False),
        ("a = '5'", True),
        ("a = '5.0'", False),
        ("a = 5.0", True),
        ("a = -5", False),
        ("a > -5", True),
        ("a = +5", True),
        ("a = 5L", True),
        ("a < 3000000000", True),
        ("a < b", True),
        ("b = 7.5", True),
        ("a BETWEEN 5 AND 6", True),
        ("a NOT BETWEEN 5 AND 6", False),
        ("a BETWEEN 6 AND 7", False),
        ("a BETWEEN b AND 9", False),
        ("text = 'it''s'", True),
        ("text CONTAINS 't'", True),
        ("text NOT CONTAINS 't'", False),
        ("text CONTAINS ''", False),
        ("text NOT CONTAINS ''", False),
        ("text STARTSWITH 'it'", True),
        ("text NOT STARTSWITH 'it'", False),
        ("text ENDSWITH 's'", True),
        ("text NOT ENDSWITH 's'", False),
        ("a IN ('4', '5')", True),
        ("a NOT IN ('4', '5')", False),
        ("a IS NULL", False),
        ("a IS NOT NULL", True),
        ("none IS NULL", True),
        ("none IS NOT NULL", False),
        ("yes = TRUE", True),
        ("a = TRUE", False),
        ("yes", False),
        ("NOT yes", True),
        ("(a = 5) = TRUE", True),
        ("a = 5 /* five */ and -- and\n b = 7.5", True),
        ("a = 5 whatever follows", True),
    ],
)
def test_values(text: str, value: bool) -> None:  # noqa: FBT001
    properties = {"a": "5", "b": "7.5", "text": "it's", "yes": "true"}
    assert compile_sql92(text).evaluate(properties) is value
    assert compile_sql92(text).matches(properties) is value


@pytest.mark.parametrize(
    "text",
    [
        "none = 5",
        "none > 5",
        "none = 'x'",
        "none BETWEEN 1 AND 2",
        "none IN ('x')",
        "none NOT IN ('x')",
        "none",
        "NOT none",
        "NULL",
        "-a = 5",
        "none OR FALSE",
        "none AND TRUE",
    ],
)
def test_a_missing_property_makes_a_value_unknown(text: str) -> None:
    assert _value(text, a="5") is UNKNOWN
    assert not compile_sql92(text).matches({"a": "5"})


def test_unknown_values_in_logic() -> None:
    assert _value("none OR TRUE") is True
    assert _value("TRUE OR none") is True
    assert _value("none AND FALSE") is False
    assert _value("FALSE AND none") is False
    assert _value("5 = none") is False
    assert _value("none = other") is True
    assert _value("none CONTAINS 'x'") is False
    assert _value("none NOT CONTAINS 'x'") is False


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a = 5", "x"),
        ("a > 5", "5.5"),
        ("a > 5", "2147483648"),
        ("a > 5", ""),
        ("a > 5", "5 "),
        ("a > 5", "5_0"),
        ("a > 3000000000", "9223372036854775808"),
        ("a > 5.5", "x"),
        ("a > 5.5", ""),
        ("a > a", "x"),
        ("TRUE = a", "true"),
        ("a = 5 OR TRUE", "x"),
    ],
)
def test_what_java_cannot_compare_has_no_value(text: str, value: str) -> None:
    compiled = compile_sql92(text)
    with pytest.raises(Sql92EvaluationError):
        compiled.evaluate({"a": value})
    assert not compiled.matches({"a": value})


@pytest.mark.parametrize(
    ("text", "value", "result"),
    [
        ("a = 5", "+5", True),
        ("a = 5", "0000000000000000000000000000005", True),
        ("a = 5", "\uff15", True),
        ("a = 16.0", "0x1p4", True),
        ("a = 5.0", " 5d\n", True),
        ("a > 5.0", "NaN", True),
        ("a > 5.0", "1e999", True),
        ("a > 5.0", "0x1p99999", True),
        ("a < 5.0", "-0x1p99999", True),
        ("a < -5.0", "-Infinity", True),
        ("a < b", "-0.0", True),
        ("a <> b", "-0.0", True),
        ("a = -2147483648", "-2147483649", False),
        ("a = 9223372036854775807.0", "9223372036854775807", True),
    ],
)
def test_numbers_are_read_as_java_does(
    text: str,
    value: str,
    result: bool,  # noqa: FBT001
) -> None:
    assert _value(text, a=value, b="0") is result


def test_very_long_numbers_are_read() -> None:
    assert _value("a = 5", a="0" * 30_000 + "5") is True
    with pytest.raises(Sql92EvaluationError):
        _value("a = 5", a="1" * 30_000)


def test_numbers_of_other_scripts_are_read() -> None:
    zeros = "\N{ARABIC-INDIC DIGIT ZERO}" * 30_000
    assert _value("a = 5", a=zeros + "\N{ARABIC-INDIC DIGIT FIVE}") is True


def test_a_long_number_is_read_once_for_all_conditions() -> None:
    java_values._parse_rare_whole.cache_clear()
    text = " OR ".join(["a = 4"] * 500)
    assert _value(text, a="0" * 30_000 + "5") is False
    assert java_values._parse_rare_whole.cache_info().misses == 1


def test_long_chains_are_one_level() -> None:
    text = " OR ".join(f"a = {number}" for number in range(500))
    assert _value(text, a="499") is True
    text = " AND ".join(f"a <> {number}" for number in range(500))
    assert _value(text, a="500") is True


def test_parentheses_alone_do_not_nest() -> None:
    assert _value("(" * 1_000 + "a = 5" + ")" * 1_000, a="5") is True
    assert _value("+" * 1_000 + "a = 5", a="5") is True


@pytest.mark.parametrize("opening", ["(", "+", "+(", "((("])
def test_too_many_open_parentheses_are_refused(opening: str) -> None:
    with pytest.raises(Sql92Error, match="nests deeper than 1024 levels") as caught:
        compile_sql92(opening * (60_000 // len(opening)))
    assert caught.value.code == "sql92_too_deep"


@pytest.mark.parametrize(
    ("condition", "joint"),
    [
        ("a = 1", " OR "),
        ("a CONTAINS 'x'", " OR "),
        ("a IS NULL", " AND "),
        ("a", " AND "),
        ("a BETWEEN 1 AND 2", " OR "),
        ("a > 1.5", " AND "),
    ],
)
def test_too_many_conditions_are_refused(condition: str, joint: str) -> None:
    few = joint.join([condition] * 512)
    assert compile_sql92(few).text == few
    with pytest.raises(Sql92Error, match="more than 2048 operators") as caught:
        compile_sql92(joint.join([condition] * 2_050))
    assert caught.value.code == "sql92_too_many_operators"
    assert caught.value.hint


def test_lists_may_be_long() -> None:
    elements = ", ".join(f"'{number}'" for number in range(6_000))
    assert _value(f"a IN ({elements})", a="5999") is True


@pytest.mark.parametrize(
    "text",
    [
        "NOT " * 1_000 + "a",
        "- " * 1_000 + "a = 5",
        "-" * 60_000,
        "a = b" + " = c" * 1_000,
        "a CONTAINS 'x'" + " CONTAINS 'x'" * 1_000,
        "a" + " IS NULL" * 1_000,
        "(a AND (b OR " * 200 + "TRUE" + "))" * 200,
        "-(" * 200 + "a" + ") BETWEEN 1 AND 2" * 200,
    ],
)
def test_too_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(Sql92Error, match="nests deeper than 128 levels") as caught:
        compile_sql92(text)
    assert caught.value.code == "sql92_too_deep"


def test_the_deepest_expressions_are_evaluated() -> None:
    assert _value("NOT " * 126 + "a", a="x") is False
    assert _value("(a AND (b OR " * 63 + "TRUE" + "))" * 63, a="x") is False
    nested = "-(" * 60 + "a" + " BETWEEN 1 AND 2)" * 60 + " IS NULL"
    assert _value(nested, a="1") is True


def test_oversized_expressions_are_refused() -> None:
    limit = expression.EXPRESSION_CHARACTERS_MAX
    assert compile_sql92("TRUE".ljust(limit)).matches({})
    with pytest.raises(Sql92Error, match="longer than 65536 characters") as caught:
        compile_sql92("TRUE".ljust(limit + 1))
    assert caught.value.code == "sql92_too_long"


def test_expressions_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expression, "_remembered", expression._Memory())
    assert compile_sql92("a = 1") is compile_sql92("a = 1")
    with pytest.raises(Sql92Error) as first:
        compile_sql92("a =")
    with pytest.raises(Sql92Error) as second:
        compile_sql92("a =")
    assert str(first.value) == str(second.value)
    assert first.value is not second.value


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = expression._Memory()
    monkeypatch.setattr(expression, "_remembered", memory)
    oldest = compile_sql92("a = 0")
    for number in range(1, 2_000):
        compile_sql92(f"a = {number}")
    assert len(memory._found) <= expression._REMEMBERED_CHARACTERS_MAX // 256
    assert memory.cost == sum(map(expression._cost, memory._found))
    assert compile_sql92("a = 0") is not oldest
    for number in range(20):
        compile_sql92(f"a = {number}".ljust(expression.EXPRESSION_CHARACTERS_MAX))
    assert sum(map(len, memory._found)) <= expression._REMEMBERED_CHARACTERS_MAX


def test_the_cache_keeps_the_recently_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expression, "_remembered", expression._Memory())
    used = compile_sql92("used = 1")
    for number in range(1_500):
        compile_sql92(f"a = {number}")
        assert compile_sql92("used = 1") is used


def test_errors_are_roquets() -> None:
    assert issubclass(Sql92Error, RoquetError)
    assert issubclass(Sql92EvaluationError, RoquetError)
    assert repr(compile_sql92("a = 1")) == "Sql92Expression('a = 1')"
