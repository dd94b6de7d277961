"""Property strings: names and values between control characters."""

from __future__ import annotations

from fuzz import corpus
from fuzz.outcome import size_class
from roquet.model.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    decode_properties,
    encode_properties,
)

TOKENS = (
    b"\x01",
    b"\x02",
    b"\x01\x02",
    b"\x02\x01",
    b"\x01\x01",
    b"KEYS\x01",
    b"TAGS\x01",
    b"UNIQ_KEY\x01",
    b"DELAY\x0118\x02",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\x00",
)


def seeds() -> list[bytes]:
    """Properties of messages that were sent."""
    return corpus.properties()


def fuzz_one(data: bytes) -> str:
    """Any bytes are read; what was read holds no separators and comes back the same."""
    properties = decode_properties(data)
    assert decode_properties(memoryview(data)) == properties
    for name, value in properties.items():
        assert name
        assert value
        assert NAME_VALUE_SEPARATOR not in name
        assert PROPERTY_SEPARATOR not in name + value
    assert decode_properties(encode_properties(properties)) == properties
    return f"{size_class(len(properties))} of {size_class(len(data))}"
