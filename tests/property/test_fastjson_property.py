"""The reader and the writer of fastjson's dialect undo each other, for any value."""

from __future__ import annotations

import json
import string

from hypothesis import given
from hypothesis import strategies as st

from roquet.model.fastjson import (
    Dialect,
    JsonKey,
    JsonSyntaxError,
    JsonValue,
    ObjectKey,
    WritableJson,
    dumps,
    loads,
)
from roquet.model.fastjson_reader import _Parser

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT
PRESENT_SCALARS = st.booleans() | NUMBERS | TEXT
OBJECT_KEYS = st.dictionaries(TEXT, PRESENT_SCALARS, max_size=3).map(ObjectKey.of)
KEYS = TEXT | st.integers() | OBJECT_KEYS


def containers(children: st.SearchStrategy[JsonValue]) -> st.SearchStrategy[JsonValue]:
    # An entry whose value is None is omitted by the writer, so none is made here.
    present = children.filter(lambda child: child is not None)
    return st.lists(children, max_size=5) | st.dictionaries(KEYS, present, max_size=5)


VALUES: st.SearchStrategy[JsonValue] = st.recursive(SCALARS, containers, max_leaves=30)
STANDARD_VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS,
    lambda children: st.lists(children, max_size=5) | st.dictionaries(TEXT, children, max_size=5),
    max_leaves=30,
)


def same(left: JsonValue, right: JsonValue) -> bool:
    """Equal, and of the same types: 1, 1.0 and True are three values."""
    return repr(left) == repr(right)


@given(VALUES, st.booleans(), st.sampled_from(Dialect))
def test_reading_undoes_writing(value: JsonValue, pretty: bool, dialect: Dialect) -> None:  # noqa: FBT001 - drawn
    text = dumps(value, pretty=pretty, dialect=dialect)
    assert same(loads(text), value)
    assert same(loads(text.encode()), value)


@given(VALUES, st.booleans(), st.sampled_from(Dialect))
def test_writing_undoes_reading(value: JsonValue, pretty: bool, dialect: Dialect) -> None:  # noqa: FBT001 - drawn
    text = dumps(value, pretty=pretty, dialect=dialect)
    assert dumps(loads(text), pretty=pretty, dialect=dialect) == text


@given(VALUES)
def test_tuples_are_lists_in_compact_text(value: JsonValue) -> None:
    def frozen(item: JsonValue) -> WritableJson:
        if isinstance(item, dict):
            return {key: frozen(member) for key, member in item.items()}
        return tuple(frozen(element) for element in item) if isinstance(item, list) else item

    assert dumps(frozen(value)) == dumps(value)


@given(STANDARD_VALUES, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_both_readers_agree_on_standard_json(
    value: JsonValue,
    indent: int | str | None,
    ascii_only: bool,  # noqa: FBT001 - drawn
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert same(_Parser(text).document(), value)
    assert same(loads(text), value)


@given(st.text(string.printable + "é中😀\x00\x7f", max_size=60))
def test_any_text_is_a_value_or_a_syntax_error(text: str) -> None:
    check_outcome(text)


@given(st.lists(st.sampled_from(['{"a":', "{0:1,", "1:", "{", "}", "[", "]", ",", "'x'", "null"])))
def test_any_tokens_are_a_value_or_a_syntax_error(tokens: list[str]) -> None:
    check_outcome("".join(tokens))


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_a_syntax_error(data: bytes) -> None:
    check_outcome(data)


def check_outcome(text: str | bytes) -> None:
    try:
        value = loads(text)
    except JsonSyntaxError as error:
        told: list[object] = [error.line, error.column, error.detail, error.hint]
    else:
        told = [same(loads(dumps(value)), without_empty_entries(value))]
    assert all(told)


def without_empty_entries(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {
            without_empty_members(key): without_empty_entries(member)
            for key, member in value.items()
            if member is not None
        }
    if isinstance(value, list):
        return [without_empty_entries(element) for element in value]
    return value


def without_empty_members(key: JsonKey) -> JsonKey:
    if isinstance(key, ObjectKey):
        return ObjectKey(tuple(member for member in key.members if member[1] is not None))
    return key
