"""Settings as text, as java.util.Properties reads them."""

from __future__ import annotations

import pytest

from roquet.errors import ConfigError
from roquet.model.properties_text import format_properties, parse_properties, property_lines


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ("\n\r\n  \n", {}),
        ("# a=b\n! c=d\n  # e=f\n", {}),
        ("a=b", {"a": "b"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("  a = b ", {"a": "b "}),
        ("a:b\nc : d\ne f\ng", {"a": "b", "c": "d", "e": "f", "g": ""}),
        ("a==b\nc=d=e\nf = : g", {"a": "=b", "c": "d=e", "f": ": g"}),
        ("a=b\\\n   c\\\n\td", {"a": "bcd"}),
        ("a=b\\\n# no comment", {"a": "b# no comment"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("\\\na=b", {"a": "b"}),
        ("a\\=b\\ c=d", {"a=b c": "d"}),
        ("a=\\t\\n\\q\\u0041\\u00fc", {"a": "\t\nqAü"}),
        ("a=1\na=2", {"a": "2"}),
        ("=b", {"": "b"}),
    ],
)
def test_forms(text: str, settings: dict[str, str]) -> None:
    assert parse_properties(text) == settings


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uzzzz", "\n\nb\\u=1"])
def test_a_malformed_escape_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Malformed"):
        parse_properties(text)


def test_written_settings_are_sorted() -> None:
    assert format_properties({"b": "2", "a": "1"}) == "a=1\nb=2\n"


def test_lines_are_numbered_from_where_a_setting_starts() -> None:
    text = "# one\na=1\n\nb=2\\\n  3\nc=4\n"
    assert list(property_lines(text)) == [("a", "1", 2), ("b", "23", 4), ("c", "4", 6)]
