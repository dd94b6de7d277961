"""JSON bodies of requests and responses, and the compressed body of a registration.

The first byte of an input selects how the rest is read.
"""

from __future__ import annotations

import zlib

from msgspec import Struct

from fuzz import corpus
from fuzz.json_header import TOKENS as JSON_TOKENS
from fuzz.outcome import refused, size_class
from roquet.errors import ProtocolError
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.register import decode_register_body
from roquet.remoting.bodies.table import REQUEST_BODIES, RESPONSE_BODIES

TOKENS = (
    *JSON_TOKENS,
    b'{{"brokerName":"b","queueId":0,"topic":"T"}:',
    b"NaN",
    b"{0:",
    b"\x78\x9c",
)

TYPES: list[type[Struct]] = list(
    dict.fromkeys([*REQUEST_BODIES.values(), *RESPONSE_BODIES.values()])
)
REGISTER = len(TYPES)
REGISTER_COMPRESSED = REGISTER + 1


def seeds() -> list[bytes]:
    """Bodies that were sent, each with the byte of its type."""
    found: list[bytes] = []
    for code, is_response, body in corpus.bodies():
        table = RESPONSE_BODIES if is_response else REQUEST_BODIES
        types = [body_type for each, body_type in table.items() if int(each) == code]
        found += [bytes([TYPES.index(types[0])]) + body] if types else []
    return [*found, bytes([REGISTER]) + b"\x00\x00\x00\x02{}", bytes([REGISTER_COMPRESSED]) + b"a"]


def fuzz_one(data: bytes) -> str:
    """A body is refused, or is written and read back the same."""
    kind, rest = (data[0] % (REGISTER_COMPRESSED + 1) if data else 0), data[1:]
    try:
        if kind >= REGISTER:
            packed = rest if kind == REGISTER else zlib.compress(rest, 1)
            decode_register_body(packed, compressed=True, broker_version=493)
            return f"registration {size_class(len(rest))}"
        body = decode_body(TYPES[kind], rest)
    except ProtocolError as error:
        return f"{kind} {refused(error)}"
    assert decode_body(TYPES[kind], encode_body(body)) == body
    return f"{TYPES[kind].__name__} {size_class(len(rest))}"
