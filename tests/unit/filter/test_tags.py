"""Tag expressions and the filters made of them."""

from __future__ import annotations

import pytest

from roquet.errors import ProtocolError
from roquet.filter.tags import build_subscription, is_tag_type, tag_filter
from roquet.model.java_string import java_hash
from roquet.model.subscription import SubscriptionData


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_nothing_and_a_star_mean_all(expression: str | None) -> None:
    found = build_subscription("T", expression)
    assert (found.topic, found.sub_string, found.expression_type) == ("T", "*", "TAG")
    assert (found.tags_set, found.code_set) == ([], [])
    assert tag_filter(found) is None


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("a", ["a"]),
        ("a||b", ["a", "b"]),
        (" a || b ", ["a", "b"]),
        ("\x00a\x1f||!b!", ["a", "!b!"]),
        ("a||", ["a"]),
        ("||a", ["a"]),
        ("a||||b", ["a", "b"]),
        ("a||a", ["a"]),
        ("a|b", ["a|b"]),
        ("a|||b", ["a", "|b"]),
        ("\u00a0a", ["\u00a0a"]),
        (" ", []),
        ("||  ", []),
        ("订单||😀", ["订单", "😀"]),
    ],
)
def test_tags_are_split_and_trimmed_as_java_does(expression: str, tags: list[str]) -> None:
    found = build_subscription("T", expression)
    assert found.sub_string == expression
    assert found.tags_set == tags
    assert found.code_set == [java_hash(tag) for tag in tags]


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_separators_alone_are_refused(expression: str) -> None:
    with pytest.raises(ProtocolError, match="subString split error"):
        build_subscription("T", expression)


def test_long_expressions_are_read_as_short_ones_are() -> None:
    tags = [f"tag{number}" for number in range(200)]
    assert build_subscription("T", "||".join(tags)).tags_set == tags


def test_other_types_are_taken_unchanged() -> None:
    found = build_subscription("T", "a > 5", "SQL92")
    assert (found.sub_string, found.expression_type, found.code_set) == ("a > 5", "SQL92", [])
    assert build_subscription("T", "a", "TAG").code_set == [java_hash("a")]


@pytest.mark.parametrize("expression", [None, ""])
def test_other_types_need_an_expression(expression: str | None) -> None:
    with pytest.raises(ProtocolError, match="Expression can't be null! SQL92"):
        build_subscription("T", expression, "SQL92")


def test_tag_types() -> None:
    assert [is_tag_type(each) for each in (None, "", "TAG", "SQL92", "tag")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_filter_compares_hashes() -> None:
    is_wanted = tag_filter(build_subscription("T", "Aa||other"))
    assert is_wanted is not None
    assert is_wanted(java_hash("Aa"), None)
    assert is_wanted(java_hash("BB"), None), "the same hash in Java"
    assert is_wanted(java_hash("other"), None)
    assert not is_wanted(java_hash("third"), None)
    assert not is_wanted(0, None)


def test_a_filter_reads_the_low_half_of_an_entry_as_a_signed_number() -> None:
    negative = "polygenelubricants"
    assert java_hash(negative) == -(2**31)
    is_wanted = tag_filter(build_subscription("T", negative))
    assert is_wanted is not None
    assert is_wanted(-(2**31), None)
    assert is_wanted(2**31, None)
    assert is_wanted((7 << 32) + 2**31, None)
    assert not is_wanted(2**31 - 1, None)


def test_tags_of_blanks_match_nothing() -> None:
    is_wanted = tag_filter(build_subscription("T", " "))
    assert is_wanted is not None
    assert not is_wanted(0, None)


def test_class_filters_are_left_to_the_consumer() -> None:
    subscription = SubscriptionData(topic="T", sub_string="a.b.Filter", class_filter_mode=True)
    assert tag_filter(subscription) is None
