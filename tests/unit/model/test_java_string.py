"""Hashes that Java computed and that lie on disk."""

from __future__ import annotations

import pytest

from roquet.model.java_string import INT_MIN, index_key_hash, java_hash, tags_code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("polygenelubricants", INT_MIN),
        ("é😀", 1996812),  # a character outside the basic plane counts as two units
        ("标签", 857175),
        ("\ud800", 55296),  # a lone surrogate is one unit
    ],
)
def test_hash_equals_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_long_strings_wrap_around() -> None:
    value = 0
    for character in "The quick brown fox jumps over the lazy dog" * 50:
        value = (31 * value + ord(character)) % (1 << 32)
    assert java_hash("The quick brown fox jumps over the lazy dog" * 50) % (1 << 32) == value


def test_both_ways_of_computing_agree() -> None:
    text = "abc" * 100
    assert java_hash(text + "é") == java_hash_by_units(text + "é")
    assert java_hash(text) == java_hash_by_units(text)


def java_hash_by_units(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be")
    for index in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[index : index + 2], "big")) % (1 << 32)
    return value - (1 << 32) if value >= 1 << 31 else value


def test_tags_code_keeps_the_sign() -> None:
    assert tags_code("") == 0
    assert tags_code("polygenelubricants") == INT_MIN
    assert tags_code("TagA || TagB") == java_hash("TagA || TagB")


def test_index_key_hash_is_never_negative() -> None:
    assert java_hash("T#jllgvmc") == INT_MIN
    assert index_key_hash("T", "jllgvmc") == 0
    negative = next(key for key in (f"key-{n}" for n in range(1000)) if java_hash(f"T#{key}") < 0)
    assert index_key_hash("T", negative) == -java_hash(f"T#{negative}")
