"""Changes inputs, a little or a lot, as a seeded random source says.

Owns the ways of changing. Most are those that find faults in readers of lengths and of nested
text: numbers at the edges of their type written at any position, parts repeated, cut out, moved and
spliced with parts of other inputs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

INPUT_BYTES_MAX = 1 << 16
CHANGES_MAX = 4

_EDGES = (0, 1, 2, 4, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_NUMBERS = (
    b"0",
    b"-1",
    b"2147483647",
    b"2147483648",
    b"-9223372036854775809",
    b"1e400",
    b"9" * 400,
)


class Mutator:
    """Changes inputs.

    Args:
        source: What decides.
        tokens: Bytes that mean something to the reader.
    """

    def __init__(self, source: random.Random, tokens: Sequence[bytes]) -> None:
        self._random = source
        self._tokens = tokens or (b"\x00",)
        self._ways = (
            self._flip,
            self._overwrite_length,
            self._overwrite_length,
            self._cut_out,
            self._cut_off,
            self._repeat,
            self._insert_noise,
            self._insert_token,
            self._insert_token,
            self._insert_number,
            self._splice,
            self._swap,
        )

    def change(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        """A changed copy, never longer than the limit."""
        changed = bytearray(data)
        other = self._random.choice(corpus)
        for _ in range(self._random.randint(1, CHANGES_MAX)):
            self._random.choice(self._ways)(changed, other)
        return bytes(changed[:INPUT_BYTES_MAX])

    def _place(self, data: bytearray) -> int:
        return self._random.randint(0, len(data))

    def _span(self, data: bytes | bytearray) -> slice[int, int, None]:
        start = self._random.randint(0, len(data))
        return slice(start, start + self._random.choice((1, 2, 4, 8, 16, 64, 256)))

    def _flip(self, data: bytearray, _: bytes) -> None:
        if data:
            data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)

    def _overwrite_length(self, data: bytearray, _: bytes) -> None:
        width = self._random.choice((1, 2, 4))
        edges = (*_EDGES, len(data), len(data) - 4, len(data) + 1)
        number = self._random.choice(edges) + self._random.choice((0, 0, 1, -1))
        place = self._place(data)
        mask = (1 << 8 * width) - 1
        data[place : place + width] = (number & mask).to_bytes(width, "big")

    def _cut_out(self, data: bytearray, _: bytes) -> None:
        del data[self._span(data)]

    def _cut_off(self, data: bytearray, _: bytes) -> None:
        del data[self._place(data) :]

    def _repeat(self, data: bytearray, _: bytes) -> None:
        span = self._span(data)
        count = self._random.choice((1, 2, 10, 100, 1_000))
        part = bytes(data[span])
        room = max(INPUT_BYTES_MAX - len(data), 0)
        data[span.start : span.start] = (part * count)[:room]

    def _insert_noise(self, data: bytearray, _: bytes) -> None:
        place = self._place(data)
        data[place:place] = self._random.randbytes(self._random.randint(1, 8))

    def _insert_token(self, data: bytearray, _: bytes) -> None:
        place = self._place(data)
        data[place : place + self._random.choice((0, 0, 1))] = self._random.choice(self._tokens)

    def _insert_number(self, data: bytearray, _: bytes) -> None:
        place = self._place(data)
        data[place : place + self._random.choice((0, 1))] = self._random.choice(_NUMBERS)

    def _splice(self, data: bytearray, other: bytes) -> None:
        data[self._span(data)] = other[self._span(other)]

    def _swap(self, data: bytearray, _: bytes) -> None:
        first, second = self._span(data), self._span(data)
        data[first], data[second] = data[second], data[first]
