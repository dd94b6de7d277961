"""From expressions to subscriptions; the values are those of Apache RocketMQ 5.4.0's FilterAPI."""

from __future__ import annotations

import pytest

from roquet.client import Sql, subscription_of
from roquet.errors import BadExpression


@pytest.mark.parametrize(
    ("text", "sub_string", "tags", "codes"),
    [
        ("*", "*", [], []),
        ("", "*", [], []),
        ("a", "a", ["a"], [97]),
        ("a || b", "a || b", ["a", "b"], [97, 98]),
        ("a||a|| ", "a||a|| ", ["a"], [97]),
        ("  x\t||é||😀", "  x\t||é||😀", ["x", "é", "😀"], [120, 233, 1772899]),
    ],
)
def test_tags(text: str, sub_string: str, tags: list[str], codes: list[int]) -> None:
    found = subscription_of("T", text, version_ms=17)
    assert (found.topic, found.sub_string, found.expression_type) == ("T", sub_string, "TAG")
    assert (found.tags_set, found.code_set, found.sub_version) == (tags, codes, 17)


def test_sql() -> None:
    found = subscription_of("T", Sql("a > 1 || b"), version_ms=17)
    assert (found.sub_string, found.expression_type) == ("a > 1 || b", "SQL92")
    assert (found.tags_set, found.code_set, found.sub_version) == ([], [], 17)


@pytest.mark.parametrize("expression", ["||", "||||", Sql("")])
def test_empty_expressions(expression: str | Sql) -> None:
    with pytest.raises(BadExpression) as caught:
        subscription_of("T", expression, version_ms=17)
    assert caught.value.detail
    assert caught.value.hint
