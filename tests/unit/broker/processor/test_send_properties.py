"""Properties as upstream reads them, by an independent reading of its rules."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from roquet.broker.processor.inner_message import encoded, read_properties
from roquet.model.properties import properties_text

texts = st.lists(
    st.sampled_from(["\x01", "\x02", "a", "b", "é", "DELAY", "UNIQ_KEY", " ", "\ud800"])
).map("".join)


def as_java_reads(text: str) -> dict[str, str]:
    """string2messageProperties, step by step."""
    properties: dict[str, str] = {}
    index = 0
    while index < len(text):
        end = text.find("\x02", index)
        if end < 0:
            end = len(text)
        if end - index >= 3:
            separator = text.find("\x01", index)
            if index < separator < end - 1:
                properties[text[index:separator]] = text[separator + 1 : end]
        index = end + 1
    return properties


@given(texts)
@example("a\x01b\x02")
@example("a\x01b")
@example("a\x01\x01\x02")
@example("a\x01b\x01c\x02")
@example("\x01a\x02")
@example("ab\x02c\x01d\x02")
def test_a_string_is_the_map_that_java_reads(text: str) -> None:
    assert read_properties(text) == as_java_reads(text)


@given(st.dictionaries(st.text("abc", min_size=1), st.text("xyz", min_size=1), min_size=1))
def test_properties_written_by_clients_are_kept_unchanged(pairs: dict[str, str]) -> None:
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
    assert read_properties(text) == pairs
    assert properties_text(read_properties(text)) == text


@given(texts)
def test_every_string_can_be_stored(text: str) -> None:
    assert encoded(text).decode() == text.replace("\ud800", "?")
