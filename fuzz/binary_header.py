"""Headers in RocketMQ's binary form, and the typed headers behind them."""

from __future__ import annotations

from fuzz import corpus
from fuzz.outcome import size_class
from fuzz.typed_header import fuzz_header
from roquet.remoting.binary_header import decode_binary_header, encode_binary_header
from roquet.remoting.frame import SerializeType

TOKENS = (
    b"\x00\x01a\x00\x00\x00\x01b",
    b"\x00\x00\x00\x00\x00\x00",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff",
    b"\xed\xa0\xbd",
    b"\xc0\x80",
    b"\x00\x05topic",
    b"\x00\x07queueId",
)


def seeds() -> list[bytes]:
    """Real headers."""
    return corpus.headers(SerializeType.ROCKETMQ)


def fuzz_one(data: bytes) -> str:
    """A header is refused as such, or is written and read back the same."""
    return fuzz_header(data, decode_binary_header, encode_binary_header) + str(
        size_class(len(data))
    )
