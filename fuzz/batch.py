"""The bodies of batch sends."""

from __future__ import annotations

from fuzz import corpus
from fuzz.outcome import refused, size_class
from roquet.errors import ProtocolError
from roquet.format.batch import BATCH_ENTRY_BYTES_MIN, decode_batch, encode_batch

TOKENS = (
    bytes(20) + b"\x00\x00",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\x00\x00\x00\x16",
)


def seeds() -> list[bytes]:
    """Batches that were sent, and some of our own."""
    return [
        *corpus.batches(),
        encode_batch([(0, b"", b"")]),
        encode_batch([(1, b"body", b"KEYS\x01k\x02"), (0, b"x" * 300, b"")] * 3),
    ]


def fuzz_one(data: bytes) -> str:
    """A batch is refused, or its parts are parts of the body that can be written again."""
    try:
        entries = list(decode_batch(data))
    except ProtocolError as error:
        return refused(error)
    parts = [(entry.flag, bytes(entry.body), bytes(entry.properties)) for entry in entries]
    sizes = [BATCH_ENTRY_BYTES_MIN + len(body) + len(properties) for _, body, properties in parts]
    assert sum(sizes) == len(data)
    again = [
        (entry.flag, bytes(entry.body), bytes(entry.properties))
        for entry in decode_batch(memoryview(encode_batch(parts)))
    ]
    assert again == parts
    return f"{size_class(len(parts))} messages, longest {size_class(max(sizes, default=0))}"
