"""Tables that were long and have become short."""

from __future__ import annotations

import sys

import pytest

from roquet.runtime.tables import compacted


@pytest.mark.parametrize("length", [0, 1, 500, 10_000, 87_381, 87_382])
def test_a_table_that_only_grew_is_not_copied(length: int) -> None:
    table = dict.fromkeys(map(str, range(length)))
    assert compacted(table) is table


@pytest.mark.parametrize("left", [0, 1, 100])
def test_a_table_that_shrank_is_copied(left: int) -> None:
    table = {str(number): number for number in range(50_000)}
    for number in range(50_000 - left):
        del table[str(number)]
    small = compacted(table)
    assert list(small.items()) == list(table.items())
    assert sys.getsizeof(small) < 20_000


def test_a_table_that_lost_half_is_not_copied() -> None:
    table = {number: number for number in range(10_000)}
    for number in range(5_000):
        del table[number]
    assert compacted(table) is table
