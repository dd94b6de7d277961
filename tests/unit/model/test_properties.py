from __future__ import annotations

import pytest

from roquet.model import properties as prop


def test_round_trip() -> None:
    properties = {"KEYS": "a b", "TAGS": "é😀", "x": "\x03"}
    data = prop.encode_properties(properties)
    assert data.endswith(b"\x02")
    assert prop.decode_properties(data) == properties
    assert prop.decode_properties(memoryview(data)) == properties
    assert prop.encode_properties({}) == b""
    assert prop.decode_properties(b"") == {}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\x01b", {"a": "b"}),  # the last separator may be missing
        (b"a\x01b\x02", {"a": "b"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"\x01b\x02a\x01\x02c", {}),  # no name, no value, no separator
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01b\x02a\x01c\x02", {"a": "c"}),  # the last one counts
        (b"a\x01\xff\xfe\x02", {"a": "\ufffd\ufffd"}),
        (b"a\x01\x00\x02", {"a": "\x00"}),
    ],
)
def test_reading_as_upstream_does(data: bytes, expected: dict[str, str]) -> None:
    assert prop.decode_properties(data) == expected
