"""No text and no properties make an SQL92 expression raise anything but its own errors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roquet.filter.sql92 import Sql92Error, Sql92EvaluationError, compile_sql92
from roquet.filter.sql92.errors import MESSAGE_CHARACTERS_MAX

WORDS = st.sampled_from(
    [
        "a", "b", "c", "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS",
        "CONTAINS", "STARTSWITH", "ENDSWITH", "=", "<>", ">", ">=", "<", "<=", "(", ")", ",", "+",
        "-", "'x'", "'5'", "''", "0", "1", "5", "5.5", "1e400", "99999999999999999999", "--", "/*",
        "*/", "'", ".", "/", "#", "\ud800", "😀", "\0",
    ]
)  # fmt: skip
WORDY = st.lists(WORDS, max_size=30).flatmap(
    lambda words: st.sampled_from([" ".join(words), "".join(words), "\n".join(words)])
)
TEXTS = st.text() | WORDY
VALUES = st.text(max_size=10) | st.sampled_from(["5", "5.5", "NaN", "-0.0", "true", "0x1p4", "x"])
PROPERTIES = st.dictionaries(st.sampled_from("abc"), VALUES)


def _operand() -> st.SearchStrategy[str]:
    names = st.sampled_from(["a", "b", "c", "5", "5.5", "-7", "3000000000", "'x'", "TRUE", "NULL"])

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        pairs = st.tuples(inner, st.sampled_from(["=", "<>", ">", "<", "AND", "OR"]), inner)
        return (
            pairs.map(lambda pair: f"({' '.join(pair)})")
            | inner.map(lambda part: f"NOT {part}")
            | inner.map(lambda part: f"-{part}")
            | inner.map(lambda part: f"+{part}")
            | inner.map(lambda part: f"{part} IS NOT NULL")
            | inner.map(lambda part: f"({part} BETWEEN 1 AND 9)")
            | inner.map(lambda part: f"({part} NOT CONTAINS 'x')")
        )

    return st.recursive(names, grown, max_leaves=12)


@given(TEXTS | _operand(), PROPERTIES)
def test_only_filter_errors_are_raised(text: str, properties: dict[str, str]) -> None:
    refusal: str | None = None
    try:
        expression = compile_sql92(text)
    except Sql92Error as error:
        refusal = error.message
    if refusal is not None:
        assert 0 < len(refusal) <= MESSAGE_CHARACTERS_MAX
        return
    matches = expression.matches(properties)
    try:
        value = expression.evaluate(properties)
    except Sql92EvaluationError:
        assert not matches
    else:
        assert value in (True, False, None)
        assert matches is (value is True)


@given(_operand(), PROPERTIES)
def test_logic_has_three_values(text: str, properties: dict[str, str]) -> None:
    try:
        value = compile_sql92(text).evaluate(properties)
        negated = compile_sql92(f"NOT ({text})").evaluate(properties)
    except (Sql92Error, Sql92EvaluationError):
        return
    assert negated is (None if value is None else not value)
    for operator, decisive in (("OR", True), ("AND", False)):
        both = compile_sql92(f"({text}) {operator} {decisive}").evaluate(properties)
        assert both is decisive
        same = compile_sql92(f"({text}) {operator} {not decisive}").evaluate(properties)
        assert same is value
