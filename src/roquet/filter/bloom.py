"""The bloom filter in extended queue entries, which tells which groups may want a message.

Owns upstream's choice of bits: a group's name is hashed once by Murmur3 (128 bits, of which the
first 64 count), and its two 32-bit halves are combined into one position per hash function. The
bits are written to disk with each message, so they must be upstream's exactly.

Layout of the bits: bit ``n`` is bit ``n % 8``, counted from the lowest, of byte ``n // 8``.

Follows upstream's BloomFilter, BloomFilterData and BitsArray.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from msgspec import Struct

from roquet.errors import ConfigError

__all__ = ["BitsArray", "BloomFilter", "BloomFilterData"]

_ERROR_PERCENT_MAX: Final = 99
_UINT32_MAX: Final = (1 << 32) - 1
_UINT64_MAX: Final = (1 << 64) - 1

_FACTOR_1: Final = 0x87C37B91114253D5
_FACTOR_2: Final = 0x4CF5AD432745937F
_BLOCK: Final = struct.Struct("<QQ")


class BloomFilterData(Struct, frozen=True, rename="camel"):
    """The bits of one group, as ``consumerFilter.json`` keeps them.

    Attributes:
        bit_pos: The positions of the bits.
        bit_num: How many bits the filter has.
    """

    bit_pos: tuple[int, ...] | None = None
    bit_num: int = 0


class BitsArray:
    r"""An array of single bits.

    Args:
        data: The bytes that hold them; they are copied.

    Example:
        >>> bits = BitsArray.of_length(12)
        >>> bits.set(9)
        >>> bits.get(9), bits.get(1), bytes(bits)
        (True, False, b'\x00\x02')
    """

    __slots__ = ("_bytes", "bit_length")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._bytes = bytearray(data)
        self.bit_length = 8 * len(self._bytes)

    @classmethod
    def of_length(cls, bit_length: int) -> BitsArray:
        """An array of ``bit_length`` bits, none of them set."""
        bits = cls(bytes((bit_length + 7) // 8))
        bits.bit_length = bit_length
        return bits

    def __bytes__(self) -> bytes:
        return bytes(self._bytes)

    def get(self, position: int) -> bool:
        """Whether a bit is set."""
        assert 0 <= position < self.bit_length
        return self._bytes[position >> 3] >> (position & 7) & 1 == 1

    def set(self, position: int) -> None:
        """Set a bit."""
        assert 0 <= position < self.bit_length
        self._bytes[position >> 3] |= 1 << (position & 7)

    def add(self, data: BloomFilterData) -> None:
        """Set the bits of a name, made for an array of this length."""
        assert data.bit_num == self.bit_length
        for position in data.bit_pos or ():
            self.set(position)


class BloomFilter:
    """Chooses bits for names, and checks whether those of a name are set.

    Args:
        error_percent: The false positive rate in percent.
        expected_count: Up to how many names that rate holds.

    Attributes:
        hash_count: Bits for each name.
        bit_count: Bits altogether, a multiple of eight.

    Raises:
        ConfigError: The arguments are out of range.

    Example:
        >>> bloom = BloomFilter(error_percent=20, expected_count=32)
        >>> bloom.hash_count, bloom.bit_count
        (3, 112)
        >>> bits = BitsArray.of_length(bloom.bit_count)
        >>> bits.add(bloom.generate("group#topic"))
        >>> bloom.is_hit(bloom.generate("group#topic"), bits)
        True
    """

    __slots__ = ("bit_count", "error_percent", "expected_count", "hash_count")

    def __init__(self, *, error_percent: int, expected_count: int) -> None:
        if not 1 <= error_percent <= _ERROR_PERCENT_MAX:
            raise ConfigError(
                "f must be greater or equal than 1 and less than 100",
                detail=f"maxErrorRateOfBloomFilter is {error_percent}",
                hint="It is a percentage; the usual one is 20.",
            )
        if expected_count < 1:
            raise ConfigError(
                "n must be greater than 0",
                detail=f"expectConsumerNumUseFilter is {expected_count}",
            )
        self.error_percent = error_percent
        self.expected_count = expected_count
        error_rate = error_percent / 100.0
        self.hash_count = math.ceil(_logarithm(0.5, error_rate))
        bits = math.ceil(expected_count * _logarithm(2, 1 / error_rate) * _logarithm(2, math.e))
        self.bit_count = (bits + 7) // 8 * 8

    def positions(self, name: str) -> tuple[int, ...]:
        """The bits of a name; a bit may occur twice."""
        hash64 = murmur3_first_half(name.encode("utf-8", "replace"))
        low, high = hash64 & _UINT32_MAX, hash64 >> 32
        found = []
        for index in range(1, self.hash_count + 1):
            combined = low + index * high & _UINT32_MAX
            # If it is negative as a signed number, upstream flips all bits.
            if combined >> 31:
                combined ^= _UINT32_MAX
            found.append(combined % self.bit_count)
        return tuple(found)

    def generate(self, name: str) -> BloomFilterData:
        """The bits of a name, in the form that is stored."""
        return BloomFilterData(bit_pos=self.positions(name), bit_num=self.bit_count)

    def is_valid(self, data: BloomFilterData | None) -> bool:
        """Whether stored bits belong to a filter with these settings."""
        return (
            data is not None
            and data.bit_num == self.bit_count
            and data.bit_pos is not None
            and len(data.bit_pos) == self.hash_count
            and all(0 <= position < self.bit_count for position in data.bit_pos)
        )

    def is_hit(self, data: BloomFilterData, bits: BitsArray) -> bool:
        """Whether all bits of a name are set."""
        assert self.is_valid(data)
        assert bits.bit_length == self.bit_count
        return all(map(bits.get, data.bit_pos or ()))


def murmur3_first_half(data: bytes) -> int:
    """The first 64 bits of Murmur3's 128, with seed 0, as an unsigned number."""
    half_1 = half_2 = 0
    whole = len(data) & ~15
    for block_1, block_2 in _BLOCK.iter_unpack(data[:whole]):
        half_1 ^= _mixed_1(block_1)
        half_1 = _rotated(half_1, 27) + half_2 & _UINT64_MAX
        half_1 = half_1 * 5 + 0x52DCE729 & _UINT64_MAX
        half_2 ^= _mixed_2(block_2)
        half_2 = _rotated(half_2, 31) + half_1 & _UINT64_MAX
        half_2 = half_2 * 5 + 0x38495AB5 & _UINT64_MAX
    block_1, block_2 = _BLOCK.unpack(data[whole:].ljust(16, b"\0"))
    half_1 ^= _mixed_1(block_1) ^ len(data)
    half_2 ^= _mixed_2(block_2) ^ len(data)
    half_1 = half_1 + half_2 & _UINT64_MAX
    half_2 = half_2 + half_1 & _UINT64_MAX
    return _finished(half_1) + _finished(half_2) & _UINT64_MAX


def _mixed_1(block: int) -> int:
    return _rotated(block * _FACTOR_1 & _UINT64_MAX, 31) * _FACTOR_2 & _UINT64_MAX


def _mixed_2(block: int) -> int:
    return _rotated(block * _FACTOR_2 & _UINT64_MAX, 33) * _FACTOR_1 & _UINT64_MAX


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _UINT64_MAX


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _UINT64_MAX
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _UINT64_MAX
    return value ^ value >> 33


def _logarithm(base: float, value: float) -> float:
    return math.log(value) / math.log(base)
