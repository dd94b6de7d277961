"""JSON headers, and the typed headers behind them."""

from __future__ import annotations

from fuzz import corpus
from fuzz.outcome import size_class
from fuzz.typed_header import fuzz_header
from roquet.remoting.frame import SerializeType
from roquet.remoting.json_header import decode_json_header, encode_json_header

TOKENS = (
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"'",
    b'{"a":',
    b"[[[[",
    b"null",
    b"true",
    b"\\u0001",
    b"\\u0002",
    b"\\ud83d",
    b"\\ud83d\\ude00",
    b"\xff",
    b"\x00",
    b'"extFields":{',
    b'"extFields":null,',
    b'"code":',
    b'"opaque":',
    b'"flag":',
    b'"language":',
    b'"remark":',
    b'"version":',
    b"1.5",
    b"-0",
    b"//",
    b"/*",
    b"\xef\xbb\xbf",
)


def seeds() -> list[bytes]:
    """Real headers."""
    return corpus.headers(SerializeType.JSON)


def fuzz_one(data: bytes) -> str:
    """A header is refused as such, or is written and read back the same."""
    return fuzz_header(data, decode_json_header, encode_json_header) + str(size_class(len(data)))
