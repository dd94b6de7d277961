"""The bits of groups; the interop tests show that they are upstream's."""

from __future__ import annotations

import msgspec
import pytest

from roquet.errors import ConfigError
from roquet.filter.bloom import BitsArray, BloomFilter, BloomFilterData, murmur3_first_half


@pytest.mark.parametrize(
    ("error_percent", "expected_count", "hash_count", "bit_count"),
    [(20, 32, 3, 112), (20, 64, 3, 216), (10, 128, 4, 616), (1, 1, 7, 16), (99, 1, 1, 8)],
)
def test_sizes(error_percent: int, expected_count: int, hash_count: int, bit_count: int) -> None:
    bloom = BloomFilter(error_percent=error_percent, expected_count=expected_count)
    assert (bloom.hash_count, bloom.bit_count) == (hash_count, bit_count)


@pytest.mark.parametrize(("error_percent", "expected_count"), [(0, 1), (100, 1), (20, 0)])
def test_invalid_sizes(error_percent: int, expected_count: int) -> None:
    with pytest.raises(ConfigError, match="must be greater"):
        BloomFilter(error_percent=error_percent, expected_count=expected_count)


def test_murmur3() -> None:
    # Known first halves of the 128-bit hash with seed 0.
    assert murmur3_first_half(b"") == 0
    assert murmur3_first_half(b"hello") == 0xCBD8A7B341BD9B02
    assert murmur3_first_half(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C


def test_added_values_are_hit_and_few_others() -> None:
    bloom = BloomFilter(error_percent=20, expected_count=32)
    bits = BitsArray.of_length(bloom.bit_count)
    added = [bloom.generate(f"group{number}#topic") for number in range(32)]
    for data in added:
        bits.add(data)
    assert all(bloom.is_hit(data, bits) for data in added)
    assert all(bloom.is_hit(data, BitsArray(bytes(bits))) for data in added)
    others = [bloom.generate(f"other{number}#topic") for number in range(1_000)]
    hits = sum(bloom.is_hit(data, bits) for data in others)
    assert 0 < hits < 300
    assert not any(bloom.is_hit(data, BitsArray.of_length(112)) for data in added)


@pytest.mark.parametrize(
    "data",
    [
        None,
        BloomFilterData(),
        BloomFilterData(bit_pos=(1, 2, 3), bit_num=216),
        BloomFilterData(bit_pos=(1, 2), bit_num=112),
        BloomFilterData(bit_pos=(1, 2, 112), bit_num=112),
        BloomFilterData(bit_pos=(1, 2, -1), bit_num=112),
    ],
)
def test_bits_of_another_filter_are_not_valid(data: BloomFilterData | None) -> None:
    bloom = BloomFilter(error_percent=20, expected_count=32)
    assert not bloom.is_valid(data)
    assert bloom.is_valid(bloom.generate("group#topic"))


def test_data_is_kept_under_upstreams_names() -> None:
    data = BloomFilterData(bit_pos=(3, 1, 2), bit_num=112)
    assert msgspec.json.encode(data) == b'{"bitPos":[3,1,2],"bitNum":112}'
    assert msgspec.json.decode(b'{"bitNum":112,"bitPos":[3,1,2]}', type=BloomFilterData) == data


def test_bits_count_from_the_lowest_of_each_byte() -> None:
    bits = BitsArray.of_length(12)
    for position in (0, 7, 9):
        bits.set(position)
    assert bytes(bits) == b"\x81\x02"
    assert [position for position in range(12) if bits.get(position)] == [0, 7, 9]
    copied = BitsArray(bytes(bits))
    copied.set(1)
    assert bytes(bits) == b"\x81\x02"
    assert copied.bit_length == 16
